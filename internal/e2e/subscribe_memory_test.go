//go:build !crash

package e2e

// What a subscriber that stops reading costs the server, measured by the quick
// tests alone.

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// A subscriber that stops reading costs the server a window and no more, holds up
// nobody, and sees everything when it goes on.
func TestSubscriberThatStopsReading(t *testing.T) { onBoth(t, stopReading) }

func stopReading(t *testing.T, db database) {
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
	s := view(t, openClientWith(t, client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir()), Offline: true}), ref)
	wake, stopped := make(chan struct{}), make(chan struct{})
	seen := make(chan error, 1)
	ctx := bounded(t)
	go func() {
		next := uint64(1 + total)
		seen <- s.Subscribe(ctx, client.SubscribeOptions{After: next - 1, WindowBytes: 1 << 20}, func(e client.Event) error {
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
	if grown > total*payload*3/4 { // what is not collected yet, of a slow machine, is up to a half
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
