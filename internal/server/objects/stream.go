// Stream: the right to send the batches of one outbox to one session. Batches are decoded and
// queued here; the committer answers them. Batches are the most frequent call, so usual ones, and
// their acks, are decoded and encoded by hand with capnpfast, where the generated code follows one
// pointer after the other. All others are left to that code (decode.go), which gives the answers and
// refusals.

package objects

import (
	"bytes"
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// stream serves the schema's Stream.
type stream struct {
	service     *Service
	peer        string
	auth        *authority
	id          string // the stream's id (session.StreamKey), opened by the outbox's secret
	incarnation uint64
	opening     session.Opening
	maxInFlight int // maximum of inFlight

	mu       sync.Mutex
	inFlight int               // unanswered calls
	deferred []*deferredCommit // in order of arrival; the first waits for a promise
}

// deferredCommit is a batch that came with unresolved promises of capabilities, as when a session
// is restored and forked in one round trip, or a batch behind it.
type deferredCommit struct {
	commit     *commit.Pending
	with       []*rpc.Ref // owned
	unresolved int        // unresolved ones of with, and one for submit itself
}

// maxWith is the maximum number of live sessions that come with one batch.
const maxWith = 64

var streamMethods = newMethodTable("Stream", map[methods.Method]func(*stream, *rpc.Call){
	methods.StreamApply:       (*stream).apply,
	methods.StreamAcknowledge: (*stream).acknowledge,
})

// Serve implements rpc.Object.
func (o *stream) Serve(c *rpc.Call) {
	o.service.cfg.Instruments.ObserveCall(c, o.service.cfg.Instruments.Stream)
	streamMethods.serve(o, c)
}

func (o *stream) apply(c *rpc.Call) {
	crashpoint.Hit(crashpoint.ServerApplyReceived)
	batch, with, size, refused := o.decodeApply(c)
	if refused != nil {
		o.answerApply(c, session.Answer{Err: refused})
		return
	}
	o.submit(&deferredCommit{with: with, commit: &commit.Pending{
		Sub: session.Submission{Batch: batch}, Ops: max(len(batch.Ops), 1), Bytes: size, Caller: c.Context(),
		Done: func(a session.Answer) { o.answerApply(c, a) },
	}})
}

func (o *stream) acknowledge(c *rpc.Call) {
	s, _ := c.Params()
	o.submitAck(c.Context(), wire.Stream_acknowledge_Params(s).Through(), func(a session.Answer) {
		reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
			return o.service.setRefusal(wire.Stream_acknowledge_Results(s).NewRefusal, a.Err)
		})
	})
}

// submitAck queues an acknowledgement without a batch.
func (o *stream) submitAck(ctx context.Context, through uint64, answer func(session.Answer)) {
	o.submit(&deferredCommit{commit: &commit.Pending{
		Sub: session.Submission{Ack: true, Batch: ledger.Batch{Session: o.auth.session, Outbox: o.id,
			Incarnation: o.incarnation, AckedThrough: through}},
		Ops: 1, Bytes: 64, Caller: ctx, Done: answer,
	}})
}

// submit queues p under the stream's authority, after the batches before it.
func (o *stream) submit(p *deferredCommit) {
	w := p.commit
	w.Sub.Opening = &o.opening
	o.auth.stamp(&w.Sub, o.peer)
	answer := w.Done
	o.mu.Lock()
	if o.inFlight >= o.maxInFlight {
		n := o.inFlight
		o.service.cfg.LimitHits.Add(admission.LimitBatches)
		o.mu.Unlock()
		p.release()
		refused := fault.Overloaded.With("%d calls of this stream wait for their answers, the maximum: wait for some", n)
		answer(session.Answer{Err: refused})
		return
	}
	o.inFlight++
	w.Done = func(a session.Answer) {
		o.mu.Lock()
		o.inFlight--
		o.mu.Unlock()
		answer(a)
	}
	p.unresolved = len(p.with) + 1
	o.deferred = append(o.deferred, p)
	o.mu.Unlock()
	for _, source := range p.with {
		source.WhenResolved(func() { o.resolved(p) })
	}
	o.resolved(p)
}

