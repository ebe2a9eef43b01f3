//go:build unix

// Trimmed logs, from outside: who is above the log's start notices nothing, who
// is below is told so, and the state stays.

package node

import (
	"errors"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// untilBase waits until a session's log starts after base; look is called between.
func untilBase(t *testing.T, st Store, id string, base uint64, look func()) {
	t.Helper()
	deadline := time.After(patience)
	for {
		look()
		have := rowOf(t, st, id).Base
		if have == base {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the log starts after %d, want %d", have, base)
		case <-time.After(time.Millisecond):
		}
	}
}

// snapshotOf is a session's state as of a cursor.
func snapshotOf(t *testing.T, sess *rpc.Ref, at uint64) (*recorder, error) {
	t.Helper()
	k := newRecorder()
	sink := rpc.NewLocal(k)
	defer sink.Release()
	_, _, err := call(t, sess, methods.SessionSnapshot.Method, methods.SessionSnapshot.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
		wire.Session_snapshot_Params(s).SetAt(at)
		return caps.Set(s, 0, sink)
	})
	return k, err
}

func wantExpired(t *testing.T, label string, err error, first uint64) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.CursorExpired || f.At != first {
		t.Errorf("%s: %v, want cursor_expired at %d", label, err, first)
	}
}

func TestTrimmedLogIsFollowedFromItsStart(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		live, slow := newRecorder(), newRecorder()
		slow.hold = true
		defer p.subscribe(m.sess, live, 0).Release()
		tiny := p.subscribing(m.sess, slow, 0, 1, false) // has one event at a time
		defer tiny.Release()
		for n := range 20 {
			p.must(m.stream, m.batch(put(n)))
		}
		live.untilCursor(t, 21)
		slow.until(t, "its first event", func() bool { return len(slow.held) > 0 })
		before, err := snapshotOf(t, m.sess, 0)
		if err != nil {
			t.Fatal(err)
		}
		untilBase(t, st, m.id, 21, func() {
			for more, err := true, error(nil); more; {
				if more, err = st.Trim(t.Context(), m.id, time.Nanosecond, 500, 4<<20); err != nil {
					t.Fatal(err)
				}
			}
		})

		p.must(m.stream, m.batch(put(100), put(101)))
		live.untilCursor(t, 23)
		live.consecutive(t, 0)
		slow.free()
		slow.until(t, "its end", func() bool { return slow.ended != nil })
		wantExpired(t, "a subscriber that was overtaken", slow.ended, 22)

		_, _, err = p.subscribing(m.sess, newRecorder(), 20, 0, false).Wait(within(t))
		var ex *rpc.Exception
		if !errors.As(err, &ex) {
			t.Fatalf("subscribing from before the log's start: %v", err)
		}
		refused, _ := fault.ParseReason(ex.Reason)
		wantExpired(t, "subscribing from before the log's start", refused, 22)
		late := newRecorder()
		defer p.subscribe(m.sess, late, 21).Release()
		late.untilCursor(t, 23)
		late.consecutive(t, 21)

		for from, first := range map[uint64]uint64{0: 22, 20: 22, 21: 0, 22: 0} {
			s, _, err := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
				wire.Session_events_Params(s).SetFrom(from)
				return nil
			})
			if first > 0 {
				wantExpired(t, "events from before the log's start", err, first)
				continue
			}
			if err != nil {
				t.Fatalf("events after %d: %v", from, err)
			}
			if list, _ := wire.Session_events_Results(s).Events(); uint64(list.Len()) != 23-from || list.At(0).Cursor() != from+1 {
				t.Errorf("%d events after %d", list.Len(), from)
			}
		}

		for _, at := range []uint64{1, 20, 21, 22} {
			_, err := snapshotOf(t, m.sess, at)
			wantExpired(t, "an earlier state", err, 22)
		}
		for _, at := range []uint64{0, 23} {
			after, err := snapshotOf(t, m.sess, at)
			if err != nil || after.stateAt != 23 || len(after.keys) != len(before.keys)+2 {
				t.Fatalf("the state at %d: %v, %d entries", at, err, len(after.keys))
			}
			for key, payload := range before.keys {
				if after.keys[key] != payload {
					t.Errorf("%s is %s, was %s", key, after.keys[key], payload)
				}
			}
		}
	})
}

