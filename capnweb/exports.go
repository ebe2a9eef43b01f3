// exports: what the peer may name: results of its pushes, under ids that it chose, and stubs and promises that we sent.

package capnweb

import "sync/atomic"

// export is an entry of the table.
type export struct {
	node   node // counted
	count  int64
	pulled bool  // the peer waits for its answer, or has it
	over   bool  // and does not wait any more
	owed   *owed // while it is not known what the answer is
	once   bool  // of a stream message: given up with its answer
	pipe   *Readable
}

// addPush enters the result of a push, which it takes over, under the next id of the peer's. The lock is held.
func (c *Conn) addPush(e *export) int64 {
	id := c.nextPush
	c.nextPush++
	if c.ended != nil {
		e.over = true
		c.drops = append(c.drops, e.node)
		return id
	}
	c.exports[id] = e
	c.handed++
	return id
}

// newExport enters a node under a new id of ours, though it may have one already: the npm package counts only the first
// time that it is told of an id, and would never release the others. The lock is held.
func (c *Conn) newExport(n node) (int64, error) {
	if c.handed >= c.lim.Exports {
		c.hit(LimitExports)
		return 0, errOverloaded("the peer holds too much")
	}
	id := c.nextExport
	c.nextExport--
	n.ref()
	c.exports[id] = &export{node: n, count: 1}
	c.handed++
	return id, nil
}

// unexport takes n from an entry's count. The lock is held.
func (c *Conn) unexport(id int64, n int64) {
	e := c.exports[id]
	if e == nil {
		return
	}
	if e.count -= n; e.count > 0 || id == 0 {
		return
	}
	delete(c.exports, id)
	c.handed--
	c.answered(e)
	if c.drop == nil {
		c.drop = e.node
	} else {
		c.drops = append(c.drops, e.node)
	}
	if e.pipe != nil {
		r := e.pipe
		c.after = append(c.after, func() { r.Cancel(nil) })
	}
}

// lookup gives a reference to an export, nil if there is none.
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

func (c *Conn) receivePush(expr any, size int, on via, stream bool) error {
	if c.tooManyPushes() {
		return violation("too much is held: results have to be released")
	}
	n, err := (&evaluator{c: c, on: on, size: size, cost: c.cost}).node(expr)
	if err != nil {
		return err
	}
	c.enterPush(n, size, stream)
	return nil
}

// receiveCall is receivePush for nothing but a call.
func (c *Conn) receiveCall(id int64, path []string, list []any, size int, on via) error {
	if c.tooManyPushes() {
		return violation("too much is held: results have to be released")
	}
	e := evaluator{c: c, on: on, size: size, cost: c.cost}
	target := c.lookup(id)
	if target == nil {
		return violation("no export %d", id)
	}
	n, err := e.call(target, path, list, 0)
	target.unref()
	if err != nil {
		return err
	}
	c.enterPush(n, size, false)
	return nil
}

// enterPush enters what was pushed.
func (c *Conn) enterPush(n node, size int, stream bool) {
	if f, ok := n.(*future); ok && f.is(known) && f.err == nil && f.refs.Load() == 1 { // it was made of the message
		if err := (via{c: c}).holdOf(f, size+nodeBytes, c.cost+nodeBytes); err != nil {
			f.unref()
			n = newError(err)
		}
	}
	e := &export{node: n, count: 1, once: stream}
	c.mu.Lock()
	id := c.addPush(e)
	if stream {
		c.asked(e)
	}
	c.unlock()
	if stream {
		c.answerPull(id, e)
	}
}

// tooManyPushes says that the peer releases nothing.
func (c *Conn) tooManyPushes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handed < 2*c.lim.Exports {
		return false
	}
	c.hit(LimitExports)
	return true
}

func (c *Conn) receivePull(id int64) error {
	c.mu.Lock()
	e := c.exports[id]
	if e == nil {
		c.mu.Unlock()
		return violation("no export %d to pull", id)
	}
	if e.pulled {
		c.mu.Unlock()
		return nil
	}
	c.asked(e)
	e.node.ref()
	c.mu.Unlock()
	c.answerPull(id, e)
	e.node.unref()
	return nil
}

// asked notes that the peer waits for an answer. The lock is held.
func (c *Conn) asked(e *export) {
	e.pulled = true
	c.batch.asked++
}

// answered notes that the peer has it, or has given it up. The lock is held.
func (c *Conn) answered(e *export) {
	if e.pulled && !e.over {
		c.batch.asked--
		e.settled()
		if c.draining || !c.cfg.Intake.Trusted() {
			c.roomMade()
		}
	}
}

// settled says that nobody waits for an answer. The connection's lock is held.
func (e *export) settled() {
	e.over = true
	if e.owed != nil {
		e.owed.over.Store(true)
		e.owed.to.Store(nil)
	}
}

// owed is what waits for something to be known in order to answer. It may be there for longer than it is wanted.
type owed struct {
	to   atomic.Pointer[Conn]
	over atomic.Bool
}

// answerPull answers when it is known what the export is, if the peer is still there and holds the id then.
func (c *Conn) answerPull(id int64, e *export) {
	if f, ok := e.node.(*future); ok && f.is(ready) && f.next == nil {
		if f.err != nil {
			c.sendReject(id, f.err)
		} else {
			c.sendResolve(id, &f.val)
		}
		return
	}
	o := new(owed)
	c.mu.Lock()
	if e.over {
		c.mu.Unlock()
		return
	}
	o.to.Store(c)
	e.owed = o
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
	}, &o.over)
}

func (c *Conn) sendResolve(id int64, p *payload) {
	c.mu.Lock()
	e := c.exports[id]
	if e == nil || c.ended != nil {
		c.mu.Unlock()
		return
	}
	b := c.enc.start(c, `["resolve",`)
	b = appendID(b, id)
	c.enc.b = append(b, ',')
	var err error = errTooLarge
	if int64(c.lim.MessageBytes) > p.large.Load() {
		err = c.enc.value(p.value, 0)
	}
	if err == nil {
		c.enc.b = append(c.enc.b, ']')
		err = c.enc.send()
	}
	if err == errTooLarge {
		p.large.Store(int64(c.lim.MessageBytes))
	}
	if err != nil {
		c.enc.undo()
		c.unlock()
		c.sendReject(id, err)
		return
	}
	c.answered(e)
	if e.once {
		c.unexport(id, 1)
	}
	c.unlock()
}

// sendReject answers with an error, as the peer may learn of it.
func (c *Conn) sendReject(id int64, err error) {
	told := c.redact(err)
	t := taker{dup: true}
	v, terr := t.takeError(told, 0)
	if terr != nil {
		v = errInternal
	}
	defer t.p.release()
	c.mu.Lock()
	defer c.unlock()
	e := c.exports[id]
	if e == nil || c.ended != nil {
		return
	}
	for {
		b := c.enc.start(c, `["reject",`)
		b = appendID(b, id)
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
	c.answered(e)
	if e.once {
		c.unexport(id, 1)
	}
}

func (c *Conn) receiveRelease(id, n int64) error {
	c.mu.Lock()
	defer c.unlock()
	e := c.exports[id]
	switch {
	case n < 1:
		return violation("a release of %d counts", n)
	case e == nil:
		return violation("no export %d to release", id)
	case n > e.count:
		return violation("a release of %d counts of export %d, which has %d", n, id, e.count)
	case id == 0:
		return nil // the main object stays
	}
	c.unexport(id, n)
	return nil
}
