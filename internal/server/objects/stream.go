// Stream: the right to send the batches of one outbox to one session. Batches are queued here; the committer answers
// them.

package objects

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// stream serves the schema's Stream.
type stream struct {
	service     *Service
	peer        string
	auth        *authority.Authority
	id          string // the stream's id (session.StreamKey), opened by the outbox's secret
	incarnation uint64
	opening     decide.Opening
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
		o.answerApply(c, decide.Answer{Err: refused})
		return
	}
	o.submit(&deferredCommit{with: with, commit: &commit.Pending{
		Sub: decide.Submission{Batch: batch}, Ops: max(len(batch.Ops), 1), Bytes: size, Caller: c.Context(),
		Done: func(a decide.Answer) { o.answerApply(c, a) },
	}})
}

func (o *stream) acknowledge(c *rpc.Call) {
	s, _ := c.Params()
	o.submitAck(c.Context(), wire.Stream_acknowledge_Params(s).Through(), func(a decide.Answer) {
		reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
			return o.service.setRefusal(wire.Stream_acknowledge_Results(s).NewRefusal, a.Err)
		})
	})
}

// submitAck queues an acknowledgement without a batch.
func (o *stream) submitAck(ctx context.Context, through uint64, answer func(decide.Answer)) {
	o.submit(&deferredCommit{commit: &commit.Pending{
		Sub: decide.Submission{Ack: true, Batch: ledger.Batch{Session: o.auth.Session, Outbox: o.id,
			Incarnation: o.incarnation, AckedThrough: through}},
		Ops: 1, Bytes: 64, Caller: ctx, Done: answer,
	}})
}

// submit queues p under the stream's authority, after the batches before it.
func (o *stream) submit(p *deferredCommit) {
	w := p.commit
	w.Sub.Opening = &o.opening
	o.auth.Stamp(&w.Sub, o.peer)
	answer := w.Done
	o.mu.Lock()
	if o.inFlight >= o.maxInFlight {
		n := o.inFlight
		o.service.cfg.LimitHits.Add(admission.LimitBatches)
		o.mu.Unlock()
		p.release()
		refused := fault.Overloaded.With("%d calls of this stream wait for their answers, the maximum: wait for some", n)
		answer(decide.Answer{Err: refused})
		return
	}
	o.inFlight++
	w.Done = func(a decide.Answer) {
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
			after = append(after, func() { next.commit.Done(decide.Answer{Err: err}) })
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

// attachedRefs returns the refs of the live sessions in with. It ignores objects that are no
// session of this server, which prove nothing; objects of Space.create, for whose ref no secret
// was shown; attenuated ones, which allow less than the ref that the op names; and those of children, which were
// opened by a ref of a session above, and prove nothing in that.
func attachedRefs(with []*rpc.Ref) (refs []string) {
	for _, source := range with {
		if o, ok := source.Object().(*sess); ok && o.auth.Space == "" && o.auth.Attenuated == nil && !o.auth.Reach {
			refs = append(refs, o.auth.Ref)
		}
	}
	return refs
}

// decodeApply decodes the parameters of an apply. The caller releases with.
func (o *stream) decodeApply(c *rpc.Call) (b ledger.Batch, with []*rpc.Ref, size int, refused *fault.Error) {
	limit := o.service.cfg.MessageBytes
	if params, ok := c.PlainParams(); ok {
		if b, size, ok = codec.DecodePlain(params, o.auth.Session, o.id, o.incarnation, limit); ok {
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
	if b, size, refused = codec.DecodeBatch(from, o.auth.Session, o.id, o.incarnation, limit); refused != nil {
		return b, nil, 0, refused
	}
	with, refused = codec.DecodeWith(s, caps)
	return b, with, size, refused
}

// answerApply answers a call of apply: with the outcomes, or with a refusal if none were recorded.
func (o *stream) answerApply(c *rpc.Call, a decide.Answer) {
	c.Return(methods.StreamApply.Results, func(s capnp.Struct, _ *rpc.CapTable) error {
		reply, err := wire.Stream_apply_Results(s).NewReply()
		if err != nil {
			return err
		}
		if a.Err == nil {
			crashpoint.Hit(crashpoint.ServerOutcomeBefore)
			return codec.EncodeAck(reply, &a)
		}
		return o.service.setRefusal(reply.NewRefusal, a.Err)
	})
}
