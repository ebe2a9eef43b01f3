package outbox

// Waiting for outcomes, in any process.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// notices tell those who wait in this process, as soon as an answer has arrived.
type notices struct {
	mu      sync.Mutex // guards what follows
	waiting map[string][]chan []ledger.Outcome
	near    map[string]nearness // of batches that this process's sender will tell of
	arrived map[string]arrival  // told, and not stored yet or stored lately
	lately  []string            // of arrived: those that are stored, in order
	kept    int                 // outcomes of those
	any     chan struct{}       // closed and replaced when something finishes
}

// nearness is how near a batch is to an answer that this process hears of first.
type nearness int

const (
	notHere    nearness = iota // another process may store the answer: only the database tells
	queuedHere                 // committed here, while this process sends
	withSender                 // this process's sender has it
)

// arrival is a batch's outcomes as they came.
type arrival struct {
	outs   []ledger.Outcome
	stored bool
}

// add registers a waiter for a batch, unless its outcomes have arrived: then it
// gives them.
func (n *notices) add(batch string) (outs []ledger.Outcome, ch chan []ledger.Outcome, near nearness) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.arrived[batch]; a.outs != nil {
		return a.outs, nil, withSender
	}
	ch = make(chan []ledger.Outcome, 1)
	if n.waiting == nil {
		n.waiting = make(map[string][]chan []ledger.Outcome)
	}
	n.waiting[batch] = append(n.waiting[batch], ch)
	return nil, ch, n.near[batch]
}

func (n *notices) remove(batch string, ch chan []ledger.Outcome) {
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

// tell gives a batch's outcomes to those who wait; nil makes them look in the
// database. stored says that they are there already.
func (n *notices) tell(batch string, outs []ledger.Outcome, stored bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.arrived[batch]; !stored && !a.stored { // else it is answered again, and told already
		if n.arrived == nil {
			n.arrived = make(map[string]arrival)
		}
		n.arrived[batch] = arrival{outs: outs}
	}
	delete(n.near, batch)
	for _, ch := range n.waiting[batch] {
		ch <- outs // has room for one, and is told once
	}
	delete(n.waiting, batch)
	n.happened()
}

// look makes everyone who waits look in the database, and who comes to wait for what there
// is now.
func (n *notices) look() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.near = nil
	for _, waiting := range n.waiting {
		for _, ch := range waiting {
			ch <- nil
		}
	}
	clear(n.waiting)
	n.happened()
}

// sent says that a batch is with this process's sender.
func (n *notices) sent(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.approach(batch, withSender)
}

// mostQueued is how many batches may be queuedHere: one more is looked for in the database.
const mostQueued = 4096

// queued says that a batch was committed here, while this process sends.
func (n *notices) queued(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.near) < mostQueued {
		n.approach(batch, queuedHere)
	}
}

func (n *notices) approach(batch string, near nearness) {
	if n.near == nil {
		n.near = make(map[string]nearness)
	}
	n.near[batch] = max(n.near[batch], near)
}

// grounded says that this process no longer sends.
func (n *notices) grounded() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.near = nil
}

// keepOutcomes is how many outcomes are kept after they were stored, for those
// who come to wait a moment later.
const keepOutcomes = 512

// stored says that a batch's outcomes can be found in the database.
func (n *notices) stored(batch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, told := n.arrived[batch]; told && !a.stored { // else it was answered twice
		a.stored = true
		n.arrived[batch] = a
		n.lately = append(n.lately, batch)
		n.kept += len(a.outs)
	}
	n.keep(keepOutcomes)
	n.happened()
}

// keep forgets the oldest of what is stored, until no more outcomes are left.
func (n *notices) keep(most int) {
	for n.kept > most {
		oldest := n.lately[0]
		n.lately = n.lately[1:]
		n.kept -= len(n.arrived[oldest].outs)
		delete(n.arrived, oldest)
	}
}

// swept says that tickets have ended.
func (n *notices) swept() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keep(0)
}

// happened wakes whoever waits for next.
func (n *notices) happened() {
	if n.any != nil {
		close(n.any)
		n.any = nil
	}
}

