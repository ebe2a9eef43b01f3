// Limits: every bound of a connection, with what happens at it, the charges to a peer for its calls and their results, and the intake of
// strangers.

package capnweb

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Limits bounds the cost of one connection. A zero field takes the value of DefaultLimits.
type Limits struct {
	MessageBytes int // the largest message accepted, in bytes of UTF-8. Beyond it: abort. Nor is a larger one sent
	Depth        int // how deep values may nest, and how long a path may be. Beyond it: abort
	BigIntDigits int // Beyond it: abort
	Calls        int // the peer's calls whose handlers run or wait, and waiting gets. At it: rejected overloaded; at twice: abort
	CallBytes    int // bytes, about, of the peer's unanswered calls and of values made of its messages. At it: rejected
	Exports      int // our objects that the peer may reference, results included. At it exporting fails; at twice: abort
	Imports      int // objects of the peer that we reference. Beyond it: abort
	MapSteps     int // instructions and copied values of one remap, over all elements and nested maps. Beyond it: it fails
	BlobBytes    int // the largest blob received. Beyond it: the call it is for fails
	StreamBytes  int // bytes of a stream that wait for its reader. Beyond it: the stream fails
	QueuedBytes  int // bytes that may wait to be written. At it our calls wait and the peer's are rejected; at four times: abort

	// WriteTimeout ends the connection when one write has made no progress for this long.
	WriteTimeout time.Duration
	// PingInterval is how long a connection is silent before it is pinged.
	PingInterval time.Duration
	// PingTimeout ends the connection when a ping has no answer for this long, and a second more for each 64 KiB, up to
	// 8 MiB, that may be in a buffer of the system or a proxy still. With PingInterval it is also the
	// longest that a silent peer may read nothing of a write under way.
	PingTimeout      time.Duration
	CloseTimeout     time.Duration // how long the end may spend on sending pending output
	HandshakeTimeout time.Duration // ends a connection on which no message came for this long after Run began; 0 never
	IdleTimeout      time.Duration // ends a connection silent for this long while neither side waits or references anything; 0 never
}

// DefaultLimits returns the limits that a server gives to strangers. A dead peer is found within 9 seconds.
func DefaultLimits() Limits {
	return Limits{
		MessageBytes: 8 << 20,
		Depth:        maxDepth,
		BigIntDigits: 16384,
		Calls:        8192,
		CallBytes:    64 << 20,
		Exports:      65536,
		Imports:      65536,
		MapSteps:     1 << 20,
		BlobBytes:    16 << 20,
		StreamBytes:  8 << 20,
		QueuedBytes:  16 << 20,
		WriteTimeout: 10 * time.Second,
		PingInterval: 5 * time.Second,
		PingTimeout:  4 * time.Second,
		CloseTimeout: 2 * time.Second,
	}
}

// withDefaults fills fields that have no value.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	defaults.Set(&l.MessageBytes, d.MessageBytes)
	defaults.Set(&l.Depth, d.Depth)
	defaults.Set(&l.BigIntDigits, d.BigIntDigits)
	defaults.Set(&l.Calls, d.Calls)
	defaults.Set(&l.CallBytes, d.CallBytes)
	defaults.Set(&l.Exports, d.Exports)
	defaults.Set(&l.Imports, d.Imports)
	defaults.Set(&l.MapSteps, d.MapSteps)
	defaults.Set(&l.BlobBytes, d.BlobBytes)
	defaults.Set(&l.StreamBytes, d.StreamBytes)
	defaults.Set(&l.QueuedBytes, d.QueuedBytes)
	defaults.Set(&l.WriteTimeout, d.WriteTimeout)
	defaults.Set(&l.PingInterval, d.PingInterval)
	defaults.Set(&l.PingTimeout, d.PingTimeout)
	defaults.Set(&l.CloseTimeout, d.CloseTimeout)
	l.Depth = min(l.Depth, maxDepth)
	return l
}

// Limit is the name of a field of Limits, for counting.
type Limit = peerconn.Limit

// The limits that a connection counts when they are reached.
const (
	LimitMessageBytes     Limit = "message_bytes"
	LimitDepth            Limit = "depth"
	LimitBigIntDigits     Limit = "bigint_digits"
	LimitCalls            Limit = "calls"
	LimitCallBytes        Limit = "call_bytes"
	LimitExports          Limit = "exports"
	LimitImports          Limit = "imports"
	LimitMapSteps         Limit = "map_steps"
	LimitBlobBytes        Limit = "blob_bytes"
	LimitStreamBytes      Limit = "stream_bytes"
	LimitQueuedBytes            = peerconn.LimitQueuedBytes
	LimitWriteTimeout           = peerconn.LimitWriteTimeout
	LimitPingTimeout            = peerconn.LimitPingTimeout
	LimitHandshakeTimeout       = peerconn.LimitHandshakeTimeout
	LimitIdleTimeout            = peerconn.LimitIdleTimeout
)

