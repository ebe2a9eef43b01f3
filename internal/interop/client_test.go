// Our vat as the client of a foreign server: what a scenario has in hand.

package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	wire "github.com/mooring-rpc/mooring/internal/testschema/interop"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// patience is how long anything may take.
const patience = time.Minute

// client is one connection of ours to a foreign server.
type client struct {
	t      *testing.T
	ctx    context.Context
	shared *sharedState // of our objects that the server gets
	// fragile says that the server panics when an answer with a null capability has calls pipelined on it, and now and then
	// when calls that wait for an answer have others pipelined on theirs: go-capnp, AnswerQueue.Fulfill.
	fragile bool
	conn    *rpc.Conn
	ran     chan struct{} // closed when the connection's Run has returned
	peer    *rpc.Ref
}

// connect makes a connection that is closed when the test ends.
func connect(t *testing.T, tr rpc.Transport) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c := &client{t: t, ctx: ctx, shared: new(sharedState), conn: rpc.NewConn(tr, rpc.Config{}), ran: make(chan struct{})}
	go func() {
		defer close(c.ran)
		_ = c.conn.Run(context.Background()) // why it ended is Err's
	}()
	t.Cleanup(func() {
		c.conn.Close("the test is over")
		select {
		case <-c.ran:
		case <-time.After(patience):
			t.Error("the connection's Run does not return")
		}
		checkEmpty(t, c.conn)
	})
	c.peer = c.conn.Bootstrap(ctx)
	return c
}

// finish releases the bootstrap object, checks that nothing is left on either side while the connection stands.
func (c *client) finish() {
	c.t.Helper()
	c.hold(nil)
	c.eventually("the server's objects are gone", func() bool { return c.counts().alive == 0 })
	c.eventually("our objects are gone", func() bool { alive, _, _ := c.shared.counts(); return alive == 0 })
	c.peer.Release()
	c.eventually("the tables are empty", func() bool { return empty(c.conn) })
	if err := c.conn.Err(); err != nil {
		c.t.Errorf("the connection has ended: %v", err)
	}
}

// empty says that a connection holds nothing.
func empty(c *rpc.Conn) bool {
	s := c.Stats()
	return s.Questions+s.Answers+s.Exports+s.Imports+s.Embargoes+s.QueuedCalls+s.QueuedBytes == 0
}

func checkEmpty(t *testing.T, c *rpc.Conn) {
	t.Helper()
	if !empty(c) {
		t.Errorf("the tables are not empty: %+v", c.Stats())
	}
}

// eventually waits until something holds.
func (c *client) eventually(what string, holds func() bool) {
	c.t.Helper()
	until.True(c.t, what, holds)
}

// answer waits for an answer that must be a result.
func (c *client) answer(p *rpc.Promise) (capnp.Struct, *rpc.CapTable) {
	c.t.Helper()
	s, caps, err := p.Wait(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return s, caps
}

// refused waits for an answer that must be an error of one type.
func (c *client) refused(what string, p *rpc.Promise, want rpc.ExceptionType) string {
	c.t.Helper()
	defer p.Release()
	_, _, err := p.Wait(c.ctx)
	if got, ok := rpc.TypeOf(err); !ok || got != want {
		c.t.Fatalf("%s: got %v, want an exception of type %s", what, err, want)
	}
	return err.Error()
}

// done waits for an answer and lets go of it.
func (c *client) done(p *rpc.Promise) {
	c.t.Helper()
	c.answer(p)
	p.Release()
}

func (c *client) call(m rpc.Method) *rpc.Promise { return c.peer.Call(c.ctx, m, words(0, 0), nil) }

func (c *client) callText(m rpc.Method, s string) *rpc.Promise {
	return c.peer.Call(c.ctx, m, words(0, 1), text(s))
}

// node calls a method that gives a node, and pipelines on it.
func (c *client) node(m rpc.Method, name string) *rpc.Ref {
	p := c.callText(m, name)
	defer p.Release()
	return p.Cap(0)
}

func (c *client) child(of *rpc.Ref, name string) *rpc.Ref {
	p := of.Call(c.ctx, nodeChild, words(0, 1), text(name))
	defer p.Release()
	return p.Cap(0)
}

func (c *client) name(of *rpc.Ref) *rpc.Promise { return of.Call(c.ctx, nodeName, words(0, 0), nil) }

// checkName waits for a node's name.
func (c *client) checkName(p *rpc.Promise, want string) {
	c.t.Helper()
	s, _ := c.answer(p)
	defer p.Release()
	if got, err := wire.Node_name_Results(s).Name(); err != nil || got != want {
		c.t.Fatalf("the node is called %q, %v; want %q", got, err, want)
	}
}

// settle settles what waits, with a failure if there is a text.
func (c *client) settle(failure string) *rpc.Promise { return c.callText(peerSettle, failure) }

// hold has the server hold r; the answer is what it says of it.
func (c *client) hold(r *rpc.Ref) (null, own bool) {
	c.t.Helper()
	p := c.peer.Call(c.ctx, peerHold, words(0, 1), capOf(r))
	defer p.Release()
	s, _ := c.answer(p)
	return wire.Peer_hold_Results(s).Null(), wire.Peer_hold_Results(s).Own()
}

type counts struct{ alive, running, cancelled uint32 }

func (c *client) counts() counts {
	c.t.Helper()
	p := c.call(peerCounts)
	defer p.Release()
	s, _ := c.answer(p)
	r := wire.Peer_counts_Results(s)
	return counts{r.Alive(), r.Running(), r.Cancelled()}
}

// checkOrder waits until a node of ours has noted 1 to n, in order.
func (c *client) checkOrder(n *node, last int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("all %d calls have come", last), func() bool { return len(n.order()) >= last })
	if got := n.order(); !slices.IsSorted(got) || len(got) != last || got[0] != 1 {
		c.t.Errorf("calls came in the order %v", got)
	}
}
