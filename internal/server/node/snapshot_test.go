//go:build unix

// Snapshots of sessions that are larger than what goes out, or is held, at once, and
// of those that others keep waiting.

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestSnapshotOfManyTurns(t *testing.T) {
	t.Parallel()
	const window, turns = 16 << 10, 300
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.SendBytes, c.WindowBytes = 32<<10, window })
	p := r.dial()
	m := r.create(p)
	long := strings.Repeat("m", 100)
	var want []string
	for n := 0; n < turns; {
		var ops []ledger.Intent
		for range 50 {
			message := fmt.Sprintf("msg_%04d_%s", n, long)
			want = append(want, message)
			ops = append(ops, op("begin", "message", message, "payload", map[string]int{"n": n}),
				op("finalize", "message", message, "status", "completed"), op("remove", "key", "message/"+message))
			n++
		}
		if ack := p.must(m.stream, m.batch(ops...)); ack.rejected != 0 {
			t.Fatalf("%+v", ack.outcomes[slices.IndexFunc(ack.outcomes, func(o ledger.Outcome) bool { return o.Status != ledger.Applied })])
		}
	}
	at := p.must(m.stream, m.batch(put(1))).cursor
	for label, at := range map[string]uint64{"now": 0, "earlier": at - 1} {
		k, err := snapshotOf(t, m.sess, at)
		if err != nil {
			t.Errorf("%s: %v", label, err)
			continue
		}
		if !slices.Equal(k.turns, want) || len(k.keys) != 1-min(int(at), 1) || !k.last {
			t.Errorf("%s: %d turns and %d keys came, the last is %v", label, len(k.turns), len(k.keys), k.last)
		}
		if limit := slices.Max(k.pieces); limit > window/4/len(long)+1 {
			t.Errorf("%s: %d turns came at once", label, limit)
		}
	}
}

func TestSnapshotOfAnEarlierLargeState(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.FoldBytes = 64 << 10 })
	p := r.dial()
	filler := strings.Repeat("x", 8<<10)
	for label, keys := range map[string]int{"a small state of a long log": 2, "a large one": 40} {
		m := r.create(p)
		for n := range 40 {
			key := fmt.Sprintf("message/msg_%d", n%keys)
			p.must(m.stream, m.batch(op("put", "key", key, "payload", map[string]any{"x": filler, "n": n})))
		}
		k, err := snapshotOf(t, m.sess, 40)
		if keys == 2 && (err != nil || len(k.keys) != keys) {
			t.Errorf("%s: %v, %d keys", label, err, len(k.keys))
		} else if keys == 40 {
			wantCode(t, label, err, fault.TooLarge)
		}
		if k, err = snapshotOf(t, m.sess, 41); err != nil || len(k.keys) != keys {
			t.Errorf("%s, now: %v, %d keys", label, err, len(k.keys))
		}
	}
}

// Who asks for many snapshots and takes none keeps nobody else from one.
func TestSlowReaderLeavesOthersTheirSnapshots(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p, slow := r.dial(), r.dial()
	m := r.create(p)
	stalledSnapshot(slow, m)
	held := slow.restore(m.owner)
	for range 20 {
		k := newRecorder()
		k.hold = true
		defer slow.subscribing(held, k, 0, fanout.MinWindow, true).Release()
	}
	_, _ = describe(t, held) // by then all have been asked for
	k := newRecorder()
	defer p.subscribing(m.sess, k, 0, 0, true).Release()
	k.until(t, "another connection's snapshot", func() bool { return k.last })
	if _, err := snapshotOf(t, r.peerNamed(t, "192.0.2.7:1").restore(m.owner), 0); err != nil {
		t.Errorf("another address's: %v", err)
	}
}

// Who takes nothing has to leave its place while another waits for it, and is told so.
func TestSlowReaderLeavesItsPlace(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Snapshots = 1 })
	slow, p := r.dial(), r.dial()
	m := r.create(slow)
	k := stalledSnapshot(slow, m)
	if _, err := snapshotOf(t, p.restore(m.owner), 0); err != nil {
		t.Errorf("another's: %v", err)
	}
	k.until(t, "the slow one's end", func() bool { return k.ended != nil && k.ended.Code == fault.SlowConsumer })
}

