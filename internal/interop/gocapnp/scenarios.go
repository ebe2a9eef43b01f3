package gocapnp

// The scenarios of the go-capnp client. Each must leave nothing behind.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/server"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
)

var scenarios = map[string]func(*trial){
	"bootstrap":    (*trial).bootstrap,
	"calls":        (*trial).calls,
	"pipelining":   (*trial).pipelining,
	"capabilities": (*trial).capabilities,
	"order":        (*trial).order,
	"promises":     (*trial).promises,
	"callbacks":    (*trial).callbacks,
	"errors":       (*trial).errors,
	"cancellation": (*trial).cancellation,
	"release":      (*trial).release,
	"unknown":      (*trial).unknown,
	"null":         (*trial).null,
	"streaming":    (*trial).streaming,
	"disconnect":   (*trial).disconnect,
	"restore":      (*trial).restore,
	"save":         (*trial).save,
}

func (t *trial) bootstrap() {
	t.must(t.echo("first"))
	t.peer.Release()
	t.peer = wire.Peer(t.conn.Bootstrap(t.ctx))
	t.must(t.echo("second"))
}

// Many calls at once, and messages of several segments.
func (t *trial) calls() {
	var sent []wire.Peer_echo_Results_Future
	for i := range uint64(300) {
		f, done := t.peer.Echo(t.ctx, func(p wire.Peer_echo_Params) error {
			p.SetNumber(i)
			return p.SetText(fmt.Sprint("call ", i))
		})
		defer done()
		sent = append(sent, f)
	}
	for i, f := range sent {
		r, err := f.Struct()
		t.must(err)
		if text, err := r.Text(); err != nil || text != fmt.Sprint("call ", i) || r.Number() != uint64(i) {
			t.failf("call %d gives %q and %d, %v", i, text, r.Number(), err)
		}
	}
	f, done := t.peer.Echo(t.ctx, func(p wire.Peer_echo_Params) error {
		parts, err := p.NewParts(40)
		for i := 0; err == nil && i < 40; i++ {
			err = parts.Set(i, bytes.Repeat([]byte{byte(i)}, i*1000))
		}
		return err
	})
	defer done()
	r, err := f.Struct()
	t.must(err)
	parts, err := r.Parts()
	t.must(err)
	for i := range 40 {
		got, err := parts.At(i)
		t.must(err)
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, i*1000)) {
			t.failf("part %d is not what was sent", i)
		}
	}
}

// Three deep on an answer that is held back; then the same on one that is an error.
func (t *trial) pipelining() {
	for _, why := range []string{"", "as was asked"} {
		a, doneA := t.makeLater("a")
		b, doneB := t.child(a, "b")
		c, doneC := t.child(b, "c")
		names := []pending{t.name(a), t.name(b), t.name(c)}
		t.must(t.echo("the calls above wait"))
		for _, p := range names {
			select {
			case <-p.future.Done():
				t.failf("a call on an unresolved promise is answered")
			default:
			}
		}
		t.must(t.settle(why))
		for i, p := range names {
			if why == "" {
				p.is(t, "a/b/c"[:2*i+1])
				continue
			}
			err := p.err()
			t.refused("a pipelined call", err, exc.Failed)
			if !strings.Contains(err.Error(), why) {
				t.failf("the reason is %v", err)
			}
		}
		doneC()
		doneB()
		doneA()
	}
}

// Objects of either side go to the other and come back as what they are.
func (t *trial) capabilities() {
	ours := newNode(t.shared, "ours")
	n := wire.Node_ServerToClient(ours)
	if null, own := t.hold(n); null || own {
		t.failf("our object: null %v, own %v", null, own)
	}
	f, done := t.peer.Held(t.ctx, nil)
	r, err := f.Struct()
	t.must(err)
	back := r.Node()
	at := capnp.Client(back).Snapshot()
	if got, ok := server.IsServer(at.Brand()); !ok || got != ours || !back.IsSame(n) {
		t.failf("our object is not recognised")
	}
	at.Release()
	t.name(back).is(t, "ours")
	done()
	n.Release()

	theirs, done := t.make("theirs")
	t.name(theirs).is(t, "theirs")
	if null, own := t.hold(theirs); null || !own {
		t.failf("their object: null %v, own %v", null, own)
	}
	done()
	f, done = t.peer.Held(t.ctx, nil)
	t.name(f.Node()).is(t, "theirs")
	done()
	// Passed on while it is a promise still.
	later, doneLater := t.makeLater("later")
	held, done := t.peer.Hold(t.ctx, func(p wire.Peer_hold_Params) error { return p.SetNode(later.AddRef()) })
	t.must(t.settle(""))
	s, err := held.Struct()
	t.must(err)
	if s.Null() || !s.Own() {
		t.failf("their promise: null %v, own %v", s.Null(), s.Own())
	}
	done()
	doneLater()
	t.hold(wire.Node{})
}

