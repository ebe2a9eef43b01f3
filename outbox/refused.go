package outbox

// Streams that a server does not make. Under a ref that can change nothing it makes a few,
// and records in them what is denied; then openStream is refused with what it would have
// recorded. The ops end here with that, their seqs are given out anew, and whatever they
// are waited for by goes on, as if the server had recorded it.
//
// A stream that is there is never refused so, and none is removed that would be then: so nothing of this
// one has been applied. And what is on its way still will not be, if it goes under the same
// ref, since what ails that is for good. What may have been sent under another ref nobody
// can tell about: then the stream stops instead.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// authority is on what authority a stream is opened.
type authority struct{ ref, space string }

func (r route) authority() authority { return authority{r.ref, r.space} }

// noteSent notes that the batch is sent.
func (e *entry) noteSent(g authority) {
	e.authorityUnknown = e.authorityUnknown || e.sentAuthority != (authority{}) && e.sentAuthority != g
	e.sentAuthority = g
}

// sentOnlyUnder says whether the batch was sent under g if at all.
func (e *entry) sentOnlyUnder(g authority) bool {
	if e.via != "" && (e.via == g.ref || e.via == g.space && createsSession(e.body.ops[0].method)) {
		return true // it goes through no other, whoever sends
	}
	return !e.authorityUnknown && (e.sentAuthority == (authority{}) || e.sentAuthority == g)
}

// permanentlyDenied says whether an answer to an opening is why a ref can change nothing, and never
// will.
func permanentlyDenied(c fault.Code) bool {
	switch c {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.MissingRight, fault.SessionDeleted:
		return true
	}
	return false
}

// isRefused says whether an answer means that the server makes no such stream, and it is
// certain that nothing of it was or will be applied.
func (s *streamState) isRefused(why *fault.Error) bool {
	if !permanentlyDenied(why.Code) || s.answered || s.storedThrough > 0 || s.unstored > 0 {
		return false
	}
	for _, e := range s.queue {
		if !e.sentOnlyUnder(s.openRoute.authority()) {
			return false
		}
	}
	return true
}

// streamRefused says that actEndRefused was done; loaded follows. Or that outcomes of the session are
// stored here, of which the server knows nothing: then known is why the stream stops.
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
	// What is on its way in vain must not find the stream that another ref may be used for.
	if s.needsNewIncarnation = true; !m.raisingIncarnation {
		m.raisingIncarnation = true
		m.emit(action{kind: actRaiseIncarnation})
	}
}

// refusal is an answer to an opening.
type refusal struct {
	route route // how it was opened
	err   *fault.Error
}

// endRefused ends what would go as a says. A better ref may be there already, for what names none.
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

// clearSeqs takes a session's rows their seqs, and gives up what was to be dropped.
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

// clearRefusedSeqs gives a session's seqs back, before its rows are looked at. It reports false if
// outcomes of the session are stored: the server has made the stream once.
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

// voidRequestedDrops gives up, of a batch that is not sent after all, what was to be; it reports
// whether there was anything.
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

// deny ends all ops of a batch that are left.
func (b *body) deny(why *fault.Error) {
	for i := range b.ops {
		if op := &b.ops[i]; op.localOutcome == nil {
			b.setLocalOutcome(i, ledger.Outcome{OpID: op.id, Status: ledger.Denied, Reason: why.Code, Message: why.Message, At: why.At})
			b.skipDependents()
		}
	}
}
