package outbox

// The worker: the one writer of a process to the outbox. Jobs submitted while a transaction
// runs go into the next one: commits of many callers, outcomes, seqs. If a transaction fails,
// its jobs are tried one by one.
//
// A caller that waits for its job and finds no transaction running runs one itself, with the
// other jobs that are due: handing it to another goroutine and back costs more than most
// commits. The worker's goroutine runs the others.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// job is a part of a transaction.
type job struct {
	// run makes its statements. It may be run again, after a rollback, so it sets all its
	// result variables anew each time.
	run func(ctx context.Context, q sqlstore.Querier) error
	// done is called with the result, in the order of the jobs, by the writing goroutine and
	// before anything else is written; it must not block. ambiguous: it failed but may have
	// been committed.
	done func(err error, ambiguous bool)
	// lazy jobs wait a while for others to go with. They are tried again until they succeed;
	// one that fails by itself is given up after maxLazyTries, and done gets its error.
	lazy bool
	// stream is the session whose lazy jobs are written in order: none of them goes ahead of
	// one that has failed. "" for a job without an order.
	stream string
	// commit marks a caller's batch: it does not take lazy jobs along before they are due, so
	// that its caller need not wait for them.
	commit bool

	state int // guarded by worker.mu
	tries int // failures of a lazy job by itself
}

// States of a job.
const (
	jobQueued = iota
	jobTaken
	jobWithdrawn
)

// Bounds of one transaction, and of waiting.
const (
	maxGroupJobs   = 512
	maxLazyJobs    = 128 // this many lazy jobs do not wait longer
	lazyRetryDelay = 200 * time.Millisecond
	maxLazyTries   = 10 // tries of a lazy job, until it is given up
	writeGrace     = 5 * time.Second
)

type worker struct {
	box        *Box
	wake       chan struct{}
	ended      chan struct{}
	ctx        context.Context // of all transactions; ends when closing takes too long
	stop       context.CancelFunc
	retryDelay time.Duration // lazyRetryDelay
	grace      time.Duration // writeGrace

	mu         sync.Mutex // guards the fields below
	jobs       []*job
	urgent     int       // number of jobs that are not lazy
	oldest     time.Time // when the first lazy job came
	retryAfter time.Time // until then failed lazy jobs are not tried again
	writing    bool      // a goroutine runs a transaction
	afterTx    []func()  // functions to call after the transaction, from its jobs
	oneByOne   bool      // it failed, and its jobs are tried one by one
	closing    bool
	closeBy    time.Time // after it failed lazy jobs are given up
	closeTimer *time.Timer

	seqs seqAllocator // has its own lock
}

func newWorker(b *Box) *worker {
	w := &worker{box: b, wake: make(chan struct{}, 1), ended: make(chan struct{}), retryDelay: lazyRetryDelay, grace: writeGrace}
	w.ctx, w.stop = context.WithCancel(context.Background())
	go w.run()
	return w
}

// submit queues a job; done will be called, with errClosed if the worker is closed.
func (w *worker) submit(j *job) {
	if w.enqueue(j) {
		w.signal()
	}
}

func (w *worker) enqueue(j *job) bool {
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		j.done(errClosed, false)
		return false
	}
	if j.lazy {
		if len(w.jobs) == w.urgent {
			w.oldest = time.Now()
		}
	} else {
		w.urgent++
	}
	w.jobs = append(w.jobs, j)
	w.mu.Unlock()
	return true
}

