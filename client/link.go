// What the outbox's sender needs of a connection (outbox.Link): a stream, which
// is opened without waiting. Each stream has a goroutine that sends and one that
// takes the answers in the order of the calls, so the sender never blocks.

package client

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

var _ outbox.Link = (*Client)(nil)

// OpenStream implements outbox.Link for the client's own sender.
func (c *Client) OpenStream(ctx context.Context, req outbox.StreamRequest) (outbox.Stream, error) {
	through := req.Ref
	if req.SpaceRef != nil {
		through = *req.SpaceRef
	}
	srv, err := c.serverFor(through)
	if err != nil {
		return nil, err
	}
	p, err := srv.peer(ctx)
	if err != nil {
		return nil, err
	}
	target := p.restore(ctx, through, req.Redemptions[through.ID])
	defer func() { target.Release() }()
	if req.SpaceRef != nil {
		space := target
		target = p.creating(ctx, space, req.Session, req.OwnerRef)
		space.Release()
	}
	var held []*rpc.Ref
	for _, ref := range req.With {
		// A ref of another server cannot be held live here; the server will say that it is missing.
		if ref.Address() == through.Address() {
			held = append(held, p.settled(ctx, ref, req.Redemptions[ref.ID]))
		}
	}
	s := newStream(c.ctx, p, callOpenStream(ctx, target, req.Outbox, req.Secret.Reveal(), req.Incarnation), held)
	c.running.Go(s.send)
	c.running.Go(s.receive)
	return s, nil
}

// stream is one opened stream on one connection.
type stream struct {
	peer   *peer
	opened *rpc.Promise
	live   *rpc.Ref
	held   []*rpc.Ref
	ctx    context.Context
	close  context.CancelFunc
	done   chan struct{} // closed when it is of no more use

	mu      sync.Mutex
	queue   []work        // to be sent, in order
	wake    chan struct{} // something is in queue, or it is closed
	answers chan sent     // sent, in order
	ended   bool          // the sending goroutine takes no more
}

// work is one Apply, or an acknowledgement if batch is nil.
type work struct {
	batch   *ledger.Batch
	done    func(outbox.Reply)
	through uint64
}

// sent is an Apply whose answer is awaited.
type sent struct {
	answer *rpc.Promise
	ops    int
	done   func(outbox.Reply)
}

// answersAhead is how many answers may be awaited before sending waits: more
// than any outbox keeps in flight on one stream.
const answersAhead = 1024

func newStream(ctx context.Context, p *peer, opened *rpc.Promise, held []*rpc.Ref) *stream {
	s := &stream{
		peer: p, opened: opened, live: opened.Cap(0), held: held,
		done: make(chan struct{}), wake: make(chan struct{}, 1), answers: make(chan sent, answersAhead),
	}
	s.ctx, s.close = context.WithCancel(ctx)
	return s
}

// Apply implements outbox.Stream.
func (s *stream) Apply(b *ledger.Batch, done func(outbox.Reply)) {
	if !s.enqueue(work{batch: b, done: done}) {
		done(outbox.Reply{Err: s.gone()})
	}
}

// Acknowledge implements outbox.Stream.
func (s *stream) Acknowledge(through uint64) { s.enqueue(work{through: through}) }

// Opened implements outbox.Stream.
func (s *stream) Opened(ctx context.Context) (lastSeq uint64, err error) {
	results, _, err := s.opened.Wait(ctx)
	if err != nil {
		return 0, s.peer.fail(err)
	}
	return wire.Session_openStream_Results(results).LastSeq(), nil
}

// Done implements outbox.Stream.
func (s *stream) Done() <-chan struct{} { return s.done }

// Close implements outbox.Stream.
func (s *stream) Close() { s.close() }

func (s *stream) enqueue(w work) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.queue = append(s.queue, w)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// send sends what is queued until the stream or its connection ends.
func (s *stream) send() {
	defer close(s.answers)
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, w := range queue {
			if w.batch == nil {
				answer := callAcknowledge(s.ctx, s.live, w.through)
				answer.Notify(answer.Release)
				continue
			}
			answer := callApply(s.ctx, s.live, w.batch, s.held)
			s.answers <- sent{answer: answer, ops: len(w.batch.Ops), done: w.done}
		}
		select {
		case <-s.wake:
			continue
		case <-s.peer.conn.Done():
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		s.ended = true
		rest := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, w := range rest {
			if w.batch != nil {
				s.answers <- sent{answer: nil, done: w.done}
			}
		}
		return
	}
}

// receive hands the answers out in the order of the calls, and gives
// everything back when the last is through.
func (s *stream) receive() {
	for a := range s.answers {
		a.done(s.reply(a))
		if a.answer != nil {
			a.answer.Release()
		}
	}
	close(s.done)
	s.live.Release()
	s.opened.Release()
	for _, r := range s.held {
		r.Release()
	}
	s.close()
}

// reply waits for one answer.
func (s *stream) reply(a sent) outbox.Reply {
	if a.answer == nil {
		return outbox.Reply{Err: s.gone()}
	}
	results, _, err := a.answer.Wait(s.ctx)
	if err != nil {
		if s.ctx.Err() != nil {
			err = s.gone()
		}
		return outbox.Reply{Err: s.peer.fail(err)}
	}
	r, err := decodeReply(results)
	switch {
	case err != nil:
		return outbox.Reply{Err: err}
	case r.refusal != nil:
		return outbox.Reply{Err: r.refusal}
	case len(r.outcomes) != a.ops:
		return outbox.Reply{Err: fault.Incompatible.With("the server gave %d outcomes for %d ops", len(r.outcomes), a.ops)}
	}
	return outbox.Reply{Outcomes: r.outcomes, Duplicate: r.repeated, Cursor: r.cursor}
}

// gone is the error of an Apply that has no answer to wait for.
func (s *stream) gone() error { return fault.Disconnected.With("the stream was closed") }
