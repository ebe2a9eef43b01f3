// Transactions on one database.

package txn

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// DB runs transactions on one database. Its methods are safe for concurrent use.
type DB struct {
	Backend  dialect.Backend
	Locks    sessionLocks
	existing existingSessions
}

// NewDB returns a DB on a backend.
func NewDB(b dialect.Backend) *DB { return &DB{Backend: b} }

// Update runs fn once in one read-write transaction, and announces what it has appended. fn's error is returned unchanged.
func (d *DB) Update(ctx context.Context, fn func(*Tx) error) error {
	var t *Tx
	err := d.Backend.Update(ctx, func(r dialect.Runner) error {
		t = &Tx{Run: r, existing: &d.existing}
		return fn(t)
	})
	if t != nil {
		t.releaseBuffers()
	}
	if err == nil {
		d.existing.add(t.Prior)
		d.Backend.Announce(t.advanced)
	}
	return err
}

// Wrap adds the method's name to an error.
func Wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// CheckText refuses texts from a peer that a database would not store, or would not return
// unchanged.
func CheckText(texts ...string) error {
	for _, text := range texts {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fault.BadArgument.With("a name in the call is not UTF-8 text, or has a NUL in it")
		}
	}
	return nil
}
