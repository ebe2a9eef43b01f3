package outbox

// Wait and Drain: waiting for outcomes, in any process.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/outcomes"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Wait blocks until every op of the batch has its outcome, and returns them in order; the same
// ones in every process, for as long as the ticket lasts. It may return them as soon as they
// have arrived, a moment before they are stored here: after a crash in between the server gives
// them again, word for word. The outcomes carry no digests. It goes on waiting while the
// database is away. NotFound for a batch that is not in the outbox; a *StreamStoppedError if
// the session's stream has stopped, whichever process sends, or if every stream has with an op
// that the batch has to wait for.
func (b *Box) Wait(ctx context.Context, batch string) ([]ledger.Outcome, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	pause := outcomes.PollMin
	for {
		outs, ch, near := b.hub.Subscribe(batch)
		if outs != nil {
			return append([]ledger.Outcome(nil), outs...), nil
		}
		outs, again, err := b.waitOnce(ctx, batch, ch, near, pause)
		b.hub.Unsubscribe(batch, ch)
		if !again {
			return outs, err
		}
		if err := b.damage.FileErr(); err != nil && pause == outcomes.PollMax {
			return nil, fmt.Errorf("wait: %w", err)
		}
		if pause == outcomes.PollMax {
			b.warnBlocking(ctx)
		}
		pause = min(2*pause, outcomes.PollMax)
	}
}

// warnBlocking logs, once, the process that blocks all writers, and so the sender.
func (b *Box) warnBlocking(ctx context.Context) {
	pid, since := b.db.BlockingWriter(ctx)
	if pid == 0 || b.warnedBlocking.Swap(since.UnixMilli()) == since.UnixMilli() {
		return
	}
	b.cfg.Logger.Warn("a process stands in its transaction, so that nobody can write to the outbox: if it is stopped "+
		"(Ctrl-Z, a debugger, a paused container) let it go on, or end it", "outbox", b.id, "pid", pid, "since", since)
}

// waitOnce reads the batch, at first only if another process may have its answer first, and
// then waits for a delivery or the next poll. again: there is no answer yet.
func (b *Box) waitOnce(ctx context.Context, batch string, ch chan []ledger.Outcome, near outcomes.Source, pause time.Duration) (outs []ledger.Outcome, again bool, err error) {
	look, next := near.Poll(pause)
	if look {
		waits, err := b.polls.StillWaiting(ctx, b.ctx, batch)
		if err == nil && !waits {
			var finished bool
			if outs, finished, err = b.outcomes(ctx, batch); err == nil && finished {
				return outs, false, nil
			}
		}
		if err != nil && !isUnavailable(err) {
			return nil, false, err
		}
	}
	if next == outcomes.PollMax { // aligned, so that long waiters poll together
		next -= time.Since(b.openedAt) % outcomes.PollMax
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case outs := <-ch:
		return append([]ledger.Outcome(nil), outs...), outs == nil, nil
	case <-timer.C:
		return nil, true, nil
	case <-ctx.Done():
		return nil, false, sqlstore.AsCanceled(ctx.Err())
	case <-b.ctx.Done():
		return nil, false, sqlstore.ErrClosed
	}
}

// isUnavailable reports that an error is temporary: the database is away, or starts again.
// Waiters go on waiting.
func isUnavailable(err error) bool { return fault.CodeOf(err) == fault.Unavailable }

// outcomes reads a finished batch's outcomes.
func (b *Box) outcomes(ctx context.Context, batch string) (outs []ledger.Outcome, finished bool, err error) {
	err = b.read(ctx, "wait", func(ctx context.Context, q sqlstore.Querier) error {
		r, err := b.t.Stage(ctx, q, batch)
		if err != nil {
			return err
		}
		if r == nil {
			return fault.NotFound.With("batch %s is not in this outbox: tickets last %s after the batch is finished", clip(batch), b.cfg.Retention)
		}
		if finished = r.State == sqlstore.RowFinished; !finished {
			stopped := b.streamStopped
			if r.FirstSeq == nil {
				stopped = b.unsequencedStopped
			}
			still, err := stopped(ctx, q, r.Session)
			if err == nil && still != nil {
				err = sqlstore.SnapshotError{Err: still}
			}
			return err
		}
		if r, err = b.t.Batch(ctx, q, batch, ""); err != nil {
			return err
		}
		if r == nil {
			return fault.NotFound.With("batch %s was swept just now", batch)
		}
		bd, err := r.Decode()
		if err == nil {
			outs, err = r.ReadOutcomes(bd)
		}
		return err
	})
	return outs, finished, err
}

// streamStopped returns why a session's stream has stopped; nil if it has not.
func (b *Box) streamStopped(ctx context.Context, q sqlstore.Querier, session string) (still *StreamStoppedError, err error) {
	now, err := b.db.Now(ctx, q)
	if err != nil {
		return nil, err
	}
	code, reason, err := b.t.Stopped(ctx, q, now, session)
	if err != nil || code == fault.None {
		return nil, err
	}
	return &StreamStoppedError{session, code, reason}, nil
}

// anyStopped reports whether any stream has stopped.
func (b *Box) anyStopped(ctx context.Context, q sqlstore.Querier) (some bool, err error) {
	now, err := b.db.Now(ctx, q)
	if err != nil {
		return false, err
	}
	return b.t.AnyStopped(ctx, q, now)
}

