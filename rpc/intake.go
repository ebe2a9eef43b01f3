// What is taken in of a stranger: a peer that has not shown a ref yet (Config.Intake). Its calls on the bootstrap interface
// are decoded, if they are small. What comes behind them, as a first flight's calls on what they are about to give, is kept
// as the bytes that came until it is known whether they give anything, and only then decoded: in order, for nothing
// overtakes what is kept.

package rpc

import (
	"context"
	"errors"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/intake"
)

// errDeferred is that a message is not to be decoded yet.
var errDeferred = errors.New("held")

// stranger is what core knows of a peer that is one, or was.
type stranger struct {
	intake           *intake.Peer // nil: there are none
	trustedLimits    Limits       // when it is none any more
	pendingAuthCalls int          // its calls of the bootstrap interface that are unanswered
	deferred         []byte       // framed messages that are kept
	deferredOffset   int          // where in raw the first one begins
	preDrainBytes    int          // so many bytes of them came before draining began
	readerPaused     bool         // the reader waits for what is kept to be taken in
}

// strangerTable is how much of anything a stranger may have.
const strangerTable = 2 * intake.PendingCalls

// initIntake begins with a peer that may be a stranger.
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

// onIntakeChange is told that more may be taken in.
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

// awaitAuthCalls waits until the peer is no stranger any more, or has no call left that could make it none.
func (c *Conn) awaitAuthCalls(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	return c.pauseReader(ctx, func() bool { return c.pendingAuthCalls > 0 || len(c.deferred) > 0 })
}

// pauseReader has the reader wait, as long as the peer is a stranger and there is something to wait for. The lock is held.
func (c *Conn) pauseReader(ctx context.Context, on func() bool) error {
	c.readerPaused = true
	defer func() {
		c.readerPaused = false
		c.markActivity()
	}()
	for c.ended == nil && !c.intake.Trusted() && on() {
		if c.waitForRoom(ctx) != nil {
			return c.intake.Overloaded()
		}
	}
	return nil
}

// receiveBatch takes in what the reader has read, behind what is kept. The lock is held.
func (c *Conn) receiveBatch(batch []byte) {
	if len(c.deferred) > 0 && len(c.deferred)-c.deferredOffset+len(batch) > c.intake.MaxStrangerBytes() {
		ctx, cancel := context.WithTimeout(context.Background(), c.intake.MaxWait())
		defer cancel()
		if err := c.pauseReader(ctx, func() bool { return len(c.deferred) > 0 }); err != nil {
			c.endLocked(refusedEnding(err))
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
		c.endLocked(refusedEnding(c.intake.Overloaded()))
		return
	}
	c.deferred = append(c.deferred, batch...)
}

// receiveDeferred takes in what is kept, as far as that may be now. The lock is held.
func (c *Conn) receiveDeferred() {
	if len(c.deferred) == 0 || c.ended != nil {
		return
	}
	kept := c.deferred[c.deferredOffset:]
	left := kept
	if c.preDrainBytes > 0 { // it was there before, and only waited
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
		poison(c.deferred)
		c.deferred, c.deferredOffset = nil, 0
		c.wakeLimitWaiters()
	}
}

// deferredCalls is how many calls are kept.
func (co *core) deferredCalls() (n int) {
	for rest := co.deferred[co.deferredOffset:]; len(rest) > 0; {
		var frame []byte
		var err error
		if frame, rest, err = splitFrame(rest, &co.limits); err != nil {
			break
		}
		if isCallOrReturn(frame) {
			n++
		}
	}
	return n
}

// handleFrames handles messages up to the first that is not to be decoded yet, and gives the rest. The lock is held.
func (c *Conn) handleFrames(batch []byte) (rest []byte) {
	for len(batch) > 0 && c.ended == nil {
		frame, rest, err := splitFrame(batch, &c.limits)
		if err == nil {
			if err = c.admit(frame); err == errDeferred {
				return batch
			}
			if err != nil {
				c.endLocked(refusedEnding(err))
				return nil
			}
			err = c.handle(frame)
		}
		if err != nil {
			c.countHitOf(err)
			c.endLocked(abortEnding(err))
		}
		batch = rest
	}
	return nil
}

// refusedEnding ends the connection of a peer of which no more is taken in.
func refusedEnding(err error) ending {
	ex, _ := exceptionFor(err)
	return ending{err: ex, code: closeTryAgainLater, reason: ex.Type.String(), flush: true, abort: ex}
}

// refusal is what a transport was told when it asked whether it may read on.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

// refusedRead marks what a transport was told.
func refusedRead(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// chargeCall takes memory for a call; false if there is none.
func (co *core) chargeCall(ans *answer) bool {
	if n := ans.bytes + intake.CallBytes; co.intake.TryGrow(n) {
		ans.charged = n
		return true
	}
	return false
}

// admit says whether a message may be decoded: errDeferred says not yet, another error not at all.
func (co *core) admit(frame []byte) error {
	switch {
	case co.intake.Trusted():
		return nil
	case len(frame) > intake.MaxStrangerMessage && co.pendingAuthCalls > 0:
		return errDeferred
	case len(frame) > intake.MaxStrangerMessage:
		return co.intake.TooLarge()
	case co.pendingAuthCalls >= intake.PendingCalls, co.queuedBytes() > intake.QueuedBytes:
		return errDeferred
	case co.pendingAuthCalls > co.intake.Throttled() && co.isPipelinedOnPending(frame):
		return errDeferred
	}
	return nil
}

// isPipelinedOnPending says whether a message is a call on what an unanswered call will give. Nothing of it is kept.
func (co *core) isPipelinedOnPending(frame []byte) bool {
	var in inMsg
	if in.parse(frame, &co.limits) != nil {
		return false // which is found out again
	}
	m, err := rpccp.ReadRootMessage(&in.msg)
	if err != nil || m.Which() != rpccp.Message_Which_call {
		return false
	}
	call, err := m.Call()
	if err != nil {
		return false
	}
	target, err := call.Target()
	if err != nil || target.Which() != rpccp.MessageTarget_Which_promisedAnswer {
		return false
	}
	on, err := target.PromisedAnswer()
	if err != nil {
		return false
	}
	ans := co.answers[on.QuestionId()]
	return ans != nil && !ans.returned
}

// noteAuthCall notes that a stranger's call is one of those that may make it none.
func (co *core) noteAuthCall(ans *answer, dst *destination) {
	if !co.intake.Trusted() && dst.ref != nil && dst.ref.node == node(co.boot) {
		ans.authCall = true
		co.pendingAuthCalls++
	}
}

// authCallDone notes that it is answered.
func (co *core) authCallDone(ans *answer) {
	if !ans.authCall {
		return
	}
	ans.authCall = false
	co.pendingAuthCalls--
	co.wakeLimitWaiters()
}

// recheckDeferred has what is kept looked at again when the lock is free.
func (co *core) recheckDeferred() {
	if len(co.deferred) > 0 && co.ended == nil {
		co.afterUnlock = append(co.afterUnlock, func() {
			co.conn.mu.Lock()
			defer co.conn.unlockAndRun()
			co.conn.receiveDeferred()
		})
	}
}
