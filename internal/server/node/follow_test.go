//go:build unix

// Following a session: every event once and in order, whatever the subscriber's
// speed, and nothing after its authority has ended.

package node

import (
	"errors"
	"fmt"
	"strings"
	"sync"
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

// revoking revokes at once: ref and its subtree, or, if it is "", the epoch.
func revoking(t *testing.T, sess *rpc.Ref, ref string) (cut, epoch uint64) {
	t.Helper()
	s, _, err := call(t, sess, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Session_revoke_Params(s).SetEpoch(ref == "")
		return wire.Session_revoke_Params(s).SetRef(ref)
	})
	if err != nil {
		t.Fatalf("revoke: %v", err)
	}
	r := wire.Session_revoke_Results(s)
	if r.HasRefusal() {
		refusal, _ := r.Refusal()
		t.Fatalf("revoke: %v", readRefusal(refusal))
	}
	return r.Cut(), r.Epoch()
}

func TestRevokeAgainstAStreamOfAppends(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		for _, how := range []string{"the ref", "the ref above it", "the epoch"} {
			t.Run(how, func(t *testing.T) { revokeUnderFire(t, r, how) })
		}
	})
}

// revokeUnderFire revokes a ref while its holder appends and follows as fast as
// it can.
func revokeUnderFire(t *testing.T, r *rig, how string) {
	owner := r.dialIn(t)
	m := r.create(owner)
	above := owner.share(m, "rights", []string{"read", "append", "share"})
	guest, writer := r.dialIn(t), newBox()
	parent := guest.restore(above)
	pm := &made{id: m.id, owner: m.owner, sess: parent, box: newBox()}
	pm.stream = guest.open(parent, pm.box)
	ref := guest.share(pm, "rights", []string{"read", "append"})

	held := guest.restore(ref)
	stream := guest.open(held, writer)
	k, all := newRecorder(), newRecorder()
	defer guest.subscribe(held, k, 0).Release()
	defer owner.subscribe(m.sess, all, 0).Release()

	const inFlight = 16
	var mu sync.Mutex
	var outcomes []ledger.Outcome
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		var flying []*rpc.Promise
		for n := 0; ; n++ {
			select {
			case <-stop:
			default:
				flying = append(flying, applying(t, stream, writer.batch(m.id, put(n))))
				if len(flying) < inFlight {
					continue
				}
			}
			if len(flying) == 0 {
				return
			}
			res, _, err := flying[0].Wait(within(t))
			if err != nil {
				t.Errorf("apply: %v", err)
				return
			}
			reply, _ := wire.Stream_apply_Results(res).Reply()
			ack, err := reply.Ack()
			if err != nil || reply.Which() != wire.ApplyReply_Which_ack {
				t.Errorf("apply was refused: %v", err)
				return
			}
			list, _ := ack.Outcomes()
			o := list.At(0)
			mu.Lock()
			outcomes = append(outcomes, ledger.Outcome{Status: ledger.Status(o.Status()), Reason: fault.Code(o.Reason()), Cursor: o.Cursor()})
			mu.Unlock()
			flying = flying[1:]
		}
	}()
	k.until(t, "a hundred events", func() bool { return len(k.cursors) >= 100 })

	want := fault.Revoked
	var cut uint64
	switch how {
	case "the ref":
		cut, _ = revoking(t, m.sess, ref.ID)
	case "the ref above it":
		cut, _ = revoking(t, m.sess, above.ID)
	case "the epoch":
		want = fault.StaleEpoch
		var epoch uint64
		if cut, epoch = revoking(t, m.sess, ""); epoch != 2 {
			t.Errorf("the epoch is %d", epoch)
		}
	}
	// The owner goes on, so that there is something above the cut to leak.
	var last uint64
	for n := range 20 {
		last = owner.must(m.stream, m.batch(put(1000+n))).cursor
	}
	mu.Lock()
	seen := len(outcomes)
	mu.Unlock()
	k.until(t, "the end", func() bool { return k.ended != nil })
	close(stop)
	<-gone
	all.untilCursor(t, last)
	all.consecutive(t, 0)
	k.consecutive(t, 0)

	k.mu.Lock()
	if got := k.cursors[len(k.cursors)-1]; got > cut {
		t.Errorf("event %d was delivered above the cut at %d", got, cut)
	}
	if k.ended.Code != want {
		t.Errorf("the subscription ended with %v, want %s", k.ended, want)
	}
	k.mu.Unlock()
	denied := 0
	for i, o := range outcomes {
		switch {
		case o.Status == ledger.Applied && o.Cursor > cut:
			t.Errorf("op %d was applied at %d, above the cut at %d", i, o.Cursor, cut)
		case o.Status == ledger.Applied && denied > 0:
			t.Errorf("op %d was applied after a denial", i)
		case o.Status == ledger.Denied && o.Reason == want:
			denied++
		case o.Status != ledger.Applied:
			t.Errorf("op %d: %+v", i, o)
		}
	}
	t.Logf("cut at %d; %d of %d ops denied, %d answered before the revocation was", cut, denied, len(outcomes), seen)

	// Live capabilities fail with the reason, restored ones too.
	for label, sess := range map[string]*rpc.Ref{"live": held, "restored": guest.restore(ref)} {
		_, _, err := call(t, sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
		wantCode(t, label+", events", err, want)
		_, _, err = guest.subscribing(sess, newRecorder(), 0, 0, false).Wait(within(t))
		if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != want {
			t.Errorf("%s, subscribe: %v", label, err)
		}
		_, grant := describe(t, sess)
		if fault.Code(grant.Dead()) != want {
			t.Errorf("%s, described as %v", label, fault.Code(grant.Dead()))
		}
	}
}