// AllLimits returns the limits that are counted.
func AllLimits() []Limit {
	return []Limit{
		LimitMessageBytes, LimitDepth, LimitBigIntDigits, LimitCalls, LimitCallBytes, LimitExports, LimitImports, LimitMapSteps,
		LimitBlobBytes, LimitStreamBytes, LimitQueuedBytes, LimitWriteTimeout, LimitPingTimeout, LimitHandshakeTimeout,
		LimitIdleTimeout,
	}
}

// LimitHits counts how often each limit was reached. Any number of connections may share one.
type LimitHits = peerconn.LimitHits

func (c *Conn) countHit(l Limit) { c.loop.CountHit(l) }

// chargeCall counts a call of the peer's as unanswered. An error that is no protocolError is its answer.
func (e *evaluator) chargeCall() (memoryCharge, error) {
	c := e.c
	if c == nil {
		return memoryCharge{}, nil
	}
	c.mu.Lock()
	defer c.unlockAndRun()
	switch {
	case c.ended != nil:
		return memoryCharge{}, c.ended
	case c.draining:
		return memoryCharge{}, errOverloaded("the server is going away")
	case c.calls >= c.limits.Calls:
		c.countHit(LimitCalls)
		if c.refusedCalls++; c.refusedCalls > c.limits.Calls {
			return memoryCharge{}, expr.Violationf("too many calls are unanswered")
		}
		return memoryCharge{}, errOverloaded("too many calls are unanswered")
	case c.callBytes+e.size > c.limits.CallBytes:
		c.countHit(LimitCallBytes)
		return memoryCharge{}, errOverloaded("unanswered calls and results hold too much")
	case c.out.Size() > c.limits.QueuedBytes:
		c.countHit(LimitQueuedBytes)
		return memoryCharge{}, errOverloaded("too much waits to be read")
	}
	b := memoryCharge{c: c, size: e.size, intakeBytes: e.cost + intake.CallBytes}
	if !c.cfg.Intake.TryGrow(b.intakeBytes) {
		return memoryCharge{}, c.cfg.Intake.Overloaded()
	}
	c.calls++
	c.callBytes += e.size
	return b, nil
}

// memoryCharge is the charge to a connection's peer for a call that has no answer.
type memoryCharge struct {
	c           *Conn
	size        int
	intakeBytes int  // charged to the connection's intake
	abandoned   bool // the peer has cancelled the call
}

func (b memoryCharge) release() {
	if b.c == nil {
		return
	}
	b.c.mu.Lock()
	b.c.cfg.Intake.Shrink(b.intakeBytes)
	if b.c.ended != nil { // the account is closed
		b.c.unlockAndRun()
		return
	}
	b.c.calls--
	if b.abandoned {
		b.c.abandonedCalls--
	}
	b.c.callBytes -= b.size
	if b.c.calls < b.c.limits.Calls {
		b.c.refusedCalls = 0
	}
	if b.c.draining || !b.c.cfg.Intake.Trusted() {
		b.c.out.WakeWaiters()
	}
	b.c.unlockAndRun()
}

// releaseWhenResolved releases the charge when n is resolved or not referenced any more.
func (b memoryCharge) releaseWhenResolved(n node) {
	if b.c == nil {
		return
	}
	for n != nil {
		f := futureOf(n)
		if f == nil {
			break
		}
		f.mu.Lock()
		if !f.reached(stateResolved) {
			if f.pendingCharge.c == nil {
				f.pendingCharge, b = b, memoryCharge{}
			}
			f.mu.Unlock()
			break
		}
		n = f.next
		f.mu.Unlock()
	}
	b.release()
}

// minChargedValue is the size below which a value is not charged, in bytes.
const minChargedValue = 1 << 10

// nodeBytes is about how many bytes a node takes, of any kind.
const nodeBytes = 512

// cost returns the charge for a payload made for a peer, in bytes; 0 if it is not charged.
func (p *payload) cost() int {
	if p.size < minChargedValue && len(p.refs) == 0 {
		return 0
	}
	return p.size + nodeBytes + 64*len(p.refs)
}

// chargeHeld charges the peer for a value made for it, for as long as it is referenced; beyond the limit it is an error.
func (v via) chargeHeld(f *future) *future {
	size := f.val.cost()
	if err := v.chargeHeldBytes(f, size, size); err != nil {
		f.unref()
		return newError(err)
	}
	return f
}

