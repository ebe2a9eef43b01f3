// News for the hub: what other replicas commit, by notifications and by polling, and
// refs that expire while somebody follows under them.

package server

import (
	"context"
	"errors"
	"time"
)

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

// poll looks at the followed sessions' rows from time to time: what makes sure
// that nothing committed elsewhere stays unseen.
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

// expireInterval is how often subscriptions are looked over for expired refs.
const expireInterval = 500 * time.Millisecond

// expire ends subscriptions whose refs have run out.
func (s *Server) expire(ctx context.Context) {
	every(ctx, expireInterval, func() { s.hub.expire(s.now().UnixMilli()) })
}
