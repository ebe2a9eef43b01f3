package gocapnp

// The state of a scenario of the go-capnp client.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/rpc"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
)

// patience is how long anything may take.
const patience = 20 * time.Second

// trial is one scenario over one connection. Whatever it finds wrong is a panic with a failure.
type trial struct {
	ctx    context.Context
	shared *sharedState // of our objects that the server gets
	conn   *rpc.Conn
	peer   wire.Peer
	args   []string
}

type failure string

func (t *trial) failf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func (t *trial) must(err error) {
	if err != nil {
		t.failf("%v", err)
	}
}

// runScenario runs a scenario, named with its arguments, and says how it went.
func runScenario(line string, conn *rpc.Conn) {
	name, args, _ := strings.Cut(line, " ")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	t := &trial{ctx: ctx, shared: new(sharedState), conn: conn, args: strings.Fields(args)}
	defer func() {
		switch why := recover().(type) {
		case nil:
			fmt.Println("ok", name)
		case failure:
			fmt.Println("FAIL", name, strings.ReplaceAll(string(why), "\n", " "))
		default:
			panic(why)
		}
	}()
	run := scenarios[name]
	if run == nil {
		t.failf("there is no such scenario")
	}
	t.peer = wire.Peer(conn.Bootstrap(context.Background()))
	run(t)
	t.peer.Release()
	t.eventually("our objects are gone", func() bool {
		t.shared.mu.Lock()
		defer t.shared.mu.Unlock()
		return t.shared.alive == 0
	})
}

func (t *trial) eventually(what string, holds func() bool) {
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.failf("it never came to be that %s", what)
		}
	}
}

// refused checks that err is an exception of one type.
func (t *trial) refused(what string, err error, want exc.Type) {
	if err == nil || exc.TypeOf(err) != want {
		t.failf("%s: got %v, want an exception of type %v", what, err, want)
	}
}

// check waits for an answer without results and lets go of it.
func check[R any, F interface{ Struct() (R, error) }](f F, done capnp.ReleaseFunc) error {
	defer done()
	_, err := f.Struct()
	return err
}

// pending is a call of name that has been sent.
type pending struct {
	future wire.Node_name_Results_Future
	done   capnp.ReleaseFunc
}

func (t *trial) name(n wire.Node) pending {
	f, done := n.Name(t.ctx, nil)
	return pending{f, done}
}

// is waits for the name.
func (p pending) is(t *trial, want string) {
	defer p.done()
	r, err := p.future.Struct()
	t.must(err)
	got, err := r.Name()
	t.must(err)
	if got != want {
		t.failf("the node is called %q, want %q", got, want)
	}
}

func (p pending) err() error {
	defer p.done()
	_, err := p.future.Struct()
	return err
}

// make calls a method of the peer that gives a node. The reference is taken from the future once only: asking twice
// before the answer is there deadlocks (Future.Client).
func (t *trial) make(name string) (wire.Node, capnp.ReleaseFunc) {
	f, done := t.peer.Make(t.ctx, func(p wire.Peer_make_Params) error { return p.SetName(name) })
	return f.Node(), done
}

func (t *trial) makeLater(name string) (wire.Node, capnp.ReleaseFunc) {
	f, done := t.peer.MakeLater(t.ctx, func(p wire.Peer_makeLater_Params) error { return p.SetName(name) })
	return f.Node(), done
}

// promise gives the promise that an answer is made of, for the caller to release.
func (t *trial) promise(name string) wire.Node {
	f, done := t.peer.Promise(t.ctx, func(p wire.Peer_promise_Params) error { return p.SetName(name) })
	defer done()
	r, err := f.Struct()
	t.must(err)
	return r.Node().AddRef()
}

func (t *trial) child(of wire.Node, name string) (wire.Node, capnp.ReleaseFunc) {
	f, done := of.Child(t.ctx, func(p wire.Node_child_Params) error { return p.SetName(name) })
	return f.Node(), done
}

func (t *trial) settle(why string) error {
	return check(t.peer.Settle(t.ctx, func(p wire.Peer_settle_Params) error { return p.SetFailure(why) }))
}

// hold has the server hold n, which stays the caller's.
func (t *trial) hold(n wire.Node) (null, own bool) {
	f, done := t.peer.Hold(t.ctx, func(p wire.Peer_hold_Params) error { return p.SetNode(n.AddRef()) })
	defer done()
	r, err := f.Struct()
	t.must(err)
	return r.Null(), r.Own()
}

func (t *trial) callBack(n wire.Node, times uint32) error {
	return check(t.peer.CallBack(t.ctx, func(p wire.Peer_callBack_Params) error {
		p.SetTimes(times)
		return p.SetNode(n.AddRef())
	}))
}

func (t *trial) echo(text string) error {
	return check(t.peer.Echo(t.ctx, func(p wire.Peer_echo_Params) error { return p.SetText(text) }))
}

type counts struct{ alive, running, cancelled uint32 }

func (t *trial) counts() counts {
	f, done := t.peer.Counts(t.ctx, nil)
	defer done()
	r, err := f.Struct()
	t.must(err)
	return counts{r.Alive(), r.Running(), r.Cancelled()}
}
