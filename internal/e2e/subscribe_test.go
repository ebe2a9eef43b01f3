package e2e

// Subscribers: a hundred over links that are cut, and one that stops reading.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/session"
)

// errSeenAll ends a subscription that has seen what it was to see.
var errSeenAll = errors.New("seen all")

// follower is one subscription in this process. What it sees is checked as it comes.
type follower struct {
	cursor atomic.Uint64
	hash   session.Hash
	err    error // why it ended, or what was wrong
}

// run follows a session until cursor last.
func (f *follower) run(ctx context.Context, s *client.Session, last uint64) {
	f.err = s.Subscribe(ctx, client.SubscribeOptions{}, func(e client.Event) error {
		if want := f.cursor.Load() + 1; e.Cursor != want {
			return fmt.Errorf("got cursor %d, want %d", e.Cursor, want)
		}
		had := stored(&e)
		if h := session.HashEvent(f.hash, &had); h != had.Hash {
			return fmt.Errorf("the event at cursor %d is not the one that was written", e.Cursor)
		}
		f.hash = had.Hash
		f.cursor.Store(e.Cursor)
		if e.Cursor == last {
			return errSeenAll
		}
		return nil
	})
}

func TestHundredSubscribersOverCutLinks(t *testing.T) {
	t.Parallel()
	hundredSubscribers(t, onSQLite) // on Postgres: subscribe_slow_test.go
}

func hundredSubscribers(t *testing.T, db database) {
	t.Helper()
	srv := startServer(t, serverConfig{URL: db.url(t)})
	ref := makeSession(t, srv)
	w := newWriter(t, ref, srv.owner())
	const (
		clients, each          = 20, 5
		rounds, inRound, inOne = 5, 8, 10 // cuts of each link, batches between them, ops in one
		last                   = 1 + rounds*inRound*inOne
	)
	ctx := bounded(t)
	var all sync.WaitGroup
	followers := make([]follower, clients*each)
	var proxies []*faultproxy.Proxy
	for i := range clients {
		proxy, err := faultproxy.Listen(srv.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		proxies = append(proxies, proxy)
		through := ref
		through.Hosts = []string{proxy.Addr()}
		s := view(t, openClientWith(t, client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir()), Offline: true}), through)
		for j := range each {
			all.Go(func() { followers[i*each+j].run(ctx, s, last) })
		}
	}
	armed := make(chan struct{})
	stream := w.steadily(rounds*inRound, func(i int) []planOp {
		if i%inRound == 0 {
			<-armed // so that each link has something to carry on which it is cut
		}
		var ops []planOp
		for j := range inOne {
			ops = append(ops, put(fmt.Sprintf("message/m%d", j), map[string]any{"n": i, "text": strings.Repeat("x", 200)}))
		}
		return ops
	})
	for round := range uint64(rounds) {
		eventually(t, "the subscribers are under way", func() bool {
			for i := range followers {
				if followers[i].cursor.Load() > round*inRound*inOne {
					return true
				}
			}
			return false
		})
		var cut []<-chan struct{}
		for i, p := range proxies {
			cut = append(cut, p.CutAfter(faultproxy.ToClient, int64(1+i*97)))
		}
		armed <- struct{}{}
		for i := range cut {
			select {
			case <-cut[i]:
			case <-ctx.Done():
				t.Fatalf("link %d was not cut in round %d", i, round)
			}
		}
	}
	w.wait(stream()...)
	all.Wait()
	for i := range followers {
		if !errors.Is(followers[i].err, errSeenAll) {
			t.Errorf("subscriber %d at cursor %d: %v", i, followers[i].cursor.Load(), followers[i].err)
		}
	}
}