// chargeHeldBytes adds to the charge for as long as f is referenced: size bytes to callBytes, and cost to the intake.
func (v via) chargeHeldBytes(f *future, size, cost int) error {
	c := v.c
	if c == nil || size == 0 {
		return nil
	}
	c.mu.Lock()
	switch {
	case c.ended != nil:
		c.mu.Unlock()
		return nil
	case c.callBytes+size > c.limits.CallBytes:
		c.countHit(LimitCallBytes)
		c.mu.Unlock()
		return errOverloaded("results hold too much")
	case !c.cfg.Intake.TryGrow(cost):
		c.mu.Unlock()
		return c.cfg.Intake.Overloaded()
	}
	c.callBytes += size
	c.mu.Unlock()
	b := memoryCharge{c: c, size: size, intakeBytes: cost}
	f.mu.Lock()
	if f.refs.Load() > 0 && (f.heldCharge.c == nil || f.heldCharge.c == c) {
		b.size += f.heldCharge.size
		b.intakeBytes += f.heldCharge.intakeBytes
		f.heldCharge, b = b, memoryCharge{}
	}
	f.mu.Unlock()
	b.releaseHeld()
	return nil
}

func (b memoryCharge) releaseHeld() {
	if b.c == nil {
		return
	}
	b.c.mu.Lock()
	b.c.cfg.Intake.Shrink(b.intakeBytes)
	if b.c.ended == nil {
		b.c.callBytes -= b.size
	}
	b.c.mu.Unlock()
}

const (
	strangerTable = 2 * intake.PendingCalls // bounds each table for a stranger
	strangerSteps = 1 << 10                 // of its maps
)

// initIntake sets up intake for a peer that may be a stranger.
func (c *Conn) initIntake() {
	if !c.cfg.Intake.Trusted() {
		c.setBounds(true)
		c.cfg.Intake.Bind(c.onIntakeChange, c.awaitCalls)
	}
}

// setBounds sets the bounds of the tables. They are read with the lock held, as the caller does, unless it is alone.
func (c *Conn) setBounds(stranger bool) {
	full := c.cfg.Limits.withDefaults()
	c.limits.Calls, c.limits.Exports, c.limits.Imports, c.limits.QueuedBytes = full.Calls, full.Exports, full.Imports, full.QueuedBytes
	if !stranger {
		return
	}
	for _, b := range []*int{&c.limits.Calls, &c.limits.Exports, &c.limits.Imports} {
		*b = min(*b, strangerTable)
	}
	c.limits.QueuedBytes = min(c.limits.QueuedBytes, 4*intake.QueuedBytes)
}

// onIntakeChange is called when more may be accepted.
func (c *Conn) onIntakeChange() {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.cfg.Intake.Trusted() {
		c.setBounds(false)
	}
	c.out.WakeWaiters()
}

// steps returns how many steps a map may take.
func (c *Conn) steps() int {
	if !c.cfg.Intake.Trusted() {
		return min(c.limits.MapSteps, strangerSteps)
	}
	return c.limits.MapSteps
}

// awaitCalls waits until the peer is trusted, or has no call left that could make it trusted, and the answers are sent.
func (c *Conn) awaitCalls(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	return c.pauseReader(ctx, func() bool { return c.unanswered() > 0 })
}

// pauseReader makes the reader wait, as long as the peer is a stranger and on reports true. The lock is held.
func (c *Conn) pauseReader(ctx context.Context, on func() bool) error {
	if c.loop.PauseReader(ctx, func() bool { return !c.cfg.Intake.Trusted() && on() }) != nil {
		return c.cfg.Intake.Overloaded()
	}
	return nil
}

// admitMessage waits until a message may be decoded. An error is sent to the peer instead. A stranger's calls on the main object are
// decoded, if they are small; the reader waits with messages behind them until it is known whether they succeed, and messages received
// by then stay raw.
func (c *Conn) admitMessage(msg []byte) error {
	in := c.cfg.Intake
	if in.Trusted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), in.MaxWait())
	defer cancel()
	first := expr.MayAuthenticate(msg)
	small := len(msg) <= in.MaxMessage() && !expr.IsStream(msg) // streams buffer much for their reader
	c.mu.Lock()
	err := c.pauseReader(ctx, func() bool {
		switch {
		case !small && c.unanswered() > 0 && in.MaxMessage() == intake.MaxStrangerMessage:
			return true
		case !small:
			return false
		case c.calls >= intake.PendingCalls, c.out.Size() > intake.QueuedBytes:
			return true
		}
		return c.calls > in.Throttled() && !first
	})
	c.unlockAndRun()
	if err == nil && !small {
		err = in.FindRef(msg)
	}
	return err
}

// rejectEnding ends the connection of a peer from which no more is accepted.
func (c *Conn) rejectEnding(err error) peerconn.Ending {
	wireErr := c.redact(err)
	return peerconn.Ending{Err: &BrokenError{Reason: "no more is taken in: " + wireErr.Error(), Err: err}, Code: closeAborted, Reason: wireErr.Message,
		Flush: true, Abort: wireErr}
}
