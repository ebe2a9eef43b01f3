package sender

// A Sender: its fields, Run, and the events of its Box.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/outcomes"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// Sender sends the batches of one outbox, while it has the lease. All methods are safe for concurrent use. The Box fills in the
// exported fields.
type Sender struct {
	Outbox            string            // obx_ + ULID
	Secret, OldSecret capability.Secret // of the outbox: the secrets shown to servers are derived from it

	T      *sqlstore.Tables
	W      *writer.Writer
	Hub    *outcomes.Hub
	Refs   *sqlstore.StoredRefs
	Damage *sqlstore.DamageLog
	Stored *atomic.Int64 // counts the ops whose outcomes this process has stored

	// Read runs f on committed data, perhaps twice, and names every error.
	Read func(ctx context.Context, what string, f func(ctx context.Context, q sqlstore.Querier) error) error

	Window     machine.Window
	NewBackoff func() backoff.BackOff
	RetryAfter time.Duration // the wait before a first retry
	Lease      *lease.Lease
	Retention  time.Duration
	Logger     *slog.Logger
	Now        func() time.Time

	mu      sync.Mutex    // guards the fields below
	loop    *loop         // while this Sender has the lease
	runDone chan struct{} // non-nil while Run is running; closed when it ends
}

// Run sends until ctx ends, whenever this Sender has the lease. Another Run of it goes first.
func (s *Sender) Run(ctx context.Context, link Link) {
	end := s.acquireRun(ctx)
	if end == nil {
		return
	}
	defer end()

	again := s.NewBackoff()
	step := int64(1)
	for ctx.Err() == nil {
		tk, err := s.Lease.Await(ctx, step, again)
		if err != nil {
			break // ctx ended
		}
		why := s.runTerm(ctx, link, tk)
		switch {
		case ctx.Err() != nil:
		case errors.Is(why, errServerFenced):
			// The server knows a higher incarnation than this outbox: its file is older than
			// the last sent batch. Raise the incarnation by doubling steps.
			step *= 2
			s.Logger.Warn("the server has seen a newer incarnation of this outbox", "outbox", s.Outbox, "incarnation", tk.Incarnation)
			lease.Pause(ctx, again.NextBackOff())
		default:
			step = 1
			s.Logger.Info("the lease is lost", "outbox", s.Outbox, "reason", why)
			lease.Pause(ctx, s.RetryAfter)
		}
	}
}

// acquireRun waits until no other Run is running; nil if ctx ends first.
func (s *Sender) acquireRun(ctx context.Context) (end func()) {
	for {
		s.mu.Lock()
		other := s.runDone
		if other == nil {
			s.runDone = make(chan struct{})
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				close(s.runDone)
				s.runDone = nil
			}
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil
		}
	}
}

// errServerFenced says that the server has seen a higher incarnation.
var errServerFenced = errors.New("fenced by the server")

// withLoop calls f with the loop, if this Sender sends.
func (s *Sender) withLoop(f func(l *loop)) (sends bool) {
	s.mu.Lock()
	l := s.loop
	s.mu.Unlock()
	if l != nil {
		f(l)
	}
	return l != nil
}

// SendCommitted reports that a batch was committed with its seqs, and its route. If the sender
// is idle, the committing goroutine sends it, when the next transaction may run.
func (s *Sender) SendCommitted(r *sqlstore.BatchRow, bd *intent.Batch, pin uint64, to machine.Route) {
	s.withLoop(func(l *loop) {
		mine := l.enqueue(func(now time.Time) {
			e := r.Entry(bd, pin)
			e.Route = to
			if to.RefsGeneration != s.Refs.Generation() { // it may have been found before a rotation began
				l.deferRoute(e)
			}
			l.m.Sequenced(e, now)
		})
		if mine && !s.W.OnTxEnd(func() { l.handleEvents(1) }) {
			l.handoff <- struct{}{}
		}
	})
}

// NotifyWaiting is NotifyBacklog for a row for which opensUnread holds.
func (s *Sender) NotifyWaiting(r *sqlstore.BatchRow, bd *intent.Batch) {
	s.withLoop(func(l *loop) {
		l.postAsync(func(now time.Time) { l.m.Waiting(l.unsequencedEntry(r, bd), now) })
	})
}

// NotifyBacklog reports that the session has a row without a seq.
func (s *Sender) NotifyBacklog(session string) {
	s.withLoop(func(l *loop) {
		l.postAsync(func(now time.Time) { l.m.BacklogFound([]string{session}, now) })
	})
}

// EndTerm reports that it is not known which seqs were allocated: the term ends, and the next
// begins by reading them. It is called where a transaction ends; none allocates seqs from then
// on, even before the loop gets the event.
func (s *Sender) EndTerm(err *fault.Error) {
	s.W.Seqs.SetLeading(false)
	s.withLoop(func(l *loop) { l.cancel(err) })
}

// RefStored makes streams to a target look up their routes again, and resumes the stopped ones.
func (s *Sender) RefStored(target string) {
	s.withLoop(func(l *loop) {
		l.postAsync(func(now time.Time) {
			for session, s := range l.m.Streams {
				switch {
				case !s.UsesTargets([]string{target}):
				case s.Stopped == nil:
					l.rerouteStream(s, now)
				case session == target || s.Next() == nil || s.Next().Route.Space != "":
					for _, e := range s.Queue {
						l.setRoute(e)
					}
					l.m.Resume(session, now)
				}
			}
		})
	})
}

// Post has an event handled, if this Sender sends, and reports whether it does.
func (s *Sender) Post(event func(m *machine.Machine, now time.Time)) (sends bool) {
	return s.withLoop(func(l *loop) { l.postAsync(func(now time.Time) { event(l.m, now) }) })
}

// RefsChanged makes all streams look up their routes again.
func (s *Sender) RefsChanged() {
	s.withLoop(func(l *loop) { l.postAsync(l.rerouteAll) })
}

// Fence ends the term: a transaction has taken the lease.
func (s *Sender) Fence() {
	s.withLoop(func(l *loop) { l.cancel(sqlstore.ErrFenced) })
}