func TestExpiryEndsASubscription(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		var k *recorder
		for life := time.Second; ; life *= 2 { // until it is long enough to subscribe
			ref := p.share(m, "rights", []string{"read"}, "expires_at", r.server.cfg.Now().Add(life).UnixMilli())
			k = newRecorder()
			sub := p.subscribing(p.restore(ref), k, 0, 0, false)
			defer sub.Release()
			_, _, err := sub.Wait(within(t))
			if err == nil {
				break
			}
			if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.Expired || life > patience {
				t.Fatal(err)
			}
		}
		k.untilCursor(t, 2)
		k.until(t, "the end", func() bool { return k.ended != nil }) // without any event
		if k.ended.Code != fault.Expired {
			t.Errorf("ended with %v", k.ended)
		}
	})
}

func TestSubscribeRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Subscriptions = 3 })
	p := r.dial()
	m := r.create(p)
	refused := func(sess *rpc.Ref, from uint64) error {
		_, _, err := p.subscribing(sess, newRecorder(), from, 0, false).Wait(within(t))
		if f, ok := fault.ParseReason(reasonOf(err)); ok {
			return f
		}
		return err
	}
	blind := p.restore(p.share(m, "rights", []string{"append"}))
	wantCode(t, "without read", refused(blind, 0), fault.MissingRight)
	wantCode(t, "beyond the log", refused(m.sess, 99), fault.ServerBehind)
	var subs []*rpc.Ref
	for range 3 {
		subs = append(subs, p.subscribe(m.sess, newRecorder(), 0))
	}
	wantCode(t, "a fourth on one connection", refused(m.sess, 0), fault.Overloaded)
	subs[0].Release() // letting go cancels
	deadline := time.Now().Add(patience)
	for {
		err := refused(m.sess, 0)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after one was cancelled: %v", err)
		}
	}
}

func TestFollowingFromACursorStillToCome(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	sess := p.restore(p.share(m, "rights", []string{"read"}, "from", 10)) // at cursor 2
	events, state := newRecorder(), newRecorder()
	defer p.subscribe(sess, events, 0).Release()
	promise := p.subscribing(sess, state, 0, 0, true)
	defer promise.Release()
	state.until(t, "the state", func() bool { return state.last })
	_, _, err := p.subscribing(sess, newRecorder(), 5, 0, false).Wait(within(t))
	if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.ServerBehind {
		t.Errorf("who has seen more than there is: %v", err)
	}
	// Both are looked at anew when authority changes, and are still to wait.
	p.share(m, "rights", []string{"append"})
	for n := range 10 {
		p.must(m.stream, m.batch(put(n)))
	}
	for label, k := range map[string]*recorder{"events": events, "state": state} {
		k.untilCursor(t, 13)
		k.consecutive(t, 9)
		k.mu.Lock()
		if k.ended != nil {
			t.Errorf("%s: ended with %v", label, k.ended)
		}
		k.mu.Unlock()
	}
}

