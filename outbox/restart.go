package outbox

// Restarting a session's stream that cannot go on: the session gets a new stream, and the
// server is shown a new secret for it, so the old one does not block it. A sender meanwhile,
// here or elsewhere, loses the lease, as by a takeover: its batches of the old stream must not
// be resent.

import (
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// NeedsNewStream reports whether a stream that stopped with that code does not go on by itself:
// Reconcile or Abandon replaces it, unless the newer data are restored.
func NeedsNewStream(c fault.Code) bool {
	switch c {
	case fault.ServerBehind, fault.OutboxDiverged, fault.WrongOutbox, fault.OutboxDamaged:
		return true
	}
	return false
}

const sqlHalted = `SELECT CASE WHEN stopped > 0 THEN stopped ELSE halted END, CASE WHEN stopped > 0 THEN reason ELSE halted_reason END
	FROM mooring_outbox_stream WHERE box = $1 AND session = $2`

// Stopped returns why nothing more of a session is sent until someone decides; nil if it is
// sent, as far as is known. A new sender tries a stopped stream again: until that has an
// answer, a stream that had stopped for good counts as stopped.
func (b *Box) Stopped(ctx context.Context, session string) (still *StreamStoppedError, err error) {
	err = b.read(ctx, "look at the stream", func(ctx context.Context, q querier) error {
		still = nil
		s := StreamStoppedError{Session: session}
		err := q.query(ctx, sqlHalted, []any{b.t.box, session}, func(scan scanner) error {
			var code int
			err := scan(&code, &s.Reason)
			s.Code = fault.Code(code)
			return err
		})
		if err != nil {
			return err
		}
		if NeedsNewStream(s.Code) {
			still = &s
			return nil
		}
		still, err = b.streamStopped(ctx, q, session)
		return err
	})
	return still, err
}

const (
	sqlRestart = `INSERT INTO mooring_outbox_stream (box, session, life, since) VALUES ($1, $2, $3, $4)
		ON CONFLICT (box, session) DO UPDATE SET life = excluded.life, since = excluded.since, last_seq = 0,
			stopped = 0, reason = '', halted = 0, halted_reason = ''`
	// The seqs of finished rows were those of the old stream.
	sqlClearFinishedSeqs = `UPDATE mooring_outbox_batch SET first_seq = 0 WHERE box = $1 AND session = $2 AND state = 2 AND first_seq > 0`
	sqlRevokeLease       = `UPDATE mooring_outbox SET incarnation = incarnation + 1, holder = '', lease_until = 0, holder_pid = 0 WHERE box = $1`

	sqlUnfinishedNums = `SELECT num FROM mooring_outbox_batch WHERE box = $1 AND session = $2 AND state < 2 ORDER BY num`
)

// restartStream runs change in a transaction during which no Box sends, and begins the
// session's next stream in it. The rows that change returns are announced when that is durable.
func (b *Box) restartStream(ctx context.Context, what, session string, change func(ctx context.Context, q querier) ([]decidedRow, error)) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	var decided []decidedRow
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		if err := b.db.takeLease(ctx, q, b.t.box); err != nil {
			return err
		}
		b.w.writeHighWater(q)
		row, err := b.t.readBox(ctx, q, b.db.lockRows())
		if err != nil {
			return err
		}
		if decided, err = change(ctx, q); err != nil {
			return err
		}
		q.enqueue(sqlRestart, []any{b.t.box, session, ulid.Make().String(), row.incarnation + 1}, nil)
		q.enqueue(sqlClearFinishedSeqs, []any{b.t.box, session}, nil)
		q.enqueue(sqlRevokeLease, []any{b.t.box}, nil)
		b.db.notify(q, b.id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b.withLoop(func(l *loop) { l.cancel(errFenced) })
	b.announceDecided(decided)
	b.hub.recheckAll()
	return nil
}

// lockUnfinished reads and locks a session's rows without outcomes, in the order in which they
// were committed.
func (t *tables) lockUnfinished(ctx context.Context, q querier, session string) (rows []*batchRow, err error) {
	var nums []int64
	err = q.query(ctx, sqlUnfinishedNums, []any{t.box, session}, func(scan scanner) error {
		var num int64
		err := scan(&num)
		nums = append(nums, num)
		return err
	})
	for _, num := range nums {
		var r *batchRow
		if err == nil {
			r, err = t.batchNum(ctx, q, num, t.db.lockRows())
		}
		if r != nil && r.state != rowFinished {
			rows = append(rows, r)
		}
	}
	return rows, err
}

const sqlKnowsSession = `SELECT 1 FROM mooring_outbox_stream WHERE box = $1 AND session = $2
	UNION ALL SELECT 1 FROM mooring_outbox_batch WHERE box = $1 AND session = $2 LIMIT 1`

// Abandon gives up the unfinished ops of a session and begins another stream for it: later
// commits go there. The ops end as void, and ops of other sessions that need one of them as
// skipped. Whether the server has applied an op with a seq remains unknown here. It returns the
// ops that ended. Called again, it changes nothing but the stream. NotFound if the outbox has
// nothing of the session.
func (b *Box) Abandon(ctx context.Context, session string) (ops []string, err error) {
	err = b.restartStream(ctx, "abandon", session, func(ctx context.Context, q querier) (decided []decidedRow, err error) {
		ops = nil
		known := false
		err = q.query(ctx, sqlKnowsSession, []any{b.t.box, session}, func(scanner) error { known = true; return nil })
		switch {
		case err != nil:
			return nil, err
		case !known:
			return nil, fault.NotFound.With("nothing of session %s is in this outbox", clip(session))
		}
		rows, err := b.t.lockUnfinished(ctx, q, session)
		for _, r := range rows {
			bd, err := r.decode()
			if errors.Is(err, fault.Incompatible) {
				return nil, err
			}
			if err != nil {
				decided = append(decided, b.quarantine(q, r, err))
				continue
			}
			ops = append(ops, bd.Abandon(r.sequenced())...)
			decided = append(decided, b.finishWithOutcomes(ctx, q, r, bd))
		}
		return decided, err
	})
	return ops, err
}

// finishWithOutcomes finishes a row all of whose ops have local outcomes. If it was never sent,
// the session that it creates does not exist.
func (b *Box) finishWithOutcomes(ctx context.Context, q querier, r *batchRow, bd *intent.Batch) decidedRow {
	if !r.sequenced() {
		return b.finishLocally(ctx, q, r, bd)
	}
	d := decidedRow{id: r.id, outs: bd.Outcomes(nil), ops: r.ops}
	b.t.finish(q, r.num, b.cfg.Now().UnixMilli(), bd.Count(d.outs), r.attempts, intent.EncodeOutcomes(d.outs, bd.Ops), bd.Encode(r.session, r.id))
	return d
}
