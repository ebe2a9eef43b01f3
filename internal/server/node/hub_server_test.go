//go:build unix

// The hub of a running server, and the loops beside it.

package node

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestHubDeliversOnceAndInOrderWhateverItHears(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	st := sqliteStore(t)
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	h := r.server.hub
	var all []*recorder
	for i := range 8 {
		k := newRecorder()
		all = append(all, k)
		promise := p.subscribing(m.sess, k, 0, uint32(i%4)*8<<10, false)
		defer promise.Release()
	}

	const events = 120
	stop := make(chan struct{})
	var noise sync.WaitGroup
	for i := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		noise.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				found, err := st.ReadLog(t.Context(), m.id, 0, 1<<20, events+10, nil)
				if err != nil {
					t.Errorf("read log: %v", err)
					return
				}
				page := found.Shown(&capability.Grant{})
				switch rng.IntN(4) {
				case 0: // a notification, or a wrong one
					h.Notify(m.id, rng.Uint64N(events+20), 0)
				case 1: // a poll that was overtaken
					h.Notify(m.id, page.Row.Cursor, page.Row.AuthGen)
				default: // somebody's commit, told late or again
					n := len(page.Events)
					from := rng.IntN(n)
					to := from + 1 + rng.IntN(n-from)
					row := *page.Row
					row.Cursor = page.Events[to-1].Cursor
					published := &session.Published{Sessions: []session.PublishedSession{{Row: row, Events: session.NewUnscopedEvents(page.Events[from:to]), AuthChanged: rng.IntN(5) == 0}}}
					h.BeginCommit([]string{m.id})
					h.EndCommit([]string{m.id}, published)
				}
			}
		})
	}
	for n := 0; n < events; n += 3 {
		p.must(m.stream, m.batch(put(n), put(n+1), put(n+2)))
	}
	close(stop)
	noise.Wait()
	for _, k := range all {
		k.untilCursor(t, events+1)
		k.consecutive(t, 0)
	}
}

func TestLoopGoesOnAfterADefect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{log: DefaultConfig().Log}
		ctx, cancel := context.WithCancel(t.Context())
		rounds := 0
		s.runLoop(ctx, func(ctx context.Context) {
			periodic.Do(ctx, time.Second, func() {
				if rounds++; rounds == 5 {
					cancel()
				} else if rounds%2 == 0 {
					panic("a defect")
				}
			})
		})
		if rounds != 5 {
			t.Errorf("it has had %d rounds", rounds)
		}
	})
}
