package outbox

// How an op is found, and what others see of it.

import (
	"context"
	"errors"
	"math"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// foundOp is where an op is: its row, the row's body and its place in there. With an
// error it has the row if it is that which cannot be read.
type foundOp struct {
	row   *batchRow
	body  *body
	index int
}

const (
	sqlBatchOf = `SELECT batch FROM mooring_outbox_op WHERE box = $1 AND op = $2`
	sqlRetry   = `SELECT next FROM mooring_outbox_retry WHERE box = $1 AND op = $2`
)

// findOp looks for the row that holds op; found has no row if there is none. lock
// is "" or the dialect's lockRows.
func (t *tables) findOp(ctx context.Context, q querier, op, lock string) (foundOp, error) {
	f, err := t.opIn(ctx, q, op, batchOf(op), lock)
	if err != nil || f.row != nil {
		return f, err
	}
	named := "" // the batch of an op whose id does not lead to it
	err = q.query(ctx, sqlBatchOf, []any{t.box, op}, func(scan scanner) error { return scan(&named) })
	if err != nil {
		return foundOp{}, err
	}
	return t.opIn(ctx, q, op, named, lock)
}

// opIn looks for op in the batch with that id.
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
	for i := range bd.ops {
		if bd.ops[i].id == op {
			return foundOp{r, bd, i}, nil
		}
	}
	return foundOp{}, nil
}

// retriedAs gives the op that stands for op, "" if none does.
func (t *tables) retriedAs(ctx context.Context, q querier, op string) (next string, err error) {
	err = q.query(ctx, sqlRetry, []any{t.box, op}, func(scan scanner) error { return scan(&next) })
	return next, err
}

// opLookup looks ops up in what q sees, for a batch whose row has the number reader.
// What only a newer binary can read is an error, Incompatible; what is damaged is lost.
// The finder follows those that were retried: a retry that has ended stands for its op
// wherever it is. One that has not is only followed by rows behind it: a row that
// waited for one behind itself could come to wait for itself, and in one session
// would be sent before it.
func (t *tables) opLookup(ctx context.Context, q querier, reader int64) opLookup {
	return func(op string) (*refTarget, error) {
		var e *refTarget
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
			if e.outcome == nil || e.outcome.Status == ledger.Applied {
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

// unwrittenRow is the number of a row that is yet to be written: all others are before it.
const unwrittenRow = math.MaxInt64

// maxRetryChain bounds how far a chain of retries is followed.
const maxRetryChain = 1000

// target is the op as others see it.
func (f foundOp) target() (*refTarget, error) {
	op := &f.body.ops[f.index]
	e := &refTarget{id: op.id, batch: f.row.id, session: f.row.session}
	switch {
	case f.row.state == rowFinished:
		outs, err := f.row.readOutcomes(f.body)
		if err != nil {
			return nil, err
		}
		e.outcome = &outs[f.index]
	case op.localOutcome != nil:
		e.outcome = op.localOutcome
	default:
		e.seq = f.seq()
	}
	return e, nil
}

// lostTarget is an op of a row that cannot be read. If the row has a seq and has not
// ended, what needs the op waits, as the row's stream does.
func (f foundOp) lostTarget(op string, why error) *refTarget {
	e := &refTarget{id: op, batch: f.row.id, session: f.row.session}
	if f.row.state == rowFinished || !f.row.sequenced() {
		e.lostErr = why
	} else {
		e.seq = f.seq()
	}
	return e
}

// seq is the seq of the op, 0 if it has none; of a row that cannot be read, the first.
func (f foundOp) seq() uint64 {
	if !f.row.sequenced() || f.body != nil && !f.body.ops[f.index].takesSeq() {
		return 0
	}
	seq := uint64(*f.row.firstSeq)
	for i := range f.index {
		if f.body.ops[i].takesSeq() {
			seq++
		}
	}
	return seq
}
