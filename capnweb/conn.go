// Conn: one side of a connection over a transport, as the program sees it.

package capnweb

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Config configures a connection.
type Config struct {
	Main      any // the object or function with id 0 for the peer, or a Stub, of which a reference is taken; nil for none
	Limits    Limits
	Logger    *slog.Logger // nil: none
	LimitHits *LimitHits   // counts limits that were reached; may be shared; nil: not counted
	// Intake decides what is accepted from a peer that has not authenticated, and how much memory there is for its messages;
	// nil accepts all that Limits allow. The code that made it closes it after Run.
	Intake *intake.Peer
	// Redact returns the error sent to the peer for one that is no *Error. nil sends "internal error", and logs the original.
	Redact func(error) *Error
	// Trace, if set, is called with every message sent and received, in order. It runs with the connection locked: it must
	// not block, call into this package or keep the message.
	Trace func(sent bool, message []byte)
}

// Conn is one side of a connection. Run serves it; all other methods may be called from any goroutine.
type Conn struct {
	transport Transport
	cfg       Config
	log       *slog.Logger
	hasEnded  atomic.Bool // ended is set
	messages  [][]byte    // the argument of Transport.Write; the writer's alone

	mu sync.Mutex // guards all below; never held while anything outside of this package runs, except Trace
	core
	loop peerconn.Loop
}

// NewConn makes a connection over t, which it owns from then on. Calls may be made at once; nothing is sent or received
// until Run, which must be called.
func NewConn(t Transport, cfg Config) *Conn {
	c := &Conn{transport: t, cfg: cfg}
	c.core.init(cfg.Limits.withDefaults())
	setLimits(t, c.limits)
	lim := &c.limits
	c.loop.Init((*codec)(c), peerconn.Config{
		Lock: &c.mu, Output: &c.out, Transport: t, Log: cfg.Logger, Hits: cfg.LimitHits, Intake: cfg.Intake, RelieveDelivery: true,
		Timeouts: peerconn.Timeouts{Write: lim.WriteTimeout, PingInterval: lim.PingInterval, Ping: lim.PingTimeout, Close: lim.CloseTimeout,
			Handshake: lim.HandshakeTimeout, Idle: lim.IdleTimeout},
	})
	c.log = c.loop.Log()
	var main node
	switch m := cfg.Main.(type) {
	case nil:
		main = newError(&Error{Name: "Error", Message: "this connection has no main object"})
	case *Stub:
		main = m.liveNode()
		main.ref()
	default:
		main = NewStub(m).node
	}
	c.exports[0] = &export{node: main, count: 1}
	in := &importNode{c: c, count: 0}
	in.refs.Store(1)
	c.imports[0] = in
	c.initIntake()
	return c
}

// Run reads and serves until the connection ends, and returns why: nil when either side closed it in an orderly way, ctx's
// error, or the failure (a *BrokenError, or the protocol violation). When it returns, everything is released:
// promises are broken, the contexts of running calls are cancelled and the goroutines of Call.Go have ended. Call it
// once.
func (c *Conn) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// Main returns a stub of the peer's main object. Each call returns a new reference.
func (c *Conn) Main() *Stub {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.imports[0]
	if in == nil {
		return &Stub{node: newError(c.ended)}
	}
	in.refs.Add(1)
	return &Stub{node: in}
}

// Close ends the connection in an orderly way, with a reason: pending output is sent, within Limits.CloseTimeout. It
// returns at once; Run returns when it is done.
func (c *Conn) Close(reason string) {
	c.loop.End(peerconn.Ending{Code: peerconn.CloseNormal, Reason: reason, Flush: true})
}

// Abort ends the connection with an error, which is sent to the peer as Call.Fail would send it. It returns at once.
func (c *Conn) Abort(err error) {
	wireErr := c.redact(err)
	c.loop.End(peerconn.Ending{Err: &BrokenError{Reason: "aborted on this side: " + wireErr.Error(), Err: err}, Code: closeAborted,
		Reason: wireErr.Message, Flush: true, Abort: wireErr})
}

// Drain rejects new calls, waits until the peer's calls are answered and sent, or ctx ends, and closes. The error is
// ctx's.
func (c *Conn) Drain(ctx context.Context, reason string) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	c.draining = true
	return c.loop.Drain(ctx, reason, c.unanswered)
}

// unanswered is zero when the peer's calls are done and their answers sent: a call is done before its answer is sent. The
// lock is held.
func (c *Conn) unanswered() int { return c.calls + c.batch.pendingAnswers }

