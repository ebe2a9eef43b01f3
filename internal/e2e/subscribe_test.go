package e2e

// Subscribers: a hundred over links that are cut, and one that stops reading.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/session"
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
	f.err = s.Subscribe(ctx, client.SubscribeOptions{}, func(e session.Event) error {
		if want := f.cursor.Load() + 1; e.Cursor != want {
			return fmt.Errorf("got cursor %d, want %d", e.Cursor, want)
		}
		if h := session.Chain(f.hash, &e); h != e.Hash {
			return fmt.Errorf("the event at cursor %d is not the one that was written", e.Cursor)
		}
		f.hash = e.Hash
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
		clients, each  = 20, 5
		batches, inOne = 40, 10
		last           = 1 + batches*inOne
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
		s := view(t, openClientWith(t, client.Config{Home: t.TempDir(), Offline: true}), through)
		for j := range each {
			all.Go(func() { followers[i*each+j].run(ctx, s, last) })
		}
	}
	stream := w.steadily(batches, func(i int) []planOp {
		var ops []planOp
		for j := range inOne {
			ops = append(ops, put(fmt.Sprintf("message/m%d", j), map[string]any{"n": i, "text": strings.Repeat("x", 200)}))
		}
		return ops
	})
	for round := range 5 { // each link is cut each time, in the middle of something
		reached := uint64(1 + (round+1)*last/7)
		eventually(t, "the subscribers are under way", func() bool {
			for i := range followers {
				if followers[i].cursor.Load() >= reached {
					return true
				}
			}
			return false
		})
		for i, p := range proxies {
			p.CutAfter(faultproxy.ToClient, int64(1+i*97))
		}
	}
	w.wait(stream()...)
	all.Wait()
	cuts := 0
	for _, p := range proxies {
		cuts += p.Stats().Cuts
	}
	for i := range followers {
		if !errors.Is(followers[i].err, errSeenAll) {
			t.Errorf("subscriber %d at cursor %d: %v", i, followers[i].cursor.Load(), followers[i].err)
		}
	}
	if cuts < clients {
		t.Errorf("%d links were cut only", cuts)
	}
}

// A subscriber that stops reading costs the server a window and no more, holds up
// nobody, and sees everything when it goes on.
func TestSubscriberThatStopsReading(t *testing.T) {
	t.Parallel()
	stopReading(t, onPostgres) // on SQLite: subscribe_slow_test.go
}

func stopReading(t *testing.T, db database) {
	t.Helper()
	// A collector that collects often, so that what is held shows.
	srv := startServer(t, serverConfig{URL: db.url(t), Wrap: []string{"env", "GOGC=10"}})
	ref := makeSession(t, srv)
	w := newWriter(t, ref, srv.owner())
	const (
		total   = 12
		payload = 2 << 20 // 24 MiB each time
	)
	text := strings.Repeat("x", payload)
	write := func(n int) {
		for i := range n {
			w.must(put("message/m", map[string]any{"n": i, "text": text}))
		}
	}
	write(total) // the database's own caches are full after that
	s := view(t, openClientWith(t, client.Config{Home: t.TempDir(), Offline: true}), ref)
	wake, stopped := make(chan struct{}), make(chan struct{})
	seen := make(chan error, 1)
	ctx := bounded(t)
	go func() {
		next := uint64(1 + total)
		seen <- s.Subscribe(ctx, client.SubscribeOptions{After: next - 1, WindowBytes: 1 << 20}, func(e session.Event) error {
			if e.Cursor != next {
				return fmt.Errorf("got cursor %d, want %d", e.Cursor, next)
			}
			next++
			if e.Cursor == 1+total {
				close(stopped)
				<-wake
			}
			if e.Cursor == 1+2*total {
				return errSeenAll
			}
			return nil
		})
	}()
	if !within(patience, stopped) {
		t.Fatal("the subscriber saw nothing")
	}
	before := resident(t, srv)
	write(total)
	grown := resident(t, srv) - before
	t.Logf("the server grew by %d KiB while %d KiB went past a subscriber that did not read", grown>>10, total*payload>>10)
	if grown > 14<<20 {
		t.Errorf("the server grew by %d MiB beside a subscriber that does not read", grown>>20)
	}
	close(wake)
	if err := <-seen; !errors.Is(err, errSeenAll) {
		t.Errorf("the subscriber, when it went on: %v (%s)", err, fault.CodeOf(err))
	}
}

// resident is how much memory of its own the server's process holds.
func resident(t testing.TB, srv *server) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", srv.current().cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("the process's memory is not told")
	return 0
}
