package outbox

// The transaction that ends a stream which its server does not create: the batches lose their
// seqs and are denied.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
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

// clearRefusedSeqs clears a session's seqs, before its rows are loaded. It reports false if
// outcomes of the session are stored: the server had created the stream.
func (b *Box) clearRefusedSeqs(ctx context.Context, q sqlstore.Querier, session string) (bool, error) {
	st, err := b.t.Stream(ctx, q, session)
	if err != nil || st.LastSeq > 0 {
		return false, err
	}
	return true, b.t.ClearSeqs(ctx, q, session)
}

// denyRow finishes a row whose ops the server would record as denied.
func (b *Box) denyRow(ctx context.Context, q sqlstore.Querier, r *sqlstore.BatchRow, bd *intent.Batch, no *machine.Refusal) decidedRow {
	bd.Deny(no.Err)
	d := b.finishLocally(ctx, q, r, bd)
	if !intent.CreatesSession(bd.Ops[0].Method) {
		d.refUpdates = b.refs.Updates(&machine.Entry{Route: no.Route, Body: bd}, d.outs, b.cfg.Now())
		b.t.WriteRefStatus(q, d.refUpdates)
	}
	return d
}