func TestCancelledSubscriptionsAreForgotten(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	gone := r.dial()
	k := newRecorder()
	sub := p.subscribe(m.sess, k, 0)
	gone.subscribe(gone.restore(m.owner), newRecorder(), 0)
	if _, _, err := call(t, sub, methods.SubscriptionCancel.Method, methods.SubscriptionCancel.Params, nil); err != nil {
		t.Fatal(err)
	}
	gone.leave()
	deadline := time.After(patience)
	for followedSessions(r) > 0 {
		select {
		case <-deadline:
			t.Fatal("the topic is still there")
		case <-time.After(time.Millisecond):
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended != nil {
		t.Errorf("told %v, though it had left by itself", k.ended)
	}
}

func TestFailingSinkIsEnded(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	bad, good := newRecorder(), newRecorder()
	bad.fails = errors.New("no thanks")
	defer p.subscribe(m.sess, bad, 0).Release()
	defer p.subscribe(m.sess, good, 0).Release()
	bad.until(t, "the end", func() bool { return bad.ended != nil })
	p.must(m.stream, m.batch(put(1)))
	good.untilCursor(t, 2)
	good.consecutive(t, 0)
	if len(bad.cursors) != 1 || bad.ended.Code != fault.Canceled {
		t.Errorf("got %d events, ended with %v", len(bad.cursors), bad.ended)
	}
}

func TestSlowSubscriberIsBoundedAndCatchesUp(t *testing.T) {
	t.Parallel()
	onBoth(t, slowSubscriber)
}

func slowSubscriber(t *testing.T, st Store) {
	const window, size = 1 << 20, 4 << 10
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	slow, fast := newRecorder(), newRecorder()
	slow.hold = true
	promise := p.subscribing(m.sess, slow, 0, window, false)
	defer promise.Release()
	defer p.subscribe(m.sess, fast, 0).Release()
	filler := strings.Repeat("x", size)
	for n := range 200 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]string{"x": filler})))
	}
	fast.untilCursor(t, 201)
	slow.mu.Lock()
	got, calls := slow.bytes, len(slow.held)
	slow.mu.Unlock()
	if got == 0 || got > 64<<10+size {
		t.Errorf("%d bytes are under way to who has taken none, the window is %d", got, window)
	}
	t.Logf("%d bytes in %d calls under way", got, calls)
	slow.free()
	slow.untilCursor(t, 201)
	slow.consecutive(t, 0)
}

func TestWindowsOfOneConnectionTogetherAreBounded(t *testing.T) {
	t.Parallel()
	const budget = 128 << 10
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.QueuedBytes = 2 * budget })
	p := r.dial()
	m := r.create(p)
	filler := strings.Repeat("x", 8<<10)
	for n := range 40 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]string{"x": filler})))
	}
	slow := r.dial()
	sess := slow.restore(m.owner)
	var all []*recorder
	for range 8 {
		k := newRecorder()
		k.hold = true
		all = append(all, k)
		promise := slow.subscribing(sess, k, 0, 1<<20, false)
		if _, _, err := promise.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
		defer promise.Release()
	}
	total := func() (n int) {
		for _, k := range all {
			k.mu.Lock()
			n += k.bytes
			k.mu.Unlock()
		}
		return n
	}
	all[0].until(t, "something", func() bool { return len(all[0].cursors) > 0 })
	if n := total(); n > budget+(300<<10) {
		t.Errorf("%d bytes under way on a connection that may have %d", n, budget)
	}
	for _, k := range all {
		k.free()
	}
	for _, k := range all {
		k.untilCursor(t, 41)
		k.consecutive(t, 0)
	}
}

// streaming begins a turn on m's stream, with a part that grows.
func streaming(p *peer, m *made, message string) *reply {
	return p.must(m.stream, m.batch(
		op("begin", "message", message, "payload", map[string]string{"role": "assistant"}),
		op("put", "key", "part/"+message+"/prt_1", "payload", map[string]string{"type": "text", "text": ""}),
		op("appendText", "key", "part/"+message+"/prt_1", "offset", 0, "text", "hello")))
}

func TestLapsedLeaseIsInterruptedAndResumed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.Session.Lease, c.SweepInterval = 200*time.Millisecond, 50*time.Millisecond })
		p := r.dial()
		m := r.create(p)
		k := newRecorder()
		defer p.subscribe(m.sess, k, 0).Release()
		if ack := streaming(p, m, "msg_1"); ack.applied != 3 {
			t.Fatalf("%+v", ack)
		}
		k.untilCursor(t, 5) // the sweeper's event, which no op made
		ack := p.must(m.stream, m.batch(op("appendText", "key", "part/msg_1/prt_1", "offset", 5, "text", " again")))
		if ack.applied != 1 || ack.cursor != 7 { // behind the event that says that the turn goes on
			t.Fatalf("resuming: %+v", ack.outcomes)
		}
		k.untilCursor(t, 7)
		k.consecutive(t, 0)
	})
}

func TestOnlyServerInterruptsAllWhenItStarts(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	first := start(t, st, nil)
	p := first.dial()
	m := first.create(p)
	streaming(p, m, "msg_1")
	first.stop()
	second := start(t, st, func(c *Config) { c.SoleServer = true })
	q := second.dial()
	k := newRecorder()
	defer q.subscribe(q.restore(m.owner), k, 4).Release()
	k.untilCursor(t, 5)
	if life := rowOf(t, st, m.id).Life; life != session.Live {
		t.Errorf("the session's life is %d", life)
	}
}

// followedSessions returns how many sessions somebody follows.
func followedSessions(r *rig) int {
	_, sessions, _, _ := r.server.hub.Followers()
	return sessions
}
