package outbox

// Streams that a server does not create. Under a ref that can change nothing a server creates a
// few streams, and records denied ops in them; beyond that it refuses openStream with the error
// that it would have recorded. The ops finish here with that error, their seqs are allocated
// again, and the ops that wait for them go on as if the server had recorded it.
//
// An existing stream is never refused so, and none is removed that would be refused then: so
// nothing of this one has been applied. Nor will batches in flight be, if they go under the
// same ref, since its defect is permanent. For batches that may have been sent under another
// ref nothing is certain: then the stream stops instead.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// authority is the pair of ref ids under which a stream is opened.
type authority struct{ ref, space string }

func (r route) authority() authority { return authority{r.ref, r.space} }

// noteSent records that the batch is sent under g.
func (e *entry) noteSent(g authority) {
	e.authorityUnknown = e.authorityUnknown || e.sentAuthority != (authority{}) && e.sentAuthority != g
	e.sentAuthority = g
}

// sentOnlyUnder reports whether the batch was sent under no authority other than g.
func (e *entry) sentOnlyUnder(g authority) bool {
	if e.via != "" && (e.via == g.ref || e.via == g.space && createsSession(e.body.ops[0].method)) {
		return true // it goes through no other ref, whichever process sends
	}
	return !e.authorityUnknown && (e.sentAuthority == (authority{}) || e.sentAuthority == g)
}

// isRefused reports whether an answer means that the server does not create the stream, and
// that nothing of it was or will be applied.
func (s *streamState) isRefused(why *fault.Error) bool {
	if !grantsNothing(why.Code) || s.answered || s.storedThrough > 0 || s.unstored > 0 {
		return false
	}
	for _, e := range s.queue {
		if !e.sentOnlyUnder(s.openRoute.authority()) {
			return false
		}
	}
	return true
}

// streamRefused reports that actEndRefused was done; loaded follows. Or, if known is not nil,
// that outcomes of the session are stored here which the server has lost: then known is why the
// stream stops.
func (m *machine) streamRefused(session string, known *fault.Error) {
	s := m.streams[session]
	if s == nil || s.refusal == nil {
		return
	}
	s.refusal = nil
	if known != nil {
		s.loading = false
		s.stopped = known
		m.emit(action{kind: actSetStopped, session: session, err: known})
		return
	}
	m.unblock(s)
	s.queue, s.queuedBytes, s.pins, s.unsequenced, s.drops, s.dropsOnArrival = nil, 0, 0, nil, nil, nil
	// Batches in flight under this ref must not reach a stream that another ref may create.
	if s.needsNewIncarnation = true; !m.raisingIncarnation {
		m.raisingIncarnation = true
		m.emit(action{kind: actRaiseIncarnation})
	}
}

// refusal is the answer that refused an opening.
type refusal struct {
	route route // the route of the opening
	err   *fault.Error
}

// endRefused denies the batches that a names. For batches that name no ref, a better one may be
// stored already.
func (l *loop) endRefused(a action) {
	l.postAsync(func(time.Time) { // an event of its own, since it reads the database
		_, _ = l.box.resolver().refresh(l.ctx) // else the row's ref is the one that was refused
		win := l.box.cfg.Window
		l.box.load(l.term, a.session, windowsAhead*win.Batches, windowsAhead*win.Bytes, &refusal{a.route, a.err}, func(ld loadResult, err error) {
			if err != nil {
				l.postAsync(func(time.Time) { l.handleDBError(err) })
				l.box.afterFunc(l.ctx, l.box.cfg.Backoff.Initial, func() { l.endRefused(a) })
				return
			}
			l.postAsync(func(time.Time) { l.m.streamRefused(a.session, ld.stopErr) })
			if ld.stopErr == nil {
				l.postLoaded(a.session, ld, nil)
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
		if bd, err := r.decode(); err == nil && bd.voidRequestedDrops() {
			t.setBody(q, r.num, bd.encode(r.session, r.id), bd.tally(), false)
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
func (b *Box) denyRow(ctx context.Context, q querier, r *batchRow, bd *body, no *refusal) decidedRow {
	bd.deny(no.err)
	d := b.finishLocally(ctx, q, r, bd)
	if !createsSession(bd.ops[0].method) {
		d.refUpdates = b.refUpdates(&entry{route: no.route, body: bd}, d.outs)
		b.t.writeRefStatus(q, d.refUpdates)
	}
	return d
}

// voidRequestedDrops voids the ops of a batch whose drop was requested, since it is not sent
// after all; it reports whether there were any.
func (b *body) voidRequestedDrops() (any bool) {
	for i := range b.ops {
		op := &b.ops[i]
		if !op.dropRequested && !op.void {
			continue
		}
		any = true
		if op.dropRequested, op.void = false, false; op.localOutcome == nil {
			b.setLocalOutcome(i, voidOutcome(op.id))
		}
	}
	b.skipDependents()
	return any
}

// deny finishes all undecided ops of a batch as denied.
func (b *body) deny(why *fault.Error) {
	for i := range b.ops {
		if op := &b.ops[i]; op.localOutcome == nil {
			b.setLocalOutcome(i, ledger.Outcome{OpID: op.id, Status: ledger.Denied, Reason: why.Code, Message: why.Message, At: why.At})
			b.skipDependents()
		}
	}
}
