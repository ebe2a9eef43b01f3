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
)

// Run sends what is committed, here or in other processes, until ctx ends or the
// Box is closed; then it returns nil. It holds the outbox's lease when it can
// get it and waits otherwise: also for another Run of the same Box, over whose link
// everything is sent until that one ends. Trouble with the database or the link is
// logged and tried again for ever.
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
			// The server knows a higher incarnation than this outbox does: its
			// file is older than what was sent. Catch up, ever faster.
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

// errServerFenced is the server's word that another incarnation sends.
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

// loop is one term of sending: the machine, the streams it has open, and what
// has happened that it has not heard of. Everything but post is for whoever has
// the turn: mostly the goroutine in which something happens, since waking another
// one takes longer than what is to be done.
type loop struct {
	box             *Box
	link            Link
	m               *machine
	term            int // of seqs
	incarnation     int64
	releaseLiveness func()       // gives up the mark of a living sender; nil without. renewLoop's, then runTerm's
	seenDrops       atomic.Int64 // the box row's drops, as last looked at
	conns           map[string]*streamConn
	ctx             context.Context
	cancel          context.CancelCauseFunc
	tasks           sync.WaitGroup

	wakeTimer *time.Timer // when the machine wants to be looked at again

	mu       sync.Mutex       // guards what follows
	notKnown map[string][]int // by session: the openings on which its server did not know it, though it has made it
	events   []func(now time.Time)
	busy     bool          // somebody has the turn
	done     chan struct{} // not nil: the term has ended, and whoever has the turn closes it
	handoff  chan struct{} // the turn is handed to run
}

// streamConn is one opening of a stream.
type streamConn struct {
	id     int
	cancel context.CancelFunc
	stream Stream
}

