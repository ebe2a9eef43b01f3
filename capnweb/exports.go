// exports: the nodes that the peer may name: results of its pushes, under ids that it chose, and stubs and promises that we
// sent.

package capnweb

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
)

// export is an entry of the table.
type export struct {
	node            node // counted
	count           int64
	pulled          bool           // the peer waits for its answer, or has it
	answerDone      bool           // and does not wait any more
	pendingAnswer   *pendingAnswer // while the answer is pending
	releaseOnAnswer bool           // of a stream message: released with its answer
	pipe            *Readable
}

// addPush adds the result of a push, which it takes over, under the peer's next id. The lock is held.
func (c *Conn) addPush(e *export) int64 {
	id := c.nextPush
	c.nextPush++
	if c.ended != nil {
		e.answerDone = true
		c.drops = append(c.drops, e.node)
		return id
	}
	c.exports[id] = e
	c.exportCount++
	return id
}

// newExport adds a node under a new id of ours, though it may have one already: the npm package counts only the first
// reception of an id, and would never release the others. The lock is held.
func (c *Conn) newExport(n node) (int64, error) {
	if c.exportCount >= c.limits.Exports {
		c.countHit(LimitExports)
		return 0, errOverloaded("the peer holds too much")
	}
	id := c.nextExport
	c.nextExport--
	n.ref()
	c.exports[id] = &export{node: n, count: 1}
	c.exportCount++
	return id, nil
}

// releaseExport subtracts n from an entry's count. The lock is held.
func (c *Conn) releaseExport(id int64, n int64) {
	e := c.exports[id]
	if e == nil {
		return
	}
	if e.count -= n; e.count > 0 || id == 0 {
		return
	}
	delete(c.exports, id)
	c.exportCount--
	c.markAnswered(e)
	if c.drop == nil {
		c.drop = e.node
	} else {
		c.drops = append(c.drops, e.node)
	}
	if e.pipe != nil {
		r := e.pipe
		c.afterUnlock = append(c.afterUnlock, func() { r.Cancel(nil) })
	}
}

// lookup returns a reference to an export, nil if there is none.
func (c *Conn) lookup(id int64) node {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.exports[id]
	if e == nil {
		return nil
	}
	e.node.ref()
	return e.node
}

func (c *Conn) receivePush(pushed any, size int, on via, stream bool) error {
	if c.tooManyPushes() {
		return expr.Violationf("too much is held: results have to be released")
	}
	n, err := (&evaluator{c: c, on: on, size: size, cost: c.messageCost}).node(pushed)
	if err != nil {
		return err
	}
	c.addPushed(n, size, stream)
	return nil
}

// receiveCall is receivePush for an expression that is a single call.
func (c *Conn) receiveCall(id int64, path []string, list []any, size int, on via) error {
	if c.tooManyPushes() {
		return expr.Violationf("too much is held: results have to be released")
	}
	e := evaluator{c: c, on: on, size: size, cost: c.messageCost}
	target := c.lookup(id)
	if target == nil {
		return expr.Violationf("no export %d", id)
	}
	n, err := e.call(target, path, list, 0)
	target.unref()
	if err != nil {
		return err
	}
	c.addPushed(n, size, false)
	return nil
}

// addPushed adds the result of a push.
func (c *Conn) addPushed(n node, size int, stream bool) {
	if f, ok := n.(*future); ok && f.reached(stateResolved) && f.err == nil && f.refs.Load() == 1 { // it was made from the message
		if err := (via{c: c}).chargeHeldBytes(f, size+nodeBytes, c.messageCost+nodeBytes); err != nil {
			f.unref()
			n = newError(err)
		}
	}
	e := &export{node: n, count: 1, releaseOnAnswer: stream}
	c.mu.Lock()
	id := c.addPush(e)
	if stream {
		c.markPulled(e)
	}
	c.unlockAndRun()
	if stream {
		c.answerPull(id, e)
	}
}

// tooManyPushes reports whether the peer exceeds its exports because it releases nothing.
func (c *Conn) tooManyPushes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exportCount < 2*c.limits.Exports {
		return false
	}
	c.countHit(LimitExports)
	return true
}

func (c *Conn) receivePull(id int64) error {
	c.mu.Lock()
	e := c.exports[id]
	if e == nil {
		c.mu.Unlock()
		return expr.Violationf("no export %d to pull", id)
	}
	if e.pulled {
		c.mu.Unlock()
		return nil
	}
	c.markPulled(e)
	e.node.ref()
	c.mu.Unlock()
	c.answerPull(id, e)
	e.node.unref()
	return nil
}

