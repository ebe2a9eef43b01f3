//go:build unix

// Subscriptions that find no room on their connection.

package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A subscriber whose connection takes no more is left alone for a while, however
// many deliveries it was to get.
func TestBusySubscriberIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const looks = 10
		begun, log, n := time.Now(), newLogged(), &noting{}
		for range 20 {
			log.append(300 << 10) // deliveries of one event, three in a window
		}
		n.err = func() error {
			if time.Since(begun) < looks*busyPause && log.reads < 1000 {
				return errBusy
			}
			return nil
		}
		h := hubOn(t, log)
		h.follow(t, log.grant("owner", ""), 0, n)
		time.Sleep(2 * looks * busyPause)
		synctest.Wait()
		if log.reads > 3*looks || n.at() != 21 {
			t.Errorf("the log was read %d times while the subscriber was busy for %d pauses; it is at %d of 21", log.reads, looks, n.at())
		}
	})
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