// An answer that turns out to be our own object: calls made before and after are delivered in order.
func (t *trial) order() {
	ours := newNode(t.shared, "ours")
	n := wire.Node_ServerToClient(ours)
	t.hold(n)
	n.Release()
	back, done := t.makeLater("")
	t.inOrder(ours, back)
	done()
	t.hold(wire.Node{})
}

// A capability that is announced as a promise and resolved later: to their object, to ours, and to an error.
func (t *trial) promises() {
	theirs := t.promise("theirs")
	asked := t.name(theirs)
	t.must(t.settle(""))
	asked.is(t, "theirs")
	t.must(theirs.Resolve(t.ctx))
	t.name(theirs).is(t, "theirs")
	theirs.Release()

	ours := newNode(t.shared, "ours")
	n := wire.Node_ServerToClient(ours)
	t.hold(n)
	n.Release()
	back := t.promise("")
	t.inOrder(ours, back)
	back.Release()
	t.hold(wire.Node{})

	broken := t.promise("broken")
	asked = t.name(broken)
	t.must(t.settle("as was asked"))
	t.refused("a call before", asked.err(), exc.Failed)
	t.refused("a call after", t.name(broken).err(), exc.Failed)
	broken.Release()
}

func (t *trial) inOrder(ours *node, back wire.Node) {
	const each = 20
	type noted struct {
		future wire.Node_note_Results_Future
		done   capnp.ReleaseFunc
	}
	var sent []noted
	send := func() {
		for range each {
			f, done := back.Note(t.ctx, func(p wire.Node_note_Params) error {
				p.SetNumber(uint32(len(sent) + 1))
				return nil
			})
			sent = append(sent, noted{f, done})
		}
	}
	send()
	settled, done := t.peer.Settle(t.ctx, nil)
	defer done()
	send()
	t.must(back.Resolve(t.ctx))
	send()
	for _, n := range sent {
		_, err := n.future.Struct()
		t.must(err)
		n.done()
	}
	if _, err := settled.Struct(); err != nil {
		t.failf("settle: %v", err)
	}
	if got := ours.order(); len(got) != 3*each || got[0] != 1 || !slices.IsSorted(got) {
		t.failf("calls came in the order %v", got)
	}
}

func (t *trial) callbacks() {
	ours := newNode(t.shared, "ours")
	n := wire.Node_ServerToClient(ours)
	t.must(t.callBack(n, 50))
	if got := ours.order(); len(got) != 50 || !slices.IsSorted(got) {
		t.failf("called back in the order %v", got)
	}
	n.Release()
	broken := wire.Node(capnp.ErrorClient(exc.New(exc.Overloaded, "", "not now")))
	t.refused("a broken callback", t.callBack(broken, 1), exc.Overloaded)
}

func (t *trial) errors() {
	for _, want := range []exc.Type{exc.Failed, exc.Overloaded, exc.Disconnected, exc.Unimplemented} {
		reason := "because of " + want.String()
		err := check(t.peer.Fail(t.ctx, func(p wire.Peer_fail_Params) error {
			p.SetType(uint16(want))
			return p.SetReason(reason)
		}))
		t.refused(reason, err, want)
		if !strings.Contains(err.Error(), reason) {
			t.failf("%v has not the reason %q", err, reason)
		}
	}
	t.must(t.echo("all is well"))
}

func (t *trial) cancellation() {
	before := t.counts()
	ctx, cancel := context.WithCancel(t.ctx)
	one, doneOne := t.peer.Never(ctx, nil)
	two, doneTwo := t.peer.Never(ctx, nil)
	t.eventually("the calls run", func() bool { return t.counts().running == before.running+2 })
	cancel() // the only way to give a call up: its release function waits for the answer
	for _, f := range []wire.Peer_never_Results_Future{one, two} {
		if _, err := f.Struct(); !errors.Is(err, context.Canceled) {
			t.failf("a cancelled call gives %v", err)
		}
	}
	doneOne()
	doneTwo()
	t.eventually("they are cancelled", func() bool {
		return t.counts() == counts{before.alive, before.running, before.cancelled + 2}
	})
}

