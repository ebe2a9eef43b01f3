package sqlstore

// Finding an op by its id, also through its retries.

import (
	"context"
	"errors"
	"math"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// FoundOp is where an op is: its row, the row's body and its index in there. On an error it has
// the row if that is the unreadable one.
type FoundOp struct {
	Row   *BatchRow
	Body  *intent.Batch
	Index int
}

const (
	SQLBatchOf = `SELECT batch FROM mooring_outbox_op WHERE box = $1 AND op = $2`
	sqlRetry   = `SELECT next FROM mooring_outbox_retry WHERE box = $1 AND op = $2`
)

// FindOp finds the row that holds op; the result has no row if there is none. lock is "" or the
// dialect's LockRows.
func (t *Tables) FindOp(ctx context.Context, q Querier, op, lock string) (FoundOp, error) {
	f, err := t.opIn(ctx, q, op, opid.BatchOf(op), lock)
	if err != nil || f.Row != nil {
		return f, err
	}
	named := "" // the batch of an op with a custom id
	err = q.Query(ctx, SQLBatchOf, []any{t.Box, op}, func(scan Scanner) error { return scan(&named) })
	if err != nil {
		return FoundOp{}, err
	}
	return t.opIn(ctx, q, op, named, lock)
}

// opIn finds op in the batch with that id.
func (t *Tables) opIn(ctx context.Context, q Querier, op, batch, lock string) (FoundOp, error) {
	if batch == "" {
		return FoundOp{}, nil
	}
	r, err := t.Batch(ctx, q, batch, lock)
	if err != nil || r == nil {
		return FoundOp{}, err
	}
	bd, err := r.Decode()
	if err != nil {
		return FoundOp{Row: r}, err
	}
	for i := range bd.Ops {
		if bd.Ops[i].ID == op {
			return FoundOp{r, bd, i}, nil
		}
	}
	return FoundOp{}, nil
}

// RetriedAs returns the op that retries op, "" if none does.
func (t *Tables) RetriedAs(ctx context.Context, q Querier, op string) (next string, err error) {
	err = q.Query(ctx, sqlRetry, []any{t.Box, op}, func(scan Scanner) error { return scan(&next) })
	return next, err
}

// OpLookup returns a lookup of ops in what q sees, for a batch whose row has the number reader.
// A row that only a newer binary can read is an error, Incompatible; a damaged one gives a
// lostTarget. The lookup follows retries: a finished retry stands for its op wherever it is. An
// unfinished one is followed only for rows behind it: a row that waited for one behind itself
// could come to wait for itself, and in one session would be sent before it.
func (t *Tables) OpLookup(ctx context.Context, q Querier, reader int64) intent.Lookup {
	return func(op string) (*intent.Target, error) {
		var e *intent.Target
		for range MaxRetryChain {
			f, err := t.FindOp(ctx, q, op, "")
			if f.Row == nil || e != nil && f.Row.Num > reader && f.Row.State != RowFinished {
				return e, err
			}
			if err == nil {
				e, err = f.Target()
			}
			if errors.Is(err, fault.Incompatible) {
				return nil, err
			}
			if err != nil {
				return f.lostTarget(op, err), nil
			}
			if e.Outcome == nil || e.Outcome.Status == ledger.Applied {
				return e, nil
			}
			next, err := t.RetriedAs(ctx, q, op)
			if err != nil || next == "" {
				return e, err
			}
			op = next
		}
		return e, nil
	}
}

// UnwrittenRow is the number of a row that is not written yet: all others come before it.
const UnwrittenRow = math.MaxInt64

// MaxRetryChain bounds how many retries of one op are followed.
const MaxRetryChain = 1000

// Target returns the op as an intent.Target.
func (f FoundOp) Target() (*intent.Target, error) {
	op := &f.Body.Ops[f.Index]
	e := &intent.Target{ID: op.ID, Batch: f.Row.ID, Session: f.Row.Session}
	switch {
	case f.Row.State == RowFinished:
		outs, err := f.Row.ReadOutcomes(f.Body)
		if err != nil {
			return nil, err
		}
		e.Outcome = &outs[f.Index]
	case op.LocalOutcome != nil:
		e.Outcome = op.LocalOutcome
	default:
		e.Seq = f.Seq()
	}
	return e, nil
}

// lostTarget returns an op of a row that cannot be read. If the row has a seq and is
// unfinished, ops that refer to it wait, as the row's stream does.
func (f FoundOp) lostTarget(op string, why error) *intent.Target {
	e := &intent.Target{ID: op, Batch: f.Row.ID, Session: f.Row.Session}
	if f.Row.State == RowFinished || !f.Row.Sequenced() {
		e.LostErr = why
	} else {
		e.Seq = f.Seq()
	}
	return e
}

// Seq is the op's seq, 0 if it has none; of an unreadable row, the first.
func (f FoundOp) Seq() uint64 {
	if !f.Row.Sequenced() || f.Body != nil && !f.Body.Ops[f.Index].TakesSeq() {
		return 0
	}
	seq := uint64(*f.Row.FirstSeq)
	for i := range f.Index {
		if f.Body.Ops[i].TakesSeq() {
			seq++
		}
	}
	return seq
}
