package outbox

// Reconciling a session: the log is read once its stream is fenced, planned from, and the plan is
// executed in one transaction. Until that is durable nothing has changed, and afterwards only
// sending is left; so it may be interrupted anywhere, and repeated.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sender"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Reconciliation lists the fates of a session's ops.
type Reconciliation struct {
	Session string
	Stopped *StreamStoppedError // why its stream sends nothing; nil if it is not known to have stopped
	Gone    bool                // the server does not know the session: it is created again first
	Ops     []Reconciled
	Batches []string // batches that are committed again
}

// Needed reports whether Reconcile has anything to do.
func (r *Reconciliation) Needed() bool {
	return r.Stopped != nil || slices.ContainsFunc(r.Ops, func(c Reconciled) bool { return c.Fate == SentAgain || c.Fate == InLog })
}

// Count counts the ops of a fate.
func (r *Reconciliation) Count(f Fate) (n int) {
	for i := range r.Ops {
		if r.Ops[i].Fate == f {
			n++
		}
	}
	return n
}

// Sessions lists the sessions that the outbox has ops of, unfinished or of the last 30 days, in
// the order in which they came.
func (b *Box) Sessions(ctx context.Context) (sessions []string, err error) {
	err = b.read(ctx, "list sessions", func(ctx context.Context, q sqlstore.Querier) (err error) {
		sessions, err = b.t.Sessions(ctx, q)
		return err
	})
	return sessions, err
}

// LogReader asks a session's server for its log.
type LogReader interface {
	// Gone reports that the server does not know the session.
	Gone(ctx context.Context) (bool, error)
	// Read calls add for each event that an op has made, with its cursor. base is the cursor up to
	// which events have been pruned from the log: their ops count as in the log.
	Read(ctx context.Context, add func(op string, cursor uint64)) (base uint64, err error)
}

// Bounds of Reconcile while other processes send.
const (
	reconcileTries  = 5
	inFlightTimeout = 10 * time.Second // how long ops in flight are waited for
)

// Reconcile commits again the ops that applied once and are no longer in the session's log,
// under new ids, in a new stream, in order; unanswered ops go out behind them. Each op's
// replacement is durable before anything is sent. The log is read twice, the second time once
// every present sender of the session's stream is fenced. Ops with an expectation are held back,
// unless o says otherwise; they lose nothing but their position: a later Reconcile with
// WithExpectations sends them. If nothing is Needed nothing is done. InUse while the stream has
// not stopped and ops stay in flight, or others send; NotFound if the session is gone from its
// server and its creation is not in this outbox.
func (b *Box) Reconcile(ctx context.Context, link Link, session string, from LogReader, o ReconcileOptions) (r Reconciliation, err error) {
	for range reconcileTries { // other processes may be sending
		var log *sessionLog
		if log, err = b.readLog(ctx, nil, session, from); err != nil {
			return r, err
		}
		if r, err = b.planReconcile(ctx, session, log, o); err != nil || o.DryRun || !r.Needed() {
			return r, err
		}
		if log, err = b.readLog(ctx, link, session, from); err != nil {
			return r, err
		}
		if r, err = b.reconcile(ctx, session, log, o); fault.CodeOf(err) != fault.InUse {
			return r, err
		}
	}
	return r, err
}