// resolved counts one of p's promises as resolved, and submits the batches that wait for none.
func (o *stream) resolved(p *deferredCommit) {
	var after []func()
	o.mu.Lock()
	p.unresolved--
	for len(o.deferred) > 0 && o.deferred[0].unresolved == 0 {
		next := o.deferred[0]
		o.deferred = o.deferred[1:]
		next.commit.Sub.PassedRefs = append(next.commit.Sub.PassedRefs, attachedRefs(next.with)...)
		after = append(after, next.release)
		if err := o.service.cfg.Committer.Submit(next.commit); err != nil {
			after = append(after, func() { next.commit.Done(session.Answer{Err: err}) })
			continue
		}
		crashpoint.Hit(crashpoint.ServerApplyQueued)
	}
	o.mu.Unlock()
	for _, f := range after {
		f()
	}
}

func (p *deferredCommit) release() {
	for _, source := range p.with {
		source.Release()
	}
	p.with = nil
}

// decodeWith returns the capabilities that came with a batch; the caller releases them.
func decodeWith(s capnp.Struct, caps *rpc.CapTable) ([]*rpc.Ref, *fault.Error) {
	var r fieldReader
	ptrs, err := capabilities(s, 1, maxWith)
	r.fail(err)
	if refused := r.fault("the sessions that came with the batch"); refused != nil {
		return nil, refused
	}
	var with []*rpc.Ref
	for _, p := range ptrs {
		if source := caps.Get(p); source != nil {
			with = append(with, source)
		}
	}
	return with, nil
}

// attachedRefs returns the refs of the live sessions in with. It ignores objects that are no
// session of this server, which prove nothing; objects of Space.create, for whose ref no secret
// was shown; attenuated ones, which allow less than the ref that the op names; and those of children, which were
// opened by a ref of a session above, and prove nothing in that.
func attachedRefs(with []*rpc.Ref) (refs []string) {
	for _, source := range with {
		if o, ok := source.Object().(*sess); ok && o.auth.space == "" && o.auth.attenuated == nil && !o.auth.reach {
			refs = append(refs, o.auth.ref)
		}
	}
	return refs
}

// decodeApply decodes the parameters of an apply. The caller releases with.
func (o *stream) decodeApply(c *rpc.Call) (b ledger.Batch, with []*rpc.Ref, size int, refused *fault.Error) {
	limit := o.service.cfg.MessageBytes
	if params, ok := c.PlainParams(); ok {
		if b, size, ok = decodeFast(params, o.auth.session, o.id, o.incarnation, limit); ok {
			o.service.fastBatches.Add(1)
			return b, nil, size, nil
		}
	}
	o.service.generatedBatches.Add(1)
	s, caps := c.Params()
	from, err := wire.Stream_apply_Params(s).Batch()
	if err != nil {
		return b, nil, 0, fault.Malformed.Because(err, "the batch cannot be decoded")
	}
	if b, size, refused = decodeBatch(from, o.auth.session, o.id, o.incarnation, limit); refused != nil {
		return b, nil, 0, refused
	}
	with, refused = decodeWith(s, caps)
	return b, with, size, refused
}

