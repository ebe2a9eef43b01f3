// Conn: one connection, as the program sees it.

package rpc

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/intake"
)

// Config is what a connection needs to know.
type Config struct {
	// Bootstrap is what the peer gets when it asks for our bootstrap interface; nil if there is none. If it is a
	// Releaser it is released when the connection ends.
	Bootstrap Object
	// Limits bounds the connection; zero fields take DefaultLimits.
	Limits Limits
	// Logger gets one line for what a peer or a handler does wrong; nil discards.
	Logger *slog.Logger
	// LimitHits counts the limits that the connection meets; nil if nobody wants to know.
	LimitHits *LimitHits
	// Intake decides what is taken in of a peer that has not shown who it is, and how much memory there is for what it sends;
	// nil takes in all that Limits allow. Who made it closes it after Run.
	Intake *intake.Peer
	// Trace, for tests, sees every message before it is handled ("in") or when it is queued for sending ("out"), in
	// order. It runs with the connection locked: it must not call into this package or keep the message.
	Trace func(dir string, msg rpccp.Message)
}

// Conn is one connection to a peer vat. All methods may be called from any goroutine.
type Conn struct {
	transport    Transport
	log          *slog.Logger
	done         chan struct{} // closed when ended is set
	lastActivity atomic.Int64  // when the peer last gave a sign of life, nanoseconds since start
	lastMessage  atomic.Int64  // when its last message came
	start        time.Time

	mu sync.Mutex // guards all below; never held while anything outside of this package runs, but for Trace
	core
	writeState
	ending      ending
	running     bool // Run was called
	finished    bool // Run is about to return: nothing is posted any more
	workers     int  // goroutines that Run waits for
	workersDone sync.Cond
	delivering  bool // somebody takes care of todo
	readerBusy  bool // the reader does, and nobody reads meanwhile
	readerGen   int  // which reader is the present one
	manual      bool // tests: nobody does unless told
	spareTasks  []task
	lanes       map[*promiseCap]struct{} // promises of this vat that have a lane for this connection
}

// NewConn makes a connection over a transport, which it owns from now on. Calls may be made at once; nothing is sent
// or received until Run.
func NewConn(t Transport, cfg Config) *Conn {
	c := &Conn{
		transport: t,
		log:       cfg.Logger,
		done:      make(chan struct{}),
		start:     time.Now(),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.workersDone.L = &c.mu
	c.core.init(c, &cfg, cfg.Limits.withDefaults())
	c.initWriteState()
	if l, ok := t.(limitSetter); ok {
		l.setLimits(c.limits)
	}
	if p, ok := t.(activityReporter); ok {
		p.setOnActivity(c.markActivity)
	}
	if p, ok := t.(progressReporter); ok {
		c.reportsProgress = true
		p.setOnProgress(c.onWriteProgress)
	}
	if r, ok := t.(readAdmitter); ok {
		r.setAdmitRead(func(n int, have []byte) error { return refusedRead(cfg.Intake.ReserveRead(n, have)) })
	}
	c.tryWriter, _ = t.(tryWriter)
	c.initIntake(cfg.Intake)
	return c
}

// Bootstrap gives a reference to the peer's bootstrap interface; calls on it are pipelined at once. ctx bounds waiting
// at a limit only. Errors come out of calls on the reference.
func (c *Conn) Bootstrap(ctx context.Context) *Ref {
	c.mu.Lock()
	defer c.unlockAndRun()
	for c.ended == nil && c.atLimit() {
		if c.waitAtLimit(ctx) != nil {
			return brokenRef(errTooManyCalls)
		}
	}
	if c.ended != nil {
		return NewBroken(c.ended)
	}
	return c.bootstrap()
}

// HasRoom says that a call of ours would leave at once: less than half of what Limits.Questions and Limits.QueuedBytes
// allow is used. It is for those who must not wait, as Ref.Call does at a limit.
func (c *Conn) HasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.questions.n < c.limits.Questions/2 && c.queuedBytes() < c.limits.QueuedBytes/2
}

// Done is closed when the connection has ended and its promises are broken, before the last goroutines are gone.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection has ended, after Done; nil before, and after a Close of ours.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending.err
}

// Close ends the connection in an orderly way: what waits is sent (within Limits.CloseTimeout), then the transport is
// closed with the reason. It returns at once; Run returns when it is done.
func (c *Conn) Close(reason string) {
	c.end(ending{code: closeNormal, reason: reason, flush: true})
}