// readLog reads which ops the session's log contains, once none is in flight; with a link, also
// once no batch of the session's stream can arrive any more.
func (b *Box) readLog(ctx context.Context, link Link, session string, from LogReader) (*sessionLog, error) {
	gone, err := from.Gone(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.awaitInFlight(ctx, session); err != nil {
		return nil, err
	}
	log, err := b.newLog(ctx, session)
	if err != nil {
		return nil, err
	}
	if log.Gone = gone; link != nil {
		if err := b.fence(ctx, link, log, session, gone); err != nil {
			return nil, err
		}
	}
	if !gone {
		log.Base, err = from.Read(ctx, func(op string, cursor uint64) { log.Ops[op] = cursor })
	}
	return log, err
}

// awaitInFlight waits until no op of a session is unfinished, unless its stream has stopped. Else
// an op in flight could be taken for missing.
func (b *Box) awaitInFlight(ctx context.Context, session string) error {
	for limit := time.Now().Add(inFlightTimeout); ; {
		still, err := b.Stopped(ctx, session)
		if err != nil || still != nil {
			return err
		}
		st, err := b.Queue(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, s := range st.Streams {
			if s.Session == session {
				left = s.Unfinished
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fault.InUse.With("%d ops of session %s are in flight and its stream has not stopped: wait for their answers first", left, session)
		}
		if lease.Pause(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return fault.Canceled.Because(ctx.Err(), "stopped waiting for what is on its way to session %s", session)
		}
	}
}

// newLog begins a sessionLog. The session's log is to be read after it.
func (b *Box) newLog(ctx context.Context, session string) (*sessionLog, error) {
	log := &sessionLog{Ops: make(map[string]uint64)}
	err := b.read(ctx, "reconcile", func(ctx context.Context, q sqlstore.Querier) error {
		batches, err := b.t.Answered(ctx, q, session)
		log.answered = make(map[string]bool)
		for _, batch := range batches {
			log.answered[batch] = true
		}
		return err
	})
	return log, err
}

// planReconcile returns what reconcile would do, without doing it.
func (b *Box) planReconcile(ctx context.Context, session string, log *sessionLog, o ReconcileOptions) (r Reconciliation, err error) {
	still, err := b.Stopped(ctx, session)
	if err != nil {
		return r, err
	}
	err = b.read(ctx, "reconcile", func(ctx context.Context, q sqlstore.Querier) error {
		p, err := b.planFor(ctx, q, session, log, o, "")
		if err == nil {
			r = p.reconciliation(session, log)
		}
		return err
	})
	r.Stopped = still
	return r, err
}

// reconcile executes the plan for a log that was read just now. InUse if a sender has begun since its
// stream was fenced, or while the stream has not stopped and ops are in flight: the log may have them
// by now.
func (b *Box) reconcile(ctx context.Context, session string, log *sessionLog, o ReconcileOptions) (r Reconciliation, err error) {
	if r, err = b.planReconcile(ctx, session, log, o); err != nil || !r.Needed() {
		return r, err
	}
	still := r.Stopped
	err = b.restartStream(ctx, "reconcile", session, func(ctx context.Context, q sqlstore.Querier) ([]sender.Decided, error) {
		if row, err := b.t.ReadBox(ctx, q, ""); err != nil {
			return nil, err
		} else if log.fenceIncarnation != 0 && row.Incarnation != log.fenceIncarnation {
			return nil, fault.InUse.With("a sender has begun since the stream of session %s was fenced: the log that was read may lack what it has sent", session)
		}
		p, err := b.planFor(ctx, q, session, log, o, b.db.LockRows())
		if err != nil {
			return nil, err
		}
		if still == nil && slices.ContainsFunc(p.pending, func(pr pendingRow) bool { return pr.row.Sequenced() }) {
			return nil, fault.InUse.With("ops of session %s are in flight and its stream has not stopped: wait for their answers first", session)
		}
		r = p.reconciliation(session, log)
		decided, err := b.executePlan(ctx, q, p)
		crashpoint.Hit(crashpoint.OutboxCommitBefore)
		return decided, err
	})
	r.Stopped = still
	b.usage.commitsSinceCount.Store(0) // count again
	return r, err
}

func (p *plan) reconciliation(session string, log *sessionLog) Reconciliation {
	r := Reconciliation{Session: session, Gone: log.Gone, Ops: p.ops}
	for i := range p.resend {
		r.Batches = append(r.Batches, p.resend[i].id)
	}
	return r
}

// planFor reads a session's rows and plans.
func (b *Box) planFor(ctx context.Context, q sqlstore.Querier, session string, log *sessionLog, o ReconcileOptions, lock string) (*plan, error) {
	p := newPlanner(log, o, b.t.OpLookup(ctx, q, sqlstore.UnwrittenRow), func(op string) (string, error) { return b.t.RetriedAs(ctx, q, op) })
	var waiting []*sqlstore.BatchRow
	for after := int64(-1); ; {
		rows, err := b.t.List(ctx, q, sqlstore.AllRows, after, session)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.Num
			if r.State != sqlstore.RowFinished {
				if lock != "" { // it may have changed, but no sender can finish it now
					if r, err = b.t.BatchNum(ctx, q, r.Num, lock); err != nil {
						return nil, err
					}
				}
				waiting = append(waiting, r)
				continue
			}
			if err := p.addFinished(r); err != nil {
				return nil, err
			}
		}
	}
	if err := p.planResend(); err != nil {
		return nil, err
	}
	if log.Gone && !p.createsSession() && !slices.ContainsFunc(waiting, rowCreatesSession) {
		return nil, fault.NotFound.With("the server does not know session %s, and its creation is not in this outbox: the home folder that made it has to reconcile first", session)
	}
	// Rows that had seqs go first, in order of seq.
	slices.SortStableFunc(waiting, func(x, y *sqlstore.BatchRow) int {
		switch {
		case x.Sequenced() && y.Sequenced():
			return cmp.Compare(*x.FirstSeq, *y.FirstSeq)
		case x.Sequenced():
			return -1
		case y.Sequenced():
			return 1
		}
		return cmp.Compare(x.Num, y.Num)
	})
	for _, r := range waiting {
		if err := p.addUnfinished(r); err != nil {
			return nil, err
		}
	}
	return &p.plan, nil
}

// CreatesSession reports whether an op that is committed again creates the session.
func (p *planner) createsSession() bool {
	return len(p.plan.resend) > 0 && intent.CreatesSession(p.plan.resend[0].body.Ops[0].Method)
}

// rowCreatesSession reports whether a row creates its session.
func rowCreatesSession(r *sqlstore.BatchRow) bool {
	bd, err := r.Decode()
	return err == nil && intent.CreatesSession(bd.Ops[0].Method)
}

// executePlan executes a plan, allocating seqs of the new stream.
func (b *Box) executePlan(ctx context.Context, q sqlstore.Querier, p *plan) (decided []sender.Decided, err error) {
	seq := int64(1)
	for i := range p.resend {
		a := &p.resend[i]
		data := a.body.Encode(a.old.Session, a.id)
		row := &sqlstore.BatchRow{ID: a.id, Session: a.old.Session, Via: a.old.Via, Ops: len(a.body.Ops), Bytes: int64(len(data)),
			Created: b.cfg.Now().UnixMilli(), Body: data}
		num, err := b.t.Insert(ctx, q, row)
		if errors.Is(err, sqlstore.ErrUnique) {
			return nil, fault.AlreadyExists.Because(err, "batch %s, which was to stand for batch %s, is there already", a.id, a.old.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("commit again: %w", err)
		}
		b.indexOps(q, a.id, a.body)
		b.t.SetSeq(q, num, seq, nil, intent.Tally{})
		b.t.LowerLowWater(q, num)
		seq += int64(len(a.body.Ops))
	}
	for _, pr := range p.pending {
		r, bd := pr.row, pr.body
		switch {
		case bd == nil:
			decided = append(decided, b.sender.Quarantine(q, r, pr.err))
			continue
		case pr.recorded != nil:
			for i := range bd.Ops {
				op := &bd.Ops[i]
				op.Void, op.DropRequested, op.LocalOutcome = false, false, &pr.recorded[i]
			}
		case r.Sequenced():
			if _, err := intent.Resolve(bd, r.Session, b.t.OpLookup(ctx, q, r.Num), false); err != nil {
				return nil, err
			}
		}
		if bd.Decided() {
			decided = append(decided, b.sender.FinishWithOutcomes(ctx, q, r, bd))
			continue
		}
		data := bd.Encode(r.Session, r.ID)
		b.t.SetBody(q, r.Num, data, bd.Tally(), false)
		b.t.ClearSeq(q, r.Num)
		if r.Sequenced() {
			b.t.SetSeq(q, r.Num, seq, nil, intent.Tally{})
			b.t.LowerLowWater(q, r.Num)
			seq += int64(bd.SeqCount())
		}
	}
	return decided, nil
}

// fenceTimeout bounds the attempts to reach a server.
const fenceTimeout = 10 * time.Second

// fence makes a session's server refuse every present sender of the session's stream, and asks
// for its last seq. The log that is read after it is then complete: reconcile refuses a log if
// a sender has begun since (InUse). gone says that the session is to be created again.
//
// Ops up to the server's last seq are not missing from the log, if this outbox's batch there is
// the server's: it is shown to the server as a repeat, which compares the digests. In a copied
// or restored outbox the digests differ: then the log decides.
func (b *Box) fence(ctx context.Context, link Link, log *sessionLog, session string, gone bool) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	again, limit := b.newBackoff(), time.Now().Add(fenceTimeout)
	for step := int64(1); ; {
		incarnation, err := b.raiseIncarnationBy(ctx, step)
		if err != nil {
			return err
		}
		var agrees bool
		last, err := b.openFenced(ctx, link, session, gone, incarnation, &agrees)
		if err == nil {
			log.fenceIncarnation, log.lastSeq, log.streamMatches = incarnation, last, agrees
			return nil
		}
		switch what, f := machine.ClassifyError(err); {
		case f.Code == fault.WrongOutbox, machine.GrantsNothing(f.Code): // there is no stream that a batch could arrive on
			log.fenceIncarnation = incarnation
			return nil
		case what == machine.LeaseLost: // this outbox is older than its last sender: raise the incarnation by doubling steps
			if step *= 2; step > 1<<40 {
				return err
			}
			continue
		case what != machine.RetryHost && what != machine.RetryStream || time.Now().After(limit):
			return err
		}
		lease.Pause(ctx, again.NextBackOff())
		if ctx.Err() != nil {
			return fault.Canceled.Because(ctx.Err(), "stopped asking how far the server has the stream")
		}
	}
}

// raiseIncarnationBy raises the incarnation by step, above all that were sent under.
func (b *Box) raiseIncarnationBy(ctx context.Context, step int64) (incarnation int64, err error) {
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		if err := b.t.AddIncarnation(ctx, q, step); err != nil {
			return err
		}
		row, err := b.t.ReadBox(ctx, q, "")
		incarnation = row.Incarnation
		return err
	})
	return incarnation, err
}

