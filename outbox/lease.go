package outbox

// The lease: waiting for it, taking it over, renewing and releasing it. Its holder sends.

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// leaseWaiter is a Box that waits for the lease, and the lease as it last read it.
type leaseWaiter struct {
	step          int64 // added to the incarnation
	hasLiveness   bool  // it has the liveness lock: the former holder is dead
	livenessTaken bool  // another process has the liveness lock

	holder string // the lease when it last changed
	until  int64
	since  time.Time
}

// unchangedFor is how long the lease has not changed. A living holder renews it every third of
// its duration.
func (w *leaseWaiter) unchangedFor(row sqlstore.BoxRow) time.Duration {
	if now := time.Now(); row.Holder != w.holder || row.LeaseUntil != w.until {
		w.holder, w.until, w.since = row.Holder, row.LeaseUntil, now
	}
	return time.Since(w.since)
}

// awaitLease blocks until this Box has the lease.
func (b *Box) awaitLease(ctx context.Context, step int64, again backoff.BackOff) (*takeover, error) {
	w := &leaseWaiter{step: step}
	for ctx.Err() == nil {
		release, locked, known := b.db.TryLivenessLock(b.t.Box)
		w.hasLiveness, w.livenessTaken = locked, known && !locked
		tk, until, err := b.tryAcquireLease(ctx, w)
		if tk != nil {
			again.Reset()
			tk.releaseLiveness = release
			return tk, nil
		}
		if release != nil {
			release()
		}
		if err != nil {
			b.cfg.Logger.Warn("the lease cannot be had", "outbox", b.id, "error", err)
			until = again.NextBackOff()
		}
		b.pause(ctx, min(max(until, 10*time.Millisecond), b.cfg.Lease/4, time.Second))
	}
	return nil, ctx.Err()
}

// takeover is the state that a new holder of the lease finds.
type takeover struct {
	releaseLiveness func() // releases the liveness lock; nil without
	term            int    // its number (writer.Seqs)
	incarnation     int64
	drops           int64
	rows            []*sqlstore.BatchRow
	streams         map[string]sqlstore.StreamRow
	unsequenced     []string
}

// tryAcquireLease tries to get the lease: nil if another Box has it, for about until. It takes
// a dead holder's lease at once, another's when it has lapsed. A holder is known to be dead by
// its liveness lock or its holder_pid, if it had one.
//
// A lease has lapsed by the leases' clock, and also if it was not renewed for its duration:
// that clock may have been put back. A living holder, with the liveness lock, may be late by
// that clock when the machine has slept: it is given half a Lease more.
func (b *Box) tryAcquireLease(ctx context.Context, w *leaseWaiter) (tk *takeover, until time.Duration, err error) {
	err = b.w.DoThen(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		tk, until = nil, 0
		row, err := b.t.ReadBox(ctx, q, "")
		if err != nil {
			return err
		}
		now, err := b.db.Now(ctx, q)
		if err != nil {
			return err
		}
		if row.Holder != "" && row.Holder != b.holderID {
			dead := w.hasLiveness && row.HolderPID != 0
			if !dead {
				if dead, err = b.db.HolderDead(ctx, q, row.HolderPID); err != nil {
					return err
				}
			}
			unchanged := w.unchangedFor(row)
			lasts := row.LeaseUntil > now && unchanged < b.leaseDuration(row)
			spared := w.livenessTaken && row.HolderPID != 0 && unchanged < b.cfg.Lease/2
			if !dead && (lasts || spared) {
				if until = time.Duration(row.LeaseUntil-now) * time.Millisecond; spared {
					until = b.cfg.Lease / 2
				}
				return nil
			}
		}
		// Transactions that allocate seqs under the present incarnation end first.
		if err := b.db.TakeLease(ctx, q, b.t.Box); err != nil {
			return err
		}
		b.w.WriteHighWater(q)
		again, err := b.t.ReadBox(ctx, q, b.db.LockRows())
		if err != nil {
			return err
		}
		if again.Incarnation != row.Incarnation || again.Holder != row.Holder || again.LeaseUntil != row.LeaseUntil {
			until = b.cfg.Lease // another Box was faster, or it was renewed after all
			return nil
		}
		tk, err = b.takeOver(ctx, q, again, now, w)
		return err
	}, func(err error, _ bool) {
		if err == nil && tk != nil {
			tk.term = b.w.Seqs.SetLeading(true)
			for session, rows := range bySession(tk.rows) {
				b.loadSeqs(session, rows, tk.streams[session])
			}
		}
	})
	if err != nil {
		return nil, 0, err
	}
	return tk, until, nil
}

// leaseDuration is how long another holder's lease lasts without renewal.
func (b *Box) leaseDuration(row sqlstore.BoxRow) time.Duration {
	if row.LeaseFor == 0 {
		return b.cfg.Lease // written by an older binary, which does not say
	}
	return time.Duration(row.LeaseFor) * time.Millisecond
}

