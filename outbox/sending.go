package outbox

// The sender's transactions: the lease, giving out seq, settling drops, storing
// outcomes.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/ledger"
)

// taking is what a takeover finds.
type taking struct {
	release     func() // gives up the mark of a living sender; nil without
	incarnation int64
	drops       int64
	rows        []*batchRow
	streams     map[string]streamRow
	waiting     []string
}

// acquire tries to get the lease: nil if another Box has it, until about until.
// A dead holder's is taken at once, another's when it has lapsed. What tells
// that a holder is dead is the mark it had, if it had one.
func (b *Box) acquire(ctx context.Context, w *waiter) (tk *taking, until time.Duration, err error) {
	err = b.w.doThen(ctx, func(ctx context.Context, q querier) error {
		tk, until = nil, 0
		b.w.keepReached(q)
		row, err := b.t.readBox(ctx, q, "")
		if err != nil {
			return err
		}
		now, err := b.db.now(ctx, q)
		if err != nil {
			return err
		}
		if row.holder != "" && row.holder != b.me {
			dead := w.marked && row.holderPID != 0
			if !dead {
				if dead, err = b.db.gone(ctx, q, row.holderPID); err != nil {
					return err
				}
			}
			spared := w.barred && row.holderPID != 0 && !w.stuck(row, b.cfg.Lease)
			if !dead && (row.leaseUntil > now || spared) {
				if until = time.Duration(row.leaseUntil-now) * time.Millisecond; spared {
					until = b.cfg.Lease / 2
				}
				return nil
			}
		}
		// Transactions that give out seq under the present incarnation end first.
		if err := b.db.takeLease(ctx, q, b.t.box); err != nil {
			return err
		}
		again, err := b.t.readBox(ctx, q, b.db.lockRows())
		if err != nil {
			return err
		}
		if again.incarnation != row.incarnation || again.holder != row.holder {
			until = b.cfg.Lease // somebody was faster
			return nil
		}
		tk, err = b.takeOver(ctx, q, again, now, w)
		return err
	}, func(err error, _ bool) {
		if err == nil && tk != nil {
			b.w.lanes.lead(true)
			for session, rows := range bySession(tk.rows) {
				b.learnLane(session, rows, tk.streams[session])
			}
		}
	})
	if err != nil {
		return nil, 0, err
	}
	return tk, until, nil
}

// takeOver writes the lease and reads what the former holder left.
func (b *Box) takeOver(ctx context.Context, q querier, row boxRow, now int64, w *waiter) (*taking, error) {
	pid := 0
	if w.marked {
		pid = markHeld
	}
	tk := &taking{incarnation: row.incarnation + w.step, drops: row.drops, streams: make(map[string]streamRow)}
	if _, err := q.exec(ctx, sqlTakeLease, b.t.box, b.me, now+b.cfg.Lease.Milliseconds(), w.step, pid); err != nil {
		return nil, err
	}
	if _, err := q.exec(ctx, sqlReset, b.t.box, row.low); err != nil {
		return nil, err
	}
	if _, err := q.exec(ctx, sqlResume, b.t.box); err != nil {
		return nil, err
	}
	q.later(b.db.refs().renew, []any{b.t.box}, nil) // the database may have been restored to another server
	var err error
	if tk.rows, err = b.t.unfinished(ctx, q, row.low); err != nil {
		return nil, err
	}
	for _, r := range tk.rows {
		if _, known := tk.streams[r.session]; known {
			continue
		}
		if tk.streams[r.session], err = b.t.stream(ctx, q, r.session); err != nil {
			return nil, err
		}
	}
	tk.waiting, err = b.t.waitingSessions(ctx, q)
	return tk, err
}

func bySession(rows []*batchRow) map[string][]*batchRow {
	by := make(map[string][]*batchRow)
	for _, r := range rows {
		by[r.session] = append(by[r.session], r)
	}
	return by
}

// learnLane sets a session's next seq up from its unfinished rows.
func (b *Box) learnLane(session string, rows []*batchRow, st streamRow) {
	next := st.lastSeq + 1
	for _, r := range rows {
		n := r.ops
		if bd, err := decodeBody(r.id, r.body); err == nil {
			n = bd.travelling()
		}
		next = max(next, uint64(*r.first)+uint64(n))
	}
	la := b.w.lanes.learn(session, next)
	for _, r := range rows {
		b.w.lanes.gave(la, next, r.id, len(r.body))
	}
}

// renew makes the lease last from now on; held is false if it is another's.
func (b *Box) renew(ctx context.Context) (held bool, err error) {
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		now, err := b.db.now(ctx, q)
		if err != nil {
			return err
		}
		n, err := q.exec(ctx, sqlRenew, b.t.box, b.me, now+b.cfg.Lease.Milliseconds())
		held = n == 1
		return err
	})
	return held, err
}

// raise makes the incarnation one higher, within the term.
func (b *Box) raise(ctx context.Context) (held bool, err error) {
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		n, err := q.exec(ctx, sqlRaise, b.t.box, b.me)
		held = n == 1
		return err
	})
	return held, err
}

