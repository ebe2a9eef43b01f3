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

const sqlSessions = `SELECT session FROM mooring_outbox_batch WHERE box = $1 GROUP BY session ORDER BY MIN(num)`

// Sessions lists the sessions that the outbox has ops of, unfinished or of the last 30 days, in
// the order in which they came.
func (b *Box) Sessions(ctx context.Context) (sessions []string, err error) {
	err = b.read(ctx, "list sessions", func(ctx context.Context, q querier) error {
		sessions = nil
		return q.query(ctx, sqlSessions, []any{b.t.box}, func(scan scanner) error {
			var s string
			err := scan(&s)
			sessions = append(sessions, s)
			return err
		})
	})
	return sessions, err
}

const sqlAnswered = `SELECT batch FROM mooring_outbox_batch WHERE box = $1 AND session = $2 AND state = 2`

// NewLog begins a Log of a session. The session's log is to be read after it.
func (b *Box) NewLog(ctx context.Context, session string) (*Log, error) {
	log := &Log{Ops: make(map[string]uint64)}
	err := b.read(ctx, "reconcile", func(ctx context.Context, q querier) error {
		log.answered = make(map[string]bool)
		return q.query(ctx, sqlAnswered, []any{b.t.box, session}, func(scan scanner) error {
			var batch string
			err := scan(&batch)
			log.answered[batch] = true
			return err
		})
	})
	return log, err
}

// PlanReconcile returns what Reconcile would do, without doing it.
func (b *Box) PlanReconcile(ctx context.Context, session string, log *Log, o ReconcileOptions) (r Reconciliation, err error) {
	still, err := b.Stopped(ctx, session)
	if err != nil {
		return r, err
	}
	err = b.read(ctx, "reconcile", func(ctx context.Context, q querier) error {
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
	err = b.restartStream(ctx, "reconcile", session, func(ctx context.Context, q querier) ([]decidedRow, error) {
		if row, err := b.t.readBox(ctx, q, ""); err != nil {
			return nil, err
		} else if log.fenceIncarnation != 0 && row.incarnation != log.fenceIncarnation {
			return nil, fault.InUse.With("a sender has begun since the stream of session %s was fenced off: what it has sent may not be in the log that was read", session)
		}
		p, err := b.planFor(ctx, q, session, log, o, b.db.lockRows())
		if err != nil {
			return nil, err
		}
		if still == nil && slices.ContainsFunc(p.pending, func(pr pendingRow) bool { return pr.row.sequenced() }) {
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
func (b *Box) planFor(ctx context.Context, q querier, session string, log *Log, o ReconcileOptions, lock string) (*plan, error) {
	p := newPlanner(log, o, b.t.opLookup(ctx, q, unwrittenRow), func(op string) (string, error) { return b.t.retriedAs(ctx, q, op) })
	var waiting []*batchRow
	for after := int64(-1); ; {
		rows, err := b.t.batches(ctx, q, sqlList, b.t.box, after, session)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.num
			if r.state != rowFinished {
				if lock != "" { // it may have changed, but no sender can finish it now
					if r, err = b.t.batchNum(ctx, q, r.num, lock); err != nil {
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
	slices.SortStableFunc(waiting, func(x, y *batchRow) int {
		switch {
		case x.sequenced() && y.sequenced():
			return cmp.Compare(*x.firstSeq, *y.firstSeq)
		case x.sequenced():
			return -1
		case y.sequenced():
			return 1
		}
		return cmp.Compare(x.num, y.num)
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
func rowCreatesSession(r *batchRow) bool {
	bd, err := r.decode()
	return err == nil && intent.CreatesSession(bd.Ops[0].Method)
}

const sqlClearSeq = `UPDATE mooring_outbox_batch SET first_seq = NULL, state = 0, dropping = 0, attempts = 0, next_retry_at = 0, last_error = ''
	WHERE box = $1 AND num = $2 AND state < 2`

// executePlan executes a plan, allocating seqs of the new stream.
func (b *Box) executePlan(ctx context.Context, q querier, p *plan) (decided []decidedRow, err error) {
	seq := int64(1)
	for i := range p.resend {
		a := &p.resend[i]
		data := a.body.Encode(a.old.session, a.id)
		row := &batchRow{id: a.id, session: a.old.session, via: a.old.via, ops: len(a.body.Ops), bytes: int64(len(data)),
			created: b.cfg.Now().UnixMilli(), body: data}
		num, err := b.t.insert(ctx, q, row)
		if errors.Is(err, errUnique) {
			return nil, fault.AlreadyExists.Because(err, "batch %s, which was to stand for batch %s, is there already", a.id, a.old.id)
		}
		if err != nil {
			return nil, fmt.Errorf("commit again: %w", err)
		}
		b.indexOps(q, a.id, a.body)
		b.t.setSeq(q, num, seq, nil, intent.Tally{})
		b.t.lowerLowWater(q, num)
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
		case r.sequenced():
			if _, err := intent.Resolve(bd, r.session, b.t.opLookup(ctx, q, r.num), false); err != nil {
				return nil, err
			}
		}
		if bd.Decided() {
			decided = append(decided, b.finishWithOutcomes(ctx, q, r, bd))
			continue
		}
		data := bd.Encode(r.session, r.id)
		b.t.setBody(q, r.num, data, bd.Tally(), false)
		q.enqueue(sqlClearSeq, []any{b.t.box, r.num}, nil)
		if r.sequenced() {
			b.t.setSeq(q, r.num, seq, nil, intent.Tally{})
			b.t.lowerLowWater(q, r.num)
			seq += int64(bd.SeqCount())
		}
	}
	return decided, nil
}
