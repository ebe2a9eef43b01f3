// Inputs of the hub: commits of other replicas, by notifications and by polling, and the expiry of
// refs with subscriptions.

package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/mooring-rpc/mooring/internal/periodic"
)

// listenPause is the pause before listening again after a failure.
const listenPause = time.Second

// Loops returns the loops; each runs until its context ends.
func (h *Hub) Loops() []func(context.Context) {
	return []func(context.Context){h.listen, h.pollAtIntervals, h.expireAtIntervals}
}

// listen forwards notifications of other replicas' commits to the fan-outs.
func (h *Hub) listen(ctx context.Context) {
	if h.cfg.IgnoreNotify {
		return
	}
	for ctx.Err() == nil {
		err := h.cfg.Store.Listen(ctx, func(id string, cursor uint64) {
			if id == "" { // some may have been missed: poll everything once
				h.pollOnce(ctx)
				return
			}
			h.Notify(id, cursor, 0)
		})
		if ctx.Err() != nil {
			return
		}
		h.cfg.Warn("listening ended", err)
		select {
		case <-ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

// pollAtIntervals reads the followed sessions' rows at intervals, which guarantees that no commit elsewhere
// stays unnoticed.
func (h *Hub) pollAtIntervals(ctx context.Context) {
	if h.cfg.PollInterval > 0 {
		periodic.Do(ctx, h.cfg.PollInterval, func() { h.pollOnce(ctx) })
	}
}

func (h *Hub) pollOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.ReadTimeout)
	defer cancel()
	if err := h.poll(ctx); err != nil && !errors.Is(err, context.Canceled) {
		h.cfg.Warn("polling failed", err)
	}
}

// expireInterval is the interval at which subscriptions are checked for expired refs.
const expireInterval = 500 * time.Millisecond

// expireAtIntervals ends subscriptions whose refs have expired.
func (h *Hub) expireAtIntervals(ctx context.Context) {
	periodic.Do(ctx, expireInterval, func() { h.expire(h.cfg.Now().UnixMilli()) })
}
