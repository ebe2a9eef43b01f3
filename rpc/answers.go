// The answer table: calls of the peer, until we have returned and it has finished them.

package rpc

import (
	"slices"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/table"
	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// answer is a call of the peer. It is dropped when both Return is sent and Finish received. Until the Finish the peer may
// pipeline on it, so results with capabilities are kept until then. Results without are dropped with their Return, which
// says that no Finish is needed (noFinishNeeded).
type answer struct {
	call         Call
	id           uint32
	returned     bool
	finished     bool
	keepResults  bool // the results stay here, for the peer to use with takeFromOtherQuestion
	taken        bool
	deliverFirst bool  // finished by a peer that expects it to be delivered before it is cancelled
	liveQueued   int32 // calls in queue that the peer has not finished

	ex       *Exception // the exception returned,
	content  capnp.Ptr  // or the results,
	caps     CapTable   // with these
	exports  []uint32   // exports in the results: one reference each is released by the Finish, if it says so
	bytes    int        // counted in core.answerBytes
	charged  int        // charged to core.intake, while it is not returned
	authCall bool       // counted in core.pendingAuthCalls

	queue     []queuedCall       // calls pipelined on it before the return
	pipelined []pipelinedPromise // promises of its results that the peer passed back (receiverAnswer)
	takers    []*Promise         // if yourself: questions of ours that take their answer from it
	waitsOn   *answer            // the answer in whose queue this call is
}

// queuedCall waits for the capability at a path of an answer's results.
type queuedCall struct {
	ans  *answer
	path []uint16
}

// handleBootstrap handles the peer's request for our bootstrap interface.
func (co *core) handleBootstrap(msg rpccp.Message) error {
	b, err := msg.Bootstrap()
	if err != nil {
		return framing.Error(err.Error())
	}
	id := b.QuestionId()
	ans, err := co.newAnswer(id)
	if err != nil {
		return err
	}
	ans.call.answered.Store(true)
	switch {
	case co.boot == nil:
		co.returnException(ans, Failedf("this vat has no bootstrap interface"))
		return nil
	case co.draining:
		co.returnException(ans, errDraining)
		return nil
	}
	out := newOutMsg()
	if err := out.InitCapability(); err != nil {
		co.returnException(ans, Failedf("bootstrap: %v", err))
		return nil
	}
	co.boot.tryRef()
	co.returnResults(ans, out, CapTable{refs: []*Ref{{node: co.boot}}})
	return nil
}

var errDraining = Disconnectedf("the server is shutting down")

// newAnswer adds an answer under the number the peer chose.
func (co *core) newAnswer(id uint32) (*answer, error) {
	if co.answers[id] != nil {
		return nil, violation("question %d is asked again before it is returned and finished", id)
	}
	if len(co.answers)/2 >= co.limits.Answers {
		return nil, peerconn.OverLimit(LimitAnswers, violation("%d questions are not finished", len(co.answers)))
	}
	ans := &answer{id: id}
	ans.call.conn, ans.call.via, ans.call.ans = co.conn, co.conn, ans
	co.answers[id] = ans
	co.finishOptional.Remove(id)
	co.unanswered++
	return ans, nil
}

// incomingCall is the content of a Call.
type incomingCall struct {
	id          uint32
	method      Method
	keepResults bool // the results stay here
	dst         destination
	caps        CapTable
	unreadable  error // why the parameters cannot be read
}

// handleCall handles a call of the peer: on an object of ours, a promise of ours, or a result of a question of its own.
func (co *core) handleCall(in *wire.In, msg rpccp.Message) error {
	m, err := msg.Call()
	if err != nil {
		return framing.Error(err.Error())
	}
	to := m.SendResultsTo().Which()
	if to != rpccp.Call_sendResultsTo_Which_caller && to != rpccp.Call_sendResultsTo_Which_yourself {
		return co.unimplemented(in)
	}
	target, err := m.Target()
	if err != nil {
		return framing.Error(err.Error())
	}
	dst, err := co.destination(target, "call")
	if err != nil {
		return err
	}
	params, err := m.Params()
	if err != nil {
		return framing.Error(err.Error())
	}
	caps, err := co.receiveCaps(in, params) // before the question exists, so that it cannot be its own argument
	if err != nil {
		co.dropCaps(caps)
		return err
	}
	said := incomingCall{
		id:          m.QuestionId(),
		method:      Method{Interface: m.InterfaceId(), ID: m.MethodId()},
		keepResults: to == rpccp.Call_sendResultsTo_Which_yourself,
		dst:         dst,
		caps:        caps,
	}
	in.Content, said.unreadable = params.Content()
	return co.acceptCall(in, &said)
}

// acceptCall makes an answer for a call, whose parameters are in.Content, and sends the call to its target.
func (co *core) acceptCall(in *wire.In, said *incomingCall) error {
	ans, err := co.newAnswer(said.id)
	if err != nil {
		co.dropCaps(said.caps)
		return err
	}
	ans.keepResults = said.keepResults
	ans.bytes = in.Size + refBytes*said.caps.Len()
	co.answerBytes += ans.bytes
	co.noteAuthCall(ans, &said.dst)
	call := &ans.call
	call.in.Store(in)
	call.method = said.method
	call.caps = said.caps
	dst := &said.dst
	var refuse *Exception
	if said.unreadable != nil {
		co.countHitOf(said.unreadable)
		refuse = Failedf("the parameters cannot be read: %v", said.unreadable)
	}
	switch {
	case refuse != nil:
	case co.draining:
		refuse = errDraining
	case co.unanswered > co.limits.Answers:
		co.countHit(LimitAnswers)
		refuse = Overloadedf("%d calls are unanswered", co.unanswered-1)
	case co.answerBytes > co.limits.AnswerBytes:
		co.countHit(LimitAnswerBytes)
		refuse = Overloadedf("calls and results of this connection hold %d bytes", co.answerBytes)
	case !co.chargeCall(ans):
		refuse, _ = exceptionFor(co.intake.Overloaded())
	case co.out.Size() > co.limits.QueuedBytes:
		co.countHit(LimitQueuedBytes)
		refuse = Overloadedf("%d bytes wait for this peer to read them", co.out.Size())
	case dst.pending != nil && len(dst.pending.queue) >= co.limits.QueuedCalls:
		co.countHit(LimitQueuedCalls)
		refuse = Overloadedf("%d calls wait for question %d", len(dst.pending.queue), dst.pending.id)
	}
	switch {
	case refuse != nil:
		co.rejectCall(ans, refuse)
	case dst.pending != nil:
		ans.waitsOn = dst.pending
		dst.pending.queue = append(dst.pending.queue, queuedCall{ans, dst.path})
		dst.pending.liveQueued++
		co.queuedCalls++
	default:
		co.deliverTo(ans, dst.ref)
	}
	return nil
}

// refBytes is the memory charged for a reference in a message's table of capabilities.
const refBytes = 48

// rejectCall answers a call that was not delivered.
func (co *core) rejectCall(ans *answer, ex *Exception) {
	if !ans.call.answered.CompareAndSwap(false, true) {
		return
	}
	co.dropCaps(ans.call.caps)
	co.returnException(ans, ex)
}

// deliverTo queues a call for delivery to the target of to.
func (co *core) deliverTo(ans *answer, to *Ref) {
	if b, ok := to.node.(*brokenCap); ok {
		co.rejectCall(ans, b.err)
		return
	}
	if !to.node.tryRef() {
		co.rejectCall(ans, errReleased)
		return
	}
	ans.call.bind(to.node, co.conn)
	co.out.Tasks = append(co.out.Tasks, (*callTask)(&ans.call))
}

// sendResults answers a call, taking over the message and the capabilities; lazily, if nobody waits for the answer.
func (c *Conn) sendResults(ans *answer, out *outMsg, caps CapTable, lazily bool) {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.ended != nil {
		c.dropCaps(caps)
		return
	}
	urgent := c.out.Urgent
	c.returnResults(ans, out, caps)
	if lazily {
		c.out.Urgent = urgent
	}
}

// sendException answers a call with an error.
func (c *Conn) sendException(ans *answer, ex *Exception) {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.ended == nil {
		c.returnException(ans, ex)
	}
}

// returnResults sends a Return with results, or keeps them if the call asked for that.
func (co *core) returnResults(ans *answer, out *outMsg, caps CapTable) {
	var (
		ret     rpccp.Return
		payload rpccp.Payload
		content capnp.Ptr
		err     error
	)
	plain := out.IsPlain() && caps.Len() == 0
	if !plain || ans.keepResults || len(ans.queue)+len(ans.pipelined) > 0 {
		ret, payload, content, err = out.Results()
	}
	if err != nil {
		co.dropCaps(caps)
		co.returnException(ans, Failedf("return: %v", err))
		return
	}
	if co.returnWithoutResults(ans) { // calls pipelined on it may still use the results
		co.completeAnswer(ans, out, content, caps, nil)
		return
	}
	if ex := co.roomForExports(&caps); ex != nil {
		co.dropCaps(caps)
		co.returnException(ans, ex)
		return
	}
	hint := caps.Len() == 0 && ans.id < table.IDSetSize
	if plain {
		out.AddressReturn(ans.id, hint)
	} else {
		ret.SetAnswerId(ans.id)
		ret.SetNoFinishNeeded(hint)
		if ans.exports, err = co.writeCaps(payload, &caps); err != nil {
			co.dropCaps(caps)
			co.returnException(ans, Failedf("return: %v", err))
			return
		}
	}
	if ex := co.checkSize("the results are", out, ans.exports); ex != nil {
		ans.exports = nil
		co.dropCaps(caps)
		co.returnException(ans, ex)
		return
	}
	_ = co.emitReusable(out) // it fits
	co.resolveBrokenExports()
	co.completeAnswer(ans, out, content, caps, nil)
	if hint {
		co.dropAnswer(ans)
		co.finishOptional.Add(ans.id)
	}
}

// returnException sends a Return with an exception, and the same for all calls that wait for the answer, transitively.
func (co *core) returnException(ans *answer, ex *Exception) {
	if !co.returnWithoutResults(ans) {
		co.send(func(m rpccp.Message) error {
			ret, err := wire.NewReturn(m, ans.id)
			if err != nil {
				return err
			}
			e, err := ret.NewException()
			if err != nil {
				return err
			}
			return writeException(e, ex, co.maxReason())
		})
	}
	co.completeAnswer(ans, nil, capnp.Ptr{}, CapTable{}, ex)
}

// returnWithoutResults sends the Return of a call that was finished before, or whose results stay here; false if neither is
// so.
func (co *core) returnWithoutResults(ans *answer) bool {
	if !ans.finished && !ans.keepResults {
		return false
	}
	co.send(func(m rpccp.Message) error {
		ret, err := wire.NewReturn(m, ans.id)
		if err != nil {
			return err
		}
		if ans.finished {
			ret.SetCanceled()
		} else {
			ret.SetResultsSentElsewhere()
		}
		return nil
	})
	return true
}

// completeAnswer records the answer and sends on the calls that waited for it, in order. Results without capabilities are not
// kept: calls pipelined on them can only fail.
func (co *core) completeAnswer(ans *answer, out *outMsg, content capnp.Ptr, caps CapTable, ex *Exception) {
	ans.returned = true
	co.unanswered--
	co.answerBytes -= ans.bytes
	ans.bytes = 0
	co.intake.Shrink(ans.charged)
	ans.charged = 0
	co.authCallDone(ans)
	ans.call.in.Store(nil)
	ans.ex, ans.content, ans.caps = ex, content, caps
	co.pipelinedPromises -= len(ans.pipelined)
	queue, pipes, takers := ans.queue, ans.pipelined, ans.takers
	ans.queue, ans.pipelined, ans.takers = nil, nil, nil
	for _, q := range queue {
		q.ans.waitsOn = nil
		co.queuedCalls--
		if ex != nil {
			co.rejectCall(q.ans, ex)
		} else {
			co.deliverTo(q.ans, co.resultOf(ans, q.path))
		}
	}
	for _, lp := range pipes {
		to := brokenRef(ex)
		if ex == nil {
			to = capAt(content, &caps, lp.path)
		}
		co.afterUnlock = append(co.afterUnlock, func() { lp.cap.resolve(to) })
	}
	for _, p := range takers {
		p.q.takesFrom = nil
		if ex != nil {
			co.completeQuestion(p, capnp.Ptr{}, CapTable{}, ex)
		} else {
			co.completeQuestion(p, content, caps.clone(), nil)
		}
	}
	switch {
	case ex != nil:
	case ans.keepResults || caps.Len() > 0:
		ans.bytes = out.Size()
		co.answerBytes += ans.bytes
	default:
		ans.content = capnp.Ptr{}
		out.free()
	}
	if ans.finished {
		co.dropAnswer(ans)
	}
	if co.unanswered == 0 {
		co.wakeLimitWaiters() // Drain waits for it
	}
}

// handleFinish handles the peer's Finish: it will not use the question's number again. An unanswered call is cancelled.
func (co *core) handleFinish(msg rpccp.Message) error {
	m, err := msg.Finish()
	if err != nil {
		return framing.Error(err.Error())
	}
	if co.finishOptional.Remove(m.QuestionId()) { // it crossed the Return, or the peer ignores noFinishNeeded
		return nil
	}
	ans := co.answers[m.QuestionId()]
	if ans == nil {
		return violation("finish of question %d, which does not exist", m.QuestionId())
	}
	if ans.finished {
		return violation("second finish of question %d", m.QuestionId())
	}
	ans.finished = true
	if !ans.returned {
		ans.deliverFirst = m.RequireEarlyCancellationWorkaround()
		co.cancelAnswer(ans)
		return nil
	}
	if m.ReleaseResultCaps() {
		if err := co.releaseExports(ans.exports); err != nil {
			return err
		}
	}
	co.dropAnswer(ans)
	return nil
}

// hasWaiters reports whether something waits for the results, although the question may be finished: a call pipelined on it,
// an object that was passed a promise of them, or a question of ours that takes them.
func (ans *answer) hasWaiters() bool {
	return ans.liveQueued > 0 || anyReferenced(ans.pipelined) ||
		slices.ContainsFunc(ans.takers, func(p *Promise) bool { return !p.q.finished })
}

// pipelinedDropped is called when the last reference to one of ans.pipelined is released.
func (c *Conn) pipelinedDropped(ans *answer) {
	c.mu.Lock()
	defer c.unlockAndRun()
	if c.ended == nil {
		c.cancelAnswer(ans)
	}
}

// cancelAnswer cancels a call that was finished before its return, once nothing waits for its results any more. Old peers
// expect that a call is delivered first, even if it is cancelled right after.
func (co *core) cancelAnswer(ans *answer) {
	for ans != nil && ans.finished && !ans.returned && !ans.hasWaiters() {
		if ans.deliverFirst {
			if ans.call.cancelAfterDelivery() {
				co.cancels = append(co.cancels, &ans.call)
			}
			return
		}
		co.cancels = append(co.cancels, &ans.call)
		on := ans.waitsOn
		if on == nil {
			return
		}
		// Not delivered, and not going to be: answer at once, and check whether the call it waited for is still needed.
		on.queue = slices.DeleteFunc(on.queue, func(q queuedCall) bool { return q.ans == ans })
		on.liveQueued--
		co.queuedCalls--
		ans.waitsOn = nil
		co.rejectCall(ans, errCanceled)
		ans = on
	}
}

// dropAnswer frees the number: the answer is returned, and finished or in no need of a Finish.
func (co *core) dropAnswer(ans *answer) {
	co.answerBytes -= ans.bytes
	ans.bytes = 0
	table.Delete(&co.answers, ans.id, &co.peakSizes.answers)
	co.dropCaps(ans.caps)
	ans.caps, ans.content, ans.exports = CapTable{}, capnp.Ptr{}, nil
}
