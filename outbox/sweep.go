package outbox

// Sweeping: an expired ticket is deleted with all rows of its ops. Rows are read beside the
// writer, and only as far as there are old ones; they are deleted a few at a time.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

const (
	sweepEvery = time.Hour
	sweepFirst = 4       // pages at the beginning of a term: senders may be short-lived
	sweepRows  = 500     // of a page, and in one transaction
	sweepBytes = 4 << 20 // bytes deleted in one transaction, but for one batch that is larger
)

// sweepLoop sweeps for as long as the term lasts.
func (l *loop) sweepLoop() {
	wait := time.Minute
	for pages := sweepFirst; l.ctx.Err() == nil; pages = math.MaxInt {
		before := l.box.cfg.Now().Add(-l.box.cfg.Retention).UnixMilli()
		if _, err := l.box.sweep(l.ctx, before, pages); err != nil && l.ctx.Err() == nil {
			l.box.cfg.Logger.Warn("old tickets cannot be removed", "outbox", l.box.id, "error", err)
		}
		l.box.pause(l.ctx, wait)
		wait = sweepEvery
	}
}

// sweep deletes rows that were finished before a time and returns how many. It reads at most
// that many pages.
func (b *Box) sweep(ctx context.Context, before int64, pages int) (swept int, err error) {
	var needed map[string]bool // batches that unfinished rows need; nil until a row to sweep is found
	for after := int64(-1); pages > 0 && after != lastPage; pages-- {
		var old []sweepRow
		err := b.read(ctx, "sweep", func(ctx context.Context, q querier) (err error) {
			var next int64
			if old, next, err = b.t.oldRows(ctx, q, after, before); err == nil && len(old) > 0 && needed == nil {
				needed, err = b.t.referencedBatches(ctx, q, before)
			}
			if err == nil {
				after = next
			}
			return err
		})
		if err != nil {
			return swept, err
		}
		old = slices.DeleteFunc(old, func(r sweepRow) bool { return needed[r.batch] })
		for len(old) > 0 {
			n, bytes := 1, old[0].bytes
			for n < len(old) && bytes+old[n].bytes <= sweepBytes {
				bytes += old[n].bytes
				n++
			}
			if err := b.remove(ctx, old[:n]); err != nil {
				return swept, err
			}
			swept += n
			old = old[n:]
		}
	}
	return swept, b.sweepRefs(ctx, before)
}

// sweepRefs deletes the rows of refs that were dropped before a time, and the owner refs of
// sessions that were never created and whose batches are all gone: their creation can no longer
// be retried.
func (b *Box) sweepRefs(ctx context.Context, before int64) error {
	var unmade []string
	var dropped bool
	err := b.read(ctx, "sweep", func(ctx context.Context, q querier) error {
		unmade, dropped = nil, false
		return q.query(ctx, sqlOldRefs, []any{b.t.box, before}, func(scan scanner) error {
			var id, role string
			err := scan(&id, &role)
			if dropped = dropped || Role(role) == refs.RoleGone; Role(role) != refs.RoleGone {
				unmade = append(unmade, id)
			}
			return err
		})
	})
	if err != nil || len(unmade) == 0 && !dropped {
		return err
	}
	return b.w.do(ctx, func(_ context.Context, q querier) error {
		for _, id := range unmade {
			q.enqueue(b.t.db.refs().dropRefused, []any{b.t.box, id, before}, nil)
		}
		q.enqueue(sqlSweepRefs, []any{b.t.box, before}, nil)
		return nil
	})
}

// remove deletes rows and the index entries of their ops, in one transaction.
func (b *Box) remove(ctx context.Context, rows []sweepRow) error {
	err := b.w.do(ctx, func(_ context.Context, q querier) error {
		for _, r := range rows {
			b.t.remove(q, r)
		}
		return nil
	})
	b.hub.dropStored()
	return err
}

// sweepRow is a finished row, as far as sweeping needs it.
type sweepRow struct {
	num   int64
	batch string
	bytes int64
}

const (
	sqlPage = `SELECT num, batch, state, bytes, created_at, finished_at FROM mooring_outbox_batch
		WHERE box = $1 AND num > $2 ORDER BY num LIMIT $3`
	sqlNewest = `SELECT COALESCE(MAX(num), 0) FROM mooring_outbox_batch WHERE box = $1`
)