// Abort ends the connection for what the peer did, and tells it why, as far as Call.Fail would. It returns at once; Run
// returns the reason.
func (c *Conn) Abort(why error) {
	ex, _ := exceptionFor(why)
	c.end(ending{err: ex, code: closeTryAgainLater, reason: ex.Type.String(), flush: true, abort: ex})
}

func (c *Conn) end(e ending) {
	c.mu.Lock()
	defer c.unlockAndRun()
	c.endLocked(e)
}

// Drain answers new calls of the peer with Disconnected, waits until the running ones are answered, or ctx ends, and
// closes with the reason; what is queued then is sent. The error is ctx's.
func (c *Conn) Drain(ctx context.Context, reason string) error {
	var err error
	c.mu.Lock()
	c.draining, c.preDrainBytes = true, len(c.deferred)-c.deferredOffset
	for err == nil && c.unanswered+c.preDrainBytes > 0 && c.ended == nil {
		err = c.waitForRoom(ctx)
	}
	c.endLocked(ending{code: closeGoingAway, reason: reason, flush: true})
	c.unlockAndRun()
	return err
}

// atLimit says that a call of ours has to wait.
func (c *Conn) atLimit() bool {
	return c.questions.n >= c.limits.Questions || c.queuedBytes() >= c.limits.QueuedBytes
}

// waitAtLimit has a call of ours wait, for as long as ctx allows, and gives its error then. Whoever must not wait, as on a
// delivery goroutine, has a ctx that has ended.
func (c *Conn) waitAtLimit(ctx context.Context) error {
	if c.questions.n >= c.limits.Questions {
		c.countHit(LimitQuestions)
	} else {
		c.countHit(LimitQueuedBytes)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.waitForRoom(ctx)
}

var errTooManyCalls = Overloadedf("too many calls wait for the peer")

// waitForRoom gives the lock up until there may be room at a limit. If the reader is busy delivering, another takes
// over reading, so that the peer's answers, which make room, are heard even when a handler waits here.
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

// RemoteAddr names the peer for logs.
func (c *Conn) RemoteAddr() string { return c.transport.RemoteAddr() }

// Stats are the sizes of a connection's tables, all zero after Run, and counters.
type Stats struct {
	Questions, Answers, Exports, Imports, Embargoes int
	QueuedCalls                                     int // waiting on promises of this connection, or for a stranger to be none
	QueuedBytes                                     int // waiting to be written
	MessagesIn, MessagesOut                         uint64
	BytesIn, BytesOut                               uint64
}

// Stats gives the present sizes.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.counters
	s.Questions, s.Answers, s.Exports = c.questions.n, len(c.answers), c.exports.n
	s.Imports, s.Embargoes, s.QueuedCalls = len(c.imports), c.disembargoesOut.n, c.queuedCalls+c.deferredCalls()
	s.QueuedBytes = c.queuedBytes()
	return s
}

// post queues a task for the delivery goroutine; false if there is none any more.
func (c *Conn) post(t task) bool {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.finished {
		return false
	}
	c.tasks = append(c.tasks, t)
	return true
}

// unlockAndRun gives the lock up and carries out what was decided under it.
func (c *Conn) unlockAndRun() {
	drops, cancels, after := c.drops, c.cancels, c.afterUnlock
	c.drops, c.cancels, c.afterUnlock = nil, nil, nil
	wake, batch := c.scheduleWrite()
	deliver := len(c.tasks) > 0 && !c.delivering && !c.manual && (c.running || c.ended != nil)
	if deliver {
		c.delivering = true
		c.workers++
	}
	more := len(drops)+len(cancels)+len(after)+len(batch) > 0
	if more {
		c.workers++ // Run must not return before it is done
	}
	c.mu.Unlock()
	if wake {
		c.wakeWriter()
	}
	if len(batch) > 0 {
		c.tryWrite(batch)
	}
	if deliver {
		go func() {
			defer c.workerDone()
			c.drain()
		}()
	}
	if !more {
		return
	}
	defer c.workerDone()
	for _, call := range cancels {
		call.cancel()
	}
	for _, f := range after {
		f()
	}
	for _, n := range drops {
		n.unref(c)
	}
}

func (c *Conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
