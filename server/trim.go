// Trimming: events older than Config.KeepLog leave the logs, the state stays.

package server

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

const (
	minTrimInterval = time.Second      // between two rounds of trimming
	maxTrimInterval = 10 * time.Minute // between two rounds of trimming
	trimPage        = 500              // sessions looked at in one read
	trimEvents      = 500              // removed in one transaction
	trimBytes       = 4 << 20          // of payloads, in one transaction
)

// trim lets go of events older than Config.KeepLog, if it is set. Any number of
// replicas may: a piece is decided on and removed under its session's lock.
func (s *Server) trim(ctx context.Context) {
	s.trimLoop(ctx, s.cfg.KeepLog, s.cfg.Store.Trimmable, s.trimPiece)
}

func (s *Server) trimPiece(ctx context.Context, id string, keep time.Duration) (more bool, err error) {
	return s.cfg.Store.Trim(ctx, id, keep, trimEvents, trimBytes)
}

// trimDeleted is trim for what is left of deleted sessions after Config.KeepDeleted: the rest of
// their logs, their streams and their refs but for the owner's.
func (s *Server) trimDeleted(ctx context.Context) {
	s.trimLoop(ctx, s.cfg.KeepDeleted, s.cfg.Store.TrimmableDeleted, s.forgetPiece)
}

func (s *Server) forgetPiece(ctx context.Context, id string, keep time.Duration) (more bool, err error) {
	return s.cfg.Store.Forget(ctx, id, keep, trimEvents)
}

// findDue gives a page of the sessions that are due, and where to go on from.
type findDue func(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)

// removePiece removes a piece of one's, and says whether there is more to remove.
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
					break // it is not this session's fault
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

// trimLog trims one session's log, a piece at a time.
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
