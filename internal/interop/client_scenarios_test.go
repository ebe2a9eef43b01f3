// The scenarios of our vat as a client. Each begins on a fresh connection and must leave nothing behind.

package interop

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
	"github.com/mooring-rpc/mooring/rpc"
)

var clientScenarios = []struct {
	name string
	run  func(*client)
}{
	{"bootstrap", bootstrap},
	{"calls", calls},
	{"pipelining", pipelining},
	{"capabilities", capabilities},
	{"order", order},
	{"promises", promises},
	{"callbacks", callbacks},
	{"errors", failures},
	{"cancellation", cancellation},
	{"release", release},
	{"unknown", unknown},
	{"null", null},
	{"streaming", streaming},
}

// starter starts a foreign server, dialer connects to where it says it listens.
type (
	starter func(t *testing.T) *process
	dialer  func(t *testing.T, address string) rpc.Transport
)

// asClient runs all scenarios, each against a foreign server of its own.
func asClient(t *testing.T, start starter, dial dialer, fragile bool) {
	for _, s := range clientScenarios {
		t.Run(s.name, func(t *testing.T) {
			srv := start(t)
			c := connect(t, dial(t, srv.address(t)))
			c.fragile = fragile
			s.run(c)
			c.finish()
			srv.finish(t)
		})
	}
	asClientDisconnected(t, start, dial)
}

func bootstrap(c *client) {
	c.checkEcho("first", 1, nil)
	again := c.conn.Bootstrap(c.ctx)
	c.peer.Release()
	c.peer = again
	c.checkEcho("second", 2, nil)
}

// checkEcho calls echo and compares.
func (c *client) checkEcho(text string, number uint64, parts [][]byte) {
	c.t.Helper()
	c.checkEchoed(c.echo(text, number, parts), text, number, parts)
}

func (c *client) echo(text string, number uint64, parts [][]byte) *rpc.Promise {
	return c.peer.Call(c.ctx, peerEcho, words(1, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Peer_echo_Params(s)
		p.SetNumber(number)
		if err := p.SetText(text); err != nil {
			return err
		}
		list, err := p.NewParts(int32(len(parts)))
		for i := 0; err == nil && i < len(parts); i++ {
			err = list.Set(i, parts[i])
		}
		return err
	})
}

func (c *client) checkEchoed(p *rpc.Promise, text string, number uint64, parts [][]byte) {
	c.t.Helper()
	defer p.Release()
	s, _ := c.answer(p)
	r := wire.Peer_echo_Results(s)
	got, err := r.Text()
	if err != nil || got != text || r.Number() != number {
		c.t.Fatalf("got %q and %d, %v; want %q and %d", got, r.Number(), err, text, number)
	}
	list, err := r.Parts()
	if err != nil || list.Len() != len(parts) {
		c.t.Fatalf("got %d parts, %v; want %d", list.Len(), err, len(parts))
	}
	for i, want := range parts {
		if got, err := list.At(i); err != nil || !bytes.Equal(got, want) {
			c.t.Fatalf("part %d: got %d bytes, %v; want %d others", i, len(got), err, len(want))
		}
	}
}

// Many calls at once, and messages of several segments.
func calls(c *client) {
	var sent []*rpc.Promise
	for i := range uint64(300) {
		sent = append(sent, c.echo(fmt.Sprint("call ", i), i, nil))
	}
	for i, p := range sent {
		c.checkEchoed(p, fmt.Sprint("call ", i), uint64(i), nil)
	}
	var parts [][]byte
	for i := range 40 {
		parts = append(parts, bytes.Repeat([]byte{byte(i)}, i*1000))
	}
	c.checkEcho(strings.Repeat("a long text, ", 10_000), 1<<63, parts)
}

// Three deep on an answer that is held back, one deep for a fragile server; then the same on one that is an error.
func pipelining(c *client) {
	for _, failure := range []string{"", "as was asked"} {
		nodes := []*rpc.Ref{c.node(peerMakeLater, "a")}
		if !c.fragile {
			nodes = append(nodes, c.child(nodes[0], "b"))
			nodes = append(nodes, c.child(nodes[1], "c"))
		}
		var names []*rpc.Promise
		for _, n := range nodes {
			names = append(names, c.name(n))
		}
		c.checkEcho("the calls above wait", 1, nil)
		for _, p := range names {
			if isDone(p) {
				c.t.Error("a call on an unresolved promise is answered")
			}
		}
		settled := c.settle(failure)
		for i, p := range names {
			if failure != "" {
				if why := c.refused("a pipelined call", p, rpc.Failed); !strings.Contains(why, failure) {
					c.t.Errorf("the reason is %q", why)
				}
				continue
			}
			c.checkName(p, "a/b/c"[:2*i+1])
		}
		c.done(settled)
		for _, r := range nodes {
			r.Release()
		}
	}
}

