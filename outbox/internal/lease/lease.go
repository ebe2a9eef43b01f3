// Package lease decides which Box sends: it waits for the outbox's lease, takes it over, renews and releases it.
//
// Package sender calls it. It touches the lease's row, the rows that a new holder takes over and their seqs, in transactions of
// package writer. It has no lock: a Waiter belongs to one goroutine.
//
// The words:
//
//	step           how far a takeover raises the incarnation
//	liveness lock  a lock of the file system by which others see that a process lives (sqlite)
//	takeover       what a new holder finds: the batches in flight, and the sessions with rows without a seq
package lease

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// Lease is an outbox's lease, as one Box has it or waits for it.
type Lease struct {
	Outbox string
	T      *sqlstore.Tables
	W      *writer.Writer
	Lasts  time.Duration // without renewal
	Logger *slog.Logger
}

// Waiter is a Box that waits for the lease, and the lease as it last read it.
type Waiter struct {
	Step          int64 // added to the incarnation
	HasLiveness   bool  // it has the liveness lock: the former holder is dead
	LivenessTaken bool  // another process has the liveness lock

	Holder string // the lease when it last changed
	Until  int64
	Since  time.Time
}

// unchangedFor is how long the lease has not changed. A living holder renews it every third of
// its duration.
func (w *Waiter) unchangedFor(row sqlstore.BoxRow) time.Duration {
	if now := time.Now(); row.Holder != w.Holder || row.LeaseUntil != w.Until {
		w.Holder, w.Until, w.Since = row.Holder, row.LeaseUntil, now
	}
	return time.Since(w.Since)
}

// Await blocks until this Box has the lease.
func (l *Lease) Await(ctx context.Context, step int64, again backoff.BackOff) (*Takeover, error) {
	w := &Waiter{Step: step}
	for ctx.Err() == nil {
		release, locked, known := l.W.DB.TryLivenessLock(l.T.Box)
		w.HasLiveness, w.LivenessTaken = locked, known && !locked
		tk, until, err := l.TryAcquire(ctx, w)
		if tk != nil {
			again.Reset()
			tk.ReleaseLiveness = release
			return tk, nil
		}
		if release != nil {
			release()
		}
		if err != nil {
			l.Logger.Warn("the lease could not be acquired", "outbox", l.Outbox, "error", err)
			until = again.NextBackOff()
		}
		Pause(ctx, min(max(until, 10*time.Millisecond), l.Lasts/4, time.Second))
	}
	return nil, ctx.Err()
}

// Takeover is the state that a new holder of the lease finds.
type Takeover struct {
	ReleaseLiveness func() // releases the liveness lock; nil without
	Term            int    // its number (writer.Seqs)
	Incarnation     int64
	Drops           int64
	Rows            []*sqlstore.BatchRow
	Streams         map[string]sqlstore.StreamRow
	Unsequenced     []string
}

// TryAcquire tries to get the lease: nil if another Box has it, for about until. It takes
// a dead holder's lease at once, another's when it has lapsed. A holder is known to be dead by
// its liveness lock or its holder_pid, if it had one.
//
// A lease has lapsed by the leases' clock, and also if it was not renewed for its duration:
// that clock may have been put back. A living holder, with the liveness lock, may be late by
// that clock when the machine has slept: it is given half a Lease more.
func (l *Lease) TryAcquire(ctx context.Context, w *Waiter) (tk *Takeover, until time.Duration, err error) {
	err = l.W.DoThen(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		tk, until = nil, 0
		row, err := l.T.ReadBox(ctx, q, "")
		if err != nil {
			return err
		}
		now, err := l.W.DB.Now(ctx, q)
		if err != nil {
			return err
		}
		if row.Holder != "" && row.Holder != l.T.HolderID {
			dead := w.HasLiveness && row.HolderPID != 0
			if !dead {
				if dead, err = l.W.DB.HolderDead(ctx, q, row.HolderPID); err != nil {
					return err
				}
			}
			unchanged := w.unchangedFor(row)
			lasts := row.LeaseUntil > now && unchanged < l.lasts(row)
			spared := w.LivenessTaken && row.HolderPID != 0 && unchanged < l.Lasts/2
			if !dead && (lasts || spared) {
				if until = time.Duration(row.LeaseUntil-now) * time.Millisecond; spared {
					until = l.Lasts / 2
				}
				return nil
			}
		}
		// Transactions that allocate seqs under the present incarnation end first.
		if err := l.W.DB.TakeLease(ctx, q, l.T.Box); err != nil {
			return err
		}
		l.W.WriteHighWater(q)
		again, err := l.T.ReadBox(ctx, q, l.W.DB.LockRows())
		if err != nil {
			return err
		}
		if again.Incarnation != row.Incarnation || again.Holder != row.Holder || again.LeaseUntil != row.LeaseUntil {
			until = l.Lasts // another Box was faster, or it was renewed after all
			return nil
		}
		tk, err = l.takeOver(ctx, q, again, now, w)
		return err
	}, func(err error, _ bool) {
		if err == nil && tk != nil {
			tk.Term = l.W.Seqs.SetLeading(true)
			for session, rows := range sqlstore.BySession(tk.Rows) {
				loadSeqs(&l.W.Seqs, session, rows, tk.Streams[session])
			}
		}
	})
	if err != nil {
		return nil, 0, err
	}
	return tk, until, nil
}