// TestSweeperTrimsUpToAnOpenTurn: the server by itself, with a turn under way.
func TestSweeperTrimsUpToAnOpenTurn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.KeepLog, c.SweepInterval = 50*time.Millisecond, 5*time.Millisecond })
		p := r.dial()
		m := r.create(p)
		p.must(m.stream, m.batch(op("put", "key", "session", "payload", map[string]string{"title": "kept"}), put(1)))
		streaming(p, m, "msg_9") // 4, 5, 6
		untilBase(t, st, m.id, 3, func() {})
		p.must(m.stream, m.batch(op("appendText", "key", "part/msg_9/prt_1", "offset", 5, "text", " again")))
		const text = `{"text":"hello again","type":"text"}`
		now, err := snapshotOf(t, m.sess, 0)
		if err != nil || now.stateAt != 7 || now.keys["part/msg_9/prt_1"] != text || now.keys["session"] != `{"title":"kept"}` {
			t.Fatalf("with the turn open: %v, %+v", err, now.keys)
		}
		ack := p.must(m.stream, m.batch(op("finalize", "message", "msg_9", "status", "completed")))
		if ack.applied != 1 {
			t.Fatalf("finalize: %+v", ack.outcomes)
		}
		untilBase(t, st, m.id, 8, func() {})
		if now, err = snapshotOf(t, m.sess, 0); err != nil || now.stateAt != 8 || now.keys["part/msg_9/prt_1"] != text {
			t.Errorf("after its end: %v, %+v", err, now.keys)
		}
		info, _ := describe(t, m.sess)
		if title, _ := info.Title(); title != "kept" || info.Base() != 8 || info.Cursor() != 8 {
			t.Errorf("described: %q, from %d to %d", title, info.Base(), info.Cursor())
		}
		if ack = p.must(m.stream, m.batch(put(2))); ack.cursor != 9 {
			t.Errorf("the next cursor is %d", ack.cursor)
		}
	})
}

// TestDeletedSessionsAreForgotten: all but their rows goes after a while, nothing of others
// does, and what comes again is not done again.
func TestDeletedSessionsAreForgotten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.KeepDeleted, c.SweepInterval = 50*time.Millisecond, 5*time.Millisecond })
		p := r.dial()
		lives, m := r.create(p), r.create(p)
		p.must(lives.stream, lives.batch(put(1)))
		last := m.batch(put(1), op("delete"))
		was := p.must(m.stream, last)
		if was.applied != 2 {
			t.Fatalf("deleting: %+v", was.outcomes)
		}
		untilBase(t, st, m.id, 3, func() {})
		own := session.FallbackStream(session.StreamKey{Session: m.id, Outbox: m.box.id}, [32]byte{}).Outbox // as an outbox of before may be called
		streams := []*rpc.Ref{m.stream, p.open(m.sess, m.box), p.open(m.sess, &box{id: own, secret: m.box.secret, incarnation: 1})}
		for _, stream := range streams { // which have heard of 5 more
			for label, b := range map[string]*ledger.Batch{"the same again": last, "more of it": m.batch(put(2), put(3))} {
				b.AckedThrough = b.Ops[0].Seq + 5
				for _, o := range p.must(stream, b).outcomes {
					if o.Status != ledger.Rejected || o.Reason != fault.SessionDeleted {
						t.Errorf("%s: %+v", label, o)
					}
				}
			}
		}
		if base := rowOf(t, st, lives.id).Base; base != 0 {
			t.Errorf("the log of another begins after %d", base)
		}
		if row := rowOf(t, st, m.id); row.Life != session.Deleted || row.Cursor != 3 || !row.Forgotten {
			t.Errorf("its row is %+v", row)
		}
	})
}
