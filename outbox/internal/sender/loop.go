package sender

// The loop: a term of sending, its turns, and the machine's actions.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// loop is one term of sending: the machine, its open streams, and the queued events. All but
// the queue belongs to the goroutine with the turn; post and postAsync queue an event for it.
// Mostly that is the goroutine in which an event occurs, since waking another takes longer than
// handling the event.
type loop struct {
	*Sender
	link            Link
	m               *machine.Machine
	term            int // its number (writer.Seqs)
	incarnation     int64
	releaseLiveness func()       // releases the liveness lock; nil without. renewLoop's, then runTerm's
	seenDrops       atomic.Int64 // the box row's drops, as last read
	conns           map[string]*streamConn
	ctx             context.Context
	cancel          context.CancelCauseFunc
	tasks           sync.WaitGroup

	wakeTimer *time.Timer // calls tick when the machine's next timer is due

	mu       sync.Mutex       // guards the fields below
	notKnown map[string][]int // by session: the openings on which its server did not know it, though it has created it
	events   []func(now time.Time)
	busy     bool          // a goroutine has the turn
	done     chan struct{} // not nil: the term has ended, and the goroutine with the turn closes it
	handoff  chan struct{} // hands the turn to run
}

// streamConn is one opening of a stream.
type streamConn struct {
	id     int
	cancel context.CancelFunc
	stream Stream
}

// runTerm sends until ctx ends or the lease is lost, and returns the reason.
func (s *Sender) runTerm(ctx context.Context, link Link, tk *lease.Takeover) error {
	l := &loop{Sender: s, link: link, m: machine.New(s.Window, s.NewBackoff), term: tk.Term, incarnation: tk.Incarnation,
		releaseLiveness: tk.ReleaseLiveness, conns: make(map[string]*streamConn), notKnown: make(map[string][]int), busy: true, handoff: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	l.seenDrops.Store(tk.Drops)
	s.Logger.Debug("sending", "outbox", s.Outbox, "incarnation", tk.Incarnation)
	s.Hub.SenderStarted()
	s.mu.Lock()
	s.loop = l
	s.mu.Unlock()

	l.recoverInFlight(tk)
	// Batches that this process committed after the lease was taken and before s.loop was set
	// were not announced, and are not in tk.
	l.tasks.Go(l.scan)
	l.tasks.Go(func() { s.W.DB.Watch(l.ctx, s.Outbox, l.scan, l.setHolderPID) })
	l.tasks.Go(l.renewLoop)
	l.tasks.Go(l.sweepLoop)
	l.run()

	s.mu.Lock()
	s.loop = nil
	s.mu.Unlock()
	s.W.Seqs.SetLeading(false)
	s.Hub.SenderStopped()
	for session, c := range l.conns {
		l.closeStream(session, c)
	}
	l.tasks.Wait()
	why := context.Cause(l.ctx)
	if !errors.Is(why, sqlstore.ErrFenced) {
		if err := s.Lease.Release(context.WithoutCancel(ctx)); err != nil {
			s.Logger.Warn("the lease could not be released", "outbox", s.Outbox, "error", err)
		}
	}
	if l.releaseLiveness != nil {
		l.releaseLiveness()
	}
	return why
}

// maxRenewInterval bounds the time between renewals of a long lease: a renewal also raises the
// low-water mark.
const maxRenewInterval = 10 * time.Second

// renewLoop renews the lease until the term ends, and ends the term when it cannot.
func (l *loop) renewLoop() {
	tick := time.NewTicker(min(max(l.Lease.Lasts/3, time.Millisecond), maxRenewInterval))
	defer tick.Stop()
	for renewed := time.Now(); ; {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		ok, err := l.Lease.Renew(l.ctx)
		switch {
		case l.ctx.Err() != nil:
			return
		case err == nil && ok:
			renewed = began
			l.acquireLiveness()
		case err == nil:
			l.cancel(sqlstore.ErrFenced)
			return
		case time.Since(renewed) > l.Lease.Lasts:
			l.cancel(fault.Unavailable.Because(err, "the lease could not be renewed in time"))
			return
		}
	}
}

// raiseIncarnation raises the incarnation, so that batches sent under the present one are
// fenced once a stream is opened again.
func (l *loop) raiseIncarnation() {
	from := l.incarnation
	l.tasks.Go(func() {
		for l.ctx.Err() == nil {
			isHolder, err := l.Lease.RaiseIncarnation(l.ctx)
			switch {
			case err == nil && isHolder:
				l.post(func(now time.Time) {
					l.incarnation = from + 1
					l.m.IncarnationRaised(now)
				})
				return
			case err == nil:
				l.cancel(sqlstore.ErrFenced)
				return
			}
			l.post(func(time.Time) { l.handleDBError(err) })
			lease.Pause(l.ctx, l.RetryAfter)
		}
	})
}

// acquireLiveness gets the liveness lock if another process still had it when the lease was
// taken.
func (l *loop) acquireLiveness() {
	if l.releaseLiveness != nil {
		return
	}
	if release, locked, _ := l.W.DB.TryLivenessLock(l.T.Box); locked {
		l.releaseLiveness = release
		l.setHolderPID(sqlstore.LivenessHeld)
	}
}

// setHolderPID stores the pid by which others see that this process lives.
func (l *loop) setHolderPID(pid int64) {
	l.submitWrite(func(q sqlstore.Querier) { l.T.SetHolderPID(q, pid) })
}

// post queues the event f and, if no goroutine has the turn, handles it at once. A turn may
// wait for the database, so only the sender's own goroutines may call post, without holding
// locks.
func (l *loop) post(f func(now time.Time)) {
	if l.enqueue(f) {
		l.handleEvents(maxPostedEvents)
	}
}

// postAsync is post for all other goroutines: run handles the event.
func (l *loop) postAsync(f func(now time.Time)) {
	if l.enqueue(f) {
		l.handoff <- struct{}{} // never blocks: there is one turn
	}
}

// handleEvents takes a turn of up to limit events; the rest is left to run.
func (l *loop) handleEvents(limit int) {
	if !l.drainEvents(limit) {
		l.handoff <- struct{}{}
	}
}

// enqueue queues an event and reports whether the caller has the turn.
func (l *loop) enqueue(f func(now time.Time)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, f)
	if l.busy || l.done != nil {
		return false
	}
	l.busy = true
	return true
}

