// Inputs of the hub: commits of other replicas, by notifications and by polling, and the expiry of
// refs with subscriptions.

package objects

import (
	"context"
	"errors"
	"time"
)

// listenPause is the pause before listening again after a failure.
const listenPause = time.Second

// listen forwards notifications of other replicas' commits to the hub.
func (s *Server) listen(ctx context.Context) {
	if s.cfg.IgnoreNotify {
		return
	}
	for ctx.Err() == nil {
		err := s.cfg.Store.Listen(ctx, func(id string, cursor uint64) {
			if id == "" { // some may have been missed: poll everything once
				s.pollOnce(ctx)
				return
			}
			s.hub.notify(id, cursor, 0)
		})
		if ctx.Err() != nil {
			return
		}
		s.warn("listening ended", err)
		select {
		case <-ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

// poll reads the followed sessions' rows at intervals, which guarantees that no commit elsewhere
// stays unnoticed.
func (s *Server) poll(ctx context.Context) {
	if s.cfg.PollInterval > 0 {
		every(ctx, s.cfg.PollInterval, func() { s.pollOnce(ctx) })
	}
}

func (s *Server) pollOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	if err := s.hub.poll(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.warn("polling failed", err)
	}
}

// expireInterval is the interval at which subscriptions are checked for expired refs.
const expireInterval = 500 * time.Millisecond

// expire ends subscriptions whose refs have expired.
func (s *Server) expire(ctx context.Context) {
	every(ctx, expireInterval, func() { s.hub.expire(s.now().UnixMilli()) })
}