func isDone(p *rpc.Promise) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// Objects of either side go to the other and come back as what they are.
func capabilities(c *client) {
	ours := newNode(c.shared, "ours")
	r := rpc.NewLocal(ours)
	if null, own := c.hold(r); null || own {
		c.t.Errorf("our object: null %v, own %v", null, own)
	}
	p := c.call(peerHeld)
	_, caps := c.answer(p)
	s, _, _ := p.Wait(c.ctx)
	ptr, err := s.Ptr(0)
	if err != nil {
		c.t.Fatal(err)
	}
	back := caps.Get(ptr)
	if back.Object() != rpc.Object(ours) {
		c.t.Error("our object is not recognised")
	}
	c.checkName(c.name(back), "ours")
	back.Release()
	p.Release()
	r.Release()

	theirs := c.node(peerMake, "theirs")
	c.checkName(c.name(theirs), "theirs")
	if null, own := c.hold(theirs); null || !own {
		c.t.Errorf("their object: null %v, own %v", null, own)
	}
	theirs.Release()
	back = c.node(peerHeld, "")
	c.checkName(c.name(back), "theirs")
	// Passed on while it is a promise still.
	later := c.node(peerMakeLater, "later")
	held := c.peer.Call(c.ctx, peerHold, words(0, 1), capOf(later))
	c.done(c.settle(""))
	s, _ = c.answer(held)
	if r := wire.Peer_hold_Results(s); r.Null() || !r.Own() {
		c.t.Errorf("their promise: null %v, own %v", r.Null(), r.Own())
	}
	held.Release()
	back.Release()
	later.Release()
}

// An answer that turns out to be our own object: calls made before and after are delivered in order.
func order(c *client) { c.order(peerMakeLater) }

// A capability that is announced as a promise and resolved later: to their object, to ours, and to an error.
func promises(c *client) {
	theirs := c.node(peerPromise, "theirs")
	asked := c.name(theirs)
	c.done(c.settle(""))
	c.checkName(asked, "theirs")
	c.checkName(c.name(theirs), "theirs")
	theirs.Release()

	c.order(peerPromise)

	broken := c.node(peerPromise, "broken")
	asked = c.name(broken)
	c.done(c.settle("as was asked"))
	c.refused("a call before", asked, rpc.Failed)
	c.refused("a call after", c.name(broken), rpc.Failed)
	broken.Release()
}

func (c *client) order(m rpc.Method) {
	c.t.Helper()
	const each = 20
	ours := newNode(c.shared, "ours")
	r := rpc.NewLocal(ours)
	c.hold(r)
	r.Release()
	p := c.callText(m, "")
	back := p.Cap(0)
	if m == peerPromise {
		c.answer(p)
	}
	p.Release()
	var sent []*rpc.Promise
	send := func() {
		for range each {
			sent = append(sent, note(c.ctx, back, uint32(len(sent)+1)))
		}
	}
	send()
	settled := c.settle("")
	send()
	c.eventually("our object is recognised", func() bool { return back.Object() == rpc.Object(ours) })
	send()
	for _, p := range sent {
		c.done(p)
	}
	c.checkOrder(ours, 3*each)
	c.done(settled)
	back.Release()
}

func callbacks(c *client) {
	ours := newNode(c.shared, "ours")
	r := rpc.NewLocal(ours)
	c.done(c.callBack(r, 50))
	c.checkOrder(ours, 50)
	r.Release()
	// A callback that fails.
	broken := rpc.NewBroken(rpc.Overloadedf("not now"))
	c.refused("a broken callback", c.callBack(broken, 1), rpc.Overloaded)
	broken.Release()
}

func (c *client) callBack(r *rpc.Ref, times uint32) *rpc.Promise {
	return c.peer.Call(c.ctx, peerCallBack, words(1, 1), func(s capnp.Struct, caps *rpc.CapTable) error {
		wire.Peer_callBack_Params(s).SetTimes(times)
		return caps.Set(s, 0, r)
	})
}

func failures(c *client) {
	for _, want := range []rpc.ExceptionType{rpc.Failed, rpc.Overloaded, rpc.Disconnected, rpc.Unimplemented} {
		p := c.peer.Call(c.ctx, peerFail, words(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Peer_fail_Params(s).SetType(uint16(want))
			return s.SetText(0, "because of "+want.String())
		})
		_, _, err := p.Wait(c.ctx)
		ex, ok := errors.AsType[*rpc.Exception](err)
		if !ok || ex.Type != want || !ex.Remote || !strings.Contains(ex.Reason, "because of "+want.String()) {
			c.t.Errorf("%s: got %v", want, err)
		}
		p.Release()
	}
	c.checkEcho("all is well", 1, nil)
}

