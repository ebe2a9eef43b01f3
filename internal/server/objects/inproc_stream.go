// An outbox within the process: the batches of stream.go, under the same rules, without a wire
// between.

package objects

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// Stream is the right to send the batches of one outbox to one session. Its methods may be
// called concurrently: batches are committed in the order of the calls.
type Stream struct {
	LastSeq      uint64 // of the outbox's ops, when the stream was opened
	AckedThrough uint64 // highest seq the outbox had acknowledged then

	stream *stream
}

// OpenStream opens the stream of an outbox in the session. The first opening registers the
// outbox's secret (32 bytes); with another secret the same id has a stream of its own. An
// incarnation below the last one's is Fenced. A dead ref opens a stream too: it repeats recorded
// outcomes and records denials.
func (h *Capability) OpenStream(_ context.Context, outbox string, secret []byte, incarnation uint64) (*Stream, error) {
	o, refused := h.session()
	if refused != nil {
		return nil, refused
	}
	return o.openInproc(outbox, secret, incarnation)
}

// CreateStream is OpenStream for a session of the space that is about to be made: its first op
// is create or fork, and mints owner, the id of the session's owner's ref. CreateStream makes
// no session itself, and works the same after the session was made.
func (h *Capability) CreateStream(_ context.Context, id, owner, outbox string, secret []byte, incarnation uint64) (*Stream, error) {
	if h.space == nil {
		return nil, fault.BadArgument.With("sessions are made in a space: name a space's ref")
	}
	o, refused := h.space.newSession(id, owner)
	if refused != nil {
		return nil, refused
	}
	return o.openInproc(outbox, secret, incarnation)
}

// openInproc is openStream for a caller within the process.
func (o *sess) openInproc(outbox string, secret []byte, incarnation uint64) (*Stream, error) {
	opened, row, refused := o.registerStream(outbox, secret, incarnation)
	if refused != nil {
		return nil, refused
	}
	return &Stream{LastSeq: row.LastSeq, AckedThrough: row.AckedThrough, stream: opened}, nil
}

// Apply commits a batch and returns its outcomes, recorded now or before. Session, outbox and
// incarnation are the stream's, and the batch fields of an op are taken from the batch. with
// are the live sessions that its ops name (fork's source, create's parent). An error means that nothing was
// recorded, and that the batch may be retried unchanged.
func (s *Stream) Apply(ctx context.Context, b ledger.Batch, with ...*Capability) (decide.Answer, error) {
	if len(with) > codec.MaxWith {
		return decide.Answer{}, fault.TooLarge.With("%d sessions came with the batch, the limit is %d", len(with), codec.MaxWith)
	}
	answers, refused := s.stream.applyAll(ctx, passedRefs(with), b)
	if refused != nil {
		return decide.Answer{}, refused
	}
	return answers[0], errOrNil(answers[0].Err)
}

// passedRefs is attachedRefs within the process.
func passedRefs(with []*Capability) (refs []string) {
	for _, h := range with {
		if h.sess != nil && h.sess.auth.Attenuated == nil && !h.sess.auth.Reach {
			refs = append(refs, h.ref)
		}
	}
	return refs
}

// ApplyAll is Apply for batches in order, none of which waits for the answer of the one before. An
// answer's Err refuses that batch; an error means that none was decided, as for more batches
// (TooLarge) than may be unanswered on one stream.
func (s *Stream) ApplyAll(ctx context.Context, batches ...ledger.Batch) ([]decide.Answer, error) {
	answers, refused := s.stream.applyAll(ctx, nil, batches...)
	return answers, errOrNil(refused)
}

// applyAll is ApplyAll with the refs of the live sessions that came with the batches.
func (o *stream) applyAll(ctx context.Context, passed []string, batches ...ledger.Batch) ([]decide.Answer, *fault.Error) {
	if len(batches) > o.maxInFlight {
		return nil, fault.TooLarge.With("%d batches came at once, the limit is %d", len(batches), o.maxInFlight)
	}
	queued, answers := make([]*deferredCommit, len(batches)), make([]decide.Answer, len(batches))
	var undecided sync.WaitGroup
	for i, b := range batches {
		if refused := o.stampBatch(&b); refused != nil {
			return nil, refused
		}
		queued[i] = &deferredCommit{commit: &commit.Pending{Ops: max(len(b.Ops), 1), Bytes: codec.OpsSize(b.Ops), Caller: ctx,
			Sub:  decide.Submission{Batch: b, PassedRefs: passed},
			Done: func(a decide.Answer) { answers[i] = a; undecided.Done() }}}
	}
	undecided.Add(len(queued))
	for _, p := range queued {
		o.submit(p)
	}
	undecided.Wait() // what is begun is finished; before that ctx drops it
	return answers, nil
}

// stampBatch sets the fields of a batch that are the stream's, and those of its ops that are the
// batch's.
func (o *stream) stampBatch(b *ledger.Batch) *fault.Error {
	b.Session, b.Outbox, b.Incarnation = o.auth.Session, o.id, o.incarnation
	for i := range b.Ops {
		op := &b.Ops[i]
		op.BatchID, op.Session, op.Atomic = b.BatchID, b.Session, b.Atomic
		if refused := codec.CheckLists(op); refused != nil {
			return refused
		}
	}
	return nil
}

// Acknowledge says that the outbox has stored all outcomes up to a seq, so that the server can
// forget them. It may be repeated.
func (s *Stream) Acknowledge(ctx context.Context, through uint64) error {
	done := make(chan decide.Answer, 1)
	s.stream.submitAck(ctx, through, func(a decide.Answer) { done <- a })
	return errOrNil((<-done).Err)
}