// openFenced opens the stream under an incarnation and compares the batch at its last seq.
func (b *Box) openFenced(ctx context.Context, link Link, session string, gone bool, incarnation int64, agrees *bool) (last uint64, err error) {
	to, err := b.fenceRoute(ctx, session, gone)
	if err != nil {
		return 0, err
	}
	req, err := b.sender.Request(ctx, session, to, incarnation)
	if err != nil {
		return 0, err
	}
	s, err := link.OpenStream(ctx, req)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if last, err = s.Opened(ctx); err != nil || last == 0 {
		*agrees = err == nil
		return last, err
	}
	repeat, err := b.lastBatchOf(ctx, session, last)
	if err != nil || repeat == nil {
		return last, err
	}
	repeat.Outbox, repeat.Incarnation = b.id, uint64(incarnation)
	answer := make(chan Reply, 1)
	s.Apply(repeat, func(r Reply) { answer <- r })
	select {
	case r := <-answer:
		if *agrees = r.Err == nil; !*agrees {
			if what, _ := machine.ClassifyError(r.Err); what != machine.StopStream {
				return last, r.Err
			}
		}
		return last, nil // it diverged, or cannot be compared: the log decides
	case <-ctx.Done():
		return last, fault.Canceled.Because(ctx.Err(), "stopped asking how far the server has the stream")
	}
}

