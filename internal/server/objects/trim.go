// Trimming: events older than Config.KeepLog are removed from the logs; the state stays.

package objects

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
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
func (s *Server) trim(ctx context.Context) {
	s.trimLoop(ctx, s.cfg.KeepLog, s.cfg.Store.Trimmable, s.trimPiece)
}

func (s *Server) trimPiece(ctx context.Context, id string, keep time.Duration) (more bool, err error) {
	return s.cfg.Store.Trim(ctx, id, keep, trimEvents, trimBytes)
}

// trimDeleted is trim for the rows of deleted sessions after Config.KeepDeleted: the rest of their
// logs, their streams, and their refs except the owner's.
func (s *Server) trimDeleted(ctx context.Context) {
	s.trimLoop(ctx, s.cfg.KeepDeleted, s.cfg.Store.TrimmableDeleted, s.forgetPiece)
}

func (s *Server) forgetPiece(ctx context.Context, id string, keep time.Duration) (more bool, err error) {
	return s.cfg.Store.Forget(ctx, id, keep, trimEvents)
}

// findDue returns a page of the sessions that are due, and the id to continue after.
type findDue func(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)

// removePiece removes a part of one session's rows, and reports whether more is due.
type removePiece func(ctx context.Context, id string, keep time.Duration) (more bool, err error)

func (s *Server) trimLoop(ctx context.Context, keep time.Duration, find findDue, piece removePiece) {
	if keep > 0 {
		every(ctx, max(min(keep/20, maxTrimInterval), min(minTrimInterval, s.cfg.SweepInterval)), func() { s.trimAll(ctx, keep, find, piece) })
	}
}

// trimAll is one round over all sessions.
func (s *Server) trimAll(ctx context.Context, keep time.Duration, find findDue, piece removePiece) {
	after := ""
	for ctx.Err() == nil {
		ids, next, err := find(ctx, keep, after, trimPage)
		for _, id := range ids {
			if err = s.trimLog(ctx, id, keep, piece); err != nil {
				if ctx.Err() != nil || fault.CodeOf(err) != fault.Internal {
					break // not this session's fault
				}
				s.log.Warn("a log was not trimmed", "session", id, "error", err)
				err = nil
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				s.warn("logs were not trimmed", err)
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
func (s *Server) trimLog(ctx context.Context, id string, keep time.Duration, piece removePiece) error {
	for more := true; more && ctx.Err() == nil; {
		once, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
		var err error
		more, err = piece(once, id, keep)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