// lasts is how long another holder's lease lasts without renewal.
func (l *Lease) lasts(row sqlstore.BoxRow) time.Duration {
	if row.LeaseFor == 0 {
		return l.Lasts // written by an older binary, which does not say
	}
	return time.Duration(row.LeaseFor) * time.Millisecond
}

// takeOver writes the lease and reads the former holder's unfinished state.
func (l *Lease) takeOver(ctx context.Context, q sqlstore.Querier, row sqlstore.BoxRow, now int64, w *Waiter) (*Takeover, error) {
	pid := 0
	if w.HasLiveness {
		pid = sqlstore.LivenessHeld
	}
	tk := &Takeover{Incarnation: row.Incarnation + w.Step, Drops: row.Drops, Streams: make(map[string]sqlstore.StreamRow)}
	lease := l.Lasts.Milliseconds()
	err := l.T.TakeOver(ctx, q, now+lease, w.Step, pid, lease, row.LowWater)
	if err != nil {
		return nil, err
	}
	l.T.RestampRefs(q)
	if tk.Rows, err = l.T.InFlight(ctx, q, row.LowWater); err != nil {
		return nil, err
	}
	for _, r := range tk.Rows {
		if _, known := tk.Streams[r.Session]; known {
			continue
		}
		if tk.Streams[r.Session], err = l.T.Stream(ctx, q, r.Session); err != nil {
			return nil, err
		}
	}
	tk.Unsequenced, err = l.T.UnsequencedSessions(ctx, q)
	return tk, err
}

// loadSeqs sets a session's next seq from its unfinished rows.
func loadSeqs(a *writer.Seqs, session string, rows []*sqlstore.BatchRow, st sqlstore.StreamRow) {
	next := st.LastSeq + 1
	for _, r := range rows {
		n := r.Ops
		if bd, err := r.Decode(); err == nil {
			n = bd.SeqCount()
		}
		next = max(next, uint64(*r.FirstSeq)+uint64(n))
	}
	seqs := a.AddStream(session, next)
	for _, r := range rows {
		a.Confirm(seqs, next, r.ID, len(r.Body))
	}
}

// Renew renews the lease, if it is this Box's. It also raises the
// low-water mark.
func (l *Lease) Renew(ctx context.Context) (isHolder bool, err error) {
	err = l.W.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		now, err := l.W.DB.Now(ctx, q)
		if err != nil {
			return err
		}
		isHolder, err = l.T.RenewLease(ctx, q, now+l.Lasts.Milliseconds())
		l.T.RaiseLowWater(q)
		return err
	})
	return isHolder, err
}

// Confirm reports whether this Box still sends, in that term, and ensures that it does
// until the transaction ends.
func (l *Lease) Confirm(ctx context.Context, q sqlstore.Querier, term int) (row sqlstore.BoxRow, leads bool, err error) {
	l.W.DB.ShareLease(q, l.T.Box)
	row, err = l.T.ReadBox(ctx, q, "")
	return row, row.Holder == l.T.HolderID && l.W.Seqs.LeadsTerm(term), err
}

// RaiseIncarnation raises the incarnation by one, within the term.
func (l *Lease) RaiseIncarnation(ctx context.Context) (isHolder bool, err error) {
	err = l.W.Do(ctx, func(ctx context.Context, q sqlstore.Querier) (err error) {
		isHolder, err = l.T.RaiseIncarnation(ctx, q)
		return err
	})
	return isHolder, err
}

// Release lets another Box take over at once.
func (l *Lease) Release(ctx context.Context) error {
	return l.W.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		l.T.RaiseLowWater(q)
		return l.T.ReleaseLease(ctx, q)
	})
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
