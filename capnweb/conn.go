// Conn: one side of a connection over a transport, as the program sees it.

package capnweb

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	transport       Transport
	peeker          peeker // the transport, if it is one
	cfg             Config
	log             *slog.Logger
	limitHits       *LimitHits
	done            chan struct{} // closed when ended is set
	start           time.Time
	lastActivity    atomic.Int64 // when the peer last showed a sign of life, nanoseconds since start
	handlingMessage atomic.Bool  // a message is being handled: nobody reads, so the answer to a ping waits
	readerPaused    atomic.Bool  // the reader is paused, and nobody reads
	lastMessage     atomic.Int64 // when its last message came
	hasEnded        atomic.Bool  // ended is set

	mu sync.Mutex // guards all below; never held while anything outside of this package runs, except Trace
	core
	writeState
	ending      ending
	running     bool // Run was called
	finished    bool // Run is about to return
	workers     int  // goroutines that Run waits for
	workersDone sync.Cond
	tasks       []task // work for the delivery goroutine, in order
	delivering  bool   // a goroutine is delivering tasks
	readerBusy  bool   // it is the reader, and nobody reads meanwhile
	readerGen   int    // number of the present reader
}

// NewConn makes a connection over t, which it owns from then on. Calls may be made at once; nothing is sent or received
// until Run, which must be called.
func NewConn(t Transport, cfg Config) *Conn {
	c := &Conn{transport: t, cfg: cfg, log: cfg.Logger, limitHits: cfg.LimitHits, done: make(chan struct{}), start: time.Now()}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.limitHits == nil {
		c.limitHits = new(LimitHits)
	}
	c.workersDone.L = &c.mu
	c.core.init(cfg.Limits.withDefaults())
	c.initWriteState()
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
	if l, ok := t.(limitSetter); ok {
		l.setLimits(c.limits)
	}
	if p, ok := t.(activityReporter); ok {
		p.setOnActivity(c.markActivity)
	}
	if p, ok := t.(peerconn.ProgressReporter); ok {
		c.reportsProgress = true
		p.SetOnProgress(c.onWriteProgress)
	}
	if r, ok := t.(readAdmitter); ok {
		r.setAdmitRead(func(n int, have []byte) error { return refusedRead(cfg.Intake.ReserveRead(n, have)) })
	}
	c.peeker, _ = t.(peeker)
	c.initIntake()
	return c
}

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
	c.end(ending{code: closeNormal, reason: reason, flush: true})
}

// Abort ends the connection with an error, which is sent to the peer as Call.Fail would send it. It returns at once.
func (c *Conn) Abort(err error) {
	wireErr := c.redact(err)
	c.end(ending{err: &BrokenError{Reason: "aborted on this side: " + wireErr.Error(), Err: err}, code: closeAborted,
		reason: wireErr.Message, flush: true, abort: wireErr})
}

// Drain rejects new calls, waits until the peer's calls are answered and sent, or ctx ends, and closes. The error is
// ctx's.
func (c *Conn) Drain(ctx context.Context, reason string) error {
	var err error
	c.mu.Lock()
	c.draining = true
	for err == nil && c.unanswered() > 0 && c.ended == nil {
		err = c.waitForRoom(ctx)
	}
	c.endLocked(ending{code: closeGoingAway, reason: reason, flush: true})
	c.unlockAndRun()
	return err
}

// unanswered is zero when the peer's calls are done and their answers sent: a call is done before its answer is sent. The
// lock is held.
func (c *Conn) unanswered() int { return c.calls + c.batch.pendingAnswers }

// waitAtLimit waits until a call of ours may be made.
func (c *Conn) waitAtLimit(ctx context.Context) error {
	c.mu.Lock()
	if c.ended != nil || (c.out.size() < c.limits.QueuedBytes && c.pendingPulls < c.limits.Calls) {
		c.mu.Unlock()
		return nil
	}
	defer c.unlockAndRun()
	if c.batch.collecting {
		return errOverloaded("the batch is full")
	}
	for c.ended == nil && (c.out.size() >= c.limits.QueuedBytes || c.pendingPulls >= c.limits.Calls) {
		if c.pendingPulls >= c.limits.Calls {
			c.countHit(LimitCalls)
		} else {
			c.countHit(LimitQueuedBytes)
		}
		if err := c.waitForRoom(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitForRoom releases the lock until there may be room at a limit. If the reader is busy delivering, another takes
// over reading, so that the peer's answers, which make room, are read even when a handler waits here.
func (c *Conn) waitForRoom(ctx context.Context) error {
	if c.room == nil {
		c.room = make(chan struct{})
	}
	room := c.room
	c.replaceReader()
	c.unlockAndRun()
	defer c.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wakeLimitWaiters wakes the callers that wait at a limit. The lock is held.
func (c *Conn) wakeLimitWaiters() {
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// Done returns a channel that is closed when the connection has ended, before its last goroutines have exited; Err then
// returns why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, after Done; nil before, and after an orderly close by either side.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending.err
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
	s.Exports, s.Calls, s.QueueBytes = c.exportCount, c.calls, uint64(c.out.size())
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
	c.out.add(msg)
	c.urgent = c.urgent || urgent
	if n := c.out.size(); n > 4*c.limits.QueuedBytes && !c.overflowed {
		c.overflowed = true
		c.countHit(LimitQueuedBytes)
		e := ending{err: &BrokenError{Reason: "the peer does not read what is sent"}, code: closePolicyViolation}
		if c.batch.responseOnly { // larger than the transport accepts, which reports that instead of the part that fits
			e = ending{err: errAnswersTooLarge, code: closePolicyViolation, flush: true}
		}
		c.afterUnlock = append(c.afterUnlock, func() { c.end(e) })
	}
}

// enqueueTask queues t for the delivery goroutine; the caller then calls wakeDelivery. It is false when there is no such
// goroutine any more.
func (c *Conn) enqueueTask(t task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return false
	}
	c.tasks = append(c.tasks, t)
	return true
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
	wake := c.scheduleWrite()
	deliver := len(c.tasks) > 0 && !c.delivering && (c.running || c.ended != nil)
	if deliver {
		c.delivering = true
		c.workers++
	}
	more := drop != nil || len(drops)+len(after) > 0
	if more {
		c.workers++ // Run must not return before it is done
		if c.batch.oneWay() {
			c.batch.deferredRunning++
		}
	}
	c.mu.Unlock()
	if wake {
		c.wakeWriter()
	}
	if deliver {
		go func() {
			defer c.workerDone()
			c.drainTasks()
		}()
	}
	if !more {
		return
	}
	defer c.workerDone()
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
