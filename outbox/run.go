package outbox

// The sender: a term of sending, and the loop around the machine.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Run sends committed batches, of this and other processes, until ctx ends or the Box is
// closed; then it returns nil. It holds the outbox's lease when it can get it and waits
// otherwise: also for another Run of the same Box, whose link sends everything until that one
// ends. Errors of the database or the link are logged and retried for ever.
func (b *Box) Run(ctx context.Context, link Link) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := b.withClose(ctx)
	defer cancel()
	end := b.acquireRun(ctx)
	if end == nil {
		return nil
	}
	defer end()

	again := b.newBackoff()
	step := int64(1)
	for ctx.Err() == nil {
		tk, err := b.awaitLease(ctx, step, again)
		if err != nil {
			break // ctx ended
		}
		why := b.runTerm(ctx, link, tk)
		switch {
		case ctx.Err() != nil:
		case errors.Is(why, errServerFenced):
			// The server knows a higher incarnation than this outbox: its file is older than
			// the last sent batch. Raise the incarnation by doubling steps.
			step *= 2
			b.cfg.Logger.Warn("the server has seen a newer incarnation of this outbox", "outbox", b.id, "incarnation", tk.incarnation)
			b.pause(ctx, again.NextBackOff())
		default:
			step = 1
			b.cfg.Logger.Info("the lease is lost", "outbox", b.id, "reason", why)
			b.pause(ctx, b.cfg.Backoff.Initial)
		}
	}
	return nil
}

// acquireRun waits until no other Run is running; nil if ctx ends first.
func (b *Box) acquireRun(ctx context.Context) (end func()) {
	for {
		b.mu.Lock()
		other := b.runDone
		if other == nil {
			b.runDone = make(chan struct{})
			b.mu.Unlock()
			return func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				close(b.runDone)
				b.runDone = nil
			}
		}
		b.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil
		}
	}
}

// errServerFenced says that the server has seen a higher incarnation.
var errServerFenced = errors.New("fenced by the server")

func (b *Box) newBackoff() backoff.BackOff {
	c := b.cfg.Backoff
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(c.Initial), backoff.WithMaxInterval(c.Max),
		backoff.WithMultiplier(c.Factor), backoff.WithRandomizationFactor(c.Jitter), backoff.WithMaxElapsedTime(0))
}

func (b *Box) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// loop is one term of sending: the machine, its open streams, and the queued events. All but
// the queue belongs to the goroutine with the turn; post and postAsync queue an event for it.
// Mostly that is the goroutine in which an event occurs, since waking another takes longer than
// handling the event.
type loop struct {
	box             *Box
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
func (b *Box) runTerm(ctx context.Context, link Link, tk *takeover) error {
	l := &loop{box: b, link: link, m: machine.New(machine.Window(b.cfg.Window), b.newBackoff), term: tk.term, incarnation: tk.incarnation,
		releaseLiveness: tk.releaseLiveness, conns: make(map[string]*streamConn), notKnown: make(map[string][]int), busy: true, handoff: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	l.seenDrops.Store(tk.drops)
	b.cfg.Logger.Debug("sending", "outbox", b.id, "incarnation", tk.incarnation)
	b.hub.SenderStarted()
	b.mu.Lock()
	b.loop = l
	b.mu.Unlock()

	l.recoverInFlight(tk)
	// Batches that this process committed after the lease was taken and before b.loop was set
	// were not announced, and are not in tk.
	l.tasks.Go(l.scan)
	l.tasks.Go(func() { b.db.Watch(l.ctx, b.id, l.scan, l.setHolderPID) })
	l.tasks.Go(l.renewLoop)
	l.tasks.Go(l.sweepLoop)
	l.run()

	b.mu.Lock()
	b.loop = nil
	b.mu.Unlock()
	b.w.Seqs.SetLeading(false)
	b.hub.SenderStopped()
	for session, c := range l.conns {
		l.closeStream(session, c)
	}
	l.tasks.Wait()
	why := context.Cause(l.ctx)
	if !errors.Is(why, sqlstore.ErrFenced) {
		if err := b.releaseLease(context.WithoutCancel(ctx)); err != nil {
			b.cfg.Logger.Warn("the lease could not be given back", "outbox", b.id, "error", err)
		}
	}
	if l.releaseLiveness != nil {
		l.releaseLiveness()
	}
	return why
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
func (l *loop) recoverInFlight(tk *takeover) {
	now := time.Now()
	for session, rows := range bySession(tk.rows) {
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
		st := tk.streams[session]
		l.m.Recovered(session, entries, l.createRoute(st), drops, now)
	}
	l.m.BacklogFound(tk.unsequenced, now)
	l.performActions(now)
}

func (l *loop) createRoute(st sqlstore.StreamRow) machine.Route {
	if st.SpaceRef == "" {
		return machine.Route{}
	}
	return machine.Route{Ref: st.OwnerRef, Space: st.SpaceRef}
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
	b := l.box
	switch a.Kind {
	case machine.ActPeek:
		b.load(l.term, a.Session, 0, peekBytes, nil, func(ld loadResult, err error) { l.postLoaded(a.Session, ld, err) })
	case machine.ActLoad:
		b.load(l.term, a.Session, a.Batches, a.Bytes, nil, func(ld loadResult, err error) { l.postLoaded(a.Session, ld, err) })
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
		news := b.refs.Updates(e, outs, b.cfg.Now())
		notCreated := refs.OwnerRefused(news)
		if !notCreated {
			b.hub.Publish(e.ID, outs, false)
		}
		b.storeOutcomes(e, l.incarnation, outs, news, a.Route, func(err error) {
			if notCreated { // the caller may look the session up by its name next
				b.hub.Publish(e.ID, outs, err == nil || errors.Is(err, sqlstore.ErrFenced))
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
		text, at := a.Err.Error(), b.wallTime(now, a.At)
		notes := make([]machine.Entry, len(a.Entries))
		for i, e := range a.Entries {
			notes[i] = machine.Entry{Num: e.Num, Attempts: e.Attempts}
		}
		l.submitWrite(func(q sqlstore.Querier) {
			for _, e := range notes {
				b.t.RecordAttempt(q, e.Num, e.Attempts, at, text)
			}
		})
	case machine.ActMarkInFlight:
		l.submitWrite(func(q sqlstore.Querier) { b.t.MarkInFlight(q, a.Entry.Num) })
	case machine.ActSetStopped:
		code, reason := fault.None, ""
		if a.Err != nil {
			code, reason = a.Err.Code, a.Err.Error()
			b.cfg.Logger.Error("a stream stands still until someone decides", "outbox", b.id, "session", a.Session, "reason", reason)
		}
		j := l.termJob(func(q sqlstore.Querier) { b.t.SetStopped(q, a.Session, code, reason) })
		j.Stream, j.Done = a.Session, func(error, bool) { b.hub.RecheckAll() }
		b.w.Submit(j)
		if a.Err != nil { // a better ref may be stored already
			l.postAsync(func(now time.Time) {
				_, _ = b.refs.Refresh(l.ctx) // else the next scan does it
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
func (b *Box) wallTime(now, at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return b.cfg.Now().Add(at.Sub(now)).UnixMilli()
}
