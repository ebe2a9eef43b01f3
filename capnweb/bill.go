// What a peer is charged for: its calls while they are unanswered, and what their results hold.

package capnweb

import "github.com/mooring-rpc/mooring/internal/intake"

// charge counts a call of the peer's as unanswered. An error that is no broken rule is its answer.
func (e *evaluator) charge() (bill, error) {
	c := e.c
	if c == nil {
		return bill{}, nil
	}
	c.mu.Lock()
	defer c.unlock()
	switch {
	case c.ended != nil:
		return bill{}, c.ended
	case c.draining:
		return bill{}, errOverloaded("the server is going away")
	case c.calls >= c.lim.Calls:
		c.hit(LimitCalls)
		if c.refused++; c.refused > c.lim.Calls {
			return bill{}, violation("too many calls are unanswered")
		}
		return bill{}, errOverloaded("too many calls are unanswered")
	case c.callBytes+e.size > c.lim.CallBytes:
		c.hit(LimitCallBytes)
		return bill{}, errOverloaded("unanswered calls and results hold too much")
	case c.out.size() > c.lim.QueuedBytes:
		c.hit(LimitQueuedBytes)
		return bill{}, errOverloaded("too much waits to be read")
	}
	b := bill{c: c, size: e.size, charged: e.cost + intake.CallBytes}
	if !c.cfg.Intake.TryGrow(b.charged) {
		return bill{}, c.cfg.Intake.Overloaded()
	}
	c.calls++
	c.callBytes += e.size
	return b, nil
}

// bill is what a connection's peer is charged for a call that has no answer.
type bill struct {
	c       *Conn
	size    int
	charged int  // to the connection's intake
	left    bool // the peer has given the call up
}

func (b bill) pay() {
	if b.c == nil {
		return
	}
	b.c.mu.Lock()
	b.c.cfg.Intake.Shrink(b.charged)
	if b.c.ended != nil { // the account is closed
		b.c.unlock()
		return
	}
	b.c.calls--
	if b.left {
		b.c.left--
	}
	b.c.callBytes -= b.size
	if b.c.calls < b.c.lim.Calls {
		b.c.refused = 0
	}
	if b.c.draining || !b.c.cfg.Intake.Trusted() {
		b.c.roomMade()
	}
	b.c.unlock()
}

// attach has the bill paid when n is known or forgotten.
func (b bill) attach(n node) {
	if b.c == nil {
		return
	}
	for n != nil {
		f := futureOf(n)
		if f == nil {
			break
		}
		f.mu.Lock()
		if !f.is(known) {
			if f.bill.c == nil {
				f.bill, b = b, bill{}
			}
			f.mu.Unlock()
			break
		}
		n = f.next
		f.mu.Unlock()
	}
	b.pay()
}

// smallValue is what is not worth counting.
const smallValue = 1 << 10

// nodeBytes is about what a node takes, whatever it is.
const nodeBytes = 512

// cost is what is charged for a payload that a peer has made here; 0 if it is not worth counting.
func (p *payload) cost() int {
	if p.size < smallValue && len(p.refs) == 0 {
		return 0
	}
	return p.size + nodeBytes + 64*len(p.refs)
}

// hold charges the peer for a value that was made for it, for as long as it is held; what is too much becomes an error.
func (v via) hold(f *future) *future {
	size := f.val.cost()
	if err := v.holdOf(f, size, size); err != nil {
		f.unref()
		return newError(err)
	}
	return f
}

// holdOf adds to what the peer is charged for as long as f is held: size bytes, which take cost.
func (v via) holdOf(f *future, size, cost int) error {
	c := v.c
	if c == nil || size == 0 {
		return nil
	}
	c.mu.Lock()
	switch {
	case c.ended != nil:
		c.mu.Unlock()
		return nil
	case c.callBytes+size > c.lim.CallBytes:
		c.hit(LimitCallBytes)
		c.mu.Unlock()
		return errOverloaded("results hold too much")
	case !c.cfg.Intake.TryGrow(cost):
		c.mu.Unlock()
		return c.cfg.Intake.Overloaded()
	}
	c.callBytes += size
	c.mu.Unlock()
	b := bill{c: c, size: size, charged: cost}
	f.mu.Lock()
	if f.refs.Load() > 0 && (f.held.c == nil || f.held.c == c) {
		b.size += f.held.size
		b.charged += f.held.charged
		f.held, b = b, bill{}
	}
	f.mu.Unlock()
	b.payHeld()
	return nil
}

func (b bill) payHeld() {
	if b.c == nil {
		return
	}
	b.c.mu.Lock()
	b.c.cfg.Intake.Shrink(b.charged)
	if b.c.ended == nil {
		b.c.callBytes -= b.size
	}
	b.c.mu.Unlock()
}
