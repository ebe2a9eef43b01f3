// Ref: a counted reference to an object, wherever the object is; and the kinds of node that live in this vat: objects, and
// references broken from the start. Imports are remoteCap, promises of this vat promiseCap.

package rpc

import (
	"context"
	"sync/atomic"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/serialqueue"
)

// Method names a method of an interface. Interface and ID go on the wire; Name is for errors and logs only.
type Method struct {
	Interface uint64
	ID        uint16
	Name      string
}

// Ref is a counted reference to an object: one of this vat, one of a peer, or a promise of one. Two calls made through
// one Ref are delivered in the order in which they were made, also when the promise resolves in between. A nil *Ref is
// the null capability: calls on it fail. All methods may be called from any goroutine.
type Ref struct {
	node       node
	via        *Conn // the connection on whose delivery goroutine a local object is called; nil for the object's own
	released   atomic.Bool
	peerHosted bool // the message it came in names it as hosted by the peer
}

// node is what a Ref points at: localCap, remoteCap, promiseCap or brokenCap.
type node interface {
	tryRef() bool // takes a count, unless the last one is released
	// unref releases a count. No lock may be held. The object's release runs on c if given, else at once.
	unref(c *Conn)
	// resolution returns the node that calls go to instead, if this is a promise that has resolved; else nil. No connection's
	// lock may be held.
	resolution() node
}

// tryInc takes a count unless the last one is released.
func tryInc(n *atomic.Int64) bool {
	for {
		v := n.Load()
		if v <= 0 {
			return false
		}
		if n.CompareAndSwap(v, v+1) {
			return true
		}
	}
}

// NewLocal returns a first reference to an object of this vat. When the last reference is released (local ones and those of
// all peers), o.Release is called if o is a Releaser: on the goroutine that released, or on a connection's delivery
// goroutine. Two references made by NewLocal from one object are counted separately.
func NewLocal(o Object) *Ref { return &Ref{node: newLocalCap(o)} }

// NewPromise returns a reference to an object not yet known, and the function that resolves it: to a reference (a new
// count is taken) or to an error. Calls made before that wait, up to a limit. The first resolution counts. A promise
// passed to a peer is announced as one and resolved there too.
func NewPromise() (r *Ref, resolve func(to *Ref, err error)) {
	p := newPromiseCap()
	return &Ref{node: p}, func(to *Ref, err error) {
		if err == nil && to == nil {
			err = errNullCall
		}
		if err != nil {
			to = NewBroken(err)
		} else {
			to = to.AddRef()
		}
		p.resolve(to)
	}
}

// NewBroken returns a reference on which every call fails with err.
func NewBroken(err error) *Ref {
	ex, _ := exceptionFor(err)
	return &Ref{node: &brokenCap{err: ex}}
}

// AddRef returns another reference to the same object, released independently. On a nil Ref it returns nil.
func (r *Ref) AddRef() *Ref {
	if r == nil {
		return nil
	}
	if r.released.Load() || !r.node.tryRef() {
		return NewBroken(errReleased)
	}
	return &Ref{node: r.node, via: r.via, peerHosted: r.peerHosted}
}

var errReleased = Failedf("the reference has been released")

// Release releases the reference. Further calls of Release do nothing; calls through the Ref fail.
func (r *Ref) Release() { r.releaseOn(nil) }

func (r *Ref) releaseOn(c *Conn) {
	if r != nil && r.released.CompareAndSwap(false, true) {
		r.node.unref(c)
	}
}

// Call sends a call and returns its promise at once. place fills in the parameters (a struct of size sz, zero at first,
// valid only until place returns) and their capabilities; it runs before Call returns, without locks held, and may be
// nil. A call on a remote object is queued for sending immediately, one on an unresolved promise is pipelined.
//
// Call waits only when Limits.Questions or Limits.QueuedBytes is reached, for as long as ctx allows; ctx has no other
// effect: release the promise to cancel the call. All errors are reported by the promise.
func (r *Ref) Call(ctx context.Context, m Method, sz capnp.ObjectSize, place func(params capnp.Struct, caps *CapTable) error) *Promise {
	p, _ := r.call(ctx, m, sz, place)
	return p
}

// call is Call; gaveUp is ctx's error if the call was not made because it had to wait and ctx ended.
func (r *Ref) call(ctx context.Context, m Method, sz capnp.ObjectSize, place func(capnp.Struct, *CapTable) error) (p *Promise, gaveUp error) {
	p, begun := r.beginCall()
	if !begun {
		return p, nil
	}
	defer r.node.unref(nil)
	out, err := newCall(m, sz, place)
	return p, r.sendCall(ctx, m, p, out, nil, err)
}

