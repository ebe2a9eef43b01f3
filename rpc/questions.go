// The question table: our calls that the peer has not returned.

package rpc

import (
	"context"
	"slices"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// question is the connection's side of a Promise. Its number is in use until the peer's Return and our Finish. We send
// Finish as soon as we have the Return: the results we keep after that are counted in the import table.
type question struct {
	id            uint32
	returned      bool
	finished      bool         // cancelled before the return: Finish is sent, the return is still to come
	released      bool         // the program has released the results
	takesFrom     *answer      // the return said that its answer is this answer of ours
	noFinish      bool         // the peer needs no Finish
	params        []uint32     // exports named in the parameters
	pipelined     []*remoteCap // pipelined capabilities, kept while referenced or embargoed, or until they resolve
	livePipelined int          // how many of pipelined are referenced, plus calls on them that are unanswered
	parent        *Promise     // the question on whose result this call was pipelined
}

// sendVia sends a call to r, or returns where it must go instead: to r's target, or to an error. At a limit it waits for as
// long as ctx allows; after that the call was not sent, and the error is ctx's.
func (c *Conn) sendVia(ctx context.Context, r *remoteCap, call *Call) (next *Ref, err error) {
	c.mu.Lock()
	defer c.unlockAndRun()
	for {
		switch r.state {
		case capResolved:
			return r.target, nil
		case capEmbargoed:
			if len(r.queue) >= c.limits.QueuedCalls {
				c.countHit(LimitQueuedCalls)
				return brokenRef(Overloadedf("%d calls wait for the promise to resolve", len(r.queue))), nil
			}
			r.queue = append(r.queue, embargoed{call: call})
			if c.ended == nil {
				c.queuedCalls++
			}
			return nil, nil
		}
		if !c.atLimit() {
			break
		}
		if err := c.waitAtLimit(ctx); err != nil {
			return nil, err
		}
	}
	if ex := c.transmitCall(r, call); ex != nil {
		return brokenRef(ex), nil
	}
	return nil, nil
}

// trySendCall sends a new call of this vat to the peer at once, if it need not wait: most calls then need no Call.
func (c *Conn) trySendCall(r *remoteCap, p *Promise, out *outMsg) (sent bool, ex *Exception) {
	c.mu.Lock()
	defer c.unlockAndRun()
	for range maxHops {
		if r.state != capResolved {
			break
		}
		next, remote := r.target.node.(*remoteCap)
		if !remote || next.conn != c {
			break
		}
		r = next // of the same peer: the wire keeps the order
	}
	if r.state != capOpen || c.atLimit() {
		return false, nil
	}
	ex = c.sendCall(r, p, out, &out.caps, false)
	return ex == nil, ex
}

func brokenRef(ex *Exception) *Ref { return &Ref{node: &brokenCap{err: ex}} }

// sendCall makes p a question and sends it. The message and its capabilities are released, unless kept is set.
func (co *core) sendCall(r *remoteCap, p *Promise, out *outMsg, caps *CapTable, kept bool) *Exception {
	if ex := co.roomForExports(caps); ex != nil {
		return ex
	}
	p.q.id = co.questions.Add(p)
	if out.IsPlain() && r.p == nil && caps.Len() == 0 {
		out.AddressCall(p.q.id, r.id)
	} else if err := co.completeCall(out, p, r, caps); err != nil {
		co.questions.Remove(p.q.id)
		return Failedf("call: %v", err)
	}
	if ex := co.checkSize("the call is", out, p.q.params); ex != nil {
		co.questions.Remove(p.q.id)
		return ex
	}
	r.called = true
	if r.p != nil { // an early Finish of that question might cancel it under this call
		p.q.parent = r.p
		r.p.q.livePipelined++
	}
	co.addQuestion(p)
	if kept {
		_ = co.emitReusable(out) // it fits
	} else {
		co.dropCaps(*caps)
		_ = co.emit(out)
	}
	co.resolveBrokenExports()
	return nil
}

// completeCall writes the parts of a call that are known only when it is sent: the number of p, r as the target and the
// capabilities.
func (co *core) completeCall(out *outMsg, p *Promise, r *remoteCap, caps *CapTable) error {
	m, payload, _, err := out.Params()
	if err != nil {
		return err
	}
	target, err := m.Target()
	if err == nil && !target.IsValid() {
		target, err = m.NewTarget()
	}
	if err != nil {
		return err
	}
	if err := r.writeTarget(target); err != nil {
		return err
	}
	m.SetQuestionId(p.q.id)
	p.q.params, err = co.writeCaps(payload, caps)
	return err
}

// addQuestion makes p the promise of a question of this connection. Results promised before become pipelined capabilities.
func (co *core) addQuestion(p *Promise) {
	p.mu.Lock()
	p.conn = co.conn
	p.call = nil
	pipes := p.pipelined
	p.q.released = p.released
	p.mu.Unlock()
	for _, lp := range pipes {
		to := co.pipelineCap(p, lp.path)
		co.afterUnlock = append(co.afterUnlock, func() { lp.cap.resolve(to) })
	}
	if p.q.released && p.q.livePipelined == 0 {
		co.afterUnlock = append(co.afterUnlock, func() { co.conn.releaseQuestion(p) })
	}
}

// bootstrap asks for the peer's bootstrap interface.
func (co *core) bootstrap() *Ref {
	p := new(Promise)
	p.q.id = co.questions.Add(p)
	p.released = true // only the reference uses the answer
	ref := co.pipelineCap(p, nil)
	co.addQuestion(p)
	co.send(func(m rpccp.Message) error {
		b, err := m.NewBootstrap()
		if err == nil {
			b.SetQuestionId(p.q.id)
		}
		return err
	})
	return ref
}

// incomingReturn is the content of a Return.
type incomingReturn struct {
	id            uint32
	releaseParams bool
	noFinish      bool
	plain         bool         // it has results without capabilities, which have been read; if not,
	ret           rpccp.Return // has the rest
}

// handleReturn handles the peer's answer to a question of ours.
func (co *core) handleReturn(in *wire.In, msg rpccp.Message) error {
	ret, err := msg.Return()
	if err != nil {
		return framing.Error(err.Error())
	}
	return co.acceptReturn(in, &incomingReturn{
		id: ret.AnswerId(), releaseParams: ret.ReleaseParamCaps(), noFinish: ret.NoFinishNeeded(), ret: ret,
	})
}

// acceptReturn finds the question and applies the return to it.
func (co *core) acceptReturn(in *wire.In, said *incomingReturn) error {
	p := co.questions.Get(said.id)
	if p == nil {
		return violation("return of question %d, which was not asked", said.id)
	}
	q := &p.q
	if q.takesFrom != nil {
		return violation("second return of question %d", q.id)
	}
	if err := co.applyReturn(p, in, said); err != nil || !said.releaseParams {
		return err
	}
	return co.releaseExports(q.params) // before applyReturn: the results may name one of them
}

// applyReturn applies a return to its question.
func (co *core) applyReturn(p *Promise, in *wire.In, said *incomingReturn) error {
	q := &p.q
	if q.finished { // cancelled: our Finish has released the capabilities in it
		q.returned = true
		co.questions.Remove(q.id)
		co.wakeLimitWaiters()
		return nil
	}
	q.noFinish = said.noFinish
	if said.plain {
		p.mu.Lock()
		p.msg = in
		p.mu.Unlock()
		co.completeQuestion(p, in.Content, CapTable{}, nil)
		return nil
	}
	switch ret := said.ret; ret.Which() {
	case rpccp.Return_Which_results:
		payload, err := ret.Results()
		if err != nil {
			return framing.Error(err.Error())
		}
		caps, err := co.receiveCaps(in, payload)
		if err != nil {
			co.dropCaps(caps)
			return err
		}
		content, err := payload.Content()
		if err != nil {
			co.dropCaps(caps)
			co.completeQuestion(p, capnp.Ptr{}, CapTable{}, Failedf("the results cannot be read: %v", err))
			return nil
		}
		co.completeQuestion(p, content, caps, nil)
	case rpccp.Return_Which_exception:
		e, err := ret.Exception()
		if err != nil {
			return framing.Error(err.Error())
		}
		co.completeQuestion(p, capnp.Ptr{}, CapTable{}, readException(e))
	case rpccp.Return_Which_canceled:
		co.completeQuestion(p, capnp.Ptr{}, CapTable{}, &Exception{Type: Failed, Reason: "the callee cancelled the call", Remote: true})
	case rpccp.Return_Which_takeFromOtherQuestion:
		return co.takeFromOtherQuestion(p, ret.TakeFromOtherQuestion())
	case rpccp.Return_Which_resultsSentElsewhere:
		return violation("return of question %d says that its results went elsewhere, which was not asked for", q.id)
	default: // awaitFromThirdParty, of level 3, and future variants
		if err := co.unimplemented(in); err != nil {
			return err
		}
		co.completeQuestion(p, capnp.Ptr{}, CapTable{}, Unimplementedf("the answer is a kind of return that is not implemented"))
	}
	return nil
}

// takeFromOtherQuestion completes our question with our answer to a question of the peer's, whose results it asked us to keep.
func (co *core) takeFromOtherQuestion(p *Promise, id uint32) error {
	ans := co.openAnswer(id)
	switch {
	case ans == nil:
		return violation("return takes from question %d, which is not open", id)
	case !ans.keepResults:
		return violation("return takes from question %d, whose results were sent", id)
	case ans.taken:
		return violation("return takes from question %d a second time", id)
	}
	ans.taken = true
	switch {
	case !ans.returned:
		p.q.takesFrom = ans
		ans.takers = append(ans.takers, p)
	case ans.ex != nil:
		co.completeQuestion(p, capnp.Ptr{}, CapTable{}, ans.ex)
	default:
		co.completeQuestion(p, ans.content, ans.caps.clone(), nil)
	}
	return nil
}

// completeQuestion completes a question, taking over caps. Pipelined capabilities resolve; where one turns out to be an object
// of ours, a Disembargo is sent the way its calls went, and the Finish after it.
func (co *core) completeQuestion(p *Promise, content capnp.Ptr, caps CapTable, ex *Exception) {
	q := &p.q
	q.returned = true
	co.releaseParent(p)
	if q.finished { // cancelled while it waited for the other answer
		co.questions.Remove(q.id)
		co.wakeLimitWaiters()
		co.dropCaps(caps)
		return
	}
	for _, r := range q.pipelined {
		if ex != nil {
			co.resolveRemote(r, brokenRef(ex))
		} else {
			co.resolveRemote(r, capAt(content, &caps, r.path))
		}
	}
	q.pipelined = slices.DeleteFunc(q.pipelined, func(r *remoteCap) bool { return r.dropped })
	if !q.noFinish {
		co.sendFinish(q.id, false)
	}
	co.questions.Remove(q.id)
	co.wakeLimitWaiters()
	co.queueCompletion(p.complete(content, caps, ex))
}

// queueCompletion queues a promise's notifications and releases unused results.
func (co *core) queueCompletion(notify []func(), drop CapTable) {
	for _, f := range notify {
		co.out.Tasks = append(co.out.Tasks, peerconn.Func(f))
	}
	co.dropCaps(drop)
}

// sendFinish tells the peer that the question's number will not be used any more.
func (co *core) sendFinish(id uint32, releaseCaps bool) {
	finish := func(m rpccp.Message) error {
		f, err := m.NewFinish()
		if err == nil {
			f.SetQuestionId(id)
			f.SetReleaseResultCaps(releaseCaps)
			f.SetRequireEarlyCancellationWorkaround(false)
		}
		return err
	}
	if releaseCaps {
		co.send(finish)
	} else { // the peer has answered
		co.sendLazily(finish)
	}
}

// releaseQuestion handles the release of p by the program. Unless pipelined references are left, the call is cancelled.
func (c *Conn) releaseQuestion(p *Promise) {
	c.mu.Lock()
	defer c.unlockAndRun()
	p.q.released = true
	c.cancelQuestion(p)
}

// cancelQuestion cancels a question that nothing waits for.
func (co *core) cancelQuestion(p *Promise) {
	q := &p.q
	if q.returned || q.finished || !q.released || q.livePipelined > 0 || co.ended != nil {
		return
	}
	q.finished = true
	co.sendFinish(q.id, true)
	co.releaseParent(p)
	co.cancelAnswer(q.takesFrom)
	co.queueCompletion(p.complete(capnp.Ptr{}, CapTable{}, errCanceled))
}

// releaseParent releases the question on which p was pipelined, now that p is answered or cancelled.
func (co *core) releaseParent(p *Promise) {
	if parent := p.q.parent; parent != nil {
		p.q.parent = nil
		parent.q.livePipelined--
		co.cancelQuestion(parent)
	}
}

// questionUnimplemented fails a question of ours that the peer echoed as unimplemented.
func (co *core) questionUnimplemented(id uint32) error {
	p := co.questions.Get(id)
	if p == nil {
		return violation("unimplemented carries question %d, which was not asked", id)
	}
	if p.q.takesFrom != nil {
		return violation("unimplemented carries question %d, which is returned", id)
	}
	p.q.noFinish = true // it has no answer to finish
	if err := co.releaseExports(p.q.params); err != nil {
		return err
	}
	if p.q.finished {
		p.q.returned = true
		co.questions.Remove(id)
		co.wakeLimitWaiters()
		return nil
	}
	co.completeQuestion(p, capnp.Ptr{}, CapTable{}, &Exception{Type: Unimplemented, Reason: "the peer does not implement the call", Remote: true})
	return nil
}
