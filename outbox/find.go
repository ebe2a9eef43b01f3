package outbox

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

// foundOp is where an op is: its row, the row's body and its index in there. On an error it has
// the row if that is the unreadable one.
type foundOp struct {
	row   *batchRow
	body  *intent.Batch
	index int
}

const (
	sqlBatchOf = `SELECT batch FROM mooring_outbox_op WHERE box = $1 AND op = $2`
	sqlRetry   = `SELECT next FROM mooring_outbox_retry WHERE box = $1 AND op = $2`
)

// findOp finds the row that holds op; the result has no row if there is none. lock is "" or the
// dialect's lockRows.
func (t *tables) findOp(ctx context.Context, q querier, op, lock string) (foundOp, error) {
	f, err := t.opIn(ctx, q, op, opid.BatchOf(op), lock)
	if err != nil || f.row != nil {
		return f, err
	}
	named := "" // the batch of an op with a custom id
	err = q.query(ctx, sqlBatchOf, []any{t.box, op}, func(scan scanner) error { return scan(&named) })
	if err != nil {
		return foundOp{}, err
	}
	return t.opIn(ctx, q, op, named, lock)
}

// opIn finds op in the batch with that id.
func (t *tables) opIn(ctx context.Context, q querier, op, batch, lock string) (foundOp, error) {
	if batch == "" {
		return foundOp{}, nil
	}
	r, err := t.batch(ctx, q, batch, lock)
	if err != nil || r == nil {
		return foundOp{}, err
	}
	bd, err := r.decode()
	if err != nil {
		return foundOp{row: r}, err
	}
	for i := range bd.Ops {
		if bd.Ops[i].ID == op {
			return foundOp{r, bd, i}, nil
		}
	}
	return foundOp{}, nil
}

// retriedAs returns the op that retries op, "" if none does.
func (t *tables) retriedAs(ctx context.Context, q querier, op string) (next string, err error) {
	err = q.query(ctx, sqlRetry, []any{t.box, op}, func(scan scanner) error { return scan(&next) })
	return next, err
}

// opLookup returns a lookup of ops in what q sees, for a batch whose row has the number reader.
// A row that only a newer binary can read is an error, Incompatible; a damaged one gives a
// lostTarget. The lookup follows retries: a finished retry stands for its op wherever it is. An
// unfinished one is followed only for rows behind it: a row that waited for one behind itself
// could come to wait for itself, and in one session would be sent before it.
func (t *tables) opLookup(ctx context.Context, q querier, reader int64) intent.Lookup {
	return func(op string) (*intent.Target, error) {
		var e *intent.Target
		for range maxRetryChain {
			f, err := t.findOp(ctx, q, op, "")
			if f.row == nil || e != nil && f.row.num > reader && f.row.state != rowFinished {
				return e, err
			}
			if err == nil {
				e, err = f.target()
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
			next, err := t.retriedAs(ctx, q, op)
			if err != nil || next == "" {
				return e, err
			}
			op = next
		}
		return e, nil
	}
}

// unwrittenRow is the number of a row that is not written yet: all others come before it.
const unwrittenRow = math.MaxInt64

// maxRetryChain bounds how many retries of one op are followed.
const maxRetryChain = 1000

// target returns the op as an intent.Target.
func (f foundOp) target() (*intent.Target, error) {
	op := &f.body.Ops[f.index]
	e := &intent.Target{ID: op.ID, Batch: f.row.id, Session: f.row.session}
	switch {
	case f.row.state == rowFinished:
		outs, err := f.row.readOutcomes(f.body)
		if err != nil {
			return nil, err
		}
		e.Outcome = &outs[f.index]
	case op.LocalOutcome != nil:
		e.Outcome = op.LocalOutcome
	default:
		e.Seq = f.seq()
	}
	return e, nil
}

// lostTarget returns an op of a row that cannot be read. If the row has a seq and is
// unfinished, ops that refer to it wait, as the row's stream does.
func (f foundOp) lostTarget(op string, why error) *intent.Target {
	e := &intent.Target{ID: op, Batch: f.row.id, Session: f.row.session}
	if f.row.state == rowFinished || !f.row.sequenced() {
		e.LostErr = why
	} else {
		e.Seq = f.seq()
	}
	return e
}

// seq is the op's seq, 0 if it has none; of an unreadable row, the first.
func (f foundOp) seq() uint64 {
	if !f.row.sequenced() || f.body != nil && !f.body.Ops[f.index].TakesSeq() {
		return 0
	}
	seq := uint64(*f.row.firstSeq)
	for i := range f.index {
		if f.body.Ops[i].TakesSeq() {
			seq++
		}
	}
	return seq
}