// releaseLease lets another take over at once.
func (b *Box) releaseLease(ctx context.Context) error {
	return b.w.do(ctx, func(ctx context.Context, q querier) error {
		b.t.raiseLow(q, b.me)
		_, err := q.exec(ctx, sqlRelease, b.t.box, b.me)
		return err
	})
}

// loaded is what load found.
type loaded struct {
	rows  []*batchRow // have seqs now
	first []uint64
	holds []uint64
	body  []*body
	head  *batchRow // the first that has none, if nothing was to be given
	hbody *body
	more  bool
	owed  []string // batches of other sessions that the first one waits for
	st    streamRow
	done  []decidedRow
	news  []refNews
	lane  *lane
}

// decidedRow is a row that needs no server.
type decidedRow struct {
	id    string
	outs  []ledger.Outcome
	ops   int
	bytes int64
}

// headRows is how many rows a look reads at once: the first may all be decided.
const headRows = 8

// load works on the session's rows without a seq, in order: references are put
// in where their ops are finished, batches that cannot apply are finished, and
// up to so many others get their seqs; with 0 the first is only reported. It
// stops where a batch waits for another stream. then is called when it is
// durable, before anything else is written.
func (b *Box) load(session string, batches, bytes int, then func(loaded, error)) {
	var ld loaded
	term, _ := b.w.lanes.now()
	run := func(ctx context.Context, q querier) error {
		ld = loaded{}
		b.w.keepReached(q)
		b.db.shareLease(q, b.t.box)
		row, err := b.t.readBox(ctx, q, "")
		if err != nil {
			return err
		}
		if now, leading := b.w.lanes.now(); row.holder != b.me || now != term || !leading {
			return errFenced
		}
		return b.loadRows(ctx, q, &ld, row.low, session, batches, bytes)
	}
	b.w.submit(&job{run: run, done: func(err error, ambiguous bool) {
		if err == nil {
			b.loadDone(&ld)
		} else if ambiguous && batches > 0 {
			b.lost(fault.Unavailable.Because(err, "it is not known whether seqs were given"))
		}
		then(ld, err)
	}})
}

func (b *Box) loadRows(ctx context.Context, q querier, ld *loaded, low int64, session string, batches, bytes int) (err error) {
	if ld.st, err = b.t.stream(ctx, q, session); err != nil {
		return err
	}
	if ld.lane = b.w.lanes.learn(session, ld.st.lastSeq+1); ld.lane == nil {
		return errFenced
	}
	var rows []*batchRow
	if rows, ld.more, err = b.t.waiting(ctx, q, session, max(batches, headRows), bytes); err != nil {
		return err
	}
	given := make(map[string]*earlier) // by op, of this transaction
	stored := b.t.finder(ctx, q)
	find := func(op string) (*earlier, error) {
		if e := given[op]; e != nil {
			return e, nil
		}
		return stored(op)
	}
	for _, r := range rows {
		bd, err := decodeBody(r.id, r.body)
		if err != nil {
			b.damaged(q, ld, r, err)
			continue
		}
		res, err := resolve(bd, session, find, false)
		if err != nil {
			return err
		}
		if bd.decided() {
			b.decide(ctx, q, ld, r, bd)
			continue
		}
		if len(res.owed) > 0 {
			for _, e := range res.owed {
				ld.owed = append(ld.owed, e.batch)
			}
			ld.more = true
			return nil
		}
		data, other := r.body, []byte(nil)
		if res.changed {
			other = bd.encode(r.id)
			data = other
		}
		if batches == 0 {
			if res.changed {
				b.t.setBody(q, r.num, data, false)
			}
			ld.head, ld.hbody, ld.more = r, bd, true
			return nil
		}
		if n := len(ld.rows); n > 0 && (n >= batches || len(data) > bytes) {
			ld.more = true
			return nil
		}
		bytes -= len(data)
		if len(ld.rows) == 0 {
			crashpoint.Hit(crashpoint.OutboxSeqBefore)
		}
		first := b.w.lanes.give(ld.lane, bd.travelling())
		b.t.giveSeq(q, r.num, first, other)
		if r.num < low {
			b.t.lower(q, r.num)
			low = r.num
		}
		r.first, r.body = new(int64), data
		*r.first = int64(first)
		for k := range bd.ops {
			e, err := r.earlier(bd, k)
			if err != nil {
				return err
			}
			given[e.id] = e
		}
		ld.rows, ld.body = append(ld.rows, r), append(ld.body, bd)
		ld.first, ld.holds = append(ld.first, first), append(ld.holds, res.hold)
	}
	return nil
}

// decide finishes a row all of whose ops have verdicts.
func (b *Box) decide(ctx context.Context, q querier, ld *loaded, r *batchRow, bd *body) {
	outs := bd.outcomes(nil)
	if creates(bd.ops[0].method) {
		// Nobody makes the session; what follows still has to reach a server that says so.
		if to, err := b.shelfOf(q).routeOf(ctx, r.session, r.via, bd); err == nil {
			b.t.creating(q, r.session, to.space, to.ref)
			ld.news = append(ld.news, refusedRef(to.ref, &outs[0]))
			b.t.tellRefs(q, ld.news[len(ld.news)-1:])
		}
	}
	b.t.finish(q, r.num, b.cfg.Now().UnixMilli(), bd.count(outs), r.attempts, encodeOutcomes(outs, bd.ops), bd.encode(r.id))
	ld.done = append(ld.done, decidedRow{r.id, outs, r.ops, r.bytes})
}

