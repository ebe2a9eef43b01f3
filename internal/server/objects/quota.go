// Quotas: exact measurements of sessions, where commits only estimate.

package objects

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

const (
	measureChunk    = 100  // never-measured sessions found at once
	maxMeasureQueue = 1000 // sessions that have met their quota
)

// measureQueue holds the sessions that have met a quota. Commits count a little too much where
// they replace values whose events were trimmed, so such a session is measured soon. It is safe
// for concurrent use.
type measureQueue struct {
	mu         sync.Mutex
	due        map[string]struct{}
	measuredAt map[string]time.Time
}

func newMeasureQueue() *measureQueue {
	return &measureQueue{due: map[string]struct{}{}, measuredAt: map[string]time.Time{}}
}

// add queues a session that has met its quota, or whose ref has.
func (q *measureQueue) add(session string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) < maxMeasureQueue {
		q.due[session] = struct{}{}
	}
}

// next returns the sessions to be measured, each at most once in the interval.
func (q *measureQueue) next(now time.Time, interval time.Duration) (ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.measuredAt, func(_ string, at time.Time) bool { return now.Sub(at) >= interval })
	for id := range q.due {
		if _, lately := q.measuredAt[id]; !lately {
			ids = append(ids, id)
			q.measuredAt[id] = now
		}
	}
	clear(q.due)
	return ids
}

// measure measures the sessions that have met their quota, and those older than quotas. It is a
// loop of its own: a large session takes a second.
func (s *Server) measure(ctx context.Context) {
	s.measureAll(ctx)
	every(ctx, s.cfg.SweepInterval, func() { s.measureAll(ctx) })
}

// measureAll is one round of measure.
func (s *Server) measureAll(ctx context.Context) {
	for _, id := range s.measureQueue.next(s.now(), s.cfg.MeasureInterval) {
		if _, ok := s.measureOne(ctx, id); !ok {
			return
		}
	}
	for ctx.Err() == nil {
		ids, err := s.cfg.Store.Unmeasured(ctx, measureChunk)
		if err != nil {
			s.warnNotMeasured(ctx, err)
			return
		}
		for _, id := range ids {
			bytes, ok := s.measureOne(ctx, id)
			if !ok {
				return
			}
			if quota := int64(s.liveConfig.Load().Session.Limits.SessionBytes); quota > 0 && bytes > quota {
				s.log.Warn("a session of before there were quotas holds more than its quota: what it holds is spared, and it may hold as much again as the quota",
					"session", id, "bytes", bytes, "quota", quota)
			}
		}
		if len(ids) < measureChunk {
			s.refreshAccounts(ctx)
			return
		}
	}
}

// measureOne measures one session; ok is false if the round is over, since the server is
// stopping or the database failed.
func (s *Server) measureOne(ctx context.Context, id string) (bytes int64, ok bool) {
	if ctx.Err() != nil {
		return 0, false
	}
	once, cancel := s.commitContext()
	defer cancel()
	bytes, err := s.cfg.Store.Measure(once, id)
	if err != nil {
		s.warnNotMeasured(ctx, err)
	}
	return bytes, err == nil
}

func (s *Server) warnNotMeasured(ctx context.Context, err error) {
	if ctx.Err() == nil && fault.CodeOf(err) != fault.Canceled {
		s.warn("sessions were not measured", err)
	}
}
