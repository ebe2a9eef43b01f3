// Connections that end with calls in flight, as our vat sees it as a client.

package interop

import (
	"testing"

	"github.com/mooring-rpc/mooring/rpc"
)

// inFlight are calls and references that only a working connection can do anything with.
type inFlight struct {
	calls map[string]*rpc.Promise
	refs  []*rpc.Ref
}

// leaveInFlight has the server hold an object of ours, and calls run there.
func (c *client) leaveInFlight() inFlight {
	c.t.Helper()
	ours := rpc.NewLocal(newNode(c.shared, "ours"))
	c.hold(ours)
	ours.Release()
	theirs := c.node(peerMake, "theirs")
	c.checkName(c.name(theirs), "theirs")
	later := c.node(peerMakeLater, "later")
	x := c.child(later, "x")
	f := inFlight{
		calls: map[string]*rpc.Promise{
			"a call": c.call(peerNever), "another call": c.call(peerNever), "a pipelined call": c.name(x),
		},
		refs: []*rpc.Ref{theirs, later, x},
	}
	c.eventually("the calls run", func() bool { return c.counts().running == 2 })
	return f
}

// checkBroken checks that all of it ends as disconnected, and that nothing is left.
func (c *client) checkBroken(f inFlight) {
	c.t.Helper()
	for what, p := range f.calls {
		c.refused(what, p, rpc.Disconnected)
	}
	c.refused("a call on an object of the peer", c.name(f.refs[0]), rpc.Disconnected)
	c.refused("a new call", c.call(peerCounts), rpc.Disconnected)
	<-c.conn.Done()
	for _, r := range append(f.refs, c.peer) {
		r.Release()
	}
	c.eventually("our objects are gone", func() bool { alive, _, _ := c.shared.counts(); return alive == 0 })
	c.eventually("the tables are empty", func() bool { return empty(c.conn) })
}

// asClientDisconnected ends connections to a foreign server: it is killed; or we go, and it must notice.
func asClientDisconnected(t *testing.T, start starter, dial dialer) {
	t.Run("disconnect/killed", func(t *testing.T) {
		srv := start(t)
		c := connect(t, dial(t, srv.address(t)))
		f := c.leaveInFlight()
		srv.kill()
		c.checkBroken(f)
		if err := c.conn.Err(); !rpc.IsDisconnected(err) {
			t.Errorf("the connection ended with %v", err)
		}
	})
	t.Run("disconnect/closed", func(t *testing.T) {
		srv := start(t)
		address := srv.address(t)
		c := connect(t, dial(t, address))
		f := c.leaveInFlight()
		c.conn.Close("bye")
		c.checkBroken(f)
		after := connect(t, dial(t, address))
		after.hold(nil)
		after.done(after.settle("")) // an answer nobody waits for any more
		after.eventually("all is released and cancelled", func() bool { return after.counts() == counts{cancelled: 2} })
		after.finish()
		srv.finish(t)
	})
}
