// Intake of a stranger, a peer that has not authenticated with a ref yet (Config.Intake). Its calls on the bootstrap
// interface are decoded, if they are small. Messages behind them, such as a first flight's calls on the results of those, are
// kept as raw bytes until it is known whether they succeed, and only then decoded: in order, since nothing overtakes the kept
// messages.

package rpc

import (
	"context"
	"errors"

	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// errDeferred says that a message is not to be decoded yet.
var errDeferred = errors.New("held")

// stranger is the core's state about a peer that is a stranger, or was.
type stranger struct {
	intake           *intake.Peer // nil: every peer is trusted
	trustedLimits    Limits       // limits once it is trusted
	pendingAuthCalls int          // its calls on the bootstrap interface that are unanswered
	deferred         []byte       // framed messages that are not decoded yet
	deferredOffset   int          // where in deferred the first one begins
	preDrainBytes    int          // bytes of deferred that came before draining began
}

// strangerTable bounds each table for a stranger.
const strangerTable = 2 * intake.PendingCalls

// initIntake sets up intake for a peer that may be a stranger.
func (c *Conn) initIntake(in *intake.Peer) {
	if c.intake = in; in.Trusted() {
		return
	}
	c.trustedLimits = c.limits
	for _, bound := range []*int{&c.limits.Answers, &c.limits.Exports, &c.limits.Imports, &c.limits.QueuedCalls} {
		*bound = min(*bound, strangerTable)
	}
	c.limits.QueuedBytes = min(c.limits.QueuedBytes, 4*intake.QueuedBytes)
	in.Bind(c.onIntakeChange, c.awaitAuthCalls)
}

// onIntakeChange is called when more may be accepted.
func (c *Conn) onIntakeChange() {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.intake.Trusted() {
		c.limits.Answers, c.limits.Exports, c.limits.Imports = c.trustedLimits.Answers, c.trustedLimits.Exports, c.trustedLimits.Imports
		c.limits.QueuedCalls, c.limits.QueuedBytes = c.trustedLimits.QueuedCalls, c.trustedLimits.QueuedBytes
	}
	c.wakeLimitWaiters()
	c.receiveDeferred()
}

// awaitAuthCalls waits until the peer is trusted, or has no call left that could make it trusted.
func (c *Conn) awaitAuthCalls(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	return c.pauseReader(ctx, func() bool { return c.pendingAuthCalls > 0 || len(c.deferred) > 0 })
}

// pauseReader makes the reader wait, as long as the peer is a stranger and on reports true. The lock is held.
func (c *Conn) pauseReader(ctx context.Context, on func() bool) error {
	if c.loop.PauseReader(ctx, func() bool { return !c.intake.Trusted() && on() }) != nil {
		return c.intake.Overloaded()
	}
	return nil
}

// receiveBatch handles a batch from the reader, behind deferred messages. The lock is held.
func (c *Conn) receiveBatch(batch []byte) {
	if len(c.deferred) > 0 && len(c.deferred)-c.deferredOffset+len(batch) > c.intake.MaxStrangerBytes() {
		ctx, cancel := context.WithTimeout(context.Background(), c.intake.MaxWait())
		defer cancel()
		if err := c.pauseReader(ctx, func() bool { return len(c.deferred) > 0 }); err != nil {
			c.loop.EndLocked(refusedEnding(err))
			return
		}
	}
	if len(c.deferred) == 0 {
		batch = c.handleFrames(batch)
	}
	if len(batch) == 0 || c.ended != nil {
		return
	}
	if !c.intake.TryGrow(len(batch)) {
		c.loop.EndLocked(refusedEnding(c.intake.Overloaded()))
		return
	}
	c.deferred = append(c.deferred, batch...)
}

// receiveDeferred handles deferred messages, as far as they may be decoded now. The lock is held.
func (c *Conn) receiveDeferred() {
	if len(c.deferred) == 0 || c.ended != nil {
		return
	}
	kept := c.deferred[c.deferredOffset:]
	left := kept
	if c.preDrainBytes > 0 { // it came before draining began, and only waited
		draining := c.draining
		c.draining = false
		n := len(c.handleFrames(kept[:c.preDrainBytes]))
		c.draining = draining
		left = kept[c.preDrainBytes-n:]
		c.preDrainBytes = n
	}
	if c.preDrainBytes == 0 {
		left = c.handleFrames(left)
	}
	c.intake.Shrink(len(kept) - len(left))
	if c.deferredOffset = len(c.deferred) - len(left); len(left) == 0 {
		wire.Poison(c.deferred)
		c.deferred, c.deferredOffset = nil, 0
		c.wakeLimitWaiters()
	}
}

// deferredCalls returns how many calls are deferred.
func (co *core) deferredCalls() (n int) {
	for rest := co.deferred[co.deferredOffset:]; len(rest) > 0; {
		var frame []byte
		var err error
		if frame, rest, err = framing.Split(rest, co.reading.Limits); err != nil {
			break
		}
		if wire.IsCallOrReturn(frame) {
			n++
		}
	}
	return n
}

// handleFrames handles messages up to the first that is not to be decoded yet, and returns the rest. The lock is held.
func (c *Conn) handleFrames(batch []byte) (rest []byte) {
	for len(batch) > 0 && c.ended == nil {
		frame, rest, err := framing.Split(batch, c.reading.Limits)
		if err == nil {
			if err = c.admit(frame); err == errDeferred {
				return batch
			}
			if err != nil {
				c.loop.EndLocked(refusedEnding(err))
				return nil
			}
			err = c.handle(frame)
		}
		if err != nil {
			c.countHitOf(err)
			c.loop.EndLocked(abortEnding(err))
		}
		batch = rest
	}
	return nil
}

// chargeCall charges memory for a call; false if there is none.
func (co *core) chargeCall(ans *answer) bool {
	if n := ans.bytes + intake.CallBytes; co.intake.TryGrow(n) {
		ans.charged = n
		return true
	}
	return false
}

// admit decides whether a message may be decoded: errDeferred means not yet, another error never.
func (co *core) admit(frame []byte) error {
	switch {
	case co.intake.Trusted():
		return nil
	case len(frame) > intake.MaxStrangerMessage && co.pendingAuthCalls > 0:
		return errDeferred
	case len(frame) > intake.MaxStrangerMessage:
		return co.intake.TooLarge()
	case co.pendingAuthCalls >= intake.PendingCalls, co.out.Size() > intake.QueuedBytes:
		return errDeferred
	case co.pendingAuthCalls > co.intake.Throttled() && co.isPipelinedOnPending(frame):
		return errDeferred
	}
	return nil
}

// isPipelinedOnPending reports whether a message is a call on a result of an unanswered call. The message is not kept.
func (co *core) isPipelinedOnPending(frame []byte) bool {
	id, ok := wire.PipelinedOn(frame, &co.reading)
	ans := co.answers[id]
	return ok && ans != nil && !ans.returned
}

// noteAuthCall records a stranger's call on the bootstrap interface, which may make it trusted.
func (co *core) noteAuthCall(ans *answer, dst *destination) {
	if !co.intake.Trusted() && dst.ref != nil && dst.ref.node == node(co.boot) {
		ans.authCall = true
		co.pendingAuthCalls++
	}
}

// authCallDone records that it is answered.
func (co *core) authCallDone(ans *answer) {
	if !ans.authCall {
		return
	}
	ans.authCall = false
	co.pendingAuthCalls--
	co.wakeLimitWaiters()
}

// recheckDeferred handles deferred messages again when the lock is free.
func (co *core) recheckDeferred() {
	if len(co.deferred) > 0 && co.ended == nil {
		co.afterUnlock = append(co.afterUnlock, func() {
			co.conn.mu.Lock()
			defer co.conn.unlockAndRun()
			co.conn.receiveDeferred()
		})
	}
}
