package outbox

// Reconciling a session: the plan, and the one transaction that executes it. Until that is
// durable nothing has changed, and afterwards only sending is left; so it may be interrupted
// anywhere, and repeated.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
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

// NewLog begins a Log of a session. The session's log is to be read after it.
func (b *Box) NewLog(ctx context.Context, session string) (*Log, error) {
	log := &Log{Ops: make(map[string]uint64)}
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

// PlanReconcile returns what Reconcile would do, without doing it.
func (b *Box) PlanReconcile(ctx context.Context, session string, log *Log, o ReconcileOptions) (r Reconciliation, err error) {
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

// Reconcile commits again the ops that applied once and are no longer in the session's log,
// under new ids, in a new stream, in order; unanswered ops go out behind them. log is read from
// the server just before. Each op's replacement is durable before anything is sent. InUse while
// the stream has not stopped and ops are in flight: the log may have them by now. Ops with an
// expectation are held back, unless o says otherwise; they lose nothing but their position: a
// later Reconcile with WithExpectations sends them. If nothing is Needed nothing is done.
// NotFound if the session is gone from its server and its creation is not in this outbox.
func (b *Box) Reconcile(ctx context.Context, session string, log *Log, o ReconcileOptions) (r Reconciliation, err error) {
	if r, err = b.PlanReconcile(ctx, session, log, o); err != nil || !r.Needed() {
		return r, err
	}
	still := r.Stopped
	err = b.restartStream(ctx, "reconcile", session, func(ctx context.Context, q sqlstore.Querier) ([]decidedRow, error) {
		if row, err := b.t.ReadBox(ctx, q, ""); err != nil {
			return nil, err
		} else if log.fenceIncarnation != 0 && row.Incarnation != log.fenceIncarnation {
			return nil, fault.InUse.With("a sender has begun since the stream of session %s was fenced off: what it has sent may not be in the log that was read", session)
		}
		p, err := b.planFor(ctx, q, session, log, o, b.db.LockRows())
		if err != nil {
			return nil, err
		}
		if still == nil && slices.ContainsFunc(p.pending, func(pr pendingRow) bool { return pr.row.Sequenced() }) {
			return nil, fault.InUse.With("ops of session %s are on their way, and its stream has not stopped: wait for their answers first", session)
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

func (p *plan) reconciliation(session string, log *Log) Reconciliation {
	r := Reconciliation{Session: session, Gone: log.Gone, Ops: p.ops}
	for i := range p.resend {
		r.Batches = append(r.Batches, p.resend[i].id)
	}
	return r
}

// planFor reads a session's rows and plans.
func (b *Box) planFor(ctx context.Context, q sqlstore.Querier, session string, log *Log, o ReconcileOptions, lock string) (*plan, error) {
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
func (b *Box) executePlan(ctx context.Context, q sqlstore.Querier, p *plan) (decided []decidedRow, err error) {
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
			decided = append(decided, b.quarantine(q, r, pr.err))
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
			decided = append(decided, b.finishWithOutcomes(ctx, q, r, bd))
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
