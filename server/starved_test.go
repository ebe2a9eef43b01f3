//go:build unix

// Subscriptions that find no room on their connection.

package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/session"
)

// countedReads counts how often the log is read.
type countedReads struct {
	Store
	reads atomic.Int64
}

func (c *countedReads) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string) (*session.Page, error) {
	c.reads.Add(1)
	return c.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs)
}

// linkOf is the connection's share of a session's only subscriber.
func linkOf(r *rig, session string) *link {
	topic := r.server.hub.topic(session)
	topic.mu.Lock()
	defer topic.mu.Unlock()
	for s := range topic.subs {
		return s.link
	}
	return nil
}

func TestWhoFindsNoRoomWaitsOnce(t *testing.T) {
	t.Parallel()
	const subs, commits, window = 6, 100, 32 << 10
	st := &countedReads{Store: sqliteStore(t)}
	r := start(t, st, func(c *Config) { c.RPC.QueuedBytes = 2 * window })
	p, stalled := r.dial(), r.dial()
	m := r.create(p)
	write := func(n int) uint64 {
		payload := map[string]string{"x": strings.Repeat("x", 4<<10)}
		return p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", payload))).cursor
	}
	for n := range 10 {
		write(n)
	}
	sess := stalled.restore(m.owner)
	var l *link
	var all []*recorder
	for range subs {
		k := newRecorder()
		k.hold = true
		all = append(all, k)
		promise := stalled.subscribing(sess, k, 0, window, false)
		defer promise.Release()
		if _, _, err := promise.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
		if l == nil {
			l = linkOf(r, m.id)
		}
	}
	healthy := newRecorder()
	defer p.subscribe(m.sess, healthy, 0).Release()
	healthy.untilCursor(t, 11)
	before := st.reads.Load()
	var last uint64
	for n := range commits {
		last = write(10 + n)
		healthy.untilCursor(t, last) // by then the others were looked at too
	}
	l.mu.Lock()
	if len(l.waiting) > subs {
		t.Errorf("%d wait for room, of %d subscriptions", len(l.waiting), subs)
	}
	l.mu.Unlock()
	if n := st.reads.Load() - before; n > commits/4 {
		t.Errorf("the log was read %d times during %d commits", n, commits)
	}
	for _, k := range all {
		k.free()
	}
	for _, k := range all {
		k.untilCursor(t, last)
		k.consecutive(t, 0)
	}
}
