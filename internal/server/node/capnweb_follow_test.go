//go:build unix

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
)

// subscribe has a session's events sent to k; the stub is the subscription.
func (w *webClient) subscribe(sess interface {
	Call(context.Context, string, ...any) *capnweb.Promise
}, k *webRecorder, options any) *capnweb.Stub {
	w.t.Helper()
	return w.give(sess, "subscribe", options, k).(*capnweb.Stub)
}

// What is appended over one wire is seen over the other, once and in order, and a
// subscriber that comes back goes on where it was.
func TestSubscribersOfBothWiresSeeTheSame(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p, w := r.dial(), r.dialWeb()
		m := r.create(p)
		b := newBox()
		stream := w.open(w.restore(m.owner), b)
		plain, web := newRecorder(), newWebRecorder()
		defer p.subscribe(m.sess, plain, 0).Release()
		follower := r.dialWeb()
		follower.subscribe(follower.restore(m.owner), web, 0)
		for n := range 10 {
			if n%2 == 0 {
				p.must(m.stream, m.batch(put(n), put(n+100)))
			} else {
				w.must(stream, b.batch(m.id, put(n)))
			}
		}
		const end = 1 + 5*2 + 5
		plain.untilCursor(t, end)
		web.untilCursor(t, end)
		plain.consecutive(t, 0)
		web.consecutive(t, 0)
		if !slices.Equal(plain.shown, web.shown) {
			t.Errorf("one was shown\n%q, the other\n%q", plain.shown, web.shown)
		}

		follower.leave()
		<-follower.conn.Done()
		w.must(stream, b.batch(m.id, put(77)))
		back, again := r.dialWeb(), newWebRecorder()
		back.subscribe(back.restore(m.owner), again, object{"from": end})
		again.untilCursor(t, end+1)
		p.must(m.stream, m.batch(put(78)))
		again.untilCursor(t, end+2)
		again.consecutive(t, end)

		state := newWebRecorder()
		back.subscribe(back.restore(m.owner), state, object{"snapshot": true, "windowBytes": 4096})
		state.until(t, "the state", func() bool { return state.last })
		if state.stateAt != end+2 || state.keys["message/msg_77"] != `{"n":77}` {
			t.Errorf("the state is of %d, with %q", state.stateAt, state.keys["message/msg_77"])
		}
	})
}

// A revocation ends the subscription with the reason, and nothing after the cut
// is sent, while appends go on.
func TestARevocationEndsWebSubscriptions(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p, w := r.dial(), r.dialWeb()
		for _, how := range []string{"ref", "epoch", "over the web"} {
			m := r.create(p)
			ref := p.share(m, "rights", []string{"read"})
			k := newWebRecorder()
			w.subscribe(w.restore(ref), k, 0)
			k.untilCursor(t, 2)
			appending := make(chan struct{})
			go func() {
				defer close(appending)
				for n := range 50 {
					p.must(m.stream, m.batch(put(n)))
				}
			}()
			k.untilCursor(t, 10)
			var cut uint64
			want := fault.Revoked
			switch how {
			case "ref":
				cut, _ = revoking(t, m.sess, ref.ID)
			case "epoch":
				cut, _ = revoking(t, m.sess, "")
				want = fault.StaleEpoch
			default:
				cut = number(w.give(w.restore(m.owner), "revoke", ref.ID).(object)["cut"])
			}
			k.until(t, "the end", func() bool { return k.ended != nil })
			<-appending
			k.mu.Lock()
			if k.ended.Code != want || k.ended.Message == "" {
				t.Errorf("%s: ended with %v", how, k.ended)
			}
			if last := k.cursors[len(k.cursors)-1]; last > cut {
				t.Errorf("%s: event %d was sent, the cut is at %d", how, last, cut)
			}
			k.mu.Unlock()
			k.consecutive(t, 0)
			_, err := w.ask(w.restore(ref), "events")
			wantCode(t, how, err, want)
		}
	})
}

// Who does not take what it is sent is sent little of its window, and catches up.
func TestASlowWebSubscriberIsBounded(t *testing.T) {
	t.Parallel()
	const window, size = 1 << 20, 4 << 10
	r := start(t, sqliteStore(t), nil)
	p, w := r.dial(), r.dialWeb()
	m := r.create(p)
	slow, fast := newWebRecorder(), newWebRecorder()
	slow.hold = true
	w.subscribe(w.restore(m.owner), slow, object{"windowBytes": window})
	w.subscribe(w.restore(m.owner), fast, 0) // over the same connection
	filler := strings.Repeat("x", size)
	for n := range 200 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]string{"x": filler})))
	}
	fast.untilCursor(t, 201)
	slow.mu.Lock()
	got := slow.bytes
	slow.mu.Unlock()
	if got == 0 || got > 64<<10+size {
		t.Errorf("%d bytes are under way to who has taken none, the window is %d", got, window)
	}
	slow.free()
	slow.untilCursor(t, 201)
	slow.consecutive(t, 0)
}