// Who waits for a snapshot waits no longer than its connection lasts, of either wire,
// and the connection counts no longer than that.
func TestWaitingForASnapshotEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Snapshots = 1 })
	slow, q, w := r.dial(), r.dial(), r.dialWeb()
	m := r.create(slow)
	stalledSnapshot(slow, m)
	sess := q.restore(m.owner)
	for range 20 {
		q.subscribing(sess, newRecorder(), 0, 0, true)
	}
	_, _ = describe(t, sess) // by then all wait
	web := w.restore(m.owner)
	web.Call(within(t), "subscribe", object{"snapshot": true}, newWebRecorder())
	w.give(web, "info")
	q.leave()
	w.leave()
	until.True(t, "the connections are gone", func() bool { return r.connections() == 1 })
	until.True(t, "what they waited for is", func() bool {
		return r.subscriptions() == 1
	})
}

// defective is a store that panics when the state is read.
type defective struct{ Store }

func (defective) ReadState(context.Context, string, []string, int, func(*session.Access) session.Portion, func(*session.Unscoped[*session.StateChunk]) error) error {
	panic("a defect")
}

// rangeStore records which keys a snapshot reads.
type rangeStore struct {
	Store
	read chan []session.KeyRange
}

func (s rangeStore) ReadState(ctx context.Context, id string, refs []string, bytes int, portion func(*session.Access) session.Portion,
	piece func(*session.Unscoped[*session.StateChunk]) error) error {
	return s.Store.ReadState(ctx, id, refs, bytes, func(a *session.Access) session.Portion {
		want := portion(a)
		s.read <- want.Ranges
		return want
	}, piece)
}

// A snapshot reads the keys that are asked for and shown, not all that the session has.
func TestASnapshotReadsItsKeysAlone(t *testing.T) {
	t.Parallel()
	st := rangeStore{sqliteStore(t), make(chan []session.KeyRange, 1)}
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	parts := p.share(m, "rights", []string{"read"}, "read_keys", []string{"part/a/", "todo/1"})
	for _, c := range []struct {
		ref  capability.Ref
		keys []string
		want string
	}{
		{m.owner, nil, "'' to '\U0010ffff'"},
		{m.owner, []string{"todo/"}, "'todo/' to 'todo0'"},
		{parts, nil, "'part/a/' to 'part/a0', 'todo/1' to 'todo/1 '"},
		{parts, []string{"todo/"}, "'todo/1' to 'todo/1 '"},
		{parts, []string{"plan"}, ""},
	} {
		live, err := r.server.Caller(within(t), "192.0.2.1:1").Restore(c.ref, "")
		if err != nil {
			t.Fatal(err)
		}
		keys, refused := session.SelectKeys(c.keys)
		if refused != nil {
			t.Fatal(refused)
		}
		if _, err := live.Snapshot(within(t), fanout.Position{}, keys, false, func(*session.StateChunk) error { return nil }); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range <-st.read {
			got = append(got, fmt.Sprintf("'%s' to '%s'", r.From, r.Below))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("of %q under %s it reads %s, want %s", c.keys, c.ref.ID, text, c.want)
		}
	}
}

// A defect while a snapshot is sent ends that and nothing else, whichever way it is sent.
func TestDefectInASnapshotEndsThatAlone(t *testing.T) {
	t.Parallel()
	r := start(t, defective{sqliteStore(t)}, nil)
	p := r.dial()
	m := r.create(p)
	following := newRecorder()
	defer p.subscribe(m.sess, following, 0).Release()
	if _, err := snapshotOf(t, m.sess, 0); fault.CodeOf(err) != fault.Internal {
		t.Errorf("a snapshot: %v", err)
	}
	_, _, err := p.subscribing(m.sess, newRecorder(), 0, 0, true).Wait(within(t))
	if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.Internal {
		t.Errorf("a subscription with one: %v", err)
	}
	live, err := r.server.Caller(within(t), "192.0.2.1:1").Restore(m.owner, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = live.Snapshot(within(t), fanout.Position{}, nil, false, func(*session.StateChunk) error { return nil })
	wantCode(t, "a handler's", err, fault.Internal)
	following.untilCursor(t, p.must(m.stream, m.batch(put(1))).cursor)
}
