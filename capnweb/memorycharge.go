// What a peer is charged for: its calls while they are unanswered, and what their results hold.

package capnweb

import "github.com/mooring-rpc/mooring/internal/intake"

// chargeCall counts a call of the peer's as unanswered. An error that is no broken rule is its answer.
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
			return memoryCharge{}, violation("too many calls are unanswered")
		}
		return memoryCharge{}, errOverloaded("too many calls are unanswered")
	case c.callBytes+e.size > c.limits.CallBytes:
		c.countHit(LimitCallBytes)
		return memoryCharge{}, errOverloaded("unanswered calls and results hold too much")
	case c.out.size() > c.limits.QueuedBytes:
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

// memoryCharge is what a connection's peer is charged for a call that has no answer.
type memoryCharge struct {
	c           *Conn
	size        int
	intakeBytes int  // to the connection's intake
	abandoned   bool // the peer has given the call up
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
		b.c.wakeLimitWaiters()
	}
	b.c.unlockAndRun()
}

// releaseWhenResolved has the bill paid when n is known or forgotten.
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

// minChargedValue is what is not worth counting.
const minChargedValue = 1 << 10

// nodeBytes is about what a node takes, whatever it is.
const nodeBytes = 512

// cost is what is charged for a payload that a peer has made here; 0 if it is not worth counting.
func (p *payload) cost() int {
	if p.size < minChargedValue && len(p.refs) == 0 {
		return 0
	}
	return p.size + nodeBytes + 64*len(p.refs)
}

// chargeHeld charges the peer for a value that was made for it, for as long as it is held; what is too much becomes an error.
func (v via) chargeHeld(f *future) *future {
	size := f.val.cost()
	if err := v.chargeHeldBytes(f, size, size); err != nil {
		f.unref()
		return newError(err)
	}
	return f
}

// chargeHeldBytes adds to what the peer is charged for as long as f is held: size bytes, which take cost.
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
