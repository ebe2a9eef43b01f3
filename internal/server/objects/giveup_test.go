//go:build unix

// Subscribers that leave without answering what they were sent.

package objects

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
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
	var l *connState
	var gone []*recorder
	for range 8 {
		k := newRecorder()
		k.hold = true
		gone = append(gone, k)
		promise := reader.subscribing(sess, k, 0, window, snapshot)
		k.until(t, "something", func() bool { return len(k.cursors)+len(k.pieces) > 0 })
		if l == nil {
			topic := r.server.hub.fanout(m.id)
			topic.mu.Lock()
			for s := range topic.subs {
				l = s.conn
			}
			topic.mu.Unlock()
		}
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
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.inFlight == 0
	})
}

func TestTheEndIsToldWhenThereIsRoomForIt(t *testing.T) {
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
	topic := r.server.hub.fanout(m.id)
	revoking(t, m.sess, ends.ID)
	deadline := time.After(patience)
	for following := 2; following > 1; {
		select {
		case <-deadline:
			t.Fatal("the revoked subscription goes on")
		case <-time.After(time.Millisecond):
		}
		topic.mu.Lock()
		following = len(topic.subs)
		topic.mu.Unlock()
	}
	busy.free()
	quiet.until(t, "the end", func() bool { return quiet.ended != nil })
	if quiet.ended.Code != fault.Revoked {
		t.Errorf("ended with %v", quiet.ended)
	}
	busy.untilCursor(t, 4)
}