// After how many events a posting goroutine hands the turn over, and run checks whether the
// term has ended.
const (
	maxPostedEvents = 8
	maxRunEvents    = 1024
)

// run takes the first turn, and those handed over, until the term ends. Then no goroutine has
// one.
func (l *loop) run() {
	l.wakeTimer = time.AfterFunc(time.Hour, func() { l.post(func(time.Time) {}) })
	defer l.wakeTimer.Stop()
	l.handoff <- struct{}{}
	for {
		select {
		case <-l.handoff:
			l.handleEvents(maxRunEvents)
			continue
		case <-l.ctx.Done():
		}
		l.mu.Lock()
		over := make(chan struct{})
		l.done = over
		if !l.busy {
			close(over)
		}
		l.mu.Unlock()
		select {
		case <-over:
		case <-l.handoff: // it was handed over just now
		}
		return
	}
}

// drainEvents handles up to limit events. It reports false if there are more: then the caller
// still has the turn, to hand on.
func (l *loop) drainEvents(limit int) bool {
	defer fatal.OnPanic()
	for ticked := false; ; ticked = true {
		l.mu.Lock()
		n := min(len(l.events), limit)
		if n == 0 && ticked || l.done != nil {
			left := len(l.events) > 0 && l.done == nil
			l.busy = left
			if l.done != nil {
				close(l.done)
			}
			l.mu.Unlock()
			return !left
		}
		events := l.events[:n:n]
		l.events = l.events[n:]
		l.mu.Unlock()
		limit -= n
		now := time.Now()
		for i, f := range events {
			events[i] = nil
			f(now)
			l.performActions(now)
		}
		l.m.Tick(now)
		l.performActions(now)
		wait := time.Hour
		if at := l.m.WakeAt(); !at.IsZero() {
			wait = max(at.Sub(now), 0)
		}
		l.wakeTimer.Reset(wait)
	}
}

// recoverInFlight passes the former holder's unfinished batches to the machine.
func (l *loop) recoverInFlight(tk *lease.Takeover) {
	now := time.Now()
	for session, rows := range sqlstore.BySession(tk.Rows) {
		var entries []*machine.Entry
		drops := make(map[int64]*fault.Error)
		for _, r := range rows {
			var e *machine.Entry
			bd, err := r.Decode()
			if err == nil {
				var pin uint64
				if pin, err = l.pinSeqOf(r.Session, bd); err != nil {
					l.cancel(err)
					return
				}
				e = l.routedEntry(r, bd, pin)
			} else { // later batches cannot be sent either: these seqs would be missing
				e = l.damagedEntry(r, err)
			}
			if r.Dropping {
				drops[r.Num] = nil
			}
			entries = append(entries, e)
		}
		st := tk.Streams[session]
		l.m.Recovered(session, entries, st.CreateRoute(), drops, now)
	}
	l.m.BacklogFound(tk.Unsequenced, now)
	l.performActions(now)
}

