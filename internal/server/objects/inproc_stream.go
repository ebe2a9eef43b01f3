// An outbox within the process: the batches of stream.go, under the same rules, without a wire
// between.

package objects

import (
	"context"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session"
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
// are the live sessions that its ops name (fork's source). An error means that nothing was
// recorded, and that the batch may be retried unchanged.
func (s *Stream) Apply(ctx context.Context, b ledger.Batch, with ...*Capability) (session.Answer, error) {
	o := s.stream
	b.Session, b.Outbox, b.Incarnation = o.auth.session, o.id, o.incarnation
	if len(with) > maxWith {
		return session.Answer{}, fault.TooLarge.With("%d sessions came with the batch, the limit is %d", len(with), maxWith)
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		op.BatchID, op.Session, op.Atomic = b.BatchID, b.Session, b.Atomic
		refused := checkListLen(len(op.Args), argsLabel)
		if refused == nil {
			refused = checkListLen(len(op.DependsOn), depsLabel)
		}
		if refused != nil {
			return session.Answer{}, refused
		}
	}
	done := make(chan session.Answer, 1)
	w := &commit.Pending{Ops: max(len(b.Ops), 1), Bytes: opsSize(b.Ops), Caller: ctx, Done: func(a session.Answer) { done <- a },
		Sub: session.Submission{Batch: b}}
	for _, h := range with {
		if h.sess != nil && h.sess.auth.attenuated == nil {
			w.Sub.PassedRefs = append(w.Sub.PassedRefs, h.ref)
		}
	}
	o.submit(&deferredCommit{commit: w})
	a := <-done // once begun it is finished; before that ctx drops it
	return a, errOrNil(a.Err)
}

// Acknowledge says that the outbox has stored all outcomes up to a seq, so that the server can
// forget them. It may be repeated.
func (s *Stream) Acknowledge(ctx context.Context, through uint64) error {
	done := make(chan session.Answer, 1)
	s.stream.submitAck(ctx, through, func(a session.Answer) { done <- a })
	return errOrNil((<-done).Err)
}

// opsSize returns the bytes that ops count for in the commit queue.
func opsSize(ops []ledger.Intent) int {
	n := opBytes * len(ops)
	for i := range ops {
		op := &ops[i]
		n += len(op.OpID) + len(op.Method)
		for _, id := range op.DependsOn {
			n += len(id)
		}
		for _, a := range op.Args {
			n += argBytes + len(a.Name) + len(a.JSON)
			if a.Ref != nil {
				n += len(a.Ref.Op) + len(a.Ref.Path)
			}
		}
	}
	return n
}
