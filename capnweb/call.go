// Call: one call of an object, from its delivery to its answer.

package capnweb

import (
	"context"
	"sync"
	"sync/atomic"
)

// Call is one call of an Object. Methods may be called from any goroutine.
type Call struct {
	node      *localNode
	via       *Conn
	path      []string
	args      *payload
	argValues []any
	result    *future // the answer; a reference to it does not keep the call

	answered  atomic.Bool
	queued    atomic.Bool // waits in the callQueue of an Orderer
	mu        sync.Mutex
	ctx       context.Context // nil until Context is called
	cancel    context.CancelFunc
	abandoned bool // nobody waits for the answer any more
	watched   bool // registered with the connection
}

// Method returns the name that was called; empty when the object itself was called as a function.
func (c *Call) Method() string {
	if len(c.path) == 0 {
		return ""
	}
	return c.path[len(c.path)-1]
}

// Path returns the whole path that was called, Method its last element: properties of properties have more than one.
func (c *Call) Path() []string { return c.path }

// Args returns the arguments: values as the package comment lists them, every promise among them resolved. They may be
// shared and must not be changed. Stubs in them are released when the call is answered: use Dup for those to keep.
func (c *Call) Args() []any { return c.argValues }

// Context returns a context that ends when the call is answered, its result is released by the peer before that, or the
// connection ends.
func (c *Call) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithCancel(context.Background())
		if c.abandoned || c.answered.Load() || (c.via != nil && c.via.isDone()) {
			c.cancel()
		} else {
			c.watch()
		}
	}
	return c.ctx
}

// Conn returns the connection the call came over; nil for a call from within this process.
func (c *Call) Conn() *Conn { return c.via }

// Go runs f on a goroutine of its own; calls that arrive later do not wait for it. A panic in f is answered as an
// internal error.
func (c *Call) Go(f func(ctx context.Context)) {
	ctx := c.Context()
	run := func() {
		defer c.recover()
		f(ctx)
	}
	if c.via == nil {
		go run()
		return
	}
	if !c.via.loop.Spawn(run) {
		c.answer(nil, c.via.brokenErr())
	}
}

// Return answers with v, which may hold stubs, promises, objects, functions and streams: they are taken over.
// A value that cannot be sent is answered as a TypeError. Only the first answer counts.
func (c *Call) Return(v any) {
	switch v.(type) {
	case nil, bool, string, float64, Undefined:
		p := payload{value: v}
		if s, ok := v.(string); ok {
			p.size = len(s)
		}
		c.answer(&p, nil)
		return
	}
	p, err := copyInResult(v, c.via)
	if err != nil {
		c.answer(nil, err)
		return
	}
	c.answer(p, nil)
}

// Fail answers with an error: an *Error unchanged, others as Config.Redact returns.
func (c *Call) Fail(err error) {
	if err == nil {
		err = errInternal
	}
	c.answer(nil, err)
}

// answer answers the call, taking p over.
func (c *Call) answer(p *payload, err error) {
	if !c.answered.CompareAndSwap(false, true) {
		p.release()
		return
	}
	c.endContext()
	if p != nil {
		if over := (via{c: c.via}).chargeHeldBytes(c.result, p.cost(), p.cost()); over != nil {
			p.release()
			p, err = nil, over
		}
	}
	c.result.settle(p, err)
	if c.result.refs.Load() <= 0 { // nobody waits: it is not kept
		c.result.free()
	}
	c.releaseArgs()
}

// detachArgs transfers the arguments to the caller, to be released in place of the call, if it is not answered yet.
func (c *Call) detachArgs() *payload {
	c.mu.Lock()
	defer c.mu.Unlock()
	args := c.args
	c.args = nil
	return args
}

// releaseArgs releases what the call keeps until its answer.
func (c *Call) releaseArgs() {
	c.detachArgs().release()
	if c.queued.Load() {
		c.node.pending.remove(c)
	}
	c.node.unref()
}

// onAbandoned is called when nobody waits for the answer any more.
func (c *Call) onAbandoned() { c.endContext() }

// watch registers the call to be ended with the connection. c.mu is held.
func (c *Call) watch() {
	if c.via != nil && !c.watched && !c.answered.Load() {
		c.watched = true
		c.via.watchCall(c)
	}
}

func (c *Call) endContext() {
	c.mu.Lock()
	c.abandoned = true
	cancel, watched := c.cancel, c.watched
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if watched && c.answered.Load() {
		c.via.unwatchCall(c)
	}
}

// onConnEnd is called when the connection has ended.
func (c *Call) onConnEnd() {
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// deliver passes the call to its object, on the delivery goroutine.
func (c *Call) deliver() {
	defer c.recover()
	if c.via != nil && c.via.isDone() {
		c.answer(nil, c.via.brokenErr())
		return
	}
	c.node.obj.Serve(c)
	if !c.answered.Load() {
		c.mu.Lock()
		c.watch()
		c.mu.Unlock()
		if c.answered.Load() { // meanwhile
			c.endContext()
		}
	}
}

func (c *Call) recover() {
	if r := recover(); r != nil {
		c.answer(nil, panicError(logOf(c.via), "a handler panicked", r, "method", c.Method()))
	}
}
