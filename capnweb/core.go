// core: the tables of one connection and what a message does to them. It has no goroutine, socket or clock: a message
// goes in through receive, messages come out into out, and work to be done without the lock into afterUnlock.

package capnweb

import (
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// core is guarded by Conn.mu.
type core struct {
	limits Limits

	exports     map[int64]*export
	nextExport  int64 // the next id that we choose, downwards
	nextPush    int64 // the next id of a push of the peer
	exportCount int   // exports without main

	imports           map[int64]*importNode
	nextID            int64 // the next id of a push of ours
	peerChosenImports int   // imports whose id the peer chose
	pendingPulls      int   // our calls that are pulled and not answered

	calls          int // the peer's calls, unanswered
	callBytes      int // bytes of those, and of results that the peer has not released
	abandonedCalls int // those of calls that the peer has cancelled
	refusedCalls   int // calls refused since there was last room for one
	draining       bool

	peerVersion int // the newest version of which the peer has used a feature: 0, 5, 8 or 11

	out            peerconn.Output
	overflowed     bool // too much output is pending: the connection is about to end
	enc            encoder
	ended          error // why there is no more input or output: a *BrokenError
	afterUnlock    []func()
	drop           node                 // a node to be released when the lock is free
	drops          []node               // and further ones
	pipes          map[*pipe]struct{}   // pipes of the peer's that have not ended
	watchedCalls   map[*Call]struct{}   // calls whose Context was called
	waitingFutures map[*future]struct{} // futures in which calls of the peer wait
	counters       Stats
	batch          batchState
	messageCost    int        // decoded size of the present message; the reader's alone
	pathCache      expr.Paths // the reader's alone
}

func (co *core) init(lim Limits) {
	co.limits = lim
	co.exports = make(map[int64]*export)
	co.imports = make(map[int64]*importNode)
	co.watchedCalls = make(map[*Call]struct{})
	co.waitingFutures = make(map[*future]struct{})
	co.pipes = make(map[*pipe]struct{})
	co.pathCache = make(expr.Paths)
	co.nextExport, co.nextPush, co.nextID = -1, 1, 1
}

// receive handles one message of the peer. on says whether calls may be delivered at once. An error is a violation of the
// protocol.
func (c *Conn) receive(msg []byte, on via) error {
	if len(msg) > c.limits.MessageBytes {
		c.countHit(LimitMessageBytes)
		return expr.Violationf("a message of %d bytes is too large", len(msg))
	}
	c.traceReceived(false, msg)
	switch a, b, kind := expr.PullOrRelease(msg); kind {
	case 'p':
		return c.receivePull(a)
	case 'r':
		return c.receiveRelease(a, b)
	}
	if done, err := c.receiveFast(msg, on); done {
		return err
	}
	v, err := jsontext.Parse(msg, 2*c.limits.Depth+8) // an array takes two: eval counts the levels it evaluates
	if err != nil {
		if err == jsontext.ErrTooDeep {
			c.countHit(LimitDepth)
		}
		return &expr.Violation{Reason: err.Error()}
	}
	m, ok := v.([]any)
	if !ok || len(m) == 0 {
		return expr.Violationf("a message is no array with a name")
	}
	name, _ := m[0].(string)
	switch name {
	case "push":
		if len(m) == 2 {
			return c.receivePush(m[1], len(msg), on, false)
		}
	case "stream":
		if len(m) == 2 {
			c.notePeerVersion(5)
			return c.receivePush(m[1], len(msg), on, true)
		}
	case "pipe":
		if len(m) == 1 {
			c.notePeerVersion(5)
			return c.receivePipe()
		}
	case "pull":
		if id, ok := expr.IDAt(m, 1); ok && len(m) == 2 {
			return c.receivePull(id)
		}
	case "resolve", "reject":
		if id, ok := expr.IDAt(m, 1); ok && len(m) == 3 {
			return c.receiveAnswer(id, m[2], name == "reject", len(msg), on)
		}
	case "release":
		id, ok := expr.IDAt(m, 1)
		n, ok2 := expr.IDAt(m, 2)
		if ok && ok2 && len(m) == 3 {
			return c.receiveRelease(id, n)
		}
	case "abort":
		if len(m) == 2 {
			return c.receiveAbort(m[1], on)
		}
	default:
		return expr.Violationf("unknown message %s", expr.Quoted(name))
	}
	return expr.Violationf("a bad %s message", name)
}

// receiveFast handles a usual call or answer without making values of the arrays around it. A message of any other form is read by
// the parser, which decides.
func (c *Conn) receiveFast(msg []byte, on via) (done bool, err error) {
	if id, path, text, ok := expr.Call(msg, c.pathCache); ok {
		args, err := jsontext.Parse(text, c.limits.Depth)
		if list, ok := args.([]any); ok && err == nil {
			return true, c.receiveCall(id, path, list, len(msg), on)
		}
	} else if id, text, ok := expr.Resolve(msg); ok {
		if v, err := jsontext.Parse(text, c.limits.Depth); err == nil {
			return true, c.receiveAnswer(id, v, false, len(msg), on)
		}
	}
	return false, nil
}

// notePeerVersion records that the peer has used a feature new in version 0.n.
func (c *Conn) notePeerVersion(n int) {
	c.mu.Lock()
	c.peerVersion = max(c.peerVersion, n)
	c.mu.Unlock()
}

// receiveAbort ends the connection at the peer's request.
func (c *Conn) receiveAbort(why any, on via) error {
	p := &payload{}
	v, err := (&evaluator{c: c, on: on, noCalls: true}).eval(why, 0, p)
	p.release()
	if err != nil {
		v = nil
	}
	sent, ok := v.(*Error)
	if !ok {
		sent = &Error{Name: "Error", Message: "the peer aborted the connection"}
	}
	c.loop.End(peerconn.Ending{Err: &BrokenError{Reason: "the peer aborted the connection: " + sent.Error(), Err: sent}, Code: closeAborted,
		Reason: "aborted by the peer"})
	return nil
}

// breakAll empties the tables.
func (c *Conn) breakAll(why error) {
	for call := range c.watchedCalls {
		c.afterUnlock = append(c.afterUnlock, call.onConnEnd)
	}
	for f := range c.waitingFutures {
		c.afterUnlock = append(c.afterUnlock, func() { f.failCalls(c, why) })
	}
	c.waitingFutures = make(map[*future]struct{})
	for p := range c.pipes { // even one kept by a waiter for its end
		c.afterUnlock = append(c.afterUnlock, func() { p.end(&BrokenError{Reason: "the stream's writer has gone", Err: why}, false) })
	}
	for _, id := range slices.Sorted(maps.Keys(c.imports)) {
		in := c.imports[id]
		in.dropped = true
		broken := in.broken
		in.broken = nil
		main := in.id == 0
		c.afterUnlock = append(c.afterUnlock, func() {
			in.resolve(nil, nil, why)
			for _, f := range broken {
				c.loop.RunTask(peerconn.Func(func() { f(why) }))
			}
			if main {
				in.unref()
			}
		})
	}
	c.imports = make(map[int64]*importNode) // a large map never shrinks
	for _, id := range slices.Sorted(maps.Keys(c.exports)) {
		e := c.exports[id]
		e.cancelAnswer()
		c.drops = append(c.drops, e.node)
		if e.pipe != nil {
			r := e.pipe
			c.afterUnlock = append(c.afterUnlock, func() { r.Cancel(why) })
		}
	}
	c.exports = make(map[int64]*export)
	c.peerChosenImports, c.pendingPulls, c.exportCount, c.calls, c.callBytes = 0, 0, 0, 0, 0
}