// takeOver writes the lease and reads the former holder's unfinished state.
func (b *Box) takeOver(ctx context.Context, q sqlstore.Querier, row sqlstore.BoxRow, now int64, w *leaseWaiter) (*takeover, error) {
	pid := 0
	if w.hasLiveness {
		pid = sqlstore.LivenessHeld
	}
	tk := &takeover{incarnation: row.Incarnation + w.step, drops: row.Drops, streams: make(map[string]sqlstore.StreamRow)}
	lease := b.cfg.Lease.Milliseconds()
	err := b.t.TakeOver(ctx, q, now+lease, w.step, pid, lease, row.LowWater)
	if err != nil {
		return nil, err
	}
	b.t.RestampRefs(q)
	if tk.rows, err = b.t.InFlight(ctx, q, row.LowWater); err != nil {
		return nil, err
	}
	for _, r := range tk.rows {
		if _, known := tk.streams[r.Session]; known {
			continue
		}
		if tk.streams[r.Session], err = b.t.Stream(ctx, q, r.Session); err != nil {
			return nil, err
		}
	}
	tk.unsequenced, err = b.t.UnsequencedSessions(ctx, q)
	return tk, err
}

func bySession(rows []*sqlstore.BatchRow) map[string][]*sqlstore.BatchRow {
	by := make(map[string][]*sqlstore.BatchRow)
	for _, r := range rows {
		by[r.Session] = append(by[r.Session], r)
	}
	return by
}

// loadSeqs sets a session's next seq from its unfinished rows.
func (b *Box) loadSeqs(session string, rows []*sqlstore.BatchRow, st sqlstore.StreamRow) {
	next := st.LastSeq + 1
	for _, r := range rows {
		n := r.Ops
		if bd, err := r.Decode(); err == nil {
			n = bd.SeqCount()
		}
		next = max(next, uint64(*r.FirstSeq)+uint64(n))
	}
	seqs := b.w.Seqs.AddStream(session, next)
	for _, r := range rows {
		b.w.Seqs.Confirm(seqs, next, r.ID, len(r.Body))
	}
}

// maxRenewInterval bounds the time between renewals of a long lease: a renewal also raises the
// low-water mark.
const maxRenewInterval = 10 * time.Second

// renewLoop renews the lease until the term ends, and ends the term when it cannot.
func (l *loop) renewLoop() {
	b := l.box
	tick := time.NewTicker(min(max(b.cfg.Lease/3, time.Millisecond), maxRenewInterval))
	defer tick.Stop()
	for renewed := time.Now(); ; {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		ok, err := b.renewLease(l.ctx)
		switch {
		case l.ctx.Err() != nil:
			return
		case err == nil && ok:
			renewed = began
			l.acquireLiveness()
		case err == nil:
			l.cancel(sqlstore.ErrFenced)
			return
		case time.Since(renewed) > b.cfg.Lease:
			l.cancel(fault.Unavailable.Because(err, "the lease could not be renewed in time"))
			return
		}
	}
}

// renewLease renews the lease, if it is this Box's. It also raises the
// low-water mark.
func (b *Box) renewLease(ctx context.Context) (isHolder bool, err error) {
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		now, err := b.db.Now(ctx, q)
		if err != nil {
			return err
		}
		isHolder, err = b.t.RenewLease(ctx, q, now+b.cfg.Lease.Milliseconds())
		b.t.RaiseLowWater(q)
		return err
	})
	return isHolder, err
}

// acquireLiveness gets the liveness lock if another process still had it when the lease was
// taken.
func (l *loop) acquireLiveness() {
	if l.releaseLiveness != nil {
		return
	}
	if release, locked, _ := l.box.db.TryLivenessLock(l.box.t.Box); locked {
		l.releaseLiveness = release
		l.setHolderPID(sqlstore.LivenessHeld)
	}
}

// setHolderPID stores the pid by which others see that this process lives.
func (l *loop) setHolderPID(pid int64) {
	l.submitWrite(func(q sqlstore.Querier) { l.box.t.SetHolderPID(q, pid) })
}

// confirmLease reports whether this Box still sends, in that term, and ensures that it does
// until the transaction ends.
func (b *Box) confirmLease(ctx context.Context, q sqlstore.Querier, term int) (row sqlstore.BoxRow, leads bool, err error) {
	b.db.ShareLease(q, b.t.Box)
	row, err = b.t.ReadBox(ctx, q, "")
	return row, row.Holder == b.holderID && b.w.Seqs.LeadsTerm(term), err
}

// raiseIncarnation raises the incarnation, so that batches sent under the present one are
// fenced once a stream is opened again.
func (l *loop) raiseIncarnation() {
	from := l.incarnation
	l.tasks.Go(func() {
		for l.ctx.Err() == nil {
			isHolder, err := l.box.raiseIncarnation(l.ctx)
			switch {
			case err == nil && isHolder:
				l.post(func(now time.Time) {
					l.incarnation = from + 1
					l.m.IncarnationRaised(now)
				})
				return
			case err == nil:
				l.cancel(sqlstore.ErrFenced)
				return
			}
			l.post(func(time.Time) { l.handleDBError(err) })
			l.box.pause(l.ctx, l.box.cfg.Backoff.Initial)
		}
	})
}

// raiseIncarnation raises the incarnation by one, within the term.
func (b *Box) raiseIncarnation(ctx context.Context) (isHolder bool, err error) {
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) (err error) {
		isHolder, err = b.t.RaiseIncarnation(ctx, q)
		return err
	})
	return isHolder, err
}

// releaseLease lets another Box take over at once.
func (b *Box) releaseLease(ctx context.Context) error {
	return b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		b.t.RaiseLowWater(q)
		return b.t.ReleaseLease(ctx, q)
	})
}