// lastPage marks that no further page is worth reading.
const lastPage = -2

// oldRows returns the rows of a page that were finished before a time, except the newest row of
// all: that stays, so that numbers only rise (SQLite gives the highest + 1). next is where the
// next page begins. (A row is not finished before it was committed, and rows are numbered as
// they are committed, but for clocks that differ: so where a whole page is younger, the next
// one is too.)
func (t *tables) oldRows(ctx context.Context, q querier, after, before int64) (old []sweepRow, next int64, err error) {
	newest := int64(0)
	if err := q.query(ctx, sqlNewest, []any{t.box}, func(scan scanner) error { return scan(&newest) }); err != nil {
		return nil, 0, err
	}
	n, young := 0, true
	err = q.query(ctx, sqlPage, []any{t.box, after, sweepRows}, func(scan scanner) error {
		var r sweepRow
		var state int
		var created, finished int64
		err := scan(&r.num, &r.batch, &state, &r.bytes, &created, &finished)
		if state == rowFinished && finished < before && r.num < newest {
			old = append(old, r)
		}
		n, next, young = n+1, r.num, young && created >= before
		return err
	})
	if young || n < sweepRows {
		next = lastPage
	}
	return old, next, err
}

// The derived op ids of a batch are between its own id and the last that can be derived.
const (
	sqlDeleteBatch   = `DELETE FROM mooring_outbox_batch WHERE box = $1 AND num = $2`
	sqlDeleteRetries = `DELETE FROM mooring_outbox_retry WHERE box = $1 AND op > $2 AND op <= $3`
	sqlDeleteNamed   = `DELETE FROM mooring_outbox_retry WHERE box = $1
		AND op IN (SELECT op FROM mooring_outbox_op WHERE box = $1 AND batch = $2)`
	sqlDeleteOps = `DELETE FROM mooring_outbox_op WHERE box = $1 AND batch = $2`
)

// remove deletes a row and the index entries of its ops.
func (t *tables) remove(q querier, r sweepRow) {
	if ids := opid.DerivedFrom(r.batch); !ids.Underivable {
		q.enqueue(sqlDeleteRetries, []any{t.box, r.batch, ids.Last()}, nil)
	}
	q.enqueue(sqlDeleteNamed, []any{t.box, r.batch}, nil)
	q.enqueue(sqlDeleteOps, []any{t.box, r.batch}, nil)
	q.enqueue(sqlDeleteBatch, []any{t.box, r.num}, nil)
}

// maxClockSkew bounds the clock difference of processes that commit to one outbox.
const maxClockSkew = time.Hour

var sqlOldUnfinished = `SELECT num FROM ` + unfinishedRows("num, created_at") + ` WHERE created_at < $2`

// referencedBatches returns the batches that an unfinished one refers to. Only a batch
// committed before the swept rows were finished can do so: later ones have the values.
func (t *tables) referencedBatches(ctx context.Context, q querier, before int64) (map[string]bool, error) {
	var waiting []int64
	err := q.query(ctx, sqlOldUnfinished, []any{t.box, before + maxClockSkew.Milliseconds()}, func(scan scanner) error {
		var num int64
		err := scan(&num)
		waiting = append(waiting, num)
		return err
	})
	if err != nil {
		return nil, err
	}
	needed := make(map[string]bool)
	for _, num := range waiting {
		r, err := t.batchNum(ctx, q, num, "")
		if err != nil {
			return nil, err
		}
		if r == nil || r.state == rowFinished {
			continue
		}
		bd, err := r.decode()
		switch {
		case errors.Is(err, fault.Incompatible):
			return nil, fmt.Errorf("what it refers to is not known: %w", err)
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
func (t *tables) addReferenced(ctx context.Context, q querier, op string, needed map[string]bool) error {
	for range maxRetryChain {
		needed[opid.BatchOf(op)] = true
		err := q.query(ctx, sqlBatchOf, []any{t.box, op}, func(scan scanner) error {
			var batch string
			err := scan(&batch)
			needed[batch] = true
			return err
		})
		if err != nil {
			return err
		}
		next, err := t.retriedAs(ctx, q, op)
		if err != nil || next == "" {
			return err
		}
		op = next
	}
	return nil
}
