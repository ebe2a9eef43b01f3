// A stream as the outbox's sender uses it (outbox.Stream). A batch is sent at once, on the sender's goroutine, and its answer
// is delivered where it arrives; only a call that would have to wait for room on the connection is sent by a goroutine of the
// stream.

package serverconn

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

var _ outbox.Stream = (*Stream)(nil)

// OpenStream opens a stream of a session that is reached through a ref. It waits for nothing but the refs that the batches name,
// and a server that may not know how to reach the session. The stream lasts as long as life; the caller starts its run.
func (p *Peer) OpenStream(ctx, life context.Context, through capability.Ref, req outbox.StreamRequest) (_ *Stream, err error) {
	target := p.restore(ctx, through, req.Redemptions[through.ID])
	defer func() {
		if target != nil {
			target.Release()
		}
	}()
	if req.SpaceRef != nil {
		space := target
		target = p.createSession(ctx, through, space, req.Session, req.OwnerRef)
		space.Release()
	} else if through.Target() != req.Session { // by the right manage, or the ref reaches it
		outer := target
		target, err = p.openSession(ctx, through, outer, req.Session)
		outer.Release()
		if err != nil {
			return nil, err
		}
	}
	var held []*rpc.Ref
	for _, ref := range req.LiveRefs {
		// A ref of another server cannot be restored here; the server will report it missing.
		if ref.Address() == through.Address() {
			live, err := p.restoreAndWait(ctx, ref, req.Redemptions[ref.ID])
			if err != nil {
				for _, ref := range held {
					ref.Release()
				}
				return nil, err
			}
			held = append(held, live)
		}
	}
	return newStream(life, p, CallOpenStream(ctx, target, req.Outbox, req.Secret.Reveal(), req.Incarnation), held), nil
}

// Stream is one open stream on one connection.
type Stream struct {
	peer     *Peer
	opened   *rpc.Promise
	live     *rpc.Ref
	liveRefs []*rpc.Ref
	ctx      context.Context
	close    context.CancelFunc
	done     chan struct{} // closed when the stream can no longer be used

	wake chan struct{} // receives when queue is not empty

	mu         sync.Mutex
	queue      []streamCall  // calls waiting for room, in order
	unanswered []pendingCall // calls waiting for their answer, in order
	sending    bool          // a goroutine is in send
	delivering bool          // a goroutine is in deliverAnswers
	ending     bool          // submit only queues
	ended      bool          // nothing is sent any more
	doneClosed bool          // done is closed
}

// streamCall is one Apply, or an acknowledgement if batch is nil.
type streamCall struct {
	batch   *ledger.Batch
	needs   session.Features // of the server, by the batch's ops
	done    func(outbox.Reply)
	through uint64
}

// pendingCall is an Apply that waits for its answer; answer is nil if it was not sent, for the
// reason err or because the stream was closed.
type pendingCall struct {
	answer *rpc.Promise
	err    error
	ops    []ledger.Intent
	done   func(outbox.Reply)
}

