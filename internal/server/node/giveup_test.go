//go:build unix

// Subscribers that leave without answering what they were sent.

package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
)

func TestLeavingGivesBackWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	t.Run("events", func(t *testing.T) { t.Parallel(); leaveUnanswered(t, false) })
	t.Run("state", func(t *testing.T) { t.Parallel(); leaveUnanswered(t, true) })
}

func leaveUnanswered(t *testing.T, snapshot bool) {
	const window = 32 << 10
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.QueuedBytes = 4 * window }) // half may be under way
	p := r.dial()
	m := r.create(p)
	filler := strings.Repeat("x", 4<<10)
	for n := range 40 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]string{"x": filler})))
	}
	reader := r.dial()
	sess := reader.restore(m.owner)
	var gone []*recorder
	for range 8 {
		k := newRecorder()
		k.hold = true
		gone = append(gone, k)
		promise := reader.subscribing(sess, k, 0, window, snapshot)
		k.until(t, "something", func() bool { return len(k.cursors)+len(k.pieces) > 0 })
		promise.Release()
	}
	k := newRecorder()
	promise := reader.subscribing(sess, k, 0, window, snapshot)
	defer promise.Release()
	if snapshot {
		k.until(t, "the whole state", func() bool { return k.last })
	} else {
		k.untilCursor(t, 41)
		k.consecutive(t, 0)
	}

	// Answers that come after all must not give anything back again.
	for _, k := range gone {
		k.free()
	}
	again := reader.subscribing(sess, newRecorder(), 41, window, false)
	defer again.Release()
	if _, _, err := again.Wait(within(t)); err != nil { // comes behind the late answers
		t.Fatal(err)
	}
	until.True(t, "nothing is under way to subscribers that have taken all or left", func() bool {
		inFlight, _ := load(r)
		return inFlight == 0
	})
}

func TestEndIsSentWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.Questions = 1 })
	p, guest := r.dial(), r.dial()
	m := r.create(p)
	stays, ends := p.share(m, "rights", []string{"read"}), p.share(m, "rights", []string{"read"})
	busy, quiet := newRecorder(), newRecorder()
	busy.hold = true
	defer guest.subscribe(guest.restore(stays), busy, 0).Release()
	busy.until(t, "the one call there may be", func() bool { return len(busy.held) == 1 })
	defer guest.subscribe(guest.restore(ends), quiet, 3).Release()
	revoking(t, m.sess, ends.ID)
	deadline := time.After(patience)
	for following := 2; following > 1; {
		select {
		case <-deadline:
			t.Fatal("the revoked subscription goes on")
		case <-time.After(time.Millisecond):
		}
		following = r.subscriptions()
	}
	busy.free()
	quiet.until(t, "the end", func() bool { return quiet.ended != nil })
	if quiet.ended.Code != fault.Revoked {
		t.Errorf("ended with %v", quiet.ended)
	}
	busy.untilCursor(t, 4)
}

// countedReads counts how often the log is read.
type countedReads struct {
	Store
	reads atomic.Int64
}

func (c *countedReads) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	c.reads.Add(1)
	return c.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
}

func TestFullQueueIsWaitedForOnce(t *testing.T) {
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
	if _, waiting := load(r); waiting > subs {
		t.Errorf("%d wait for room, of %d subscriptions", waiting, subs)
	}
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

// load returns the bytes in flight to all subscriptions, and how many of these wait for room.
func load(r *rig) (inFlight, waiting int) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for _, l := range r.server.conns {
		bytes, n := l.Flow().Load()
		inFlight, waiting = inFlight+bytes, waiting+n
	}
	return inFlight, waiting
}