func cancellation(c *client) {
	before := c.counts()
	var running []*rpc.Promise
	for range 3 {
		running = append(running, c.call(peerNever))
	}
	c.eventually("the calls run", func() bool { return c.counts().running == before.running+3 })
	for _, p := range running {
		p.Release()
	}
	c.eventually("they are cancelled", func() bool {
		return c.counts() == counts{before.alive, before.running, before.cancelled + 3}
	})
}

func release(c *client) {
	const n = 100
	var nodes []*rpc.Ref
	for i := range n {
		r := c.node(peerMake, fmt.Sprint("node ", i))
		nodes = append(nodes, r, r.AddRef())
		c.done(c.name(r))
	}
	if got := c.counts().alive; got != n {
		c.t.Errorf("%d objects are alive, want %d", got, n)
	}
	for i := range nodes {
		if i%2 == 0 {
			nodes[i].Release()
		}
	}
	c.checkEcho("the other half is held", 1, nil)
	if got := c.counts().alive; got != n {
		c.t.Errorf("%d objects are alive, want %d still", got, n)
	}
	for _, r := range nodes {
		r.Release()
	}
	c.eventually("they are gone", func() bool { return c.counts().alive == 0 })
	// Results that nobody takes a capability out of.
	c.done(c.callText(peerMake, "untouched"))
	c.callText(peerMake, "unread").Release()
	// One export told of many times.
	c.hold(nil)
	ours := rpc.NewLocal(newNode(c.shared, "ours"))
	for range 5 {
		c.hold(ours)
	}
	ours.Release()
	c.hold(nil)
	c.eventually("ours is gone", func() bool { alive, _, _ := c.shared.counts(); return alive == 0 })
}

func unknown(c *client) {
	c.refused("an unknown interface", c.call(strangerGreet), rpc.Unimplemented)
	c.refused("an unknown method", c.call(rpc.Method{Interface: wire.Peer_TypeID, ID: 999}), rpc.Unimplemented)
	p := c.call(strangerGreet)
	r := p.Cap(0)
	p.Release()
	c.refused("a call on the result of one", c.name(r), rpc.Unimplemented)
	r.Release()
	c.checkEcho("all is well", 1, nil)
}

func null(c *client) {
	if null, own := c.hold(nil); !null || own {
		c.t.Errorf("null is taken as null %v, own %v", null, own)
	}
	p := c.call(peerHeld)
	s, caps := c.answer(p)
	if ptr, err := s.Ptr(0); err != nil || ptr.IsValid() || caps.Get(ptr) != nil {
		c.t.Errorf("what comes back is not null: %v", err)
	}
	p.Release()
	// Before and after it is known that it is null.
	p = c.callText(peerMakeLater, "")
	r := p.Cap(0)
	var asked []*rpc.Promise
	if !c.fragile {
		asked = append(asked, c.name(r))
	}
	c.done(c.settle(""))
	c.answer(p)
	for _, call := range append(asked, c.name(r)) {
		c.refused("a call on null", call, rpc.Failed)
	}
	r.Release()
	p.Release()
	c.refused("a null callback", c.callBack(nil, 1), rpc.Failed)
}

func streaming(c *client) {
	const n, size = 500, 4 << 10
	p := c.call(peerOpen)
	k := p.Cap(0)
	p.Release()
	f := rpc.NewFlow(k, 0)
	for range n {
		c.write(f, size)
	}
	p = k.Call(c.ctx, sinkDone, words(0, 0), nil)
	s, _ := c.answer(p)
	if r := wire.Sink_done_Results(s); r.Bytes() != n*size || r.Writes() != n {
		c.t.Errorf("the sink got %d bytes in %d writes", r.Bytes(), r.Writes())
	}
	p.Release()
	if err := f.Wait(c.ctx); err != nil {
		c.t.Errorf("the stream ended with %v", err)
	}
	// A write that fails, and what follows it.
	c.write(f, 0)
	if err := f.Wait(c.ctx); !rpc.IsFailed(err) {
		c.t.Errorf("the stream with a bad write ended with %v", err)
	}
	c.refused("done after a bad write", k.Call(c.ctx, sinkDone, words(0, 0), nil), rpc.Failed)
	k.Release()
}

func (c *client) write(f *rpc.Flow, size int) {
	c.t.Helper()
	err := f.Call(c.ctx, sinkWrite, words(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		return wire.Sink_write_Params(s).SetBytes(make([]byte, size))
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
