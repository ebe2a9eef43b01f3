package outbox

// Wait and Drain: waiting for outcomes, in any process.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// outcomeHub delivers outcomes to the waiters of this process as soon as an answer has arrived.
type outcomeHub struct {
	mu             sync.Mutex // guards the fields below
	sending        bool       // this process sends
	waiting        map[string][]chan []ledger.Outcome
	sources        map[string]answerSource  // of the batches that this process's sender will announce
	received       map[string]receivedBatch // outcomes that are not stored yet, or were stored lately
	storedOrder    []string                 // keys of received that are stored, in order
	storedOutcomes int                      // number of outcomes in storedOrder
	changed        chan struct{}            // closed and replaced when a batch finishes
}

// answerSource is where a batch's answer will be seen first.
type answerSource int

const (
	fromDatabase answerSource = iota // another process may store the answer: poll the database
	fromQueue                        // committed here, while this process sends
	fromSender                       // this process's sender has it
)

// receivedBatch is a batch's outcomes as they arrived.
type receivedBatch struct {
	outs   []ledger.Outcome
	stored bool
}

// subscribe registers a waiter for a batch, unless its outcomes have arrived: then it returns
// them.
func (n *outcomeHub) subscribe(batch string) (outs []ledger.Outcome, ch chan []ledger.Outcome, near answerSource) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.received[batch]; a.outs != nil {
		return a.outs, nil, fromSender
	}
	ch = make(chan []ledger.Outcome, 1)
	if n.waiting == nil {
		n.waiting = make(map[string][]chan []ledger.Outcome)
	}
	n.waiting[batch] = append(n.waiting[batch], ch)
	return nil, ch, n.sources[batch]
}

func (n *outcomeHub) unsubscribe(batch string, ch chan []ledger.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, c := range n.waiting[batch] {
		if c == ch {
			n.waiting[batch] = append(n.waiting[batch][:i], n.waiting[batch][i+1:]...)
			break
		}
	}
	if len(n.waiting[batch]) == 0 {
		delete(n.waiting, batch)
	}
}

// publish delivers a batch's outcomes to its waiters; nil makes them read the database. stored
// reports that they are stored already.
func (n *outcomeHub) publish(batch string, outs []ledger.Outcome, stored bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.received[batch]; !stored && !a.stored { // else it is a repeated answer, already delivered
		if n.received == nil {
			n.received = make(map[string]receivedBatch)
		}
		n.received[batch] = receivedBatch{outs: outs}
	}
	delete(n.sources, batch)
	for _, ch := range n.waiting[batch] {
		ch <- outs // never blocks: a channel gets one value
	}
	delete(n.waiting, batch)
	n.broadcast()
}

// recheckAll makes all waiters, present and future, read the database.
func (n *outcomeHub) recheckAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sources = nil
	for _, waiting := range n.waiting {
		for _, ch := range waiting {
			ch <- nil
		}
	}
	clear(n.waiting)
	n.broadcast()
}

// noteSent records that a batch is with this process's sender.
func (n *outcomeHub) noteSent(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setSource(batch, fromSender)
}

// maxQueued bounds the batches that are fromQueue: beyond it they are polled for.
const maxQueued = 4096

// noteQueued records that a batch was committed here, if this process sends.
func (n *outcomeHub) noteQueued(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sending && len(n.sources) < maxQueued {
		n.setSource(batch, fromQueue)
	}
}

func (n *outcomeHub) setSource(batch string, near answerSource) {
	if n.sources == nil {
		n.sources = make(map[string]answerSource)
	}
	n.sources[batch] = max(n.sources[batch], near)
}

// senderStarted records that this process sends.
func (n *outcomeHub) senderStarted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sending = true
}

// senderStopped records that this process no longer sends.
func (n *outcomeHub) senderStopped() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sending, n.sources = false, nil
}

// maxStoredOutcomes bounds the outcomes cached after they were stored, for waiters that come a
// moment later.
const maxStoredOutcomes = 512

