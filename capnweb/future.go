// future: a node that is pending, or resolved to a value, an error or another node.

package capnweb

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// future is a result. Calls and reads of a pending one wait in it, in order.
type future struct {
	refs  atomic.Int32
	state atomic.Uint32

	val  payload
	next node // the node it resolved to
	err  error

	waitsOn       atomic.Pointer[future]     // the future whose answer this one depends on, while that is pending
	captured      atomic.Bool                // a value has referred to it since before it was resolved
	owner         interface{ onAbandoned() } // notified when the future is not referenced any more, while it is pending
	pendingCharge memoryCharge               // charged to a peer while it is pending
	heldCharge    memoryCharge               // and while it is referenced

	mu     sync.Mutex
	inline waiters[func()] // run at once when it is resolved: they run no code of the program's
	lanes  lanes           // run on the delivery goroutines of the connections they came over, in order

	done     chan struct{} // closed when it is resolved, if somebody waits
	disposed bool
}

// The states of a future, in their order.
const (
	statePending  uint32 = iota
	stateBound           // val, next and err are set, for good: readable with its lock, or linkMu, held
	stateResolved        // and its waiting work is queued for delivery: readable by all
	stateDrained         // and nothing waits any more; before that, ordered operations check with the lock held
)

// reached reports whether it has reached the state.
func (f *future) reached(state uint32) bool { return f.state.Load() >= state }

func newFuture() *future {
	f := &future{}
	f.refs.Store(1)
	return f
}

// newValue returns a resolved future.
func newValue(p *payload) *future {
	f := newFuture()
	f.val.value, f.val.refs, f.val.promises, f.val.size = p.value, p.refs, p.promises, p.size
	f.state.Store(stateDrained)
	return f
}

func newError(err error) *future {
	f := newFuture()
	f.err = err
	f.state.Store(stateDrained)
	return f
}

func (f *future) ref() { f.refs.Add(1) }

func (f *future) unref() {
	if n := f.refs.Add(-1); n == 0 {
		f.free()
	} else if n < 0 {
		panic("capnweb: a reference was given up twice")
	}
}

// free releases the contents of a future that is not referenced any more.
func (f *future) free() {
	f.mu.Lock()
	owner := f.owner
	f.mu.Unlock()
	if owner != nil {
		owner.onAbandoned()
	}
	f.mu.Lock()
	is := f.reached(stateResolved)
	var b memoryCharge
	var left *Conn
	if _, runs := owner.(*Call); is || !runs { // a call is charged until its handler is done
		b, f.pendingCharge = f.pendingCharge, memoryCharge{}
	} else if f.pendingCharge.c != nil && !f.pendingCharge.abandoned {
		f.pendingCharge.abandoned, left = true, f.pendingCharge.c
	}
	held := f.heldCharge
	f.heldCharge = memoryCharge{}
	f.mu.Unlock()
	b.release()
	if left != nil {
		left.mu.Lock()
		left.abandonedCalls++
		left.unlockAndRun() // a batch need not wait for it
	}
	held.releaseHeld()
	if is {
		f.dispose()
	}
}

func (f *future) dispose() {
	f.mu.Lock()
	gone := f.disposed
	f.disposed = true
	f.mu.Unlock()
	if gone {
		return
	}
	f.val.release()
	if f.next != nil {
		f.next.unref()
	}
}

// nodeOf makes a node of a payload, which it takes over: the target of a promise that is the whole value, or the value.
func nodeOf(p *payload) node {
	if pr, ok := p.value.(*Promise); ok {
		n := pr.node.get(via{}, pr.path)
		p.release()
		return n
	}
	return newValue(p)
}

// settle resolves the future with a payload, which it takes over, or an error.
func (f *future) settle(p *payload, err error) {
	if err == nil && p != nil {
		if pr, ok := p.value.(*Promise); ok {
			n := pr.node.get(via{}, pr.path)
			p.release()
			f.resolve(nil, n, nil)
			return
		}
	}
	f.resolve(p, nil, err)
}

// resolve resolves the future to a value, an error or another node, all taken over. It reports false if it was resolved
// before.
func (f *future) resolve(p *payload, next node, err error) bool {
	locked := next != nil || p != nil && len(p.refs) > 0
	if locked {
		linkMu.Lock()
		circle := false
		if n := linkOf(p, next); n != nil {
			circle = leadsTo(n, f)
		}
		if !circle && f.captured.Load() {
			circle = refersBackTo(p, next, f)
		}
		if circle {
			linkMu.Unlock()
			p.release()
			if next != nil {
				next.unref()
			}
			return f.resolve(nil, nil, errCycle)
		}
	}
	f.mu.Lock()
	was := f.reached(stateResolved)
	if !was {
		if p != nil {
			f.val.value, f.val.refs, f.val.promises, f.val.size = p.value, p.refs, p.promises, p.size
		}
		f.next, f.err = next, err
		f.state.Store(stateBound)
		f.waitsOn.Store(nil)
		f.owner = nil
		if next != nil && f.captured.Load() {
			markCaptured(next) // references to f are references to next
		}
	}
	if locked {
		linkMu.Unlock()
	}
	if was {
		f.mu.Unlock()
		p.release()
		if next != nil {
			next.unref()
		}
		return false
	}
	// Code that is notified, or asks from now on, comes behind the waiting work: it needs the lock until that is queued.
	going := make([]*Conn, 0, len(f.lanes.byConn))
	for c := range f.lanes.byConn {
		via{c: c}.enqueue(peerconn.Func(func() { f.drainLane(c) }))
		going = append(going, c)
	}
	if f.state.Store(stateResolved); len(going) == 0 {
		f.state.Store(stateDrained)
	}
	quick, done := f.inline.drain(), f.done
	f.done = nil
	forgotten := f.refs.Load() <= 0
	b := f.pendingCharge
	f.pendingCharge = memoryCharge{}
	f.mu.Unlock()
	if next != nil {
		b.releaseWhenResolved(next) // it is answered when that is
	} else {
		b.release()
	}
	if done != nil {
		close(done)
	}
	for _, g := range quick {
		g.f()
	}
	wakeConns(going)
	if forgotten {
		f.dispose()
	}
	return true
}

