// Conn: one connection, as the program sees it; and codec, the connection as the loop of internal/peerconn drives it.

package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
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
	transport Transport
	log       *slog.Logger

	mu sync.Mutex // guards all below; never held while anything outside of this package runs, except Trace
	core
	loop  peerconn.Loop
	lanes map[*promiseCap]struct{} // promises of this vat that have a lane for this connection
}

// NewConn makes a connection over a transport, which it owns from then on. Calls may be made at once; nothing is sent
// or received until Run.
func NewConn(t Transport, cfg Config) *Conn {
	c := &Conn{transport: t}
	c.core.init(c, &cfg, cfg.Limits.withDefaults())
	if l, ok := t.(limited); ok {
		withLimits(l, c.limits)
	}
	lim := &c.limits
	runtime := peerconn.Config{
		Lock: &c.mu, Output: &c.out, Transport: t, Log: cfg.Logger, Hits: cfg.LimitHits, Intake: cfg.Intake,
		Timeouts: peerconn.Timeouts{Write: lim.WriteTimeout, PingInterval: lim.PingInterval, Ping: lim.PingTimeout, Close: lim.CloseTimeout,
			Handshake: lim.HandshakeTimeout, Idle: lim.IdleTimeout},
	}
	if wire.PoisonFreed {
		runtime.Freed = wire.Poison
	}
	c.loop.Init((*codec)(c), runtime)
	c.log = c.loop.Log()
	c.initIntake(cfg.Intake)
	return c
}

// Run serves the connection until it ends and returns why: nil after Close or Drain on this side, ctx's error, or the
// failure (*Exception of type Disconnected for a lost or silent or closing peer, of type Failed for a protocol
// violation). When it returns, everything is released: promises are broken with Disconnected, no queued call runs any
// more, the contexts of running calls are cancelled and the goroutines of Call.Go have ended. Call it once.
func (c *Conn) Run(ctx context.Context) error { return c.loop.Run(ctx) }

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
	return c.questions.Len() < c.limits.Questions/2 && c.out.Size() < c.limits.QueuedBytes/2
}

// Done returns a channel that is closed when the connection has ended and its promises are broken, before its last
// goroutines have exited.
func (c *Conn) Done() <-chan struct{} { return c.loop.Done() }

// Err returns why the connection has ended, after Done; nil before, and after a Close on this side.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loop.Ending().Err
}

// Close ends the connection in an orderly way: pending output is sent (within Limits.CloseTimeout), then the transport is
// closed with the reason. It returns at once; Run returns when it is done.
func (c *Conn) Close(reason string) {
	c.loop.End(peerconn.Ending{Code: peerconn.CloseNormal, Reason: reason, Flush: true})
}

// Abort ends the connection because of the peer's behaviour, and sends it why, with the text that Call.Fail would send. It
// returns at once; Run returns the reason.
func (c *Conn) Abort(why error) {
	c.loop.End(refusedEnding(why))
}

// Drain answers new calls of the peer with Disconnected, waits until the running ones are answered, or ctx ends, and
// closes with the reason; queued output is then sent. The error is ctx's.
func (c *Conn) Drain(ctx context.Context, reason string) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	c.draining, c.preDrainBytes = true, len(c.deferred)-c.deferredOffset
	return c.loop.Drain(ctx, reason, func() int { return c.unanswered + c.preDrainBytes })
}

// atLimit reports whether a call of ours has to wait.
func (c *Conn) atLimit() bool {
	return c.questions.Len() >= c.limits.Questions || c.out.Size() >= c.limits.QueuedBytes
}

// waitAtLimit waits, for as long as ctx allows, until a call of ours may be made, and returns ctx's error otherwise. A
// caller that must not wait, as on a delivery goroutine, passes a ctx that has ended.
func (c *Conn) waitAtLimit(ctx context.Context) error {
	if c.questions.Len() >= c.limits.Questions {
		c.countHit(LimitQuestions)
	} else {
		c.countHit(LimitQueuedBytes)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.loop.WaitForRoom(ctx)
}

var errTooManyCalls = Overloadedf("too many calls wait for the peer")

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
	s.Questions, s.Answers, s.Exports = c.questions.Len(), len(c.answers), c.exports.Len()
	s.Imports, s.Embargoes, s.QueuedCalls = len(c.imports), c.disembargoesOut.Len(), c.queuedCalls+c.deferredCalls()
	s.QueuedBytes = c.out.Size()
	return s
}

// post queues a task for the delivery goroutine; false if there is none any more.
func (c *Conn) post(t peerconn.Task) bool {
	c.mu.Lock()
	defer c.unlockAndRun()
	return c.loop.Post(t)
}

// unlockAndRun releases the lock and carries out the work that was queued under it.
func (c *Conn) unlockAndRun() {
	drops, cancels, after := c.drops, c.cancels, c.afterUnlock
	c.drops, c.cancels, c.afterUnlock = nil, nil, nil
	more := len(drops)+len(cancels)+len(after) > 0
	c.loop.Unlock(more)
	if !more {
		return
	}
	defer c.loop.WorkerDone()
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

// codec implements peerconn.Codec.
type codec Conn

func (d *codec) Read() ([]byte, error) { return d.transport.ReadBatch(context.Background()) }

func (d *codec) Write(batch []byte, _ []int) error {
	return d.transport.WriteBatch(context.Background(), batch)
}

func (d *codec) Receive(batch []byte, _ *peerconn.Reading) {
	(*Conn)(d).receiveBatch(batch)
	wire.Poison(batch)
}

func (d *codec) UnlockAndRun() { (*Conn)(d).unlockAndRun() }

func (d *codec) Wrote() { d.wakeLimitWaiters() }

func (d *codec) InFlight() int { return d.questions.Len() + len(d.answers) }

// IsUnused counts our bootstrap interface as no reference of the peer's.
func (d *codec) IsUnused() bool {
	exports := d.exports.Len()
	if d.boot != nil {
		if _, ok := d.exportIDs[d.boot]; ok {
			exports--
		}
	}
	return exports == 0 && d.questions.Len() == 0 && len(d.answers) == 0 && len(d.imports) == 0
}

func (d *codec) TransportEnding(err error) peerconn.Ending {
	d.countHitOf(err)
	return transportEnding(err)
}

func (d *codec) Disconnected(why error) error { return Disconnectedf("%v", why) }

func (d *codec) SendAbort(why error) {
	d.send(func(m rpccp.Message) error { return writeAbort(m, why.(*Exception), d.maxReason()) })
}

func (d *codec) Break(why error) {
	if why == nil {
		why = errors.New("closed on this side")
	}
	d.ended = Disconnectedf("the connection has ended: %s", reasonOf(why))
	d.breakAll(d.ended)
	d.afterUnlock = append(d.afterUnlock, (*Conn)(d).abandonLanes)
}

func (d *codec) Finish() (done bool) {
	if len(d.orphans) == 0 {
		return true
	}
	d.mu.Unlock()
	(*Conn)(d).failOrphans()
	d.mu.Lock()
	return false
}

func (d *codec) LogText(err error) string { return reasonOf(err) }
