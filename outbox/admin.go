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
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sender"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

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
	err = b.read(ctx, "outbox status", func(ctx context.Context, q sqlstore.Querier) error {
		st = Status{Outbox: b.id, Name: b.name}
		row, err := b.t.ReadBox(ctx, q, "")
		if err != nil {
			return err
		}
		now, err := b.db.Now(ctx, q)
		if err != nil {
			return err
		}
		st.Incarnation = uint64(row.Incarnation)
		if row.Holder != "" && row.LeaseUntil > now {
			st.LeasedUntil = time.UnixMilli(row.LeaseUntil)
			st.Sending = row.Holder == b.t.HolderID
		}
		err = b.t.UnfinishedCounts(ctx, q, func(inFlight bool, ops int, bytes int64, n intent.Tally) {
			if st.Bytes += bytes; inFlight {
				st.InFlight = st.count(ops, n)
			} else {
				st.Pending = st.count(ops, n)
			}
		})
		if err != nil {
			return err
		}
		if finished {
			ops, n, err := b.t.FinishedCounts(ctx, q)
			if err != nil {
				return err
			}
			st.Acked = st.count(ops, n)
		}
		streams, err := b.t.UnfinishedStreams(ctx, q)
		for _, s := range streams {
			st.Streams = append(st.Streams, StreamStatus{Session: s.Session, Unfinished: s.Unfinished, Stopped: s.Stopped,
				LastError: s.LastError, Attempts: s.Attempts, NextRetry: timeOf(s.NextRetry)})
		}
		return err
	})
	if err == nil {
		st.BlockingPID, st.BlockingSince = b.db.BlockingWriter(ctx)
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

// List returns rows in the order they were committed.
func (b *Box) List(ctx context.Context, f Filter) (list []Row, err error) {
	err = b.read(ctx, "outbox list", func(ctx context.Context, q sqlstore.Querier) error {
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
			rows, err := b.t.List(ctx, q, f.rows(), after, f.Session)
			if err != nil {
				return err
			}
			for _, r := range rows {
				after = r.Num
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

func (b *Box) oneRow(ctx context.Context, q sqlstore.Querier, f Filter) (*sqlstore.BatchRow, error) {
	if f.Batch != "" {
		return b.t.Batch(ctx, q, f.Batch, "")
	}
	at, err := b.t.FindOp(ctx, q, f.Op, "")
	return at.Row, err
}

// rows returns the fewest rows that have all of the filter's states.
func (f *Filter) rows() sqlstore.WhichRows {
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
		return sqlstore.UnfinishedOnly
	case ended && !waiting:
		return sqlstore.FailedOnly
	}
	return sqlstore.AllRows
}

// appendRows adds the row's ops that the filter selects.
func (f *Filter) appendRows(list []Row, r *sqlstore.BatchRow) ([]Row, error) {
	if f.Session != "" && r.Session != f.Session {
		return list, nil
	}
	base := Row{Batch: r.ID, Session: r.Session, Via: r.Via, Attempts: r.Attempts, NextRetry: timeOf(r.NextRetry),
		LastError: r.LastError, Committed: time.UnixMilli(r.Created)}
	bd, err := r.Decode()
	if err != nil {
		if base.State = Pending; r.State == sqlstore.RowFinished {
			base.State = Failed
		}
		base.LastError = err.Error()
		return append(list, base), nil
	}
	var outs []ledger.Outcome
	if r.State == sqlstore.RowFinished {
		if outs, err = r.ReadOutcomes(bd); err != nil {
			base.LastError = err.Error()
		}
	}
	seq := uint64(0)
	if r.Sequenced() {
		seq = uint64(*r.FirstSeq)
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
		case r.State == sqlstore.RowFinished:
			row.State = Failed
		case r.State == sqlstore.RowInFlight && r.Sequenced():
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
	err := b.read(ctx, "retry", func(ctx context.Context, q sqlstore.Querier) error {
		f, err := b.t.FindOp(ctx, q, op, "")
		if err != nil {
			return err
		}
		if f.Row == nil {
			return fault.NotFound.With("op %s is not in this outbox", clip(op))
		}
		e, err := f.Target()
		if err != nil {
			return err
		}
		if e.Outcome == nil || e.Outcome.Status == ledger.Applied || f.Body.Compacted {
			return fault.Usage.With("op %s did not fail: there is nothing to retry", op)
		}
		old := &f.Body.Ops[f.Index]
		batch = Batch{Session: f.Row.Session, Via: f.Row.Via,
			Ops: []Op{{Method: old.Method, Args: old.Args, DependsOn: old.Deps, Expected: old.Expected, Retries: op}}}
		return nil
	})
	if err != nil {
		return Ticket{}, err
	}
	return b.Commit(ctx, batch)
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
		asked   *sqlstore.BatchRow
		decided []sender.Decided
	)
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		asked, decided = nil, nil
		f, err := b.t.FindOp(ctx, q, op, b.db.LockRows())
		r, bd, place := f.Row, f.Body, f.Index
		switch {
		case err != nil:
			return err
		case r == nil:
			return fault.NotFound.With("op %s is not in this outbox", clip(op))
		case r.State == sqlstore.RowFinished || bd.Ops[place].LocalOutcome != nil || bd.Ops[place].Void:
			return fault.Usage.With("op %s is finished: there is nothing to drop", op)
		case r.Sequenced():
			bd.Ops[place].DropRequested = true
			b.t.SetBody(q, r.Num, bd.Encode(r.Session, r.ID), bd.Tally(), true)
			b.t.AnnounceDrop(q, b.id)
			asked = r
			return nil
		}
		bd.SetLocalOutcome(place, intent.VoidOutcome(op))
		bd.SkipDependents()
		b.t.AnnounceDrop(q, b.id)
		if !bd.Decided() {
			b.t.SetBody(q, r.Num, bd.Encode(r.Session, r.ID), bd.Tally(), false)
			return nil
		}
		decided = []sender.Decided{b.sender.FinishLocally(ctx, q, r, bd)}
		return nil
	})
	if err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	b.sender.AnnounceDecided(decided)
	b.sender.Post(func(m *machine.Machine, now time.Time) {
		if asked != nil {
			m.DropRequested(asked.Session, asked.Num, now)
		} else {
			m.UnsequencedDropped(now)
		}
	})
	return nil
}
