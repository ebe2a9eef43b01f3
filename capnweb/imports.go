// imports: the nodes of the peer that we may name: results of our pushes, under ids that we chose, and stubs and promises
// that it sent.

package capnweb

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
)

// importNode is an import. It is in its connection's table until it is resolved or not referenced here any more. Its future
// is resolved once the import is, or when it cannot be reached any more.
type importNode struct {
	future
	c  *Conn
	id int64

	promise bool // it will be resolved

	// guarded by c.mu
	count   int64 // how often it was received
	pulled  bool
	dropped bool // it is not in the table any more
	broken  []func(error)
}

func (c *Conn) newImport(id int64, promise bool) *importNode {
	in := &importNode{c: c, id: id, count: 1, promise: promise}
	in.refs.Store(1)
	c.imports[id] = in
	if id < 0 {
		c.peerChosenImports++
	}
	return in
}

// dropImport removes an entry from the table and sends a release. The lock is held.
func (c *Conn) dropImport(in *importNode) {
	if in.dropped {
		return
	}
	in.dropped = true
	delete(c.imports, in.id)
	if in.id < 0 {
		c.peerChosenImports--
	}
	if in.pulled && in.id > 0 {
		c.pendingPulls--
		c.out.WakeWaiters()
	}
	if c.ended == nil && in.count > 0 {
		c.sendRelease(in.id, in.count)
	}
}

func (c *Conn) sendRelease(id, n int64) {
	b := c.enc.start(c, `["release",`)
	b = expr.AppendID(b, id)
	b = append(b, ',')
	b = expr.AppendID(b, n)
	c.enc.b = append(b, ']')
	c.enc.sendLazily()
}

// importStub returns a reference to a stub of the peer's that was received once more.
func (c *Conn) importStub(id int64, promise bool) (*importNode, error) {
	if id >= 0 {
		return nil, expr.Violationf("an export of the id %d, which is not the sender's to choose", id)
	}
	c.mu.Lock()
	defer c.unlockAndRun()
	in := c.imports[id]
	switch {
	case in == nil:
		if c.peerChosenImports >= c.limits.Imports {
			c.countHit(LimitImports)
			return nil, expr.Violationf("too many exports")
		}
		in = c.newImport(id, promise)
		in.pulled = promise
		if c.ended != nil {
			in.dropped = true
			delete(c.imports, id)
			c.peerChosenImports--
			err := c.ended
			c.afterUnlock = append(c.afterUnlock, func() { in.resolve(nil, nil, err) })
		}
		return in, nil
	case promise || in.promise:
		return nil, expr.Violationf("the promise %d was exported twice", id)
	}
	in.count++
	in.refs.Add(1)
	return in, nil
}

func (n *importNode) ref() { n.refs.Add(1) }

func (n *importNode) unref() {
	k := n.refs.Add(-1)
	if k < 0 {
		panic("capnweb: a reference was given up twice")
	}
	if k > 0 {
		return
	}
	c := n.c
	c.mu.Lock()
	if n.refs.Load() > 0 { // it was received once more meanwhile
		c.mu.Unlock()
		return
	}
	n.broken = nil
	c.dropImport(n)
	c.unlockAndRun()
	n.resolve(nil, nil, errReleased) // if it was pending
	n.future.free()
}

var errReleased = &BrokenError{Reason: "the promise was released before its result came"}

func (n *importNode) call(on via, path []string, args *payload) node {
	c := n.c
	c.mu.Lock()
	if n.dropped {
		c.mu.Unlock()
		return n.future.call(on, path, args)
	}
	if c.batch.responseOnly {
		c.mu.Unlock()
		args.release()
		return newError(errResponseOnly)
	}
	r, err := c.sendPush(`["push",["pipeline",`, n.id, path, args, true)
	c.unlockAndRun()
	args.release()
	if err != nil {
		return newError(err)
	}
	return r
}

// sendPush sends a call or get and returns its result. The lock is held.
func (c *Conn) sendPush(head string, id int64, path []string, args *payload, call bool) (*importNode, error) {
	b := c.enc.start(c, head)
	b = expr.AppendID(b, id)
	b = expr.AppendPath(append(b, ','), path)
	c.enc.b = b
	if call {
		c.enc.b = append(c.enc.b, ',')
		if err := c.enc.args(args); err != nil {
			c.enc.undo()
			return nil, err
		}
	}
	c.enc.b = append(c.enc.b, ']', ']')
	return c.sendEncodedPush()
}