// markPulled records that the peer waits for an answer. The lock is held.
func (c *Conn) markPulled(e *export) {
	e.pulled = true
	c.batch.pendingAnswers++
}

// markAnswered records that the peer has the answer, or has cancelled. The lock is held.
func (c *Conn) markAnswered(e *export) {
	if e.pulled && !e.answerDone {
		c.batch.pendingAnswers--
		e.cancelAnswer()
		if c.draining || !c.cfg.Intake.Trusted() {
			c.out.WakeWaiters()
		}
	}
}

// cancelAnswer records that nobody waits for an answer. The connection's lock is held.
func (e *export) cancelAnswer() {
	e.answerDone = true
	if e.pendingAnswer != nil {
		e.pendingAnswer.canceled.Store(true)
		e.pendingAnswer.to.Store(nil)
	}
}

// pendingAnswer waits for a future in order to answer. It may outlive the peer's interest.
type pendingAnswer struct {
	to       atomic.Pointer[Conn]
	canceled atomic.Bool
}

// answerPull answers when the export is resolved, if the connection is open and the peer still has the id then.
func (c *Conn) answerPull(id int64, e *export) {
	if f, ok := e.node.(*future); ok && f.reached(stateDrained) && f.next == nil {
		if f.err != nil {
			c.sendReject(id, f.err)
		} else {
			c.sendResolve(id, &f.val)
		}
		return
	}
	o := new(pendingAnswer)
	c.mu.Lock()
	if e.answerDone {
		c.mu.Unlock()
		return
	}
	o.to.Store(c)
	e.pendingAnswer = o
	c.mu.Unlock()
	e.node.pull(func(p *payload, err error) {
		c := o.to.Load()
		switch {
		case c == nil:
		case err != nil:
			c.sendReject(id, err)
		default:
			c.sendResolve(id, p)
		}
	}, &o.canceled)
}

func (c *Conn) sendResolve(id int64, p *payload) {
	c.mu.Lock()
	e := c.exports[id]
	if e == nil || c.ended != nil {
		c.mu.Unlock()
		return
	}
	b := c.enc.start(c, `["resolve",`)
	b = expr.AppendID(b, id)
	c.enc.b = append(b, ',')
	var err error = errTooLarge
	if int64(c.limits.MessageBytes) > p.tooLargeFor.Load() {
		err = c.enc.value(p.value, 0)
	}
	if err == nil {
		c.enc.b = append(c.enc.b, ']')
		err = c.enc.send()
	}
	if err == errTooLarge {
		p.tooLargeFor.Store(int64(c.limits.MessageBytes))
	}
	if err != nil {
		c.enc.undo()
		c.unlockAndRun()
		c.sendReject(id, err)
		return
	}
	c.markAnswered(e)
	if e.releaseOnAnswer {
		c.releaseExport(id, 1)
	}
	c.unlockAndRun()
}

// sendReject answers with an error, as Config.Redact returns it.
func (c *Conn) sendReject(id int64, err error) {
	wireErr := c.redact(err)
	t := copier{dup: true}
	v, terr := t.copyError(wireErr, 0)
	if terr != nil {
		v = errInternal
	}
	defer t.p.release()
	c.mu.Lock()
	defer c.unlockAndRun()
	e := c.exports[id]
	if e == nil || c.ended != nil {
		return
	}
	for {
		b := c.enc.start(c, `["reject",`)
		b = expr.AppendID(b, id)
		c.enc.b = append(b, ',')
		err := c.enc.value(v, 0)
		if err == nil {
			c.enc.b = append(c.enc.b, ']')
			err = c.enc.send()
		}
		if err == nil {
			break
		}
		c.enc.undo()
		v = any(errInternal)
	}
	c.markAnswered(e)
	if e.releaseOnAnswer {
		c.releaseExport(id, 1)
	}
}

func (c *Conn) receiveRelease(id, n int64) error {
	c.mu.Lock()
	defer c.unlockAndRun()
	e := c.exports[id]
	switch {
	case n < 1:
		return expr.Violationf("a release of %d counts", n)
	case e == nil:
		return expr.Violationf("no export %d to release", id)
	case n > e.count:
		return expr.Violationf("a release of %d counts of export %d, which has %d", n, id, e.count)
	case id == 0:
		return nil // the main object stays
	}
	c.releaseExport(id, n)
	return nil
}
