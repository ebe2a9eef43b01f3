package sender

// Sweeping: an expired ticket is deleted with all rows of its ops. Rows are read beside the
// writer, and only as far as there are old ones; they are deleted a few at a time.

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

const (
	sweepEvery = time.Hour
	sweepFirst = 4       // pages at the beginning of a term: senders may be short-lived
	sweepBytes = 4 << 20 // bytes deleted in one transaction, but for one batch that is larger
)

// sweepLoop sweeps for as long as the term lasts.
func (l *loop) sweepLoop() {
	wait := time.Minute
	for pages := sweepFirst; l.ctx.Err() == nil; pages = math.MaxInt {
		before := l.Now().Add(-l.Retention).UnixMilli()
		if _, err := l.Sweep(l.ctx, before, pages); err != nil && l.ctx.Err() == nil {
			l.Logger.Warn("old tickets cannot be removed", "outbox", l.Outbox, "error", err)
		}
		lease.Pause(l.ctx, wait)
		wait = sweepEvery
	}
}

// Sweep deletes rows that were finished before a time and returns how many. It reads at most
// that many pages.
func (s *Sender) Sweep(ctx context.Context, before int64, pages int) (swept int, err error) {
	var needed map[string]bool // batches that unfinished rows need; nil until a row to sweep is found
	for after := int64(-1); pages > 0 && after != sqlstore.LastPage; pages-- {
		var old []sqlstore.SweepRow
		err := s.Read(ctx, "sweep", func(ctx context.Context, q sqlstore.Querier) (err error) {
			var next int64
			if old, next, err = s.T.OldRows(ctx, q, after, before); err == nil && len(old) > 0 && needed == nil {
				needed, err = s.T.ReferencedBatches(ctx, q, before)
			}
			if err == nil {
				after = next
			}
			return err
		})
		if err != nil {
			return swept, err
		}
		old = slices.DeleteFunc(old, func(r sqlstore.SweepRow) bool { return needed[r.Batch] })
		for len(old) > 0 {
			n, bytes := 1, old[0].Bytes
			for n < len(old) && bytes+old[n].Bytes <= sweepBytes {
				bytes += old[n].Bytes
				n++
			}
			if err := s.remove(ctx, old[:n]); err != nil {
				return swept, err
			}
			swept += n
			old = old[n:]
		}
	}
	return swept, s.sweepRefs(ctx, before)
}

// sweepRefs deletes the rows of refs that were dropped before a time, and the owner refs of
// sessions that were never created and whose batches are all gone: their creation can no longer
// be retried.
func (s *Sender) sweepRefs(ctx context.Context, before int64) error {
	var unmade []string
	var dropped bool
	err := s.Read(ctx, "sweep", func(ctx context.Context, q sqlstore.Querier) (err error) {
		unmade, dropped, err = s.T.OldRefs(ctx, q, before)
		return err
	})
	if err != nil || len(unmade) == 0 && !dropped {
		return err
	}
	return s.W.Do(ctx, func(_ context.Context, q sqlstore.Querier) error {
		s.T.SweepRefs(q, unmade, before)
		return nil
	})
}

// remove deletes rows and the index entries of their ops, in one transaction.
func (s *Sender) remove(ctx context.Context, rows []sqlstore.SweepRow) error {
	err := s.W.Do(ctx, func(_ context.Context, q sqlstore.Querier) error {
		for _, r := range rows {
			s.T.Remove(q, r)
		}
		return nil
	})
	s.Hub.DropStored()
	return err
}