// next is closed when this process hears of or stores a batch's outcomes.
func (n *notices) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.any == nil {
		n.any = make(chan struct{})
	}
	return n.any
}

// Polling for what another process stores begins often and slows down. For what
// this one sends it is only a precaution, the answer will be told: it begins later for what is
// still queued, and waits long for what is under way.
const (
	pollFirst = 10 * time.Millisecond
	pollMost  = 250 * time.Millisecond
	pollHere  = 50 * time.Millisecond
	pollSent  = time.Second
)

// Standstill is the error of waiting for what is not sent until someone decides:
// its session's stream has stopped. The batches stay in the outbox. errors.Is
// finds Code.
type Standstill struct {
	Session string
	Code    fault.Code
	Reason  string // for people; begins with the code
}

func (s *Standstill) Error() string {
	reason := strings.TrimPrefix(s.Reason, s.Code.String()+": ")
	return s.Code.String() + ": session " + s.Session + " cannot go on: " + reason
}

// Unwrap gives the code.
func (s *Standstill) Unwrap() error { return s.Code }

// Wait blocks until every op of the batch has its outcome, and gives them in
// order; the same ones in every process, for as long as the ticket lasts. It may
// give them as soon as they have arrived, a moment before they are stored here:
// after a crash in between the server gives them again, word for word. The
// outcomes carry no digests. It goes on waiting while the database is away. NotFound for a batch that is not in the outbox; a
// *Standstill if the session's stream has stopped, whoever sends, or if every stream
// has with an op that the batch has to wait for.
func (b *Box) Wait(ctx context.Context, batch string) ([]ledger.Outcome, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	pause := pollFirst
	for {
		outs, ch, near := b.told.add(batch)
		if outs != nil {
			return append([]ledger.Outcome(nil), outs...), nil
		}
		outs, again, err := b.waitOnce(ctx, batch, ch, near, pause)
		b.told.remove(batch, ch)
		if !again {
			return outs, err
		}
		if err := b.damage.ofFile(); err != nil && pause == pollMost {
			return nil, fmt.Errorf("wait: %w", err)
		}
		if pause == pollMost {
			b.sayStanding(ctx)
		}
		pause = min(2*pause, pollMost)
	}
}

// sayStanding logs, once, who keeps everybody from writing, and so from sending.
func (b *Box) sayStanding(ctx context.Context) {
	pid, since := b.db.standing(ctx)
	if pid == 0 || b.said.Swap(since.UnixMilli()) == since.UnixMilli() {
		return
	}
	b.cfg.Logger.Warn("a process stands in its transaction, so that nobody can write to the outbox: if it is stopped "+
		"(Ctrl-Z, a debugger, a paused container) let it go on, or end it", "outbox", b.id, "pid", pid, "since", since)
}

// waitOnce looks, at first only where another process may hear before this one, and then waits for a
// word or a moment. again: there is no answer yet.
func (b *Box) waitOnce(ctx context.Context, batch string, ch chan []ledger.Outcome, near nearness, pause time.Duration) (outs []ledger.Outcome, again bool, err error) {
	look, next := near.poll(pause)
	if look {
		waits, err := b.waits(ctx, batch)
		if err == nil && !waits {
			var finished bool
			if outs, finished, err = b.outcomes(ctx, batch); err == nil && finished {
				return outs, false, nil
			}
		}
		if err != nil && !passes(err) {
			return nil, false, err
		}
	}
	if next == pollMost { // all who wait for long look at the same moments, and so together
		next -= time.Since(b.opened) % pollMost
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case outs := <-ch:
		return append([]ledger.Outcome(nil), outs...), outs == nil, nil
	case <-timer.C:
		return nil, true, nil
	case <-ctx.Done():
		return nil, false, canceled(ctx.Err())
	case <-b.life.Done():
		return nil, false, errClosed
	}
}

// poll says whether the database is looked at now, when pause is how long the polls are apart, and
// how long it then is until the next one.
func (n nearness) poll(pause time.Duration) (look bool, next time.Duration) {
	first := pause == pollFirst
	switch {
	case n == withSender:
		return !first, pollSent
	case n == queuedHere && first:
		return false, pollHere
	}
	return true, pause
}

