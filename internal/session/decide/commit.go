package decide

// Commit: one transaction of submissions, gathered from all connections, decided one after the
// other on rows read under lock and written at once. Each submission sees the effects of the ones
// before it.
//
//	load all rows → each: admit → decide op by op → acknowledge → save

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

// Commit decides subs in order inside tx and saves their changes; the caller commits tx, and only
// then hands out the answers and sends the published events to subscribers. An error means that the
// whole group is undecided: the caller rolls tx back and may retry the submissions one by one.
// With ErrMoreChildren it retries the group as it is.
// Refusals are no errors; they are in the Answers, one for each submission. When the group has read
// and written more than one submission may read, its remaining submissions are Overloaded, never
// the first.
//
// Commit has no state: it may be called from many goroutines with a tx each, and again with another
// tx after a failure.
func Commit(ctx context.Context, tx session.Tx, subs []Submission, cfg Config) ([]Answer, *session.Published, error) {
	v := view.New(ctx, tx, cfg.readBytes())
	if err := loadLocked(ctx, tx, v, initialReadSet(subs), endingsOf(subs)); err != nil {
		return nil, nil, err
	}
	if w := recordReadSet(v, subs); w != nil {
		if err := v.Load(w, false); err != nil {
			return nil, nil, err
		}
	}
	answers := make([]Answer, len(subs))
	var found divergences
	for i := range subs {
		a := newApplier(v, &subs[i], &cfg)
		a.diverged = &found
		if err := a.submit(&answers[i]); err != nil {
			answers[i] = Answer{Err: err, Fork: a.fork}
		}
		v.ResetRead()
		if err := v.Err(); err != nil {
			return nil, nil, err
		}
		if a.mayLearnCursor(&answers[i]) {
			answers[i].Cursor = a.s.Row.Cursor
		}
		v.Settle() // changes of earlier submissions are final
	}
	changes, published := v.Changes()
	if changes != nil {
		crashpoint.Hit(crashpoint.ServerDecided)
		if err := tx.Save(ctx, changes); err != nil {
			return nil, nil, err
		}
	}
	return answers, published, nil
}

func newApplier(v *view.View, sub *Submission, cfg *Config) *applier {
	return &applier{v: v, s: v.Sessions[sub.Batch.Session], cfg: cfg, sub: sub, outbox: sub.Batch.Outbox,
		args: opargs.Decoder{JSONChecked: true, ServerOp: sub.Direct != nil}}
}

// mayLearnCursor reports whether the submission's ref may see the session's cursor: a dead ref sees
// the outcomes recorded for it, and nothing else.
func (a *applier) mayLearnCursor(answer *Answer) bool {
	switch {
	case a.sub.Ack:
		return false // its answer has no cursor
	case a.sub.Direct != nil:
		return answer.Err == nil
	case a.sub.Space != "":
		return a.refAlive() // the space's authority does not extend to the session
	}
	return a.grant != nil || a.refAlive()
}

// submit decides one submission; the error refuses the call as a whole.
func (a *applier) submit(out *Answer) *fault.Error {
	if a.s.Row.Forgotten {
		return a.forgotten(out)
	}
	if a.sub.Direct != nil {
		return a.direct(out)
	}
	b := &a.sub.Batch
	if a.v.Exhausted() && !a.sub.Ack { // a few bytes of arguments may move megabytes (fork)
		return fault.Overloaded.With("other calls of the same group used %d bytes already: send it again", a.v.Used())
	}
	st := a.v.Streams[session.StreamKey{Session: b.Session, Outbox: b.Outbox}]
	if st == nil {
		return fault.WrongOutbox.With("no stream of this outbox was opened: open it first")
	}
	if a.sub.Ack {
		raised, err := ledger.Acknowledge(&st.Row, b.Incarnation, b.AckedThrough, st.History.Record)
		return pruneAcked(st, raised, err)
	}
	if err := a.diverged.of(a.sub.Opening); err != nil {
		return err
	}
	outcomes, err := ledger.Admit(&st.Row, b, st.History.Record)
	switch {
	case err != nil:
		a.diverged.note(a.sub.Opening, err)
		return err
	case outcomes != nil:
		out.Outcomes, out.Duplicate = outcomes, true
	case atUnackedLimit(st, b, a.cfg.Limits.UnackedOps):
		return fault.Overloaded.With("%d outcomes of this stream are not acknowledged, the maximum: acknowledge those you have stored, then send this again", unacked(st, b))
	default:
		if err := a.checkQuota(estimateGrowth(b.Ops)); err != nil {
			return err
		}
		rec, denied, err := a.decide(st, b)
		if err != nil {
			return err
		}
		out.Denied = denied
		out.Outcomes, out.Uses = rec.Outcomes, a.uses(b.Ops, func(i int) bool { return rec.Outcomes[i].Status == ledger.Applied })
	}
	raised, err := ledger.AckThrough(&st.Row, b.AckedThrough, st.History.Record)
	return pruneAcked(st, raised, err)
}

// atUnackedLimit reports whether the outcomes of b would exceed the unacknowledged outcomes that
// are kept.
func atUnackedLimit(st *view.Stream, b *ledger.Batch, most int) bool {
	unacked := unacked(st, b)
	if st.Row.ReadOnlyRef != "" && unacked > 0 && unacked+uint64(len(b.Ops)) > session.MaxReadOnlyUnacked {
		return true
	}
	return unacked >= uint64(most)
}

// unacked returns how many outcomes are not acknowledged, including by b.
func unacked(st *view.Stream, b *ledger.Batch) uint64 {
	return st.Row.LastSeq - max(st.Row.AckedThrough, b.AckedThrough)
}

// decide decides a new batch.
func (a *applier) decide(st *view.Stream, b *ledger.Batch) (rec *ledger.Record, denied []*capability.AuditRow, _ *fault.Error) {
	before := a.v.Savepoint()
	rec, err := ledger.Decide(&st.Row, b, st.History.Outcome, a.cfg.Limits.Limits, a)
	if err != nil {
		a.v.Rollback(before)
		return nil, nil, err
	}
	st.History.Add(rec)
	st.Records = append(st.Records, rec)
	denied = a.denials(b, rec)
	if a.authorized { // a batch that was rolled back has renewed nothing
		if err := a.renewLeases(); err != nil {
			return nil, nil, err // the store failed: the group ends
		}
	}
	return rec, denied, nil
}

// pruneAcked drops the history that the client has acknowledged, if raised.
func pruneAcked(st *view.Stream, raised bool, err *fault.Error) *fault.Error {
	if raised {
		st.History.Prune(st.Row.AckedThrough)
	}
	return err
}

// Forgotten sessions: of a session deleted long ago only its row, its owner's ref and its audit
// remain. Its streams and records are removed, so whether an op was sent before is unknown. It does
// not matter: no op can apply, and each gets the same answer without a decision. Nothing is
// recorded, and a repetition gets the same answer.

// forgotten answers a submission to a forgotten session.
func (a *applier) forgotten(out *Answer) *fault.Error {
	why := fault.SessionDeleted.With("the session was deleted long ago")
	if a.sub.Direct != nil {
		return why
	}
	for i := range a.sub.Batch.Ops {
		op, o := &a.sub.Batch.Ops[i], ledger.Outcome{Status: ledger.Rejected, Reason: why.Code, Message: why.Message}
		if op.Method == ledger.MethodVoid {
			o = ledger.Outcome{Status: ledger.Voided, Reason: fault.Voided}
		}
		o.OpID = op.OpID
		out.Outcomes = append(out.Outcomes, o)
	}
	return nil
}
