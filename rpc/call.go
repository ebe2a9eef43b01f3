// Object and Call: a call as its callee sees it; and panics of a program's code, each of which is logged and affects nothing
// else.

package rpc

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// Object serves calls. The calls that come over one connection to one object are delivered one by one, in the order in
// which they arrived, on that connection's delivery goroutine; calls of different connections may be delivered at the
// same time. Serve must not block: it answers, or keeps the Call and answers later from any goroutine (see Call.Go). A
// panic in Serve fails the call and nothing else: the caller's error and the log name the same incident.
type Object interface{ Serve(call *Call) }

// Releaser is implemented by objects that are to be notified when no reference to them is left and no call on them is
// unanswered. Release must not block.
type Releaser interface{ Release() }

// Call is a call being served, until Return or Fail. Its methods may be called from any goroutine.
type Call struct {
	method Method
	caps   CapTable

	conn *Conn    // the peer it came from, or nil
	ans  *answer  // where the answer goes: the peer's question, or
	p    *Promise // a promise of this vat

	in  atomic.Pointer[wire.In] // the message the parameters are in: received, until the answer, or
	out *outMsg                 // built by Ref.Call

	encoded *EncodedParams // of Ref.CallEncoded; nil for others

	// Both change on the way to the callee, under mu, and not after that, except that the answer clears dst.
	via *Conn // on whose delivery goroutine it runs
	dst node  // the destination, counted; an object until the answer

	hops int

	onAnswer            func(error) // set by OnAnswer
	answered            atomic.Bool
	mu                  sync.Mutex // guards the fields below
	canceled            bool
	delivered           bool        // to an object, or sent on
	cancelOnceDelivered bool        // cancel once delivered
	forwarded           *Promise    // the same call, forwarded to a peer
	waitsFor            *promiseCap // the promise in one of whose lanes it is, or was last
	ctx                 context.Context
	cancelCtx           context.CancelFunc
}

// Method returns the method called. Name is empty for calls of a peer.
func (c *Call) Method() Method { return c.method }

// Context returns a context that is cancelled when the caller cancels the call (Finish), when the connection ends, and
// after the answer.
func (c *Call) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.cancelCtx = context.WithCancel(context.Background())
		if c.canceled {
			c.cancelCtx()
		}
	}
	return c.ctx
}

// cancel cancels the context, and the call if it was forwarded; one that waits for a promise fails. No lock may be
// held.
func (c *Call) cancel() {
	c.mu.Lock()
	c.canceled = true
	f, onward, promise := c.cancelCtx, c.forwarded, c.waitsFor
	c.forwarded, c.waitsFor = nil, nil
	c.mu.Unlock()
	if f != nil {
		f()
	}
	if onward != nil {
		onward.Release()
	}
	if promise != nil {
		promise.failWaiting(c, errCanceled)
	}
}

// markWaiting records that the call is in a lane of p; false if it is cancelled.
func (c *Call) markWaiting(p *promiseCap) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitsFor = p
	return !c.canceledLocked()
}

// markForwarded records that the call was forwarded to a peer, so that cancelling it cancels that; false if it is cancelled.
func (c *Call) markForwarded(p *Promise) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.canceledLocked() {
		return false
	}
	c.forwarded = p
	return true
}

// cancelAfterDelivery marks the call to be cancelled once it is delivered. It reports true if it is delivered already.
func (c *Call) cancelAfterDelivery() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelOnceDelivered = !c.delivered
	return c.delivered
}

func (c *Call) isCanceled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canceledLocked()
}

// canceledLocked is isCanceled with the call's lock held. The end of its connection cancels a call at once,
// though cancelling all of them takes a while.
func (c *Call) canceledLocked() bool {
	if c.conn != nil {
		select {
		case <-c.conn.Done():
			return true
		default:
		}
	}
	return c.canceled
}

// Params returns the parameters and their capabilities, before the answer. The struct is valid for as long as it is
// referenced; the table's capabilities are released with the answer: use CapTable.Get before that for those to keep.
func (c *Call) Params() (capnp.Struct, *CapTable) {
	if in := c.in.Load(); in != nil {
		return in.Content.Struct(), &c.caps
	}
	if c.out == nil { // answered
		return capnp.Struct{}, &c.caps
	}
	_, _, params, _ := c.out.Params() // null if it cannot be read
	return params.Struct(), &c.caps
}

// PlainParams returns the parameters for reading without the generated code, before the answer; they stay valid for as
// long as they are referenced. ok is false if the message is not plain: from a peer, without capabilities, in one segment,
// as nearly all are. Params returns them in any case.
func (c *Call) PlainParams() (params capnpfast.Message, ok bool) {
	if in := c.in.Load(); in != nil {
		params = in.PlainContent
	}
	return params, params.IsValid()
}

// Encoded returns the parameters of a call that CallEncoded made in this process, so that what is made of them need be made only once;
// nil for all other calls. Params returns them in any case.
func (c *Call) Encoded() *EncodedParams { return c.encoded }

// OnAnswer sets a function called, once, when the call is answered: with the error, or nil. Serve must call it before
// anything else. f must not block.
func (c *Call) OnAnswer(f func(err error)) { c.onAnswer = f }