// waitAtLimit waits until a call of ours may be made.
func (c *Conn) waitAtLimit(ctx context.Context) error {
	c.mu.Lock()
	if c.ended != nil || (c.out.Size() < c.limits.QueuedBytes && c.pendingPulls < c.limits.Calls) {
		c.mu.Unlock()
		return nil
	}
	defer c.unlockAndRun()
	if c.batch.collecting {
		return errOverloaded("the batch is full")
	}
	for c.ended == nil && (c.out.Size() >= c.limits.QueuedBytes || c.pendingPulls >= c.limits.Calls) {
		if c.pendingPulls >= c.limits.Calls {
			c.countHit(LimitCalls)
		} else {
			c.countHit(LimitQueuedBytes)
		}
		if err := c.loop.WaitForRoom(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Done returns a channel that is closed when the connection has ended, before its last goroutines have exited; Err then
// returns why.
func (c *Conn) Done() <-chan struct{} { return c.loop.Done() }

// Err returns why the connection has ended, after Done; nil before, and after an orderly close by either side.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loop.Ending().Err
}

// RemoteAddr returns the peer's name for logs.
func (c *Conn) RemoteAddr() string { return c.transport.RemoteAddr() }

// Stats holds the sizes of a connection's tables, zero after Run, and counters.
type Stats struct {
	Exports, Imports, Calls       int // without the two main objects
	MessagesIn, MessagesOut       uint64
	BytesIn, BytesOut, QueueBytes uint64
}

// Stats returns the present numbers.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.counters
	s.Exports, s.Calls, s.QueueBytes = c.exportCount, c.calls, uint64(c.out.Size())
	if s.Imports = len(c.imports); c.imports[0] != nil {
		s.Imports--
	}
	return s
}

func (c *Conn) isDone() bool { return c.hasEnded.Load() }

// brokenErr returns the error of nodes of an ended connection.
func (c *Conn) brokenErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// watchCall registers a call to be ended with the connection.
func (c *Conn) watchCall(call *Call) {
	c.mu.Lock()
	c.watchedCalls[call] = struct{}{}
	c.mu.Unlock()
}

// failUnanswered answers the calls that no handler has answered, when nothing runs any more. False if there are none.
func (c *Conn) failUnanswered() bool {
	c.mu.Lock()
	calls := slices.Collect(maps.Keys(c.watchedCalls))
	clear(c.watchedCalls)
	err := c.ended
	c.mu.Unlock()
	for _, call := range calls {
		call.answer(nil, err)
	}
	return len(calls) > 0
}

func (c *Conn) unwatchCall(call *Call) {
	c.mu.Lock()
	delete(c.watchedCalls, call)
	c.mu.Unlock()
}

func (c *Conn) traceReceived(sent bool, msg []byte) {
	c.mu.Lock()
	c.counters.MessagesIn++
	c.counters.BytesIn += uint64(len(msg))
	if c.cfg.Trace != nil {
		c.cfg.Trace(sent, msg)
	}
	c.mu.Unlock()
}

// emit queues a message. The lock is held.
func (c *Conn) emit(msg []byte, urgent bool) {
	if c.ended != nil {
		return
	}
	c.counters.MessagesOut++
	c.counters.BytesOut += uint64(len(msg))
	if c.cfg.Trace != nil {
		c.cfg.Trace(true, msg)
	}
	c.out.Reserve(len(msg))
	c.out.Bytes = append(c.out.Bytes, msg...)
	c.out.EndMessage(urgent)
	if n := c.out.Size(); n > 4*c.limits.QueuedBytes && !c.overflowed {
		c.overflowed = true
		c.countHit(LimitQueuedBytes)
		e := peerconn.Ending{Err: &BrokenError{Reason: "the peer does not read what is sent"}, Code: peerconn.ClosePolicyViolation}
		if c.batch.responseOnly { // larger than the transport accepts, which reports that instead of the part that fits
			e = peerconn.Ending{Err: transport.ErrAnswersTooLarge, Code: peerconn.ClosePolicyViolation, Flush: true}
		}
		c.afterUnlock = append(c.afterUnlock, func() { c.loop.End(e) })
	}
}

// enqueueTask queues t for the delivery goroutine; the caller then calls wakeDelivery. It is false when there is no such
// goroutine any more.
func (c *Conn) enqueueTask(t peerconn.Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loop.Post(t)
}

// wakeDelivery starts delivery, if there is something to deliver.
func (c *Conn) wakeDelivery() {
	if c != nil {
		c.mu.Lock()
		c.unlockAndRun()
	}
}

// unlockAndRun releases the lock and carries out the work that was queued under it.
func (c *Conn) unlockAndRun() {
	if c.batch.inputDone {
		c.endBatch()
	}
	drop, drops, after := c.drop, c.drops, c.afterUnlock
	c.drop, c.drops, c.afterUnlock = nil, nil, nil
	more := drop != nil || len(drops)+len(after) > 0
	if more && c.batch.oneWay() {
		c.batch.deferredRunning++
	}
	c.loop.Unlock(more)
	if !more {
		return
	}
	defer c.loop.WorkerDone()
	for _, f := range after {
		f()
	}
	if drop != nil {
		drop.unref()
	}
	for _, n := range drops {
		n.unref()
	}
	if c.batch.oneWay() {
		c.mu.Lock()
		c.batch.deferredRunning--
		c.unlockAndRun()
	}
}
