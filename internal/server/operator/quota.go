// Quotas: exact measurements of sessions, where commits only estimate.

package operator

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/periodic"
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
func (o *Operator) measure(ctx context.Context) {
	o.measureAll(ctx)
	periodic.Do(ctx, o.cfg.SweepInterval, func() { o.measureAll(ctx) })
}

// measureAll is one round of measure.
func (o *Operator) measureAll(ctx context.Context) {
	for _, id := range o.measureQueue.next(o.cfg.Now(), o.cfg.MeasureInterval) {
		if _, ok := o.measureOne(ctx, id); !ok {
			return
		}
	}
	for ctx.Err() == nil {
		ids, err := o.cfg.Store.Unmeasured(ctx, measureChunk)
		if err != nil {
			o.warnNotMeasured(ctx, err)
			return
		}
		for _, id := range ids {
			bytes, ok := o.measureOne(ctx, id)
			if !ok {
				return
			}
			if quota := o.sessionBytes.Load(); quota > 0 && bytes > quota {
				o.cfg.Log.Warn("a session of before there were quotas holds more than its quota: what it holds is spared, and it may hold as much again as the quota",
					"session", id, "bytes", bytes, "quota", quota)
			}
		}
		if len(ids) < measureChunk {
			o.refreshAccounts(ctx)
			return
		}
	}
}

// measureOne measures one session; ok is false if the round is over, since the server is
// stopping or the database failed.
func (o *Operator) measureOne(ctx context.Context, id string) (bytes int64, ok bool) {
	if ctx.Err() != nil {
		return 0, false
	}
	once, cancel := o.commitContext()
	defer cancel()
	bytes, err := o.cfg.Store.Measure(once, id)
	if err != nil {
		o.warnNotMeasured(ctx, err)
	}
	return bytes, err == nil
}

func (o *Operator) warnNotMeasured(ctx context.Context, err error) {
	if ctx.Err() == nil && fault.CodeOf(err) != fault.Canceled {
		o.cfg.Outage.Warn("sessions were not measured", err)
	}
}