// runTerm sends until ctx ends or the lease is lost, and says why.
func (b *Box) runTerm(ctx context.Context, link Link, tk *takeover) error {
	l := &loop{box: b, link: link, m: newMachine(b.cfg.Window, b.newBackoff), term: tk.term, incarnation: tk.incarnation,
		releaseLiveness: tk.releaseLiveness, conns: make(map[string]*streamConn), notKnown: make(map[string][]int), busy: true, handoff: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	l.seenDrops.Store(tk.drops)
	b.cfg.Logger.Debug("sending", "outbox", b.id, "incarnation", tk.incarnation)
	b.mu.Lock()
	b.loop = l
	b.mu.Unlock()

	l.recoverInFlight(tk)
	// What this process committed after the lease was taken and before b.loop was
	// set told nobody, and is not in tk.
	l.tasks.Go(l.scan)
	l.tasks.Go(func() { b.db.watch(l.ctx, b.id, l.scan, l.setHolderPID) })
	l.tasks.Go(l.renewLoop)
	l.tasks.Go(l.sweepLoop)
	l.run()

	b.mu.Lock()
	b.loop = nil
	b.mu.Unlock()
	b.w.seqs.setLeading(false)
	b.hub.senderStopped()
	for session, c := range l.conns {
		l.closeStream(session, c)
	}
	l.tasks.Wait()
	why := context.Cause(l.ctx)
	if !errors.Is(why, errFenced) {
		if err := b.releaseLease(context.WithoutCancel(ctx)); err != nil {
			b.cfg.Logger.Warn("the lease could not be given back", "outbox", b.id, "error", err)
		}
	}
	if l.releaseLiveness != nil {
		l.releaseLiveness()
	}
	return why
}

// post has f called by whoever has the turn: at once, by this goroutine, if
// nobody has. A turn may wait for the database, so it is for the sender's own
// goroutines, without locks.
func (l *loop) post(f func(now time.Time)) {
	if l.enqueue(f) {
		l.handleEvents(maxPostedEvents)
	}
}

// postAsync is post for all other goroutines.
func (l *loop) postAsync(f func(now time.Time)) {
	if l.enqueue(f) {
		l.handoff <- struct{}{} // has room: there is one turn
	}
}

// handleEvents is a turn of so many events; what is left is for run.
func (l *loop) handleEvents(most int) {
	if !l.drainEvents(most) {
		l.handoff <- struct{}{}
	}
}

// enqueue reports whether the turn is the caller's.
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

// After how many events who happened to post one goes its way, and run looks
// whether the term has ended.
const (
	maxPostedEvents = 8
	maxRunEvents    = 1024
)

// run has the first turn, and those that others hand over, until the term ends.
// Then nobody has one.
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

// drainEvents does what has happened, up to so many events. It reports false if there
// are more: then the turn is still the caller's, to hand on.
func (l *loop) drainEvents(most int) bool {
	defer fatal.OnPanic()
	for ticked := false; ; ticked = true {
		l.mu.Lock()
		n := min(len(l.events), most)
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
		most -= n
		now := time.Now()
		for i, f := range events {
			events[i] = nil
			f(now)
			l.performActions(now)
		}
		l.m.tick(now)
		l.performActions(now)
		wait := time.Hour
		if at := l.m.wakeAt(); !at.IsZero() {
			wait = max(at.Sub(now), 0)
		}
		l.wakeTimer.Reset(wait)
	}
}

// recoverInFlight gives the machine what the former holder left.
func (l *loop) recoverInFlight(tk *takeover) {
	now := time.Now()
	for session, rows := range bySession(tk.rows) {
		var entries []*entry
		drops := make(map[int64]*fault.Error)
		for _, r := range rows {
			var e *entry
			bd, err := r.decode()
			if err == nil {
				var hold uint64
				if hold, err = l.pinSeqOf(r.session, bd); err != nil {
					l.cancel(err)
					return
				}
				e = l.routedEntry(r, bd, hold)
			} else { // nothing after it can be sent either: its seqs would be missing
				e = l.damagedEntry(r, err)
			}
			if r.dropping {
				drops[r.num] = nil
			}
			entries = append(entries, e)
		}
		st := tk.streams[session]
		l.m.recovered(session, entries, l.createRoute(st), drops, now)
	}
	l.m.backlogFound(tk.unsequenced, now)
	l.performActions(now)
}

func (l *loop) createRoute(st streamRow) route {
	if st.spaceRef == "" {
		return route{}
	}
	return route{ref: st.ownerRef, space: st.spaceRef}
}

// performActions does what the machine asks for.
func (l *loop) performActions(now time.Time) {
	for i := 0; i < len(l.m.actions); i++ { // doing one may add others
		l.perform(l.m.actions[i], now)
	}
	clear(l.m.actions)
	l.m.actions = l.m.actions[:0]
}

func (l *loop) perform(a action, now time.Time) {
	b := l.box
	switch a.kind {
	case actPeek:
		b.load(l.term, a.session, 0, peekBytes, nil, func(ld loadResult, err error) { l.postLoaded(a.session, ld, err) })
	case actLoad:
		b.load(l.term, a.session, a.batches, a.bytes, nil, func(ld loadResult, err error) { l.postLoaded(a.session, ld, err) })
	case actFindRoute: // an event of its own, since it may read the database, which not every turn may
		l.postAsync(func(now time.Time) {
			for _, e := range a.entries {
				l.setRoute(e)
			}
			l.m.routed(a.session, now)
		})
	case actOpen:
		l.openStream(a)
	case actClose:
		if c := l.conns[a.session]; c != nil && c.id == a.connID {
			l.closeStream(a.session, c)
		}
	case actSend:
		l.send(a)
	case actAck:
		if c := l.conns[a.session]; c != nil && c.stream != nil {
			c.stream.Acknowledge(a.through)
		}
	case actFinish:
		e := a.entry
		crashpoint.Hit(crashpoint.OutboxAckBefore)
		outs := e.body.outcomes(a.outcomes)
		news := b.refUpdates(e, outs)
		unmade := ownerRefused(news)
		if !unmade {
			b.hub.publish(e.id, outs, false)
		}
		b.storeOutcomes(e, l.incarnation, outs, news, a.route, func(err error) {
			if unmade { // the caller may look for the session by its name next
				b.hub.publish(e.id, outs, err == nil || errors.Is(err, errFenced))
			}
			l.postAsync(func(now time.Time) {
				if errors.Is(err, errFenced) {
					l.cancel(errFenced)
					return
				}
				if err != nil {
					l.storeFailed(e.session, err, now)
					return
				}
				l.m.outcomesStored(e.session, e.lastSeq(), now)
				l.m.finished(e.id, now)
			})
		})
	case actRecordAttempt:
		text, at := a.err.Error(), b.wallTime(now, a.at)
		notes := make([]entry, len(a.entries))
		for i, e := range a.entries {
			notes[i] = entry{num: e.num, attempts: e.attempts}
		}
		l.submitWrite(func(q querier) {
			for _, e := range notes {
				b.t.recordAttempt(q, e.num, e.attempts, at, text)
			}
		})
	case actMarkInFlight:
		l.submitWrite(func(q querier) { b.t.markInFlight(q, a.entry.num) })
	case actSetStopped:
		code, reason := fault.None, ""
		if a.err != nil {
			code, reason = a.err.Code, a.err.Error()
			b.cfg.Logger.Error("a stream stands still until someone decides", "outbox", b.id, "session", a.session, "reason", reason)
		}
		j := l.termJob(func(q querier) { b.t.setStopped(q, a.session, code, reason) })
		j.stream, j.done = a.session, func(error, bool) { b.hub.recheckAll() }
		b.w.submit(j)
		if a.err != nil { // a better ref may be there already
			l.postAsync(func(now time.Time) {
				_, _ = b.resolver().refresh(l.ctx) // else the next scan tells
				l.resumeIfRerouted(a.session, now)
			})
		}
	case actRaiseIncarnation:
		l.raiseIncarnation()
	case actResolveDrops:
		l.resolveDrops(a)
	case actEndRefused:
		l.endRefused(a)
	case actFenced:
		l.cancel(fmt.Errorf("%w: %w", errServerFenced, a.err))
	}
}

// peekBytes bounds what one look reads.
const peekBytes = 256 << 10

// wallTime turns a time of the loop's clock into one for people.
func (b *Box) wallTime(now, at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return b.cfg.Now().Add(at.Sub(now)).UnixMilli()
}