// sendEncodedPush sends the encoded push and returns its result. The lock is held.
func (c *Conn) sendEncodedPush() (*importNode, error) {
	if err := c.enc.send(); err != nil {
		c.enc.undo()
		return nil, err
	}
	r := c.newImport(c.nextID, true)
	c.nextID++
	return r, nil
}

func (n *importNode) get(on via, path []string) node {
	if len(path) == 0 {
		n.ref()
		return n
	}
	c := n.c
	c.mu.Lock()
	if n.dropped {
		c.mu.Unlock()
		return n.future.get(on, path)
	}
	if c.batch.responseOnly {
		c.mu.Unlock()
		return newError(errResponseOnly)
	}
	r, err := c.sendPush(`["push",["pipeline",`, n.id, path, nil, false)
	c.unlockAndRun()
	if err != nil {
		return newError(err)
	}
	return r
}

func (n *importNode) pull(f func(*payload, error), over *atomic.Bool) {
	if !n.promise && n.request() {
		f(&payload{value: &Stub{node: n, borrowed: true}}, nil)
		return
	}
	n.request()
	n.future.pull(f, over)
}

// request asks for the result, once. It reports whether the import can still be reached.
func (n *importNode) request() bool {
	c := n.c
	c.mu.Lock()
	there := !n.dropped
	if there && n.promise && !n.pulled {
		n.sendPull()
	}
	c.unlockAndRun()
	return there
}

// sendPull asks the peer for the result. The lock is held.
func (n *importNode) sendPull() {
	c := n.c
	n.pulled = true
	c.pendingPulls++
	b := c.enc.start(c, `["pull",`)
	b = expr.AppendID(b, n.id)
	c.enc.b = append(b, ']')
	c.enc.mustSend()
}

func (n *importNode) onBroken(f func(error)) {
	c := n.c
	c.mu.Lock()
	if !n.dropped {
		n.broken = append(n.broken, f)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	n.future.onBroken(f)
}

func (n *importNode) remap(on via, path []string, captures []node, m *mapProgram) node {
	c := n.c
	c.mu.Lock()
	if n.dropped {
		c.mu.Unlock()
		return n.future.remap(on, path, captures, m)
	}
	if c.batch.responseOnly {
		c.mu.Unlock()
		releaseNodes(captures)
		return newError(errResponseOnly)
	}
	r, err := c.sendRemap(n.id, path, captures, m)
	c.unlockAndRun()
	releaseNodes(captures)
	if err != nil {
		return newError(err)
	}
	return r
}

// receiveAnswer handles the resolution of a promise of the peer.
func (c *Conn) receiveAnswer(id int64, answer any, failed bool, size int, on via) error {
	c.mu.Lock()
	in := c.imports[id]
	if in != nil {
		if !in.promise {
			c.mu.Unlock()
			return expr.Violationf("an answer for %d, which is no promise", id)
		}
		in.ref() // so that it is not released meanwhile
	}
	c.mu.Unlock()
	p := &payload{}
	v, err := (&evaluator{c: c, on: on}).eval(answer, 0, p)
	if err != nil {
		p.release()
		if in != nil {
			in.unref()
		}
		return err
	}
	p.value = v
	if in == nil {
		p.release()
		return nil
	}
	c.mu.Lock()
	broken := in.broken
	in.broken = nil
	c.dropImport(in)
	c.unlockAndRun()
	var over error
	if id < 0 { // a resolution of a promise of the peer's is charged until neither side references it
		over = on.chargeHeldBytes(&in.future, size+nodeBytes, c.messageCost+nodeBytes)
	}
	if over != nil {
		p.release()
		in.resolve(nil, nil, over)
	} else if failed {
		p.release()
		in.resolve(nil, nil, asError(v))
	} else {
		in.settle(p, nil)
	}
	for _, f := range broken {
		in.future.onBroken(f)
	}
	in.unref()
	return nil
}

// asError converts a value thrown by the peer to an error.
func asError(v any) error {
	switch v := v.(type) {
	case *Error:
		return v
	case string:
		return &Error{Name: "Error", Message: v}
	}
	return &Error{Name: "Error", Message: "the peer threw a value that is no error", Props: map[string]any{"thrown": v}}
}