// CallEncoded is Call with parameters that EncodeParams has encoded.
func (r *Ref) CallEncoded(ctx context.Context, m Method, params *EncodedParams) *Promise {
	p, begun := r.beginCall()
	if !begun {
		return p
	}
	defer r.node.unref(nil)
	out := newOutMsg()
	err := out.InitEncodedCall(m.Interface, m.ID, params.size, params.memory)
	_ = r.sendCall(ctx, m, p, out, params, err)
	return p
}

// beginCall makes the promise of a call. begun is false if that has failed; else the caller unrefs the node when the call is made.
func (r *Ref) beginCall() (p *Promise, begun bool) {
	p = new(Promise)
	switch {
	case r == nil:
		p.fail(errNullCall)
	case r.released.Load() || !r.node.tryRef():
		p.fail(errReleased)
	default:
		return p, true
	}
	return p, false
}

// sendCall makes a call with a message, or fails it with err, the error of making that. encoded is what CallEncoded was given, or nil.
// gaveUp is as call's.
func (r *Ref) sendCall(ctx context.Context, m Method, p *Promise, out *outMsg, encoded *EncodedParams, err error) (gaveUp error) {
	if err != nil {
		ex, hidden := exceptionFor(err)
		if hidden { // the caller's own error, for the caller: nothing to hide
			ex = Failedf("parameters: %v", err)
		}
		p.fail(ex)
		return nil
	}
	var refused *Exception
	if t, remote := r.node.(*remoteCap); remote {
		var sent bool
		if sent, refused = t.conn.trySendCall(t, p, out); sent {
			return nil
		}
	}
	if err := out.Join(); err != nil { // it may be read from now on
		refused = Failedf("parameters: %v", err)
	}
	call := &Call{method: m, p: p, out: out, caps: out.takeCaps(), encoded: encoded}
	p.call = call
	if refused != nil {
		call.Fail(refused)
	} else {
		gaveUp = call.dispatch(ctx, r.node, r.via, false)
	}
	return gaveUp
}

// Object returns the object behind the reference if it is known to be one of this vat, else nil, so that a server can
// recognize its own capability when a peer passes it back. The object stays alive until the Ref is released.
func (r *Ref) Object() Object {
	if r == nil || r.released.Load() {
		return nil
	}
	n := r.node
	for hops := 0; n != nil && hops < maxHops; hops++ {
		if l, ok := n.(*localCap); ok {
			return l.object
		}
		n = n.resolution()
	}
	return nil
}

// maxHops bounds how many resolved promises a call may go through to its object.
const maxHops = 64

var errTooManyHops = Failedf("the promise resolves through more than %d others, or to itself", maxHops)

// WhenResolved calls f once it is known where the reference leads: to an object of this vat, which Object then returns,
// to one of a peer, or nowhere. f is called at once, on this goroutine, if that is known, and also for a peer's
// promise, since that leads to the peer; else on a delivery goroutine, where it must not block. The reference must not
// be released before.
func (r *Ref) WhenResolved(f func()) {
	if r == nil || r.released.Load() {
		f()
		return
	}
	whenResolved(r.node, r.via, f, maxHops)
}

func whenResolved(n node, via *Conn, f func(), hops int) {
	for ; hops > 0 && n != nil; hops-- {
		if p, ok := n.(*promiseCap); ok {
			p.onResolve(via, hook{run: func() {
				notify(via, func() { whenResolved(p.resolution(), via, f, hops-1) })
			}})
			return
		}
		n = n.resolution()
	}
	f()
}

// localCap is an object of this vat and the count of its references.
type localCap struct {
	object     Object
	refs       atomic.Int64
	deliveries serialqueue.Queue // delivers calls made within the vat
}

func newLocalCap(o Object) *localCap {
	l := &localCap{object: o}
	l.refs.Store(1)
	return l
}

func (l *localCap) tryRef() bool { return tryInc(&l.refs) }

func (*localCap) resolution() node { return nil }

func (l *localCap) unref(c *Conn) {
	if l.refs.Add(-1) != 0 {
		return
	}
	r, ok := l.object.(Releaser)
	if !ok {
		return
	}
	if c != nil && c.post(peerconn.Func(func() { releaseObject(r) })) {
		return
	}
	releaseObject(r)
}

func releaseObject(r Releaser) {
	defer func() {
		if p := recover(); p != nil {
			logPanic(nil, "an object's Release panicked", p)
		}
	}()
	r.Release()
}

// brokenCap fails every call.
type brokenCap struct{ err *Exception }

func (*brokenCap) tryRef() bool     { return true }
func (*brokenCap) unref(*Conn)      {}
func (*brokenCap) resolution() node { return nil }