// decodeFast is decodeBatch for the parameters of an apply, with capnpfast. ok is false for an
// unusual or too large batch, which decodeBatch decodes or refuses. The arguments' values stay in
// the message, unless they are less than half of it.
func decodeFast(m byhand.Message, session, outbox string, incarnation uint64, limit int) (b ledger.Batch, size int, ok bool) {
	params := m.Root()
	from := params.Struct(wirelayout.ParamsBatch)
	ops := from.List(wirelayout.BatchOps)
	if !m.Supported() || !params.Null(wirelayout.ParamsWith) || !from.Null(wirelayout.BatchHints) || ops.Len() > ledger.MaxFrameOps {
		return b, 0, false
	}
	r := fieldReader{limit: limit, sizeHint: m.Size()}
	b = ledger.Batch{Session: session, Outbox: outbox, Incarnation: incarnation,
		AckedThrough: from.Uint64(wirelayout.BatchAckedThrough), BatchID: r.text(string(from.Text(wirelayout.BatchID)), nil),
		Atomic: from.Bit(wirelayout.BatchAtomic), Ops: make([]ledger.Intent, ops.Len())}
	before := &ledger.Intent{} // whose names are likely to repeat
	for i := range b.Ops {
		op := &b.Ops[i]
		op.BatchID, op.Session, op.Atomic = b.BatchID, session, b.Atomic
		if !r.fastOp(ops.At(i), op, before, len(b.Ops)-i) || !m.Supported() {
			return b, 0, false
		}
		before = op
	}
	if r.size < m.Size()/2 {
		cloneArgs(b.Ops)
	}
	return b, r.size + opBytes*len(b.Ops), r.err == nil && m.Supported()
}

// cloneArgs copies the arguments' values out of their message, so that it can be freed.
func cloneArgs(ops []ledger.Intent) {
	for i := range ops {
		for j := range ops[i].Args {
			a := &ops[i].Args[j]
			a.JSON = bytes.Clone(a.JSON)
		}
	}
}

// fastOp is op with capnpfast. before is the previous op, and left the number of ops
// left, including this one.
func (r *fieldReader) fastOp(from byhand.Struct, to, before *ledger.Intent, left int) bool {
	to.OpID = r.text(string(from.Text(wirelayout.OpID)), nil)
	to.Seq = from.Uint64(wirelayout.OpSeq)
	to.Method = r.internLike(from.Text(wirelayout.OpMethod), before.Method)
	args := from.List(wirelayout.OpArgs)
	n := args.Len()
	if !from.Null(wirelayout.OpDependsOn) || !r.checkList(n, argBytes, argsLabel) {
		return false
	}
	if n > len(r.argPool) {
		r.argPool = make([]ledger.Arg, max(n, min(n*left, r.sizeHint/argBytes))) // as many as may follow
	}
	if n > 0 {
		to.Args, r.argPool = r.argPool[:n:n], r.argPool[n:]
	}
	for i := range to.Args {
		arg, a, likely := args.At(i), &to.Args[i], ""
		if i < len(before.Args) {
			likely = before.Args[i].Name
		}
		a.Name = r.internLike(arg.Text(wirelayout.ArgName), likely)
		if arg.Uint16(wirelayout.ArgWhich) != uint16(wire.Arg_Which_json) {
			return false
		}
		if text := arg.Text(wirelayout.ArgJSON); len(text) > 0 {
			r.charge(len(text))
			a.JSON = text
		}
		if r.err != nil {
			return false
		}
	}
	switch wire.Op_expected_Which(from.Uint16(wirelayout.OpExpected)) {
	case wire.Op_expected_Which_none:
	case wire.Op_expected_Which_cursor:
		to.Expected = ledger.Expect{Set: true, Cursor: from.Uint64(wirelayout.OpExpectedCursor)}
	default:
		return false
	}
	return r.err == nil
}

// internLike is intern for a name that is probably equal to likely.
func (r *fieldReader) internLike(b []byte, likely string) string {
	if string(b) != likely {
		return r.intern(b, nil)
	}
	r.charge(len(b))
	return likely
}

// answerApply answers a call of apply: with the outcomes, or with a refusal if none were recorded.
func (o *stream) answerApply(c *rpc.Call, a session.Answer) {
	c.Return(methods.StreamApply.Results, func(s capnp.Struct, _ *rpc.CapTable) error {
		reply, err := wire.Stream_apply_Results(s).NewReply()
		if err != nil {
			return err
		}
		if a.Err == nil {
			crashpoint.Hit(crashpoint.ServerOutcomeBefore)
			return writeAck(reply, &a)
		}
		return o.service.setRefusal(reply.NewRefusal, a.Err)
	})
}

