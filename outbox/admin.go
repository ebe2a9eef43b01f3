package outbox

// Status, List, Retry and Drop: reading rows, giving ops up and trying them again.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// unfinishedRows is a table expression for the rows that have no outcome yet. It does not read
// the finished ones: rows below the low-water mark have no seq or are finished. (num + 0 keeps
// the databases from walking all rows below the mark.)
func unfinishedRows(columns string) string {
	return `(SELECT ` + columns + ` FROM mooring_outbox_batch
			WHERE box = $1 AND state < 2 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1)
		UNION ALL SELECT ` + columns + ` FROM mooring_outbox_batch
			WHERE box = $1 AND first_seq IS NULL AND num + 0 < (SELECT low FROM mooring_outbox WHERE box = $1)) AS unfinished`
}

var (
	sqlPendingCounts = `SELECT CASE WHEN state = 1 AND first_seq > 0 THEN 1 ELSE 0 END, SUM(ops), SUM(bytes),
			SUM(failed), SUM(skipped), SUM(voided)
		FROM ` + unfinishedRows("state, first_seq, ops, bytes, failed, skipped, voided") + ` GROUP BY 1`
	sqlStreams = `SELECT b.session, b.ops, b.seq, b.attempts, b.next_retry_at, b.last_error, COALESCE(s.stopped, 0), COALESCE(s.reason, '')
		FROM (SELECT session, SUM(ops - failed - skipped - voided) AS ops, COALESCE(MAX(first_seq), 0) AS seq,
				MAX(attempts) AS attempts, MAX(next_retry_at) AS next_retry_at, MAX(last_error) AS last_error
			FROM ` + unfinishedRows("session, ops, failed, skipped, voided, first_seq, attempts, next_retry_at, last_error") + ` GROUP BY session) b
		LEFT JOIN mooring_outbox_stream s ON s.box = $1 AND s.session = b.session ORDER BY b.session`
)

const sqlFinishedCounts = `SELECT COALESCE(SUM(ops), 0), COALESCE(SUM(failed), 0), COALESCE(SUM(skipped), 0), COALESCE(SUM(voided), 0)
	FROM mooring_outbox_batch WHERE box = $1 AND state = 2`