// performActions performs the machine's actions.
func (l *loop) performActions(now time.Time) {
	for i := 0; i < len(l.m.Actions); i++ { // an action may add others
		l.perform(l.m.Actions[i], now)
	}
	clear(l.m.Actions)
	l.m.Actions = l.m.Actions[:0]
}

func (l *loop) perform(a machine.Action, now time.Time) {
	switch a.Kind {
	case machine.ActPeek:
		l.load(l.term, a.Session, 0, peekBytes, nil, func(ld loadResult, err error) { l.postLoaded(a.Session, ld, err) })
	case machine.ActLoad:
		l.load(l.term, a.Session, a.Batches, a.Bytes, nil, func(ld loadResult, err error) { l.postLoaded(a.Session, ld, err) })
	case machine.ActFindRoute: // an event of its own, since it may read the database, which not every turn may
		l.postAsync(func(now time.Time) {
			for _, e := range a.Entries {
				l.setRoute(e)
			}
			l.m.Routed(a.Session, now)
		})
	case machine.ActOpen:
		l.openStream(a)
	case machine.ActClose:
		if c := l.conns[a.Session]; c != nil && c.id == a.ConnID {
			l.closeStream(a.Session, c)
		}
	case machine.ActSend:
		l.send(a)
	case machine.ActAck:
		if c := l.conns[a.Session]; c != nil && c.stream != nil {
			c.stream.Acknowledge(a.Through)
		}
	case machine.ActFinish:
		e := a.Entry
		crashpoint.Hit(crashpoint.OutboxAckBefore)
		outs := e.Body.Outcomes(a.Outcomes)
		news := l.Refs.Updates(e, outs, l.Now())
		notCreated := refs.OwnerRefused(news)
		if !notCreated {
			l.Hub.Publish(e.ID, outs, false)
		}
		l.storeOutcomes(e, l.incarnation, outs, news, a.Route, func(err error) {
			if notCreated { // the caller may look the session up by its name next
				l.Hub.Publish(e.ID, outs, err == nil || errors.Is(err, sqlstore.ErrFenced))
			}
			l.postAsync(func(now time.Time) {
				if errors.Is(err, sqlstore.ErrFenced) {
					l.cancel(sqlstore.ErrFenced)
					return
				}
				if err != nil {
					l.storeFailed(e.Session, err, now)
					return
				}
				l.m.OutcomesStored(e.Session, e.LastSeq(), now)
				l.m.Finished(e.ID, now)
			})
		})
	case machine.ActRecordAttempt:
		text, at := a.Err.Error(), l.wallTime(now, a.At)
		notes := make([]machine.Entry, len(a.Entries))
		for i, e := range a.Entries {
			notes[i] = machine.Entry{Num: e.Num, Attempts: e.Attempts}
		}
		l.submitWrite(func(q sqlstore.Querier) {
			for _, e := range notes {
				l.T.RecordAttempt(q, e.Num, e.Attempts, at, text)
			}
		})
	case machine.ActMarkInFlight:
		l.submitWrite(func(q sqlstore.Querier) { l.T.MarkInFlight(q, a.Entry.Num) })
	case machine.ActSetStopped:
		code, reason := fault.None, ""
		if a.Err != nil {
			code, reason = a.Err.Code, a.Err.Error()
			l.Logger.Error("a stream has stopped until someone decides", "outbox", l.Outbox, "session", a.Session, "reason", reason)
		}
		j := l.termJob(func(q sqlstore.Querier) { l.T.SetStopped(q, a.Session, code, reason) })
		j.Stream, j.Done = a.Session, func(error, bool) { l.Hub.RecheckAll() }
		l.W.Submit(j)
		if a.Err != nil { // a better ref may be stored already
			l.postAsync(func(now time.Time) {
				_, _ = l.Refs.Refresh(l.ctx) // else the next scan does it
				l.resumeIfRerouted(a.Session, now)
			})
		}
	case machine.ActRaiseIncarnation:
		l.raiseIncarnation()
	case machine.ActResolveDrops:
		l.resolveDrops(a)
	case machine.ActEndRefused:
		l.endRefused(a)
	case machine.ActFenced:
		l.cancel(fmt.Errorf("%w: %w", errServerFenced, a.Err))
	}
}

// peekBytes bounds the bytes of one ActPeek.
const peekBytes = 256 << 10

// wallTime converts a time of the loop's clock to wall time.
func (s *Sender) wallTime(now, at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return s.Now().Add(at.Sub(now)).UnixMilli()
}
