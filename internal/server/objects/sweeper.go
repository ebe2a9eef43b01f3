// Sweeping: interrupting turns whose lease lapsed, and auditing expired refs. Old events are
// trimmed in trim.go, the audit is written in usage_counter.go, and other replicas' commits are
// noticed in replicas.go.

package objects

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
)

// every calls f at about the interval until ctx ends. The jitter spreads replicas.
func every(ctx context.Context, interval time.Duration, f func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(interval)):
			f()
		}
	}
}

// jitter returns interval, varied by up to a tenth.
func jitter(interval time.Duration) time.Duration {
	return interval - interval/10 + time.Duration(rand.Int64N(int64(interval)/5+1))
}

// sweep interrupts turns whose leases lapsed. The sole server of a database interrupts all
// streaming turns when it starts, since nobody can hold their streams; of several servers, each
// takes lapsed ones. It also audits expired refs, and removes expired page tokens.
func (s *Server) sweep(ctx context.Context) {
	s.interruptLapsed(ctx, s.cfg.SoleServer)
	s.auditExpired(ctx)
	every(ctx, s.cfg.SweepInterval, func() {
		s.interruptLapsed(ctx, false)
		s.auditExpired(ctx)
		s.collectTokens(ctx)
	})
}

// expiryChunk is how many refs are audited, or tokens removed, at once.
const expiryChunk = 100

func (s *Server) auditExpired(ctx context.Context) {
	s.inChunks(ctx, s.cfg.Store.AuditExpired, "expired refs were not noted")
}

// collectTokens removes expired page tokens.
func (s *Server) collectTokens(ctx context.Context) {
	s.inChunks(ctx, s.cfg.Store.CollectPageTokens, "tokens of pages were not collected")
}

// refreshTitles updates the sort keys of titles: a few at a time, so that no list has to, but all
// of them after an upgrade, for which it is a loop of its own.
func (s *Server) refreshTitles(ctx context.Context) {
	take := func() { s.inChunks(ctx, s.cfg.Store.RefreshTitles, "titles of sessions were not taken") }
	take()
	every(ctx, s.cfg.SweepInterval, take)
}

// inChunks calls do until no more is due; failed is the log message for an error, which ends it.
func (s *Server) inChunks(ctx context.Context, do func(context.Context, int) (more bool, err error), failed string) {
	for more := true; more && ctx.Err() == nil; {
		once, cancel := s.commitContext()
		var err error
		if more, err = do(once, expiryChunk); err != nil {
			s.warn(failed, err)
			more = false
		}
		cancel()
	}
}

// lapseChunk is how many sessions one transaction locks.
const lapseChunk = 100

func (s *Server) interruptLapsed(ctx context.Context, all bool) {
	before, after := int64(0), ""
	if all {
		before = math.MaxInt64
	}
	for ctx.Err() == nil {
		ids, err := s.cfg.Store.LapsedTurns(ctx, before, after, lapseChunk)
		if err == nil && len(ids) > 0 {
			err = s.interrupt(ids, all)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.warn("lapsed turns were not swept", err)
			}
			return
		}
		if len(ids) < lapseChunk {
			return
		}
		after = ids[len(ids)-1]
	}
}

func (s *Server) interrupt(ids []string, all bool) error {
	ctx, cancel := s.commitContext()
	defer cancel()
	var published *session.Published
	s.hub.beginCommit(ids)
	defer func() { s.hub.endCommit(ids, published) }()
	var lapsed *session.Published
	err := s.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer recoverPanic(&err)
		lapsed, err = session.Lapse(ctx, tx, ids, all)
		return err
	})
	if err == nil {
		published = lapsed
	}
	return err
}
