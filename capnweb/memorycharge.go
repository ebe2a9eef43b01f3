// Memory charges to a peer: for its calls while they are unanswered, and for their results.

package capnweb

import (
	"github.com/mooring-rpc/mooring/internal/intake"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
)

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