func (w *worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// do submits a job and waits for it. If ctx ends before the job has begun it is withdrawn; once
// begun its end is awaited, so that the result is certain.
func (w *worker) do(ctx context.Context, run func(ctx context.Context, q sqlstore.Querier) error) error {
	return w.doThen(ctx, run, func(error, bool) {})
}

// doThen is do, with then called before anything else is written.
func (w *worker) doThen(ctx context.Context, run func(ctx context.Context, q sqlstore.Querier) error, then func(err error, ambiguous bool)) error {
	return w.doJob(ctx, &job{run: run, done: then})
}

// doJob is do for a job.
func (w *worker) doJob(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return sqlstore.AsCanceled(err)
	}
	end, then := make(chan error, 1), j.done
	j.done = func(err error, ambiguous bool) { then(err, ambiguous); end <- err }
	if w.enqueue(j) && !w.tryWrite() {
		w.signal()
	}
	select {
	case err := <-end:
		return sqlstore.WithCode(err)
	case <-ctx.Done():
	}
	w.mu.Lock()
	if j.state == jobQueued {
		j.state = jobWithdrawn
		w.mu.Unlock()
		return sqlstore.AsCanceled(ctx.Err())
	}
	w.mu.Unlock()
	return sqlstore.WithCode(<-end)
}

// beginClose announces close: from now on transactions have writeGrace, all together.
func (w *worker) beginClose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeBy = time.Now().Add(w.grace)
	w.closeTimer = time.AfterFunc(w.grace, w.stop)
}

// close writes the queued jobs, for a while, and ends the goroutine.
func (w *worker) close() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.signal()
	<-w.ended
	w.closeTimer.Stop()
	w.stop()
}

func (w *worker) run() {
	defer close(w.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, over := w.write()
		if over {
			return
		}
		timer.Reset(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// write runs transactions until none is due, and returns the time until the next is. over: the
// worker is closed and has no jobs.
func (w *worker) write() (wait time.Duration, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.writing {
		var group []*job
		if group, wait = w.nextGroup(); len(group) == 0 {
			return wait, w.closing && len(w.jobs) == 0
		}
		w.runTx(group)
	}
	return time.Hour, false // the writing goroutine signals
}

// tryWrite runs one transaction, if none is running, for a caller that has a job in the queue;
// the job may be in a later one.
func (w *worker) tryWrite() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing || w.closing {
		return false
	}
	if group, _ := w.nextGroup(); len(group) > 0 {
		w.runTx(group)
	}
	if len(w.jobs) > 0 || w.closing {
		w.signal()
	}
	return true
}

// runTx releases mu while it runs a transaction, and the functions after it. mu is held.
func (w *worker) runTx(group []*job) {
	defer fatal.OnPanic()
	w.writing = true
	last := w.closing && time.Now().After(w.closeBy)
	w.mu.Unlock()
	w.runGroup(group, last)
	w.mu.Lock()
	w.writing, w.oneByOne = false, false
	after := w.afterTx
	if w.afterTx = nil; len(after) == 0 {
		return
	}
	if len(w.jobs) > 0 {
		w.signal()
	}
	w.mu.Unlock()
	for _, f := range after {
		f()
	}
	w.mu.Lock()
}

// onTxEnd makes the goroutine that runs the transaction call f once it is over and others may
// write. A job's done calls it. It reports false where that could take long: f is not called.
func (w *worker) onTxEnd(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.oneByOne {
		return false
	}
	w.afterTx = append(w.afterTx, f)
	return true
}

// nextGroup returns the next transaction's jobs, or how long to wait for them. mu is held.
func (w *worker) nextGroup() (group []*job, wait time.Duration) {
	lazy := len(w.jobs) - w.urgent
	if wait = time.Until(w.retryAfter); w.urgent == 0 && lazy > 0 && wait > 0 { // also if they are many, or the last
		return nil, wait
	}
	wait = 0
	if lazy > 0 && lazy < maxLazyJobs && !w.closing {
		wait = max(time.Until(w.oldest.Add(w.box.cfg.AckDelay)), 0)
	}
	if w.urgent == 0 && (wait > 0 || lazy == 0) && !w.closing {
		if lazy == 0 {
			wait = time.Hour
		}
		return nil, wait
	}
	leave := wait > 0 && !slices.ContainsFunc(w.jobs, func(j *job) bool { return !j.lazy && !j.commit })
	var rest []*job
	for i, j := range w.jobs {
		if len(group) == maxGroupJobs {
			rest = append(rest, w.jobs[i:]...)
			break
		}
		if j.lazy && leave {
			rest = append(rest, j)
			continue
		}
		if !j.lazy {
			w.urgent--
		}
		if j.state == jobQueued {
			j.state = jobTaken
			group = append(group, j)
		}
	}
	w.jobs = rest
	return group, 0
}

// requeue puts failed lazy jobs back in front, to be tried after retryDelay.
func (w *worker) requeue(jobs []*job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		j.state = jobQueued
	}
	w.jobs = append(append([]*job(nil), jobs...), w.jobs...)
	w.oldest = time.Now().Add(w.retryDelay)
	w.retryAfter = w.oldest
}

func (w *worker) runGroup(group []*job, last bool) {
	err, ambiguous := w.writeGroup(group)
	if err == nil || len(group) == 1 && !group[0].lazy {
		for _, j := range group {
			j.done(err, ambiguous)
		}
		return
	}
	w.mu.Lock()
	w.oneByOne = true
	w.mu.Unlock()
	// A job that may have been committed must not run twice: lazy jobs can be repeated, the
	// others fail.
	alone := !ambiguous && fault.CodeOf(err) != fault.Unavailable && len(group) > 1
	away := false                   // the database takes no lazy job just now
	behind := make(map[string]bool) // streams with a failed job
	var again []*job
	for _, j := range group {
		held := j.lazy && (away || behind[j.stream])
		one, maybe := err, ambiguous
		if alone && !held {
			one, maybe = w.writeGroup([]*job{j})
		}
		switch {
		case one == nil || !j.lazy || last:
			j.done(one, maybe)
			continue
		case held:
		case isDBState(one):
			away = true
		case j.tries+1 < maxLazyTries:
			j.tries++
		default:
			w.box.cfg.Logger.Error("what cannot be written to the outbox is given up", "outbox", w.box.id, "session", j.stream, "error", one)
			j.done(one, false)
			continue
		}
		again = append(again, j)
		behind[j.stream] = j.stream != ""
	}
	if len(again) > 0 {
		w.box.cfg.Logger.Warn("outcomes cannot be stored yet", "outbox", w.box.id, "error", err)
		w.requeue(again)
	}
}

// isDBState reports whether a job's error is due to the state of the database, and not to the
// job.
func isDBState(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.DiskFull, fault.Usage: // Usage: the file cannot be written
		return true
	}
	return errors.Is(err, sqlstore.ErrTxConflict) || errors.Is(err, context.DeadlineExceeded)
}