// fenceRoute returns the route for opening the session's stream with nothing to send.
func (b *Box) fenceRoute(ctx context.Context, session string, gone bool) (to machine.Route, err error) {
	var first *sqlstore.BatchRow // the batch that creates the session
	if gone {
		err = b.read(ctx, "reconcile", func(ctx context.Context, q sqlstore.Querier) error {
			rows, err := b.t.List(ctx, q, sqlstore.AllRows, -1, session)
			if len(rows) > 0 && rowCreatesSession(rows[0]) {
				first = rows[0]
			}
			return err
		})
	}
	if err != nil {
		return to, err
	}
	if first == nil {
		return b.refs.Resolver().RouteOf(ctx, session, "", &intent.Batch{Ops: []intent.Op{{Method: "put"}}})
	}
	bd, err := first.Decode()
	if err != nil {
		return to, err
	}
	return b.refs.Resolver().RouteOf(ctx, session, first.Via, bd)
}

// lastBatchOf returns the batch that ends with seq last, as it was sent; nil if this outbox no
// longer has it in that form.
func (b *Box) lastBatchOf(ctx context.Context, session string, last uint64) (repeat *ledger.Batch, err error) {
	err = b.read(ctx, "reconcile", func(ctx context.Context, q sqlstore.Querier) error {
		repeat = nil
		r, err := b.t.BatchAt(ctx, q, session, last)
		if err != nil || r == nil || !r.Sequenced() {
			return err
		}
		bd, err := r.Decode()
		if err != nil || bd.Compacted || uint64(*r.FirstSeq)+uint64(bd.SeqCount()) != last+1 {
			return nil // the log decides
		}
		repeat = bd.Wire(session, r.ID, uint64(*r.FirstSeq))
		return nil
	})
	return repeat, err
}