// damaged finishes a row that cannot be read, so that it does not stand in the
// way of others. Its outcomes stay missing, which is what Wait will say.
func (b *Box) damaged(q querier, ld *loaded, r *batchRow, err error) {
	b.cfg.Logger.Error("a row of the outbox is damaged and was set aside", "outbox", b.id, "batch", r.id, "error", err)
	b.t.note(q, r.num, r.attempts, 0, "damaged: "+err.Error())
	b.t.finish(q, r.num, b.cfg.Now().UnixMilli(), tally{failed: r.ops}, r.attempts, nil, nil)
	ld.done = append(ld.done, decidedRow{r.id, nil, r.ops, r.bytes})
}

func (b *Box) loadDone(ld *loaded) {
	b.refs.told(ld.news)
	for i, r := range ld.rows {
		b.w.lanes.gave(ld.lane, ld.first[i]+uint64(ld.body[i].travelling()), r.id, len(r.body))
	}
	if len(ld.rows) > 0 {
		crashpoint.Hit(crashpoint.OutboxSeqAfter)
	}
	for _, d := range ld.done {
		b.usage.finish(d.ops, d.bytes)
		b.told.tell(d.id, d.outs, true)
	}
}

// store keeps the outcomes of a batch, together with whatever else is written
// soon. making is how its session is reached if this was its create and that did
// not apply; clear says that it did.
func (b *Box) store(e *entry, outs []ledger.Outcome, news []refNews, making route, then func()) {
	data := encodeOutcomes(outs, e.body.ops)
	n := e.body.count(outs)
	var slim []byte
	if n == (tally{}) && len(e.body.ops) > 0 {
		small := body{atomic: e.body.atomic, slim: true, ops: e.body.ops}
		slim = small.encode(e.id)
	}
	at := b.cfg.Now().UnixMilli()
	b.w.submit(&job{lazy: true,
		run: func(ctx context.Context, q querier) error {
			b.w.lanes.storing(e.session, e.id)
			b.t.finish(q, e.num, at, n, e.attempts+1, data, slim)
			b.t.tellRefs(q, news)
			b.w.lanes.reach(e.session, e.last())
			if e.route.space != "" {
				b.t.creating(q, e.session, making.space, making.ref)
			}
			return nil
		},
		done: func(err error, _ bool) {
			if err != nil {
				return // closing: the next process gets the same answer again
			}
			crashpoint.Hit(crashpoint.OutboxAckAfter)
			b.refs.told(news)
			b.w.lanes.stored(e.session, e.id)
			b.usage.finish(len(e.body.ops), int64(e.bytes))
			b.told.stored(e.id)
			then()
		}})
}

// settleDrops decides what becomes of ops that were to be dropped after they had
// a seq: those beyond the server's last seq become voids, durably, before
// anything is sent; the others stand. then gets the batches as they are now.
func (b *Box) settleDrops(entries []*entry, drops map[int64]*fault.Error, lastSeq uint64, then func(bodies map[int64]*body, fenced bool)) {
	term, _ := b.w.lanes.now()
	var bodies map[int64]*body
	var fenced bool
	b.w.submit(&job{lazy: true,
		run: func(ctx context.Context, q querier) error {
			bodies, fenced = make(map[int64]*body), false
			b.db.shareLease(q, b.t.box)
			row, err := b.t.readBox(ctx, q, "")
			if err != nil {
				return err
			}
			if now, leading := b.w.lanes.now(); row.holder != b.me || now != term || !leading {
				fenced = true
				return nil
			}
			for _, e := range entries {
				r, err := b.t.batchNum(ctx, q, e.num, b.db.lockRows())
				if err != nil {
					return err
				}
				if r == nil || r.state == rowFinished {
					continue
				}
				bd, err := decodeBody(r.id, r.body)
				if err != nil {
					return err
				}
				bd.settleDrop(e.first > lastSeq, drops[e.num])
				b.t.setBody(q, e.num, bd.encode(r.id), false)
				bodies[e.num] = bd
			}
			return nil
		},
		done: func(err error, _ bool) {
			if err == nil {
				then(bodies, fenced)
			}
		}})
}

// settleDrop turns ops into voids, or lets them stand if it is too late. why is
// set if the server cannot take the batch at all: then all of it goes.
func (b *body) settleDrop(inTime bool, why *fault.Error) {
	for i := range b.ops {
		op := &b.ops[i]
		if inTime && (op.dropAsked || why != nil) && op.travels() {
			op.void = true
			if why != nil && !op.dropAsked {
				op.verdict = &ledger.Outcome{OpID: op.id, Status: ledger.Rejected, Reason: why.Code, Message: why.Message}
			}
		}
		op.dropAsked = false
	}
}