// markStored records that a batch's outcomes can be found in the database.
func (n *outcomeHub) markStored(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.received[batch]; ok && !a.stored { // else the answer was repeated
		a.stored = true
		n.received[batch] = a
		n.storedOrder = append(n.storedOrder, batch)
		n.storedOutcomes += len(a.outs)
	}
	n.trim(maxStoredOutcomes)
	n.broadcast()
}

// trim removes the oldest stored batches, until no more than most outcomes are left.
func (n *outcomeHub) trim(most int) {
	for n.storedOutcomes > most {
		oldest := n.storedOrder[0]
		n.storedOrder = n.storedOrder[1:]
		n.storedOutcomes -= len(n.received[oldest].outs)
		delete(n.received, oldest)
	}
}

// dropStored removes all stored batches, since tickets have ended.
func (n *outcomeHub) dropStored() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trim(0)
}

// broadcast wakes the waiters of nextChange.
func (n *outcomeHub) broadcast() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// nextChange returns a channel that is closed when outcomes of a batch arrive at this process
// or are stored by it.
func (n *outcomeHub) nextChange() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// Polling for answers that another process stores begins often and slows down. For this
// process's own it is only a precaution, since the hub delivers them, and slow: its sender may
// still lose the lease before it reads a queued batch.
const (
	pollMin    = 10 * time.Millisecond
	pollMax    = 250 * time.Millisecond
	pollQueued = 50 * time.Millisecond // the first time; then pollMax
	pollSent   = time.Second
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
	pause := pollMin
	for {
		outs, ch, near := b.hub.subscribe(batch)
		if outs != nil {
			return append([]ledger.Outcome(nil), outs...), nil
		}
		outs, again, err := b.waitOnce(ctx, batch, ch, near, pause)
		b.hub.unsubscribe(batch, ch)
		if !again {
			return outs, err
		}
		if err := b.damage.fileErr(); err != nil && pause == pollMax {
			return nil, fmt.Errorf("wait: %w", err)
		}
		if pause == pollMax {
			b.warnBlocking(ctx)
		}
		pause = min(2*pause, pollMax)
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
func (b *Box) waitOnce(ctx context.Context, batch string, ch chan []ledger.Outcome, near answerSource, pause time.Duration) (outs []ledger.Outcome, again bool, err error) {
	look, next := near.poll(pause)
	if look {
		waits, err := b.stillWaiting(ctx, batch)
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
	if next == pollMax { // aligned, so that long waiters poll together
		next -= time.Since(b.openedAt) % pollMax
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
		return nil, false, writer.ErrClosed
	}
}

// poll reports whether to read the database now, when polls are pause apart, and how long it is
// until the next poll.
func (n answerSource) poll(pause time.Duration) (look bool, next time.Duration) {
	first := pause == pollMin
	switch {
	case n == fromSender:
		return !first, pollSent
	case n == fromQueue && first:
		return false, pollQueued
	case n == fromQueue:
		return true, pollMax
	}
	return true, pause
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
				err = still
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
	return b.t.Stopped(ctx, q, now, session)
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
			return b.damage.rowsErr()
		}
		if why != nil {
			return errors.Join(why, b.damage.rowsErr())
		}
		if err := b.damage.fileErr(); err != nil && left == was {
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
const checkAfterRounds = int(2 * time.Second / pollMax)

// awaitStored waits until this process has stored left outcomes, by its own count, or for a
// while: counting rows is not free.
func (b *Box) awaitStored(ctx context.Context, left int) error {
	timer := time.NewTimer(pollMax)
	defer timer.Stop()
	for until := b.usage.stored.Load() + int64(left); ; {
		next := b.hub.nextChange()
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
			return writer.ErrClosed
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
			err = still
		}
		return err
	})
	if still, ok := errors.AsType[*StreamStoppedError](err); ok {
		return left, still, nil
	}
	return left, nil, err
}