func newStream(ctx context.Context, p *Peer, opened *rpc.Promise, held []*rpc.Ref) *Stream {
	s := &Stream{
		peer: p, opened: opened, live: opened.Cap(0), liveRefs: held,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	s.ctx, s.close = context.WithCancel(ctx)
	return s
}

// Apply implements outbox.Stream.
func (s *Stream) Apply(b *ledger.Batch, done func(outbox.Reply)) {
	s.submit(streamCall{batch: b, needs: opargs.FeaturesOf(b.Ops), done: done})
}

// Acknowledge implements outbox.Stream.
func (s *Stream) Acknowledge(through uint64) { s.submit(streamCall{through: through}) }

// Opened implements outbox.Stream.
func (s *Stream) Opened(ctx context.Context) (lastSeq uint64, err error) {
	results, _, err := s.opened.Wait(ctx)
	if err != nil {
		return 0, s.peer.Fail(err)
	}
	return wire.Session_openStream_Results(results).LastSeq(), nil
}

// Done implements outbox.Stream.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Close implements outbox.Stream.
func (s *Stream) Close() { s.close() }

// submit sends w, or queues it if sending would block.
func (s *Stream) submit(w streamCall) {
	s.mu.Lock()
	switch {
	case s.ended && w.batch == nil:
		s.mu.Unlock()
	case s.ended:
		s.unanswered = append(s.unanswered, pendingCall{done: w.done})
		s.mu.Unlock()
		s.deliverAnswers()
	case s.ending || s.sending || len(s.queue) > 0 || s.peer.missing(w.needs) != 0 || !s.peer.tryReserve():
		s.queue = append(s.queue, w)
		s.mu.Unlock()
		s.wakeUp()
	default:
		s.sending = true
		s.mu.Unlock()
		s.send(w)
		s.peer.sending.Unlock()
		s.mu.Lock()
		s.sending = false
		more := s.ending || len(s.queue) > 0
		s.mu.Unlock()
		if more {
			s.wakeUp()
		}
	}
}

// wakeUp wakes run.
func (s *Stream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// send makes one call. The caller has set sending.
func (s *Stream) send(w streamCall) {
	if w.batch == nil {
		answer := CallAcknowledge(s.ctx, s.live, w.through)
		answer.Notify(answer.Release)
		return
	}
	answer := CallApply(s.ctx, s.live, w.batch, s.liveRefs)
	s.mu.Lock()
	s.unanswered = append(s.unanswered, pendingCall{answer: answer, ops: w.batch.Ops, done: w.done})
	s.mu.Unlock()
	answer.Notify(s.deliverAnswers)
}

// Run sends queued calls until the stream or its connection ends, and releases everything when the
// last answer is delivered.
func (s *Stream) Run() {
	for more := true; more; {
		s.flush()
		select {
		case <-s.wake:
		case <-s.peer.conn.Done():
			more = false
		case <-s.ctx.Done():
			more = false
		}
	}
	s.mu.Lock()
	for s.ending = true; s.sending; s.mu.Lock() {
		s.mu.Unlock()
		<-s.wake
	}
	s.ended = true
	for _, w := range s.queue {
		if w.batch != nil {
			s.unanswered = append(s.unanswered, pendingCall{done: w.done})
		}
	}
	s.queue = nil
	s.mu.Unlock()
	s.deliverAnswers()
	<-s.done
	s.live.Release()
	s.opened.Release()
	for _, r := range s.liveRefs {
		r.Release()
	}
	s.close()
}

// flush sends the queue, unless another goroutine is sending: that one wakes run.
func (s *Stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.sending && len(s.queue) > 0 {
		w := s.queue[0]
		s.queue, s.sending = s.queue[1:], true
		s.mu.Unlock()
		if err := s.awaitFeatures(w.needs); err != nil {
			s.mu.Lock()
			s.unanswered = append(s.unanswered, pendingCall{err: err, done: w.done})
			s.mu.Unlock()
			s.deliverAnswers()
		} else {
			s.peer.sending.Lock()
			s.send(w)
			s.peer.sending.Unlock()
		}
		s.mu.Lock()
		s.sending = false
	}
}

// awaitFeatures returns the reason that a batch that needs features cannot be sent.
func (s *Stream) awaitFeatures(needs session.Features) error {
	if s.peer.missing(needs) == 0 {
		return nil
	}
	err := s.peer.AwaitFeatures(s.ctx, needs)
	if err != nil && s.ctx.Err() != nil {
		return s.closedErr()
	}
	return err
}

// deliverAnswers delivers the answers that have arrived, in the order of the calls.
func (s *Stream) deliverAnswers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivering {
		return // the goroutine that delivers checks again
	}
	s.delivering = true
	for len(s.unanswered) > 0 && s.isAnswered(s.unanswered[0].answer) {
		next := s.unanswered[0]
		s.unanswered = s.unanswered[1:]
		s.mu.Unlock()
		s.deliver(next)
		s.mu.Lock()
	}
	s.delivering = false
	if s.ended && len(s.unanswered) == 0 && !s.doneClosed {
		s.doneClosed = true
		close(s.done)
	}
}

// deliver delivers one answer.
func (s *Stream) deliver(a pendingCall) {
	defer fatal.OnPanic()
	a.done(s.reply(a))
	if a.answer != nil {
		a.answer.Release()
	}
}

// isAnswered reports whether there is an answer, or none will be waited for.
func (s *Stream) isAnswered(answer *rpc.Promise) bool {
	if answer == nil || s.ctx.Err() != nil {
		return true
	}
	select {
	case <-answer.Done():
		return true
	default:
		return false
	}
}

// reply returns one answer, which has arrived.
func (s *Stream) reply(a pendingCall) outbox.Reply {
	if a.answer == nil {
		if a.err == nil {
			a.err = s.closedErr()
		}
		return outbox.Reply{Err: a.err}
	}
	results, _, err := a.answer.Wait(s.ctx)
	if err != nil {
		if s.ctx.Err() != nil {
			err = s.closedErr()
		}
		return outbox.Reply{Err: s.peer.Fail(err)}
	}
	var outcomes []ledger.Outcome
	plain, read := a.answer.PlainResults()
	if read {
		outcomes, read = decodeReplyFast(plain, a.ops)
	}
	if read {
		s.peer.fastPathAcks.Add(1)
	} else {
		outcomes, err = DecodeReply(results, a.ops)
	}
	if err != nil {
		return outbox.Reply{Err: err}
	}
	return outbox.Reply{Outcomes: outcomes}
}

// closedErr returns the error of an Apply that has no answer to wait for.
func (s *Stream) closedErr() error { return fault.Disconnected.With("the stream was closed") }