// maxTxConflicts is how often a transaction may be rolled back to break deadlocks.
const maxTxConflicts = 10

// writeGroup runs jobs in one transaction.
func (w *worker) writeGroup(group []*job) (err error, ambiguous bool) {
	for range maxTxConflicts {
		if err, ambiguous = w.writeOnce(group); ambiguous || !errors.Is(err, sqlstore.ErrTxConflict) {
			break
		}
	}
	return err, ambiguous
}

func (w *worker) writeOnce(group []*job) (err error, ambiguous bool) {
	// No caller's context: a caller that gives up must not roll back others' jobs.
	ambiguous, err = w.box.db.Write(w.ctx, func(q sqlstore.Querier) error {
		w.seqs.beginTx()
		for _, j := range group {
			if err := j.run(w.ctx, q); err != nil {
				return err
			}
		}
		w.writeHighWater(q)
		w.box.checkHolder(q)
		return nil
	})
	w.box.damage.observe(err)
	if ambiguous {
		err = fault.Unavailable.Because(errors.Join(errAmbiguous, err), "the outbox's database went away while it committed: %v", err)
	}
	return err, ambiguous
}

// errAmbiguous is in the error of a write that failed but may have been committed.
var errAmbiguous = errors.New("outbox: perhaps committed")

// writeHighWater writes the high-water marks that raiseHighWater has gathered: at the
// transaction's end, and before anything in it reads a stream's row.
func (w *worker) writeHighWater(q sqlstore.Querier) {
	for session, to := range w.seqs.takeHighWater() {
		w.box.t.SetHighWater(q, session, to.seq, to.incarnation)
	}
}
