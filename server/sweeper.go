// What happens without anybody's call: leases lapse, refs expire, other
// replicas commit, old events are let go. What is audited is written by uses.go.

package server

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// every calls f at about the interval until ctx ends. Replicas spread out.
func every(ctx context.Context, interval time.Duration, f func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(spread(interval)):
			f()
		}
	}
}

// spread is about the interval.
func spread(interval time.Duration) time.Duration {
	return interval - interval/10 + time.Duration(rand.Int64N(int64(interval)/5+1))
}

// listenPause is how long to wait before listening again when it failed.
const listenPause = time.Second

// listen hears of other replicas' commits.
func (s *Server) listen(ctx context.Context) {
	if s.cfg.IgnoreNotify {
		return
	}
	for ctx.Err() == nil {
		err := s.cfg.Store.Listen(ctx, func(id string, cursor uint64) {
			if id == "" { // some may have been missed: look at everything once
				s.lookAround(ctx)
				return
			}
			s.hub.heard(id, cursor, 0)
		})
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("listening ended", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

// poll looks at the followed sessions' rows from time to time: what makes sure
// that nothing committed elsewhere stays unseen.
func (s *Server) poll(ctx context.Context) {
	if s.cfg.PollInterval > 0 {
		every(ctx, s.cfg.PollInterval, func() { s.lookAround(ctx) })
	}
}

func (s *Server) lookAround(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	if err := s.hub.poll(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("polling failed", "error", err)
	}
}

// expireInterval is how often subscriptions are looked over for expired refs.
const expireInterval = 500 * time.Millisecond

// expire ends subscriptions whose refs have run out.
func (s *Server) expire(ctx context.Context) {
	every(ctx, expireInterval, func() { s.hub.expire(s.now().UnixMilli()) })
}

// sweep marks turns as interrupted whose leases lapsed. The only server of a
// database does so with all streaming turns when it starts, since nobody can
// hold their streams; of several, each takes what has lapsed. Refs that have
// expired are noted in the audit.
func (s *Server) sweep(ctx context.Context) {
	s.lapse(ctx, s.cfg.Sole)
	s.noteExpired(ctx)
	every(ctx, s.cfg.SweepInterval, func() {
		s.lapse(ctx, false)
		s.noteExpired(ctx)
	})
}

// expiryChunk is how many refs are noted at once.
const expiryChunk = 100

func (s *Server) noteExpired(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		once, cancel := s.writing()
		var err error
		if more, err = s.cfg.Store.Expire(once, expiryChunk); err != nil {
			s.log.Warn("expired refs were not noted", "error", err)
			more = false
		}
		cancel()
	}
}

// lapseChunk is how many sessions are locked at once for it.
const lapseChunk = 100

func (s *Server) lapse(ctx context.Context, all bool) {
	before, after := int64(0), ""
	if all {
		before = math.MaxInt64
	}
	for ctx.Err() == nil {
		ids, err := s.cfg.Store.Lapsed(ctx, before, after, lapseChunk)
		if err == nil && len(ids) > 0 {
			err = s.interrupt(ids, all)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("lapsed turns were not swept", "error", err)
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
	ctx, cancel := s.writing()
	defer cancel()
	var published *session.Published
	s.hub.committing(ids)
	defer func() { s.hub.committed(ids, published) }()
	var told *session.Published
	err := s.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer recovered(&err)
		told, err = session.Lapse(ctx, tx, ids, all)
		return err
	})
	if err == nil {
		published = told
	}
	return err
}

const (
	trimLeast  = time.Second      // between two rounds of trimming
	trimMost   = 10 * time.Minute // between two rounds of trimming
	trimPage   = 500              // sessions looked at in one read
	trimEvents = 500              // removed in one transaction
	trimBytes  = 4 << 20          // of payloads, in one transaction
)

// trim lets go of events older than Config.KeepLog, if it is set. Any number of
// replicas may: a piece is decided on and removed under its session's lock.
func (s *Server) trim(ctx context.Context) {
	if s.cfg.KeepLog > 0 {
		every(ctx, max(min(s.cfg.KeepLog/20, trimMost), min(trimLeast, s.cfg.SweepInterval)), func() { s.trimAll(ctx, s.cfg.KeepLog) })
	}
}

// trimAll is one round over all sessions.
func (s *Server) trimAll(ctx context.Context, keep time.Duration) {
	after := ""
	for ctx.Err() == nil {
		ids, next, err := s.cfg.Store.Trimmable(ctx, keep, after, trimPage)
		for _, id := range ids {
			if err = s.trimLog(ctx, id, keep); err != nil {
				if ctx.Err() != nil || fault.CodeOf(err) != fault.Internal {
					break // it is not this session's fault
				}
				s.log.Warn("a log was not trimmed", "session", id, "error", err)
				err = nil
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("logs were not trimmed", "error", err)
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
func (s *Server) trimLog(ctx context.Context, id string, keep time.Duration) error {
	for more := true; more && ctx.Err() == nil; {
		once, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
		var err error
		more, err = s.cfg.Store.Trim(once, id, keep, trimEvents, trimBytes)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
