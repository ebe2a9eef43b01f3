// Promise: the answer to a call, as its caller sees it.

package rpc

import (
	"context"
	"slices"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/serialqueue"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// Promise is the answer to a call, which may not have arrived yet. All methods may be called from any goroutine.
type Promise struct {
	q question // if the call went to a peer: guarded by conn.mu

	mu        sync.Mutex // guards the fields below; taken under conn.mu, never the other way round
	conn      *Conn      // the peer the call went to, once it has; never changes after that
	call      *Call      // the call, while it is within the vat
	done      bool
	released  bool
	ready     chan struct{}
	notify    []func()
	content   capnp.Ptr
	msg       *wire.In // the message that holds content, if it is plain
	caps      CapTable
	err       *Exception
	pipelined []pipelinedPromise // promises of results, made before the call went to a peer, if it does
}

// pipelinedPromise is the promise of the capability at one path of the results.
type pipelinedPromise struct {
	path []uint16
	cap  *promiseCap
}

// anyReferenced reports whether a reference to any of them is left.
func anyReferenced(pipes []pipelinedPromise) bool {
	return slices.ContainsFunc(pipes, func(lp pipelinedPromise) bool { return lp.cap.refs.Load() > 0 })
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done returns a channel that is closed when the answer, a result or an error, has arrived.
func (p *Promise) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return closedChan
	}
	if p.ready == nil {
		p.ready = make(chan struct{})
	}
	return p.ready
}

// Wait waits for the answer and returns it, or ctx's error. ctx's end does not cancel the call; Release does. The results
// may be read from any goroutine; their capabilities are valid until Release. Errors of the call are *Exception.
func (p *Promise) Wait(ctx context.Context) (capnp.Struct, *CapTable, error) {
	select {
	case <-p.Done():
	case <-ctx.Done():
		return capnp.Struct{}, nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return capnp.Struct{}, nil, p.err
	}
	return p.content.Struct(), &p.caps, nil
}

// PlainResults returns the results for reading without the generated code, once Wait has returned them. ok is false if the
// message is not plain: from a peer, without capabilities, in one segment, as nearly all are.
func (p *Promise) PlainResults() (results capnpfast.Message, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.msg != nil && p.done && p.err == nil {
		results = p.msg.PlainContent
	}
	return results, results.IsValid()
}

// Notify registers f to be called once when the answer arrives: on a delivery goroutine, where it must not block, in the order
// of arrival among calls and answers of the connection; or at once, on this goroutine, if the answer has arrived.
func (p *Promise) Notify(f func()) {
	p.mu.Lock()
	if p.done {
		p.mu.Unlock()
		f()
		return
	}
	p.notify = append(p.notify, f)
	p.mu.Unlock()
}

// Cap returns a new reference to the capability at a path of pointer fields of the result: p.Cap(0) is the first pointer
// field. Before the answer arrives, calls on it are pipelined. It may be called any number of times, before and after
// resolution; the references of one path keep their calls in order. A path that leads nowhere and a null pointer yield
// a broken reference, as does a call after Release.
func (p *Promise) Cap(path ...uint16) *Ref {
	p.mu.Lock()
	if i := slices.IndexFunc(p.pipelined, func(lp pipelinedPromise) bool { return slices.Equal(lp.path, path) }); i >= 0 {
		if lp := p.pipelined[i].cap; lp.tryRef() || !p.released && lp.tryRevive() {
			p.mu.Unlock()
			return &Ref{node: lp}
		}
	}
	if p.conn != nil {
		conn := p.conn
		p.mu.Unlock()
		return conn.pipelineRef(p, path)
	}
	defer p.mu.Unlock()
	if p.done || p.released {
		return p.resultCap(path)
	}
	lp := newPromiseCap()
	lp.owner = p
	p.pipelined = append(p.pipelined, pipelinedPromise{slices.Clone(path), lp})
	return &Ref{node: lp}
}

