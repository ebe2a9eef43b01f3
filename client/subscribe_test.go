// Subscriptions that are given up must leave nothing behind on the connection
// that others go on using.

package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/rpc"
)

// heldLink keeps a delivery on the wire until told.
type heldLink struct {
	rpc.Transport

	mu   sync.Mutex
	skip int           // large batches that pass before one is held
	held func()        // called when one is; nil holds none
	pass chan struct{} // closed to let it go
}

// hold has the (skip+1)th large batch from now on held, and held called then.
// What it returns lets it go.
func (l *heldLink) hold(skip int, held func()) (pass func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	passing := make(chan struct{})
	l.skip, l.held, l.pass = skip, held, passing
	return func() { close(passing) }
}

func (l *heldLink) ReadBatch(ctx context.Context) ([]byte, error) {
	b, err := l.Transport.ReadBatch(ctx)
	if err != nil || len(b) < 1<<10 {
		return b, err
	}
	l.mu.Lock()
	held, pass := l.held, l.pass
	if l.skip--; l.skip >= 0 {
		held = nil
	}
	if held != nil {
		l.held = nil
	}
	l.mu.Unlock()
	if held != nil {
		held()
		select {
		case <-pass:
		case <-ctx.Done():
		}
	}
	return b, err
}

func TestGivenUpSubscriptionsLeaveTheOthersTheirShare(t *testing.T) {
	t.Parallel()
	const window = 16 << 10
	r := testRig(t, func(cfg *node.Config) {
		cfg.RPC.QueuedBytes = 4 * window // half of it may be under way
	})
	s := r.newSession(t, r.open(t, "writer"))
	const events = 80
	b := s.Batch()
	for i := range events {
		b.Put(message(i), object{"text": strings.Repeat("x", 1<<10)})
	}
	applied(t, b)

	link := &heldLink{}
	c := r.open(t, "reader", func(cfg *client.Config) {
		cfg.SetDial(func(ctx context.Context, url string) (rpc.Transport, error) {
			transport, err := rpc.Dial(ctx, url, rpc.DialOptions{})
			link.Transport = transport // there is one connection
			return link, err
		})
	})
	reader, err := c.Session(t.Context(), s.Ref())
	if err != nil {
		t.Fatal(err)
	}
	options := client.SubscribeOptions{WindowBytes: window}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 10 {
		briefly, giveUp := context.WithCancel(ctx)
		pass := link.hold(i%3, giveUp)
		err := reader.Subscribe(briefly, options, func(client.Event) error { return nil })
		pass()
		giveUp()
		if !errors.Is(err, fault.Canceled) || ctx.Err() != nil {
			t.Fatalf("subscription %d, given up: %v", i+1, err)
		}
	}
	last := uint64(0)
	for e, err := range reader.Follow(ctx, options) {
		if err != nil {
			t.Fatalf("after cursor %d: %v", last, err)
		}
		if e.Cursor != last+1 {
			t.Fatalf("cursor %d after %d", e.Cursor, last)
		}
		if last = e.Cursor; last == events+1 {
			break
		}
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		all := c.ConnStats()
		if len(all) != 1 {
			t.Fatalf("%d connections", len(all))
		}
		if all[0].Answers == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%d calls of the server are not answered", all[0].Answers)
		}
	}
}

// TestAHandlersErrorIsTheReason that a subscription ends with, also if its context ended meanwhile.
func TestAHandlersErrorIsTheReason(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	enough := errors.New("enough")
	err := s.Subscribe(ctx, client.SubscribeOptions{}, func(client.Event) error { cancel(); return enough })
	if !errors.Is(err, enough) {
		t.Errorf("it ended with %v", err)
	}
}
