package sqlstore

// Errors of a database, and the codes that callers get.

import (
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
)

// ErrUnique is returned by an INSERT whose key exists.
var ErrUnique = errors.New("outbox: key exists already")

// ErrFenced is returned by a sender's transaction that finds another incarnation.
var ErrFenced = fault.Fenced.With("another process has taken over this outbox's lease")

// ErrClosed is the error of calls on a closed Box.
var ErrClosed = fault.Canceled.With("the outbox is closed")

// ErrTxConflict is in the error of a transaction that the database rolled back to break a
// deadlock: as when one process drops a row while another takes the lease. Running it again is
// the remedy.
var ErrTxConflict = errors.New("outbox: rolled back in favour of another transaction")

// ErrFileDamaged is in the error that found the database itself damaged.
var ErrFileDamaged = errors.New("outbox: the database is damaged")

// SnapshotError is an error about several rows, from a function that Database.Read has run: Read runs
// the function again on one snapshot before it returns one.
type SnapshotError struct{ Err error }

func (e SnapshotError) Error() string { return e.Err.Error() }
func (e SnapshotError) Unwrap() error { return e.Err }

// AsCanceled gives a context's error its code.
func AsCanceled(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Canceled.Because(err, "given up before it was through")
	}
	return err
}

// WithCode gives every error a code, so that no method returns a bare driver error.
func WithCode(err error) error {
	var f *fault.Error
	var c fault.Code
	err = AsCanceled(err)
	switch {
	case err == nil, errors.As(err, &f), errors.As(err, &c):
		return err
	case errors.Is(err, ErrTxConflict):
		return fault.Unavailable.Because(err, "the outbox's database gave this up in favour of another transaction, again and again: try again")
	}
	return fault.Internal.Because(err, "the outbox's database failed: %v", err)
}