// passes says of what kept somebody from looking that it passes: the database is away, or starts
// again. Who waits goes on waiting.
func passes(err error) bool { return fault.CodeOf(err) == fault.Unavailable }

// outcomes reads a finished batch's outcomes.
func (b *Box) outcomes(ctx context.Context, batch string) (outs []ledger.Outcome, finished bool, err error) {
	err = b.read(ctx, "wait", func(ctx context.Context, q querier) error {
		r, err := b.t.stage(ctx, q, batch)
		if err != nil {
			return err
		}
		if r == nil {
			return fault.NotFound.With("batch %s is not in this outbox: tickets last %s after the batch is finished", clip(batch), b.cfg.Keep)
		}
		if finished = r.state == rowFinished; !finished {
			held := b.standstill
			if r.first == nil {
				held = b.heldUp
			}
			still, err := held(ctx, q, r.session)
			if err == nil && still != nil {
				err = still
			}
			return err
		}
		if r, err = b.t.batch(ctx, q, batch, ""); err != nil {
			return err
		}
		if r == nil {
			return fault.NotFound.With("batch %s was swept just now", batch)
		}
		bd, err := r.decode()
		if err == nil {
			outs, err = r.ends(bd)
		}
		return err
	})
	return outs, finished, err
}

const sqlStage = `SELECT session, state, first_seq FROM mooring_outbox_batch WHERE box = $1 AND batch = $2`

// stage reads how far a batch is, and not what is in it; nil if it is not there.
func (t *tables) stage(ctx context.Context, q querier, batch string) (r *batchRow, err error) {
	err = q.query(ctx, sqlStage, []any{t.box, batch}, func(scan scanner) error {
		r = new(batchRow)
		return scan(&r.session, &r.state, &r.first)
	})
	return r, err
}

// What the last sender left behind does not count: the next begins with trying again.
const (
	fromStopped = ` FROM mooring_outbox_stream s JOIN mooring_outbox o ON o.box = s.box
		WHERE s.box = $1 AND s.stopped > 0 AND o.holder <> '' AND o.lease_until > $2`
	sqlStopped    = `SELECT s.stopped, s.reason` + fromStopped + ` AND s.session = $3`
	sqlAnyStopped = `SELECT 1` + fromStopped + ` LIMIT 1`
)

// standstill says why a session's stream has stopped; nil if it has not.
func (b *Box) standstill(ctx context.Context, q querier, session string) (still *Standstill, err error) {
	now, err := b.db.now(ctx, q)
	if err != nil {
		return nil, err
	}
	err = q.query(ctx, sqlStopped, []any{b.t.box, now, session}, func(scan scanner) error {
		still = &Standstill{Session: session}
		var code int
		err := scan(&code, &still.Reason)
		still.Code = fault.Code(code)
		return err
	})
	return still, err
}

// anyStopped says whether some stream has stopped.
func (b *Box) anyStopped(ctx context.Context, q querier) (some bool, err error) {
	now, err := b.db.now(ctx, q)
	if err != nil {
		return false, err
	}
	err = q.query(ctx, sqlAnyStopped, []any{b.t.box, now}, func(scanner) error { some = true; return nil })
	return some, err
}

const sqlNextWaiting = `SELECT ` + batchColumns + ` FROM mooring_outbox_batch
	WHERE box = $1 AND session = $2 AND first_seq IS NULL ORDER BY num LIMIT 1`

// heldUp is standstill for what has no seq yet: also where all streams stand still, or
// are held up in turn, that owe the session's next batch an op. If one does not it may
// decide the batch. To follow references is not free, so it is only done while some
// stream has stopped.
func (b *Box) heldUp(ctx context.Context, q querier, session string) (still *Standstill, err error) {
	if some, err := b.anyStopped(ctx, q); err != nil || !some {
		return nil, err
	}
	seen := make(map[string]*Standstill)
	var follow func(session string) (*Standstill, error)
	follow = func(session string) (*Standstill, error) {
		if still, known := seen[session]; known {
			return still, nil
		}
		seen[session] = nil // who is led back here is not held up by that
		still, err := b.standstill(ctx, q, session)
		if err == nil && still == nil {
			still, err = b.owing(ctx, q, session, follow)
		}
		seen[session] = still
		return still, err
	}
	return follow(session)
}