// notifyAnswered calls the function set by OnAnswer.
func (c *Call) notifyAnswered(err error) {
	if c.onAnswer != nil {
		c.onAnswer(err)
	}
}

// Return answers with results: place fills in a struct of size sz, valid only until place returns. An error of place
// fails the call. A nil place returns a struct of zeros. Of all Returns and Fails the first counts.
func (c *Call) Return(sz capnp.ObjectSize, place func(results capnp.Struct, caps *CapTable) error) {
	c.returnResults(sz, place, false)
}

// ReturnLazily is Return without results, to a caller that waits for nothing but leave to send more: the answer leaves with
// the next message, or 20 milliseconds later.
func (c *Call) ReturnLazily() { c.returnResults(capnp.ObjectSize{}, nil, true) }

func (c *Call) returnResults(sz capnp.ObjectSize, place func(results capnp.Struct, caps *CapTable) error, lazily bool) {
	if !c.answered.CompareAndSwap(false, true) {
		return
	}
	out, err := c.build(sz, place)
	caps := out.takeCaps()
	if err != nil {
		caps.release(c.via)
		out.free()
		c.fail(err)
		return
	}
	c.notifyAnswered(nil)
	c.sendResults(out, caps, lazily)
}

// build runs place and turns its panic into an error.
func (c *Call) build(sz capnp.ObjectSize, place func(capnp.Struct, *CapTable) error) (out *outMsg, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = c.panicError(r)
		}
	}()
	out = newOutMsg()
	results, err := out.InitResults(sz)
	if err == nil && place != nil {
		err = place(results, &out.caps)
	}
	return out, err
}

// sendResults passes results to the caller; lazily, if nobody waits for them.
func (c *Call) sendResults(out *outMsg, caps CapTable, lazily bool) {
	if c.ans != nil {
		c.conn.sendResults(c.ans, out, caps, lazily)
	} else {
		_, _, content, err := out.Results()
		if err == nil {
			c.p.completeLocal(c, content, caps, nil)
		} else {
			caps.release(c.via)
			c.p.completeLocal(c, capnp.Ptr{}, CapTable{}, Failedf("results: %v", err))
		}
	}
	c.cleanup()
}

// Fail answers with an error. An *Exception or Excepter keeps its type and reason; any other error is sent as failed
// with a text that reveals nothing, and logged.
func (c *Call) Fail(err error) {
	if c.answered.CompareAndSwap(false, true) {
		c.fail(err)
	}
}

func (c *Call) fail(err error) {
	c.notifyAnswered(err)
	if c.conn != nil {
		c.conn.countHitOf(err)
	}
	ex, hidden := exceptionFor(err)
	if hidden && c.conn != nil {
		c.conn.log.Error("call failed", "peer", c.conn.RemoteAddr(), "interface", c.method.Interface,
			"method", c.method.ID, "error", err)
	}
	if c.ans != nil {
		c.conn.sendException(c.ans, ex)
	} else {
		c.p.completeLocal(c, capnp.Ptr{}, CapTable{}, ex)
	}
	c.cleanup()
}

// cleanup releases what the call references, once it is answered.
func (c *Call) cleanup() {
	c.mu.Lock()
	dst, via := c.dst, c.via
	c.dst = nil
	c.mu.Unlock()
	c.caps.release(via)
	c.cancel()
	if dst != nil {
		dst.unref(via)
	}
}

// Go runs f in a goroutine that the connection waits for before Run returns; ctx is Context(). A panic of f fails the
// call and nothing else. Once the connection has ended f is not run.
func (c *Call) Go(f func(ctx context.Context)) {
	ctx := c.Context()
	run := func() {
		defer c.recoverPanic()
		f(ctx)
	}
	if c.conn == nil {
		go run()
	} else if !c.conn.loop.Spawn(run) {
		c.Fail(errEnded)
	}
}

// Peer returns the connection the call came over; nil for a call made within the vat.
func (c *Call) Peer() *Conn { return c.conn }

// serve calls the object's Serve. The object keeps its count until the answer.
func (c *Call) serve(o Object) {
	defer c.recoverPanic()
	o.Serve(c)
}

func (c *Call) recoverPanic() {
	if r := recover(); r != nil {
		c.Fail(c.panicError(r))
	}
}

// panicError logs a handler's panic and returns the error for the caller.
func (c *Call) panicError(r any) error {
	name := incident.New()
	logPanic(c.conn, "handler panicked", r, "incident", name, "interface", c.method.Interface, "method", c.method.ID)
	return Failedf("%s", incident.Internal(name))
}

// logPanic logs a recovered panic: to c's logger, or the default one for calls within the vat, where c is nil.
func logPanic(c *Conn, what string, r any, more ...any) {
	log := slog.Default()
	if c != nil {
		log, more = c.log, append([]any{"peer", c.RemoteAddr()}, more...)
	}
	log.Error(what, append(more, "panic", r, "stack", string(debug.Stack()))...)
}

// notify runs a program's notification, on c's delivery goroutine or within the vat.
func notify(c *Conn, f func()) {
	defer func() {
		if r := recover(); r != nil {
			logPanic(c, "a notification panicked", r)
		}
	}()
	f()
}