// resultCap returns the capability at path of an answer that has arrived. p.mu is held.
func (p *Promise) resultCap(path []uint16) *Ref {
	switch {
	case p.err != nil:
		return NewBroken(p.err)
	case p.released:
		return NewBroken(errReleased)
	}
	return capAt(p.content, &p.caps, path)
}

// Release releases the answer. An unanswered call is cancelled, unless pipelined references to its result are left, in
// which case it is cancelled when the last of those is released. Results and their capabilities are released.
func (p *Promise) Release() {
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		return
	}
	p.released = true
	if p.done {
		caps := p.caps
		p.mu.Unlock()
		caps.release(nil)
		return
	}
	conn, call := p.conn, p.cancelableLocked()
	p.mu.Unlock()
	if conn != nil {
		conn.releaseQuestion(p)
	} else if call != nil {
		call.cancel()
	}
}

// cancelableLocked returns the call if it is within the vat and nobody waits for it any more, else nil.
func (p *Promise) cancelableLocked() *Call {
	if p.released && !p.done && p.conn == nil && !anyReferenced(p.pipelined) {
		return p.call
	}
	return nil
}

// pipelinedDropped is called when the last reference to one of p.pipelined is released.
func (p *Promise) pipelinedDropped() {
	p.mu.Lock()
	call := p.cancelableLocked()
	p.mu.Unlock()
	if call != nil {
		call.cancel()
	}
}

// fail completes the promise of a call that was not made.
func (p *Promise) fail(ex *Exception) { p.completeLocal(nil, capnp.Ptr{}, CapTable{}, ex) }

// completeLocal completes a promise whose call has not gone to a peer, taking over caps. No lock may be held.
func (p *Promise) completeLocal(call *Call, content capnp.Ptr, caps CapTable, ex *Exception) {
	via := (*Conn)(nil)
	if call != nil {
		via = call.via
	}
	p.mu.Lock()
	var pipes []pipelinedPromise
	var targets []*Ref // read under the lock: a program that waits for the answer may release it as soon as it has arrived
	if !p.done {
		pipes = p.pipelined
	}
	for _, lp := range pipes {
		if ex != nil {
			targets = append(targets, brokenRef(ex))
		} else {
			targets = append(targets, capAt(content, &caps, lp.path))
		}
	}
	notify, drop := p.completeLocked(content, caps, ex)
	p.mu.Unlock()
	for i, lp := range pipes {
		lp.cap.resolve(targets[i])
	}
	drop.release(via)
	p.runNotify(notify, via, call)
}

// complete sets the answer and returns what is left to do without locks: notifications to run, and capabilities to release
// if the promise is released.
func (p *Promise) complete(content capnp.Ptr, caps CapTable, ex *Exception) (notify []func(), drop CapTable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.completeLocked(content, caps, ex)
}

// completeLocked is complete with the promise's lock held.
func (p *Promise) completeLocked(content capnp.Ptr, caps CapTable, ex *Exception) (notify []func(), drop CapTable) {
	if p.done {
		return nil, caps
	}
	p.done = true
	p.content, p.caps, p.err = content, caps, ex
	p.call = nil
	if p.ready != nil {
		close(p.ready)
	}
	notify, p.notify = p.notify, nil
	if p.released {
		drop = caps
	}
	return notify, drop
}

// runNotify runs notifications on a delivery goroutine.
func (p *Promise) runNotify(fs []func(), via *Conn, call *Call) {
	if len(fs) == 0 {
		return
	}
	run := func() {
		for _, f := range fs {
			notify(via, f)
		}
	}
	if via != nil && via.post(peerconn.Func(run)) {
		return
	}
	if call != nil {
		call.mu.Lock()
		l, ok := call.dst.(*localCap)
		call.mu.Unlock()
		if ok {
			l.deliveries.Post(run)
			return
		}
	}
	detached.Post(run)
}

// detached runs the notifications of promises that were never bound for an object or a connection.
var detached serialqueue.Queue