// wait returns a channel that is closed when the future is resolved, nil if it is.
func (f *future) wait() <-chan struct{} {
	if f.reached(stateDrained) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reached(stateResolved) {
		return nil
	}
	if f.done == nil {
		f.done = make(chan struct{})
	}
	return f.done
}

// whenResolved calls g when the future is resolved: at once, or on the goroutine that resolves it, after the calls that wait
// for it. Once over is set, if it is given, g need not be called.
func (f *future) whenResolved(g func(), over *atomic.Bool) {
	if !f.reached(stateDrained) {
		f.mu.Lock()
		if !f.reached(stateResolved) {
			f.inline.add(g, over)
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
	}
	g()
}

func (f *future) call(on via, path []string, args *payload) node {
	if f.reached(stateDrained) {
		return f.callResolved(on, path, args)
	}
	return f.enqueueBehind(on, false, func(f *future, on via) node { return f.callResolved(on, path, args) })
}

func (f *future) callResolved(on via, path []string, args *payload) node {
	switch {
	case f.err != nil:
		args.release()
		return newError(f.err)
	case f.next != nil:
		return f.next.call(on, path, args)
	}
	_, n, rest, err := follow(f.val.value, path)
	if n == nil && err == nil {
		if s, ok := f.leafStub(path); ok {
			return s.node.call(on, nil, args)
		}
		err = notAFunction(path)
	}
	if err != nil {
		args.release()
		return newError(err)
	}
	return n.call(on, rest, args)
}

// leaf returns the value at path, if it is resolved and no promise.
func (f *future) leaf(path []string) (v any, ok bool) {
	if !f.reached(stateResolved) || f.err != nil || f.next != nil {
		return nil, false
	}
	v, n, _, err := follow(f.val.value, path)
	if err != nil || n != nil {
		return nil, false
	}
	_, promise := v.(*Promise)
	return v, !promise
}

// leafStub returns the stub at exactly path.
func (f *future) leafStub(path []string) (*Stub, bool) {
	leaf, _, _, _ := follow(f.val.value, path)
	s, ok := leaf.(*Stub)
	return s, ok
}

func notAFunction(path []string) error {
	name := strings.Join(path, ".")
	if len(name) > 200 {
		name = transport.Truncate(name, 200)
	}
	return TypeErrorf("'%s' is not a function.", name)
}

func (f *future) get(on via, path []string) node {
	if len(path) == 0 {
		f.ref()
		return f
	}
	if f.reached(stateDrained) {
		return f.getResolved(on, path)
	}
	return f.enqueueBehind(on, true, func(f *future, on via) node { return f.getResolved(on, path) })
}

func (f *future) getResolved(on via, path []string) node {
	switch {
	case f.err != nil:
		return newError(f.err)
	case f.next != nil:
		return f.next.get(on, path)
	}
	leaf, n, rest, err := follow(f.val.value, path)
	switch {
	case err != nil:
		return newError(err)
	case n != nil:
		return n.get(on, rest)
	}
	return on.chargeHeld(newValue(f.val.part(leaf)))
}

func (f *future) remap(on via, path []string, captures []node, m *mapProgram) node {
	if f.reached(stateDrained) {
		return f.remapResolved(on, path, captures, m)
	}
	return f.enqueueBehind(on, false, func(f *future, on via) node { return f.remapResolved(on, path, captures, m) })
}

func (f *future) remapResolved(on via, path []string, captures []node, m *mapProgram) node {
	switch {
	case f.err != nil:
		releaseNodes(captures)
		return newError(f.err)
	case f.next != nil:
		return f.next.remap(on, path, captures, m)
	}
	leaf, n, rest, err := follow(f.val.value, path)
	switch {
	case err != nil:
		releaseNodes(captures)
		return newError(err)
	case n != nil:
		return n.remap(on, rest, captures, m)
	}
	return m.apply(on, leaf, &f.val, captures)
}

func (f *future) pull(g func(*payload, error), over *atomic.Bool) {
	f.whenResolved(func() {
		switch {
		case f.err != nil:
			g(nil, f.err)
		case f.next != nil:
			f.next.pull(g, over)
		default:
			g(&f.val, nil)
		}
	}, over)
}

func (f *future) onBroken(g func(error)) {
	f.whenResolved(func() {
		switch {
		case f.err != nil:
			g(f.err)
		case f.next != nil:
			f.next.onBroken(g)
		default:
			if s, ok := f.val.value.(*Stub); ok {
				s.node.onBroken(g)
			}
		}
	}, nil)
}