// A callback that fails ends its own subscription; one that is disposed of is
// forgotten, and so is all of a client that goes away.
func TestWebSubscriptionsLeaveNothing(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Subscriptions = 3 })
	p, w := r.dial(), r.dialWeb()
	m := r.create(p)
	sess := w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub)

	said := make(chan object, 10)
	w.give(sess, "subscribe", 0, func(call object) (any, error) {
		said <- call
		return nil, &capnweb.Error{Name: "Error", Message: "no thanks"}
	})
	if first := <-said; first["events"] == nil {
		t.Errorf("the first call is %v", first)
	}
	if last, _ := (<-said)["ended"].(object); last["name"] != "canceled" {
		t.Errorf("the last call is %v", last)
	}
	var subs []*capnweb.Promise
	for range 3 {
		sub := sess.Call(within(t), "subscribe", 0, newWebRecorder())
		if _, err := awaitWeb(t, sub); err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	_, err := w.ask(sess, "subscribe", 0, newWebRecorder())
	wantCode(t, "a fourth on one connection", err, fault.Overloaded)
	subs[0].Release() // disposing of it cancels
	until.True(t, "room for another", func() bool {
		_, err := w.ask(sess, "subscribe", 0, newWebRecorder())
		return err == nil
	})
	w.leave()
	<-w.conn.Done()
	until.True(t, "nothing to be left", func() bool { return r.subscriptions() == 0 && r.connections() == 1 })
	if open, sum, _, _ := r.server.capnweb.stats(); open != 0 || sum != (capnweb.Stats{}) {
		t.Errorf("%d connections with %+v are left", open, sum)
	}
}

// subscriptions is how many there are on the server.
func (r *rig) subscriptions() (n int) {
	n, _, _, _ = r.server.hub.Followers()
	return n
}

// A narrowed capability is used over the web like any other, dies with its ref,
// and proves nothing of the session that it is a view of.
func TestAnAttenuatedObjectOverTheWeb(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p, w := r.dial(), r.dialWeb()
	m := r.create(p)
	conversation(p, m)
	helper := p.share(m, "rights", []string{"read", "append"}, "actor", "owner/h")
	view := w.restore(helper).Call(within(t), "attenuate", object{"rights": []any{"read"}, "message": "m1", "actor": "owner/h/x"})
	k := newWebRecorder()
	w.subscribe(view, k, 0)
	at := rowOf(t, st(r), m.id).Cursor
	k.untilCursor(t, at)
	hidden := 0
	for _, text := range k.shown {
		if strings.Contains(text, "hidden") {
			hidden++
		} else if !strings.Contains(text, "/m1") || strings.Contains(text, "m11") {
			t.Errorf("the view shows %q", text)
		}
	}
	if hidden == 0 {
		t.Error("nothing is hidden")
	}
	for _, e := range w.give(view, "snapshot").(object)["entries"].([]any) {
		if key := e.(object)["key"].(string); !strings.Contains(key, "/m1") || strings.Contains(key, "m11") {
			t.Errorf("the state shows %s", key)
		}
	}
	_, err := w.ask(view, "attenuate", object{"rights": []any{"append"}})
	wantCode(t, "wider", err, fault.Widening)
	fork := &webMade{id: capability.SessionPrefix + newBox().id[len("obx_"):], box: newBox()}
	fork.owner = r.owner.New(fork.id)
	stream := w.open(w.restore(r.owner).Call(within(t), "create", fork.id, fork.owner.ID), fork.box)
	ack := w.must(stream, fork.batch(op("fork", "ref", fork.owner.ID, "hash", hashText(fork.owner.Secret), "source", m.id, "via", helper.ID)), view)
	if o := ack.outcomes[0]; o.Reason != fault.UnknownRef && o.Reason != fault.MissingRight {
		t.Errorf("a narrowed view proves its session: %+v", o)
	}
	revoking(t, m.sess, helper.ID)
	k.until(t, "the end", func() bool { return k.ended != nil })
	_, err = w.ask(view, "events")
	wantCode(t, "after its ref's end", err, fault.Revoked)
}

func st(r *rig) Store { return r.server.cfg.Store }

// A socket that nobody reads from holds no more than its windows, and nobody else up.
func TestAWebSocketThatIsNotReadIsBounded(t *testing.T) {
	t.Parallel()
	const budget = 1 << 20
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.QueuedBytes = 2 * budget })
	url := httpOf(t, r) + "/rpc"
	p := r.dial()
	m := r.create(p)
	deaf, err := capnweb.Dial(within(t), url, capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m.owner.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := deaf.Write(within(t), [][]byte{
		[]byte(`["push",["pipeline",0,["restore"],[` + string(text) + `]]]`),
		[]byte(`["push",["pipeline",1,["subscribe"],[{"windowBytes":8000000},["export",-1]]]]`),
		[]byte(`["push",["pipeline",1,["subscribe"],[{"windowBytes":8000000},["export",-2]]]]`),
	}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the subscriptions", func() bool { return r.subscriptions() == 2 })
	fast := newRecorder()
	defer p.subscribe(m.sess, fast, 0).Release()
	filler := strings.Repeat("x", 64<<10)
	for n := range 100 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]string{"x": filler})))
	}
	fast.untilCursor(t, 101)
	_, sum, total, _ := r.server.capnweb.stats()
	if sum.QueueBytes > 2*budget || total.bytesOut > 8<<20 {
		t.Errorf("%d bytes are queued, %d were written", sum.QueueBytes, total.bytesOut)
	}
	_ = deaf.Close(1000, "")
	until.True(t, "its end", func() bool { return r.subscriptions() == 1 && r.connections() == 1 })
}