// writeAck writes an ack into the reply of an apply.
func writeAck(reply wire.ApplyReply, a *session.Answer) error {
	seg := capnp.Struct(reply).Segment()
	at := len(seg.Data())
	to, err := reply.NewAck()
	if err != nil {
		return err
	}
	encodeCounts(to, a)
	if len(seg.Data()) == at+wirelayout.Ack.Bytes() { // not in another segment
		if piece, ok := byhand.Reserve(seg, outcomesSize(a.Outcomes)); ok {
			writeOutcomes(&piece, at/byhand.Bytes, a)
			return nil
		}
	}
	return encodeOutcomes(to, a)
}

// outcomesSize returns the size of outcomes as a list, in words.
func outcomesSize(outcomes []ledger.Outcome) int {
	size := byhand.ListSize(len(outcomes), wirelayout.Outcome)
	for i := range outcomes {
		o := &outcomes[i]
		size += byhand.TextSize(len(o.OpID)) + byhand.TextSize(len(o.Message)) + byhand.TextSize(len(o.Cause)) +
			byhand.TextSize(len(o.Result))
	}
	return size
}

// writeOutcomes writes the targets of the Ack at a word, in the order of encodeOutcomes.
func writeOutcomes(p *byhand.Builder, ack int, a *session.Answer) {
	at := p.PutList(ack+wirelayout.Ack.Data+wirelayout.AckOutcomes, len(a.Outcomes), wirelayout.Outcome)
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		p.PutUint8(at, wirelayout.OutcomeStatus, uint8(o.Status))
		if a.Duplicate {
			p.PutUint8(at, wirelayout.OutcomeDuplicate/8, 1<<(wirelayout.OutcomeDuplicate%8))
		}
		p.PutUint16(at, wirelayout.OutcomeReason, uint16(o.Reason))
		p.PutUint64(at, wirelayout.OutcomeCursor, o.Cursor)
		p.PutUint64(at, wirelayout.OutcomeAt, o.At)
		pointers := at + wirelayout.Outcome.Data
		p.PutText(pointers+wirelayout.OutcomeOp, o.OpID)
		p.PutText(pointers+wirelayout.OutcomeMessage, o.Message)
		p.PutText(pointers+wirelayout.OutcomeCause, o.Cause)
		p.PutTextBytes(pointers+wirelayout.OutcomeResult, o.Result)
		at += wirelayout.Outcome.Words()
	}
}

func encodeCounts(to wire.Ack, a *session.Answer) {
	applied, duplicates, rejected := a.Counts()
	to.SetCursor(a.Cursor)
	to.SetApplied(uint32(applied))
	to.SetDuplicates(uint32(duplicates))
	to.SetRejected(uint32(rejected))
}

func encodeOutcomes(to wire.Ack, a *session.Answer) error {
	list, err := to.NewOutcomes(int32(len(a.Outcomes)))
	if err != nil {
		return err
	}
	for i := range a.Outcomes {
		if err := encodeOutcome(list.At(i), &a.Outcomes[i], a.Duplicate); err != nil {
			return err
		}
	}
	return nil
}

func encodeOutcome(to wire.Outcome, o *ledger.Outcome, duplicate bool) error {
	var w fieldWriter
	to.SetStatus(uint8(o.Status))
	to.SetDuplicate(duplicate)
	to.SetReason(uint16(o.Reason))
	to.SetCursor(o.Cursor)
	to.SetAt(o.At)
	w.text(to.SetOp, o.OpID)
	w.text(to.SetMessage_, o.Message)
	w.text(to.SetCause, o.Cause)
	w.do(setBytes(capnp.Struct(to), wirelayout.OutcomeResult, o.Result))
	return w.err
}
