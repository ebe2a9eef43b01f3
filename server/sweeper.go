// What happens without anybody's call: leases lapse and refs expire here, old events
// are let go in trim.go, what is audited is written in usage_counter.go, and what other replicas
// commit is heard of in replicas.go.

package server

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mooring-rpc/mooring/session"
)

// every calls f at about the interval until ctx ends. Replicas spread out.
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

// jitter is about the interval.
func jitter(interval time.Duration) time.Duration {
	return interval - interval/10 + time.Duration(rand.Int64N(int64(interval)/5+1))
}

// sweep marks turns as interrupted whose leases lapsed. The only server of a
// database does so with all streaming turns when it starts, since nobody can
// hold their streams; of several, each takes what has lapsed. Refs that have
// expired are noted in the audit, and tokens of pages that have are removed.
func (s *Server) sweep(ctx context.Context) {
	s.interruptLapsed(ctx, s.cfg.SoleServer)
	s.auditExpired(ctx)
	every(ctx, s.cfg.SweepInterval, func() {
		s.interruptLapsed(ctx, false)
		s.auditExpired(ctx)
		s.collectTokens(ctx)
	})
}

// expiryChunk is how many refs are noted, or tokens collected, at once.
const expiryChunk = 100

func (s *Server) auditExpired(ctx context.Context) {
	s.inChunks(ctx, s.cfg.Store.AuditExpired, "expired refs were not noted")
}

// collectTokens removes the tokens of pages whose time is over.
func (s *Server) collectTokens(ctx context.Context) {
	s.inChunks(ctx, s.cfg.Store.CollectPageTokens, "tokens of pages were not collected")
}

// refreshTitles takes the titles that lists are sorted by: few at a time, so that no list has to,
// but all of them after an upgrade, for which it is a loop of its own.
func (s *Server) refreshTitles(ctx context.Context) {
	take := func() { s.inChunks(ctx, s.cfg.Store.RefreshTitles, "titles of sessions were not taken") }
	take()
	every(ctx, s.cfg.SweepInterval, take)
}

// inChunks does a part of what is due after the other; failed says in the log that one was not done.
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

// lapseChunk is how many sessions are locked at once for it.
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
	var told *session.Published
	err := s.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer recoverPanic(&err)
		told, err = session.Lapse(ctx, tx, ids, all)
		return err
	})
	if err == nil {
		published = told
	}
	return err
}
