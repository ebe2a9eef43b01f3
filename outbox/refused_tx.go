package outbox

// The transaction that ends a stream which its server does not create: the batches lose their
// seqs and are denied.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// endRefused denies the batches that a names. For batches that name no ref, a better one may be
// stored already.
func (l *loop) endRefused(a machine.Action) {
	l.postAsync(func(time.Time) { // an event of its own, since it reads the database
		_ = l.box.refreshRefs(l.ctx) // else the row's ref is the one that was refused
		win := l.box.cfg.Window
		l.box.load(l.term, a.Session, machine.WindowsAhead*win.Batches, machine.WindowsAhead*win.Bytes, &machine.Refusal{Route: a.Route, Err: a.Err}, func(ld loadResult, err error) {
			if err != nil {
				l.postAsync(func(time.Time) { l.handleDBError(err) })
				l.box.afterFunc(l.ctx, l.box.cfg.Backoff.Initial, func() { l.endRefused(a) })
				return
			}
			l.postAsync(func(time.Time) { l.m.StreamRefused(a.Session, ld.stopErr) })
			if ld.stopErr == nil {
				l.postLoaded(a.Session, ld, nil)
			}
		})
	})
}

const (
	whereInFlight = ` WHERE box = $1 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1)
		AND session = $2 AND state < 2 AND first_seq > 0`
	sqlInFlightOf = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch` + whereInFlight
	sqlClearSeqs  = `UPDATE mooring_outbox_batch SET first_seq = NULL, state = 0, dropping = 0` + whereInFlight
)

// clearSeqs clears the seqs of a session's rows, and voids the ops to be dropped.
func (t *tables) clearSeqs(ctx context.Context, q querier, session string) error {
	rows, err := t.batches(ctx, q, sqlInFlightOf+t.db.lockRows(), t.box, session)
	for _, r := range rows {
		if bd, err := r.decode(); err == nil && bd.VoidRequestedDrops() {
			t.setBody(q, r.num, bd.Encode(r.session, r.id), bd.Tally(), false)
		}
	}
	if err == nil {
		q.enqueue(sqlClearSeqs, []any{t.box, session}, nil)
	}
	return err
}

// clearRefusedSeqs clears a session's seqs, before its rows are loaded. It reports false if
// outcomes of the session are stored: the server had created the stream.
func (b *Box) clearRefusedSeqs(ctx context.Context, q querier, session string) (bool, error) {
	st, err := b.t.stream(ctx, q, session)
	if err != nil || st.lastSeq > 0 {
		return false, err
	}
	return true, b.t.clearSeqs(ctx, q, session)
}

// denyRow finishes a row whose ops the server would record as denied.
func (b *Box) denyRow(ctx context.Context, q querier, r *batchRow, bd *intent.Batch, no *machine.Refusal) decidedRow {
	bd.Deny(no.Err)
	d := b.finishLocally(ctx, q, r, bd)
	if !intent.CreatesSession(bd.Ops[0].Method) {
		d.refUpdates = b.refs.Updates(&machine.Entry{Route: no.Route, Body: bd}, d.outs, b.cfg.Now())
		b.t.writeRefStatus(q, d.refUpdates)
	}
	return d
}