func (t *trial) release() {
	const n = 100
	var nodes []wire.Node
	for i := range n {
		f, done := t.peer.Make(t.ctx, func(p wire.Peer_make_Params) error { return p.SetName(fmt.Sprint("node ", i)) })
		r, err := f.Struct()
		t.must(err)
		nodes = append(nodes, r.Node().AddRef(), r.Node().AddRef())
		done()
	}
	if got := t.counts().alive; got != n {
		t.failf("%d objects are alive", got)
	}
	for i := 0; i < len(nodes); i += 2 {
		nodes[i].Release()
	}
	if got := t.counts().alive; got != n {
		t.failf("%d objects are alive, half of the references are held still", got)
	}
	for i := 1; i < len(nodes); i += 2 {
		nodes[i].Release()
	}
	t.eventually("they are gone", func() bool { return t.counts().alive == 0 })
	t.must(check(t.peer.Make(t.ctx, func(p wire.Peer_make_Params) error { return p.SetName("untouched") })))
	_, done := t.peer.Make(t.ctx, func(p wire.Peer_make_Params) error { return p.SetName("unread") })
	done()
	ours := wire.Node_ServerToClient(newNode(t.shared, "ours"))
	for range 5 {
		t.hold(ours)
	}
	ours.Release()
	t.hold(wire.Node{})
	t.eventually("they are gone, too", func() bool { return t.counts().alive == 0 })
}

func (t *trial) unknown() {
	stranger := wire.Stranger(t.peer)
	t.refused("an unknown interface", check(stranger.Greet(t.ctx, nil)), exc.Unimplemented)
	method := capnp.Method{InterfaceID: wire.Peer_TypeID, MethodID: 999}
	answer, done := capnp.Client(t.peer).SendCall(t.ctx, capnp.Send{Method: method})
	_, err := answer.Struct()
	t.refused("an unknown method", err, exc.Unimplemented)
	done()
	f, done := stranger.Greet(t.ctx, nil)
	t.refused("a call on the result of one", t.name(f.Node()).err(), exc.Unimplemented)
	done()
	t.must(t.echo("all is well"))
}

func (t *trial) null() {
	if null, own := t.hold(wire.Node{}); !null || own {
		t.failf("null is taken as null %v, own %v", null, own)
	}
	f, done := t.peer.Held(t.ctx, nil)
	r, err := f.Struct()
	t.must(err)
	if r.HasNode() {
		t.failf("what comes back is not null")
	}
	t.refused("a call on it", t.name(r.Node()).err(), exc.Failed)
	done()
	later, done := t.makeLater("")
	before := t.name(later)
	t.must(t.settle(""))
	t.refused("a call before", before.err(), exc.Failed)
	t.refused("a call after", t.name(later).err(), exc.Failed)
	done()
	t.refused("a null callback", t.callBack(wire.Node{}, 1), exc.Failed)
}

func (t *trial) streaming() {
	const n, size = 500, 4 << 10
	f, done := t.peer.Open(t.ctx, nil)
	defer done()
	sink := f.Sink()
	write := func(bytes int) error {
		return sink.Write(t.ctx, func(p wire.Sink_write_Params) error { return p.SetBytes(make([]byte, bytes)) })
	}
	for range n {
		t.must(write(size))
	}
	t.must(sink.WaitStreaming())
	got, doneDone := sink.Done(t.ctx, nil)
	r, err := got.Struct()
	t.must(err)
	if r.Bytes() != n*size || r.Writes() != n {
		t.failf("the sink got %d bytes in %d writes", r.Bytes(), r.Writes())
	}
	doneDone()
	t.must(write(0)) // a later write tells, or WaitStreaming
	t.refused("the stream after a bad write", sink.WaitStreaming(), exc.Failed)
	t.refused("done after a bad write", check(sink.Done(t.ctx, nil)), exc.Failed)
}

// The connection is cut, or the server goes away, or this process is killed, while calls are in flight.
func (t *trial) disconnect() {
	ours := wire.Node_ServerToClient(newNode(t.shared, "ours"))
	t.hold(ours)
	ours.Release()
	f, doneMake := t.peer.Make(t.ctx, func(p wire.Peer_make_Params) error { return p.SetName("theirs") })
	r, err := f.Struct()
	t.must(err)
	theirs := r.Node()
	one, doneOne := t.peer.Never(t.ctx, nil)
	two, doneTwo := t.peer.Never(t.ctx, nil)
	a, doneA := t.makeLater("later")
	b, doneB := t.child(a, "x")
	c, doneC := t.child(b, "y")
	deep := t.name(c)
	t.eventually("the calls run", func() bool { return t.counts().running >= 2 })
	fmt.Println("ready disconnect")
	_, err = one.Struct()
	t.refused("a call", err, exc.Disconnected)
	_, err = two.Struct()
	t.refused("another call", err, exc.Disconnected)
	t.refused("a pipelined call", deep.err(), exc.Disconnected)
	t.refused("a call on an object of the peer", t.name(theirs).err(), exc.Disconnected)
	t.refused("a new call", t.echo(""), exc.Disconnected)
	for _, done := range []func(){doneMake, doneOne, doneTwo, doneC, doneB, doneA} {
		done()
	}
}
