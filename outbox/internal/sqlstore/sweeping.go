package sqlstore

// Rows that are swept, and those that are still needed.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
)

// SweepRows is the number of rows of a page, and of one transaction.
const SweepRows = 500

// SweepRow is a finished row, as far as sweeping needs it.
type SweepRow struct {
	Num   int64
	Batch string
	Bytes int64
}

const (
	SQLPage = `SELECT num, batch, state, bytes, created_at, finished_at FROM mooring_outbox_batch
		WHERE box = $1 AND num > $2 ORDER BY num LIMIT $3`
	SQLNewest = `SELECT COALESCE(MAX(num), 0) FROM mooring_outbox_batch WHERE box = $1`
)

// LastPage marks that no further page is worth reading.
const LastPage = -2

// OldRows returns the rows of a page that were finished before a time, except the newest row of
// all: that stays, so that numbers only rise (SQLite gives the highest + 1). next is where the
// next page begins. (A row is not finished before it was committed, and rows are numbered as
// they are committed, but for clocks that differ: so where a whole page is younger, the next
// one is too.)
func (t *Tables) OldRows(ctx context.Context, q Querier, after, before int64) (old []SweepRow, next int64, err error) {
	newest := int64(0)
	if err := q.Query(ctx, SQLNewest, []any{t.Box}, func(scan Scanner) error { return scan(&newest) }); err != nil {
		return nil, 0, err
	}
	n, young := 0, true
	err = q.Query(ctx, SQLPage, []any{t.Box, after, SweepRows}, func(scan Scanner) error {
		var r SweepRow
		var state int
		var created, finished int64
		err := scan(&r.Num, &r.Batch, &state, &r.Bytes, &created, &finished)
		if state == RowFinished && finished < before && r.Num < newest {
			old = append(old, r)
		}
		n, next, young = n+1, r.Num, young && created >= before
		return err
	})
	if young || n < SweepRows {
		next = LastPage
	}
	return old, next, err
}

// The derived op ids of a batch are between its own id and the last that can be derived.
const (
	SQLDeleteBatch   = `DELETE FROM mooring_outbox_batch WHERE box = $1 AND num = $2`
	SQLDeleteRetries = `DELETE FROM mooring_outbox_retry WHERE box = $1 AND op > $2 AND op <= $3`
	SQLDeleteNamed   = `DELETE FROM mooring_outbox_retry WHERE box = $1
		AND op IN (SELECT op FROM mooring_outbox_op WHERE box = $1 AND batch = $2)`
	SQLDeleteOps = `DELETE FROM mooring_outbox_op WHERE box = $1 AND batch = $2`
)

// Remove deletes a row and the index entries of its ops.
func (t *Tables) Remove(q Querier, r SweepRow) {
	if ids := opid.DerivedFrom(r.Batch); !ids.Underivable {
		q.Enqueue(SQLDeleteRetries, []any{t.Box, r.Batch, ids.Last()}, nil)
	}
	q.Enqueue(SQLDeleteNamed, []any{t.Box, r.Batch}, nil)
	q.Enqueue(SQLDeleteOps, []any{t.Box, r.Batch}, nil)
	q.Enqueue(SQLDeleteBatch, []any{t.Box, r.Num}, nil)
}

// MaxClockSkew bounds the clock difference of processes that commit to one outbox.
const MaxClockSkew = time.Hour

var SQLOldUnfinished = `SELECT num FROM ` + unfinishedRows("num, created_at") + ` WHERE created_at < $2`

// ReferencedBatches returns the batches that an unfinished one refers to. Only a batch
// committed before the swept rows were finished can do so: later ones have the values.
func (t *Tables) ReferencedBatches(ctx context.Context, q Querier, before int64) (map[string]bool, error) {
	waiting, err := column[int64](ctx, q, SQLOldUnfinished, t.Box, before+MaxClockSkew.Milliseconds())
	if err != nil {
		return nil, err
	}
	needed := make(map[string]bool)
	for _, num := range waiting {
		r, err := t.BatchNum(ctx, q, num, "")
		if err != nil {
			return nil, err
		}
		if r == nil || r.State == RowFinished {
			continue
		}
		bd, err := r.Decode()
		switch {
		case errors.Is(err, fault.Incompatible):
			return nil, fmt.Errorf("the op that it refers to is not known: %w", err)
		case err != nil:
			continue // it will be quarantined
		}
		for _, op := range bd.ExternalRefs() {
			if err := t.addReferenced(ctx, q, op, needed); err != nil {
				return nil, err
			}
		}
	}
	return needed, nil
}

// addReferenced adds the batches in which op and its retries are looked up.
func (t *Tables) addReferenced(ctx context.Context, q Querier, op string, needed map[string]bool) error {
	for range MaxRetryChain {
		needed[opid.BatchOf(op)] = true
		err := q.Query(ctx, SQLBatchOf, []any{t.Box, op}, func(scan Scanner) error {
			var batch string
			err := scan(&batch)
			needed[batch] = true
			return err
		})
		if err != nil {
			return err
		}
		next, err := t.RetriedAs(ctx, q, op)
		if err != nil || next == "" {
			return err
		}
		op = next
	}
	return nil
}
