// Stream: the right to send the batches of one outbox to one session. Batches are decoded and
// queued here; the committer answers them.

package objects

import (
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session"
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

var (
	streamApply       = rpc.Method{Interface: wire.Stream_TypeID, ID: 0}
	streamAcknowledge = rpc.Method{Interface: wire.Stream_TypeID, ID: 1}
)

// maxWith is the maximum number of live sessions that come with one batch.
const maxWith = 64

// Serve implements rpc.Object.
func (o *stream) Serve(c *rpc.Call) {
	o.service.cfg.Instruments.ObserveCall(c, o.service.cfg.Instruments.Stream)
	switch c.Method() {
	case streamApply:
		o.apply(c)
	case streamAcknowledge:
		o.acknowledge(c)
	default:
		unknownMethod(c, "Stream")
	}
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
	through := wire.Stream_acknowledge_Params(s).Through()
	o.submit(&deferredCommit{commit: &commit.Pending{
		Sub: session.Submission{Ack: true, Batch: ledger.Batch{Session: o.auth.session, Outbox: o.id,
			Incarnation: o.incarnation, AckedThrough: through}},
		Ops: 1, Bytes: 64, Caller: c.Context(),
		Done: func(a session.Answer) {
			c.Return(structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
				return o.service.setRefusal(wire.Stream_acknowledge_Results(s).NewRefusal, a.Err)
			})
		},
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
		refused := fault.Overloaded.With("%d calls of this stream wait for their answers, the most that may: wait for some", n)
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
	for _, held := range p.with {
		held.WhenResolved(func() { o.resolved(p) })
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
	for _, held := range p.with {
		held.Release()
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
		if held := caps.Get(p); held != nil {
			with = append(with, held)
		}
	}
	return with, nil
}

// attachedRefs returns the refs of the live sessions in with. It ignores objects that are no
// session of this server, which prove nothing; objects of Space.create, for whose ref no secret
// was shown; and attenuated ones, which allow less than the ref that the op names.
func attachedRefs(with []*rpc.Ref) (refs []string) {
	for _, held := range with {
		if o, ok := held.Object().(*sess); ok && o.auth.space == "" && o.auth.attenuated == nil {
			refs = append(refs, o.auth.ref)
		}
	}
	return refs
}
