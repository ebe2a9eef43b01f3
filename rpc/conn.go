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
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Config configures a connection.
type Config struct {
	// Bootstrap is the interface that the peer gets when it asks for our bootstrap interface; nil if there is none. If it is
	// a Releaser it is released when the connection ends.
	Bootstrap Object
	// Limits bounds the connection; zero fields take DefaultLimits.
	Limits Limits
	// Logger logs one line for each fault of a peer or a handler; nil discards.
	Logger *slog.Logger
	// LimitHits counts the limits that the connection reaches; nil for no counting.
	LimitHits *LimitHits
	// Intake decides what is accepted from a peer that has not authenticated, and how much memory there is for its messages;
	// nil accepts all that Limits allow. The code that made it closes it after Run.
	Intake *intake.Peer
	// Trace, for tests, is called with every message before it is handled ("in") or when it is queued for sending ("out"), in
	// order. It runs with the connection locked: it must not call into this package or keep the message.
	Trace func(dir string, msg rpccp.Message)
}

// Conn is one connection to a peer vat. All methods may be called from any goroutine.
type Conn struct {
	transport    Transport
	log          *slog.Logger
	done         chan struct{} // closed when ended is set
	lastActivity atomic.Int64  // when the peer last showed a sign of life, nanoseconds since start
	lastMessage  atomic.Int64  // when its last message came
	start        time.Time

	mu sync.Mutex // guards all below; never held while anything outside of this package runs, except Trace
	core
	writeState
	ending      ending
	running     bool // Run was called
	finished    bool // Run is about to return: nothing is posted any more
	workers     int  // goroutines that Run waits for
	workersDone sync.Cond
	delivering  bool // a goroutine is delivering todo
	readerBusy  bool // it is the reader, and nobody reads meanwhile
	readerGen   int  // number of the present reader
	manual      bool // tests: deliver only when asked to
	spareTasks  []task
	lanes       map[*promiseCap]struct{} // promises of this vat that have a lane for this connection
}

// NewConn makes a connection over a transport, which it owns from then on. Calls may be made at once; nothing is sent
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
	if p, ok := t.(peerconn.ProgressReporter); ok {
		c.reportsProgress = true
		p.SetOnProgress(c.onWriteProgress)
	}
	if r, ok := t.(readAdmitter); ok {
		r.setAdmitRead(func(n int, have []byte) error { return refusedRead(cfg.Intake.ReserveRead(n, have)) })
	}
	c.tryWriter, _ = t.(tryWriter)
	c.initIntake(cfg.Intake)
	return c
}

// Bootstrap returns a reference to the peer's bootstrap interface; calls on it are pipelined at once. ctx bounds waiting
// at a limit only. Errors are reported by calls on the reference.
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

// HasRoom reports whether a call of ours would leave at once: less than half of Limits.Questions and Limits.QueuedBytes
// is used. It is for callers that must not wait, as Ref.Call does at a limit.
func (c *Conn) HasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.questions.n < c.limits.Questions/2 && c.queuedBytes() < c.limits.QueuedBytes/2
}

// Done returns a channel that is closed when the connection has ended and its promises are broken, before its last
// goroutines have exited.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, after Done; nil before, and after a Close on this side.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending.err
}

// Close ends the connection in an orderly way: pending output is sent (within Limits.CloseTimeout), then the transport is
// closed with the reason. It returns at once; Run returns when it is done.
func (c *Conn) Close(reason string) {
	c.end(ending{code: closeNormal, reason: reason, flush: true})
}

// Abort ends the connection because of the peer's behaviour, and sends it why, with the text that Call.Fail would send. It
// returns at once; Run returns the reason.
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
// closes with the reason; queued output is then sent. The error is ctx's.
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

// atLimit reports whether a call of ours has to wait.
func (c *Conn) atLimit() bool {
	return c.questions.n >= c.limits.Questions || c.queuedBytes() >= c.limits.QueuedBytes
}

// waitAtLimit waits, for as long as ctx allows, until a call of ours may be made, and returns ctx's error otherwise. A
// caller that must not wait, as on a delivery goroutine, passes a ctx that has ended.
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

// RemoteAddr returns the peer's name for logs.
func (c *Conn) RemoteAddr() string { return c.transport.RemoteAddr() }

// Stats holds the sizes of a connection's tables, all zero after Run, and counters.
type Stats struct {
	Questions, Answers, Exports, Imports, Embargoes int
	QueuedCalls                                     int // waiting on promises of this connection, or for a stranger to authenticate
	QueuedBytes                                     int // waiting to be written
	MessagesIn, MessagesOut                         uint64
	BytesIn, BytesOut                               uint64
}

// Stats returns the present sizes.
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

// unlockAndRun releases the lock and carries out the work that was queued under it.
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