// unsequencedStopped is streamStopped for batches without a seq. Their stream also counts as
// stopped if the session's next batch is blocked only on ops of streams that are stopped, or
// blocked in turn. One running stream may decide the batch. Following references is not free,
// so it is only done while some stream has stopped.
func (b *Box) unsequencedStopped(ctx context.Context, q sqlstore.Querier, session string) (still *StreamStoppedError, err error) {
	if some, err := b.anyStopped(ctx, q); err != nil || !some {
		return nil, err
	}
	seen := make(map[string]*StreamStoppedError)
	var follow func(session string) (*StreamStoppedError, error)
	follow = func(session string) (*StreamStoppedError, error) {
		if still, known := seen[session]; known {
			return still, nil
		}
		seen[session] = nil // a cycle back to this session does not block it
		still, err := b.streamStopped(ctx, q, session)
		if err == nil && still == nil {
			still, err = b.blockersStopped(ctx, q, session, follow)
		}
		seen[session] = still
		return still, err
	}
	return follow(session)
}

// blockersStopped returns why all streams have stopped whose ops block the session's next
// batch; nil if one has not. follow returns it for a session whose op has no seq yet.
func (b *Box) blockersStopped(ctx context.Context, q sqlstore.Querier, session string, follow func(string) (*StreamStoppedError, error)) (*StreamStoppedError, error) {
	r, err := b.t.NextUnsequenced(ctx, q, session)
	if err != nil || r == nil {
		return nil, err
	}
	bd, err := r.Decode()
	if err != nil {
		return nil, nil // its sender reports it
	}
	res, err := intent.Resolve(bd, session, b.t.OpLookup(ctx, q, r.Num), false)
	if err != nil || bd.Decided() {
		return nil, err
	}
	var still *StreamStoppedError
	for _, e := range res.BlockedOn {
		if e.Seq > 0 { // it is in flight
			still, err = b.streamStopped(ctx, q, e.Session)
		} else {
			still, err = follow(e.Session)
		}
		if err != nil || still == nil {
			return nil, err
		}
	}
	return still, nil
}

// Drain waits until nothing is unfinished, whichever process sends. progress, if not nil, is
// called with the number of ops finished since the call and the total, at first and as it goes
// on. If all remaining ops belong to stopped streams, or wait for ops of stopped streams alone,
// Drain fails with the *StreamStoppedError of one. It fails with OutboxDamaged, once all else
// is finished, if this process has quarantined damaged rows, and soon if the database itself is
// damaged.
func (b *Box) Drain(ctx context.Context, progress func(done, total int)) error {
	total, left, shown, was, still := 0, 0, -1, -1, 0
	for {
		now, why, err := b.remaining(ctx)
		switch {
		case err != nil && isUnavailable(err):
			if err := b.awaitStored(ctx, 1); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		total += max(now-left, 0) // committed meanwhile
		left = now
		if still > 0 {
			b.warnBlocking(ctx)
		}
		if done := total - left; progress != nil && done != shown {
			progress(done, total)
			shown = done
		}
		if left == 0 && why == nil {
			return b.damage.RowsErr()
		}
		if why != nil {
			return errors.Join(why, b.damage.RowsErr())
		}
		if err := b.damage.FileErr(); err != nil && left == was {
			return fmt.Errorf("drain: %w", err)
		}
		if still++; left != was {
			still = 0
		}
		if still == checkAfterRounds {
			if err := b.read(ctx, "check the outbox", b.db.CheckIntegrity); err != nil && !isUnavailable(err) {
				return fmt.Errorf("drain: %w", err)
			}
		}
		was = left
		if err := b.awaitStored(ctx, left); err != nil {
			return err
		}
	}
}

// checkAfterRounds is the number of Drain's rounds without progress after which it checks the
// file for damage, once: two seconds.
const checkAfterRounds = int(2 * time.Second / outcomes.PollMax)

// awaitStored waits until this process has stored left outcomes, by its own count, or for a
// while: counting rows is not free.
func (b *Box) awaitStored(ctx context.Context, left int) error {
	timer := time.NewTimer(outcomes.PollMax)
	defer timer.Stop()
	for until := b.usage.stored.Load() + int64(left); ; {
		next := b.hub.NextChange()
		if b.usage.stored.Load() >= until {
			return nil
		}
		select {
		case <-next:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return sqlstore.AsCanceled(ctx.Err())
		case <-b.ctx.Done():
			return sqlstore.ErrClosed
		}
	}
}

// remaining counts unfinished ops; stuck is a stopped stream's error if no other stream has ops
// that could go on.
func (b *Box) remaining(ctx context.Context) (left int, stuck, err error) {
	err = b.read(ctx, "drain", func(ctx context.Context, q sqlstore.Querier) error {
		streams, err := b.t.UnfinishedStreams(ctx, q)
		left = 0
		var still *StreamStoppedError
		running := false
		for _, s := range streams {
			left += s.Unfinished
			if running || err != nil {
				continue
			}
			stopped := b.streamStopped
			if s.Stopped == fault.None && s.MaxSeq == 0 {
				stopped = b.unsequencedStopped
			}
			still, err = stopped(ctx, q, s.Session)
			running = still == nil
		}
		if err == nil && still != nil {
			err = sqlstore.SnapshotError{Err: still}
		}
		return err
	})
	if still, ok := errors.AsType[*StreamStoppedError](err); ok {
		return left, still, nil
	}
	return left, nil, err
}

// unfinishedOf returns the unfinished ones of batches; none while a stream has stopped, since
// it may block some of them.
func (b *Box) unfinishedOf(batches map[string]struct{}) (waiting map[string]struct{}, err error) {
	ids := make([]string, 0, len(batches))
	for id := range batches {
		ids = append(ids, id)
	}
	err = b.read(b.ctx, "wait", func(ctx context.Context, q sqlstore.Querier) error {
		stopped, err := b.anyStopped(ctx, q)
		waiting = make(map[string]struct{})
		if err != nil || stopped {
			return err
		}
		unfinished, err := b.t.UnfinishedOf(ctx, q, ids)
		for _, id := range unfinished {
			waiting[id] = struct{}{}
		}
		return err
	})
	return waiting, err
}
