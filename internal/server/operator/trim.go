// Trimming: events older than Config.KeepLog are removed from the logs; the state stays.

package operator

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/periodic"
)

const (
	minTrimInterval = time.Second      // shortest pause between two rounds
	maxTrimInterval = 10 * time.Minute // longest pause between two rounds
	trimPage        = 500              // sessions checked in one read
	trimEvents      = 500              // removed in one transaction
	trimBytes       = 4 << 20          // of payloads, in one transaction
)

// trim removes events older than Config.KeepLog, if it is set. Any number of replicas may run it:
// a part of a log is chosen and removed under its session's lock.
func (o *Operator) trim(ctx context.Context) {
	o.trimLoop(ctx, o.cfg.KeepLog, o.cfg.Store.Trimmable, o.trimPiece)
}

func (o *Operator) trimPiece(ctx context.Context, id string, keep time.Duration) (more bool, err error) {
	return o.cfg.Store.Trim(ctx, id, keep, trimEvents, trimBytes)
}

// trimDeleted is trim for the rows of deleted sessions after Config.KeepDeleted: the rest of their
// logs, their streams, and their refs except the owner's.
func (o *Operator) trimDeleted(ctx context.Context) {
	o.trimLoop(ctx, o.cfg.KeepDeleted, o.cfg.Store.TrimmableDeleted, o.forgetPiece)
}

func (o *Operator) forgetPiece(ctx context.Context, id string, keep time.Duration) (more bool, err error) {
	return o.cfg.Store.Forget(ctx, id, keep, trimEvents)
}

// findDue returns a page of the sessions that are due, and the id to continue after.
type findDue func(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)

// removePiece removes a part of one session's rows, and reports whether more is due.
type removePiece func(ctx context.Context, id string, keep time.Duration) (more bool, err error)

func (o *Operator) trimLoop(ctx context.Context, keep time.Duration, find findDue, piece removePiece) {
	if keep > 0 {
		periodic.Do(ctx, max(min(keep/20, maxTrimInterval), min(minTrimInterval, o.cfg.SweepInterval)), func() { o.trimAll(ctx, keep, find, piece) })
	}
}

// trimAll is one round over all sessions.
func (o *Operator) trimAll(ctx context.Context, keep time.Duration, find findDue, piece removePiece) {
	after := ""
	for ctx.Err() == nil {
		ids, next, err := find(ctx, keep, after, trimPage)
		for _, id := range ids {
			if err = o.trimLog(ctx, id, keep, piece); err != nil {
				if ctx.Err() != nil || fault.CodeOf(err) != fault.Internal {
					break // not this session's fault
				}
				o.cfg.Log.Warn("a log was not trimmed", "session", id, "error", err)
				err = nil
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				o.cfg.Outage.Warn("logs were not trimmed", err)
			}
			return
		}
		if next == "" {
			return
		}
		after = next
	}
}

// trimLog trims one session's log, a part at a time.
func (o *Operator) trimLog(ctx context.Context, id string, keep time.Duration, piece removePiece) error {
	for more := true; more && ctx.Err() == nil; {
		once, cancel := context.WithTimeout(ctx, o.cfg.CommitTimeout)
		var err error
		more, err = piece(once, id, keep)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