// streamStatus lists the sessions that have unfinished rows.
func (t *tables) streamStatus(ctx context.Context, q querier) (streams []StreamStatus, err error) {
	err = q.query(ctx, sqlStreams, []any{t.box}, func(scan scanner) error {
		var s StreamStatus
		var next int64
		var code int
		var reason string
		if err := scan(&s.Session, &s.Unfinished, &s.maxSeq, &s.Attempts, &next, &s.LastError, &code, &reason); err != nil {
			return err
		}
		s.NextRetry = timeOf(next)
		if s.Stopped = fault.Code(code); s.Stopped != fault.None {
			s.LastError, s.NextRetry = reason, time.Time{}
		}
		streams = append(streams, s)
		return nil
	})
	return streams, err
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Status counts ops by state and lists the streams that have unfinished ones.
func (b *Box) Status(ctx context.Context) (Status, error) { return b.status(ctx, true) }

// Queue is Status without counting finished batches, so it is cheap however many there are.
// Failed, Skipped and Void count ops that are decided while others of their batch are
// unfinished.
func (b *Box) Queue(ctx context.Context) (Status, error) { return b.status(ctx, false) }

func (b *Box) status(ctx context.Context, finished bool) (st Status, err error) {
	err = b.read(ctx, "outbox status", func(ctx context.Context, q querier) error {
		st = Status{Outbox: b.id, Name: b.name}
		row, err := b.t.readBox(ctx, q, "")
		if err != nil {
			return err
		}
		now, err := b.db.now(ctx, q)
		if err != nil {
			return err
		}
		st.Incarnation = uint64(row.incarnation)
		if row.holder != "" && row.leaseUntil > now {
			st.LeasedUntil = time.UnixMilli(row.leaseUntil)
			st.Sending = row.holder == b.holderID
		}
		err = q.query(ctx, sqlPendingCounts, []any{b.t.box}, func(scan scanner) error {
			var flying, ops int
			var bytes int64
			var n intent.Tally
			if err := scan(&flying, &ops, &bytes, &n.Failed, &n.Skipped, &n.Voided); err != nil {
				return err
			}
			if st.Bytes += bytes; flying != 0 {
				st.InFlight = st.count(ops, n)
			} else {
				st.Pending = st.count(ops, n)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if finished {
			err = q.query(ctx, sqlFinishedCounts, []any{b.t.box}, func(scan scanner) error {
				var ops int
				var n intent.Tally
				err := scan(&ops, &n.Failed, &n.Skipped, &n.Voided)
				st.Acked = st.count(ops, n)
				return err
			})
			if err != nil {
				return err
			}
		}
		st.Streams, err = b.t.streamStatus(ctx, q)
		return err
	})
	if err == nil {
		st.BlockingPID, st.BlockingSince = b.db.blockingWriter(ctx)
	}
	return st, err
}

// count adds the tally n of a batch of ops ops, and returns how many are left.
func (s *Status) count(ops int, n intent.Tally) (left int) {
	s.Failed += n.Failed
	s.Skipped += n.Skipped
	s.Void += n.Voided
	return ops - n.Failed - n.Skipped - n.Voided
}

var (
	sqlList       = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND num > $2 AND ($3 = '' OR session = $3) ORDER BY num LIMIT 200`
	sqlListOpen   = `SELECT ` + batchColumns + ` FROM ` + unfinishedRows(batchColumns) + ` WHERE num > $2 AND ($3 = '' OR session = $3) ORDER BY num LIMIT 200`
	sqlListFailed = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch WHERE box = $1 AND num > $2 AND ($3 = '' OR session = $3)
		AND failed + skipped + voided > 0 ORDER BY num LIMIT 200`
)

// List returns rows in the order they were committed.
func (b *Box) List(ctx context.Context, f Filter) (list []Row, err error) {
	err = b.read(ctx, "outbox list", func(ctx context.Context, q querier) error {
		list = nil
		if f.Op != "" || f.Batch != "" {
			r, err := b.oneRow(ctx, q, f)
			if err != nil || r == nil {
				return err
			}
			list, err = f.appendRows(list, r)
			return err
		}
		for after := int64(-1); ; {
			rows, err := b.t.batches(ctx, q, f.statement(), b.t.box, after, f.Session)
			if err != nil {
				return err
			}
			for _, r := range rows {
				after = r.num
				if list, err = f.appendRows(list, r); err != nil {
					return err
				}
				if f.Limit > 0 && len(list) >= f.Limit {
					list = list[:f.Limit]
					return nil
				}
			}
			if len(rows) == 0 {
				return nil
			}
		}
	})
	return list, err
}

func (b *Box) oneRow(ctx context.Context, q querier, f Filter) (*batchRow, error) {
	if f.Batch != "" {
		return b.t.batch(ctx, q, f.Batch, "")
	}
	at, err := b.t.findOp(ctx, q, f.Op, "")
	return at.row, err
}

// statement returns the query that reads the fewest rows for the filter's states.
func (f *Filter) statement() string {
	waiting, ended := false, false
	for _, s := range f.States {
		switch s {
		case Pending, InFlight:
			waiting = true
		case Acked:
			waiting, ended = true, true
		default:
			ended = true
		}
	}
	switch {
	case waiting && !ended:
		return sqlListOpen
	case ended && !waiting:
		return sqlListFailed
	}
	return sqlList
}

// appendRows adds the row's ops that the filter selects.
func (f *Filter) appendRows(list []Row, r *batchRow) ([]Row, error) {
	if f.Session != "" && r.session != f.Session {
		return list, nil
	}
	base := Row{Batch: r.id, Session: r.session, Via: r.via, Attempts: r.attempts, NextRetry: timeOf(r.nextRetry),
		LastError: r.lastError, Committed: time.UnixMilli(r.created)}
	bd, err := r.decode()
	if err != nil {
		if base.State = Pending; r.state == rowFinished {
			base.State = Failed
		}
		base.LastError = err.Error()
		return append(list, base), nil
	}
	var outs []ledger.Outcome
	if r.state == rowFinished {
		if outs, err = r.readOutcomes(bd); err != nil {
			base.LastError = err.Error()
		}
	}
	seq := uint64(0)
	if r.sequenced() {
		seq = uint64(*r.firstSeq)
	}
	for i := range bd.Ops {
		op := &bd.Ops[i]
		row := base
		row.Op, row.Index, row.Method, row.Atomic, row.Retries, row.NoDigest = op.ID, i, op.Method, bd.Atomic, op.Retries, bd.NoDigest
		decided := !op.TakesSeq() // locally, whatever the rest of its batch waits for
		if seq > 0 && !decided {
			row.Seq = seq
			seq++
		}
		switch {
		case outs != nil:
			row.Outcome = &outs[i]
		case decided:
			row.Outcome = op.LocalOutcome
		}
		switch {
		case row.Outcome != nil:
			row.State = Acked + State(intent.EndingOf(op, row.Outcome))
		case r.state == rowFinished:
			row.State = Failed
		case r.state == rowInFlight && r.sequenced():
			row.State = InFlight
		default:
			row.State = Pending
		}
		row.Dropping = op.DropRequested && !row.State.Finished() // else the drop came too late
		if (len(f.States) == 0 || slices.Contains(f.States, row.State)) && (f.Op == "" || f.Op == op.ID) {
			list = append(list, row)
		}
	}
	return list, nil
}

// Retry commits an op that failed, was skipped or was dropped again, in a batch of its own,
// under a new op id that names the old one. References to the old op that are committed later
// follow the new one. A batch committed before that refers to the old op does not wait for the
// new one: it is skipped, unless the retry is finished when its references are resolved.
// NotFound, Usage (it did not fail), AlreadyExists (it was retried before: retry that one).
func (b *Box) Retry(ctx context.Context, op string) (Ticket, error) {
	var batch Batch
	err := b.read(ctx, "retry", func(ctx context.Context, q querier) error {
		f, err := b.t.findOp(ctx, q, op, "")
		if err != nil {
			return err
		}
		if f.row == nil {
			return fault.NotFound.With("op %s is not in this outbox", clip(op))
		}
		e, err := f.target()
		if err != nil {
			return err
		}
		if e.Outcome == nil || e.Outcome.Status == ledger.Applied || f.body.Compacted {
			return fault.Usage.With("op %s did not fail: there is nothing to retry", op)
		}
		old := &f.body.Ops[f.index]
		batch = Batch{Session: f.row.session, Via: f.row.via,
			Ops: []Op{{Method: old.Method, Args: old.Args, DependsOn: old.Deps, Expected: old.Expected, Retries: op}}}
		return nil
	})
	if err != nil {
		return Ticket{}, err
	}
	return b.Commit(ctx, batch)
}

const sqlDropping = `SELECT num, session FROM mooring_outbox_batch
	WHERE box = $1 AND num >= $2 AND state < 2 AND dropping <> 0 AND first_seq > 0`

// drop is a row with a seq in which an op is to be dropped.
type drop struct {
	num     int64
	session string
}

func (t *tables) dropping(ctx context.Context, q querier, low int64) (drops []drop, err error) {
	err = q.query(ctx, sqlDropping, []any{t.box, low}, func(scan scanner) error {
		var d drop
		err := scan(&d.num, &d.session)
		drops = append(drops, d)
		return err
	})
	return drops, err
}

const sqlCountDrop = `UPDATE mooring_outbox SET drops = drops + 1 WHERE box = $1`

// announceDrop notifies the sender, in whatever process, of a drop.
func (t *tables) announceDrop(q querier, outbox string) {
	q.enqueue(sqlCountDrop, []any{t.box}, nil)
	t.db.notify(q, outbox)
}

// Drop gives up an unfinished op. Without a seq it is void at once, and its dependents are
// skipped. With a seq it may have been sent: the sender asks the server, and a void takes its
// place if the server has not recorded it; if it has, its outcome stands. In an atomic batch
// its siblings go with it. NotFound; Usage for a finished op.
func (b *Box) Drop(ctx context.Context, op string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	var (
		asked   *batchRow
		decided []decidedRow
	)
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		asked, decided = nil, nil
		f, err := b.t.findOp(ctx, q, op, b.db.lockRows())
		r, bd, place := f.row, f.body, f.index
		switch {
		case err != nil:
			return err
		case r == nil:
			return fault.NotFound.With("op %s is not in this outbox", clip(op))
		case r.state == rowFinished || bd.Ops[place].LocalOutcome != nil || bd.Ops[place].Void:
			return fault.Usage.With("op %s is finished: there is nothing to drop", op)
		case r.sequenced():
			bd.Ops[place].DropRequested = true
			b.t.setBody(q, r.num, bd.Encode(r.session, r.id), bd.Tally(), true)
			b.t.announceDrop(q, b.id)
			asked = r
			return nil
		}
		bd.SetLocalOutcome(place, intent.VoidOutcome(op))
		bd.SkipDependents()
		b.t.announceDrop(q, b.id)
		if !bd.Decided() {
			b.t.setBody(q, r.num, bd.Encode(r.session, r.id), bd.Tally(), false)
			return nil
		}
		decided = []decidedRow{b.finishLocally(ctx, q, r, bd)}
		return nil
	})
	if err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	b.announceDecided(decided)
	b.withLoop(func(l *loop) {
		l.postAsync(func(now time.Time) {
			if asked != nil {
				l.m.DropRequested(asked.session, asked.num, now)
			} else {
				l.m.UnsequencedDropped(now)
			}
		})
	})
	return nil
}