// owing says why all streams stand still that owe the session's next batch an op; nil if
// one does not. follow tells it of those whose op has no seq yet.
func (b *Box) owing(ctx context.Context, q querier, session string, follow func(string) (*Standstill, error)) (*Standstill, error) {
	r, err := b.t.one(ctx, q, sqlNextWaiting, b.t.box, session)
	if err != nil || r == nil {
		return nil, err
	}
	bd, err := r.decode()
	if err != nil {
		return nil, nil // whoever sends it says so
	}
	res, err := resolve(bd, session, b.t.finder(ctx, q, r.num), false)
	if err != nil || bd.decided() {
		return nil, err
	}
	var still *Standstill
	for _, e := range res.owed {
		if e.seq > 0 { // it is on its way
			still, err = b.standstill(ctx, q, e.session)
		} else {
			still, err = follow(e.session)
		}
		if err != nil || still == nil {
			return nil, err
		}
	}
	return still, nil
}

// Drain waits until nothing is unfinished, whoever sends. progress, if not nil,
// is called with the ops finished since the call and those there were in all,
// at first and as it goes on. If all that is left belongs to streams that stand
// still until someone decides, or waits for ops of such alone, Drain fails with the
// *Standstill of one. It fails with OutboxDamaged, once all else is finished, if this
// process has set damaged rows aside, and soon if the database itself is damaged.
func (b *Box) Drain(ctx context.Context, progress func(done, total int)) error {
	total, left, shown, was, still := 0, 0, -1, -1, 0
	for {
		now, why, err := b.remaining(ctx)
		switch {
		case err != nil && passes(err):
			if err := b.awaitLess(ctx, 1); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		total += max(now-left, 0) // committed meanwhile
		left = now
		if still > 0 {
			b.sayStanding(ctx)
		}
		if done := total - left; progress != nil && done != shown {
			progress(done, total)
			shown = done
		}
		if left == 0 && why == nil {
			return b.damage.ofRows()
		}
		if why != nil {
			return errors.Join(why, b.damage.ofRows())
		}
		if err := b.damage.ofFile(); err != nil && left == was {
			return fmt.Errorf("drain: %w", err)
		}
		if still++; left != was {
			still = 0
		}
		if still == checkAfter {
			if err := b.read(ctx, "check the outbox", b.db.check); err != nil && !passes(err) {
				return fmt.Errorf("drain: %w", err)
			}
		}
		was = left
		if err := b.awaitLess(ctx, left); err != nil {
			return err
		}
	}
}

// checkAfter is for how many rounds of Drain nothing has finished when it looks whether the
// file is damaged, once: two seconds.
const checkAfter = int(2 * time.Second / pollMost)

// awaitLess waits until this process has, by its own count, stored so many
// outcomes, or for a while: counting rows is not free.
func (b *Box) awaitLess(ctx context.Context, left int) error {
	timer := time.NewTimer(pollMost)
	defer timer.Stop()
	for until := b.usage.finished.Load() + int64(left); ; {
		next := b.told.next()
		if b.usage.finished.Load() >= until {
			return nil
		}
		select {
		case <-next:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return canceled(ctx.Err())
		case <-b.life.Done():
			return errClosed
		}
	}
}

// remaining counts unfinished ops; stuck tells of a stopped stream if no other
// has anything left that could go on.
func (b *Box) remaining(ctx context.Context) (left int, stuck, err error) {
	err = b.read(ctx, "drain", func(ctx context.Context, q querier) error {
		streams, err := b.t.streamStatus(ctx, q)
		left = 0
		var still *Standstill
		running := false
		for _, s := range streams {
			left += s.Unfinished
			if running || err != nil {
				continue
			}
			held := b.standstill
			if s.Stopped == fault.None && s.seq == 0 {
				held = b.heldUp
			}
			still, err = held(ctx, q, s.Session)
			running = still == nil
		}
		if err == nil && still != nil {
			err = still
		}
		return err
	})
	if still, ok := errors.AsType[*Standstill](err); ok {
		return left, still, nil
	}
	return left, nil, err
}
