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

// grounds is on what authority a stream is opened.
type grounds struct{ ref, space string }

func (r route) grounds() grounds { return grounds{r.ref, r.space} }

// sentUnder notes that the batch is sent.
func (e *entry) sentUnder(g grounds) {
	e.unsure = e.unsure || e.under != (grounds{}) && e.under != g
	e.under = g
}

// only says whether the batch was sent under g if at all.
func (e *entry) only(g grounds) bool {
	if e.via != "" && (e.via == g.ref || e.via == g.space && creates(e.body.ops[0].method)) {
		return true // it goes through no other, whoever sends
	}
	return !e.unsure && (e.under == (grounds{}) || e.under == g)
}

// endless says whether an answer to an opening is why a ref can change nothing, and never
// will.
func endless(c fault.Code) bool {
	switch c {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.MissingRight, fault.SessionDeleted:
		return true
	}
	return false
}

// refused says whether an answer means that the server makes no such stream, and it is
// certain that nothing of it was or will be applied.
func (s *stream) refused(why *fault.Error) bool {
	if !endless(why.Code) || s.heard || s.stored > 0 || s.unstored > 0 {
		return false
	}
	for _, e := range s.queue {
		if !e.only(s.opened.grounds()) {
			return false
		}
	}
	return true
}

// refused says that actRefuse was done; looked follows. Or that outcomes of the session are
// stored here, of which the server knows nothing: then known is why the stream stops.
func (m *machine) refused(session string, known *fault.Error) {
	s := m.streams[session]
	if s == nil || s.refusal == nil {
		return
	}
	s.refusal = nil
	if known != nil {
		s.asking = false
		s.stopped = known
		m.do(action{kind: actStop, session: session, err: known})
		return
	}
	m.paid(s)
	s.queue, s.queued, s.holds, s.head, s.drops, s.early = nil, 0, 0, nil, nil, nil
	// What is on its way in vain must not find the stream that another ref may be used for.
	if s.needRaise = true; !m.raising {
		m.raising = true
		m.do(action{kind: actRaise})
	}
}

// refusal is an answer to an opening.
type refusal struct {
	to  route // how it was opened
	why *fault.Error
}

// refuse ends what would go as a says. A better ref may be there already, for what names none.
func (l *loop) refuse(a action) {
	l.hand(func(time.Time) { // an event of its own, since it reads the database
		_, _ = l.box.shelf().refresh(l.ctx) // else the row's ref is the one that was refused
		win := l.box.cfg.Window
		l.box.load(l.term, a.session, aheadFactor*win.Batches, aheadFactor*win.Bytes, &refusal{a.route, a.err}, func(ld loaded, err error) {
			if err != nil {
				l.hand(func(time.Time) { l.failed(err) })
				l.box.after(l.ctx, l.box.cfg.Backoff.Initial, func() { l.refuse(a) })
				return
			}
			l.hand(func(time.Time) { l.m.refused(a.session, ld.known) })
			if ld.known == nil {
				l.handLoaded(a.session, ld, nil)
			}
		})
	})
}

const (
	ofFlying = ` WHERE box = $1 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1)
		AND session = $2 AND state < 2 AND first_seq > 0`
	sqlFlyingOf = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch` + ofFlying
	sqlGiveBack = `UPDATE mooring_outbox_batch SET first_seq = NULL, state = 0, dropping = 0` + ofFlying
)

// giveBack takes a session's rows their seqs, and gives up what was to be dropped.
func (t *tables) giveBack(ctx context.Context, q querier, session string) error {
	rows, err := t.many(ctx, q, sqlFlyingOf+t.db.lockRows(), t.box, session)
	for _, r := range rows {
		if bd, err := r.decode(); err == nil && bd.dropped() {
			t.setBody(q, r.num, bd.encode(r.session, r.id), bd.tally(), false)
		}
	}
	if err == nil {
		q.later(sqlGiveBack, []any{t.box, session}, nil)
	}
	return err
}

// refuse gives a session's seqs back, before its rows are looked at. It reports false if
// outcomes of the session are stored: the server has made the stream once.
func (b *Box) refuse(ctx context.Context, q querier, session string) (bool, error) {
	st, err := b.t.stream(ctx, q, session)
	if err != nil || st.lastSeq > 0 {
		return false, err
	}
	return true, b.t.giveBack(ctx, q, session)
}

// denyRow finishes a row whose ops the server would record as denied.
func (b *Box) denyRow(ctx context.Context, q querier, r *batchRow, bd *body, no *refusal) decidedRow {
	bd.deny(no.why)
	d := b.decide(ctx, q, r, bd)
	if !creates(bd.ops[0].method) {
		d.news = b.news(&entry{route: no.to, body: bd}, d.outs)
		b.t.tellRefs(q, d.news)
	}
	return d
}

// dropped gives up, of a batch that is not sent after all, what was to be; it reports
// whether there was anything.
func (b *body) dropped() (any bool) {
	for i := range b.ops {
		op := &b.ops[i]
		if !op.dropAsked && !op.void {
			continue
		}
		any = true
		if op.dropAsked, op.void = false, false; op.verdict == nil {
			b.settle(i, voided(op.id))
		}
	}
	b.cascade()
	return any
}

// deny ends all ops of a batch that are left.
func (b *body) deny(why *fault.Error) {
	for i := range b.ops {
		if op := &b.ops[i]; op.verdict == nil {
			b.settle(i, ledger.Outcome{OpID: op.id, Status: ledger.Denied, Reason: why.Code, Message: why.Message, At: why.At})
			b.cascade()
		}
	}
}
