package outbox

// The one writer of a process to the outbox. Whatever has been asked for while a
// transaction ran goes into the next one: commits of many callers, outcomes,
// seqs. If a transaction fails, its jobs are tried one by one.
//
// A caller that waits for its job and finds nobody writing runs the transaction
// itself: handing it to another goroutine and back costs more than many a commit.
// It takes along what else is due. Everything else is run by the worker's goroutine.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fatal"
)

// job is a part of a transaction.
type job struct {
	// run makes its statements. It may be run again, after a rollback, so it
	// keeps what it finds in variables that it sets anew each time.
	run func(ctx context.Context, q querier) error
	// done is told how it ended, in the order of the jobs, by whoever writes and
	// before anything else is written; it must not block. ambiguous: it may have
	// been committed all the same.
	done func(err error, ambiguous bool)
	// lazy jobs wait a while for others to go with. They are tried again until they
	// succeed; one that is at fault itself is given up after a while, and done gets
	// its error.
	lazy bool
	// stream is the session whose lazy jobs are written in order: none of them goes
	// ahead of one that has failed. "" for a job that has no place in any order.
	stream string
	// commit marks a caller's batch: it does not take lazy jobs along before
	// their time, so that its caller need not wait for them.
	commit bool

	state int // guarded by worker.mu
	tries int // in which a lazy job failed by its own fault
}

// States of a job.
const (
	queued = iota
	taken
	withdrawn
)

// Bounds of one transaction, and of waiting.
const (
	groupJobs  = 512
	lazyJobs   = 128 // so many lazy jobs do not wait longer
	lazyPause  = 200 * time.Millisecond
	lazyTries  = 10 // of a lazy job, until it is given up
	closeGrace = 5 * time.Second
)

type worker struct {
	box   *Box
	wake  chan struct{}
	ended chan struct{}
	ctx   context.Context // of all transactions; ends when closing takes too long
	stop  context.CancelFunc
	rest  time.Duration // lazyPause
	grace time.Duration // closeGrace

	mu      sync.Mutex // guards what follows
	jobs    []*job
	urgent  int       // of jobs
	oldest  time.Time // when the first lazy job came
	pause   time.Time // until then lazy jobs that failed are not tried again
	writing bool      // somebody runs a transaction
	after   []func()  // what its jobs have left for when it is over
	singly  bool      // it failed, and its jobs are tried one by one
	closing bool
	closeBy time.Time // then lazy jobs that fail are given up
	late    *time.Timer

	lanes lanes // its own lock
}

func newWorker(b *Box) *worker {
	w := &worker{box: b, wake: make(chan struct{}, 1), ended: make(chan struct{}), rest: lazyPause, grace: closeGrace}
	w.ctx, w.stop = context.WithCancel(context.Background())
	go w.run()
	return w
}

// submit queues a job; done will be called, with errClosed if it is too late.
func (w *worker) submit(j *job) {
	if w.queue(j) {
		w.kick()
	}
}

func (w *worker) queue(j *job) bool {
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

func (w *worker) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// do submits a job and waits for it. If ctx ends before it is begun it is taken
// back; once begun its end is waited for, so that the answer is never a guess.
func (w *worker) do(ctx context.Context, run func(ctx context.Context, q querier) error) error {
	return w.doThen(ctx, run, func(error, bool) {})
}

// doThen is do, with a word before anything else is written.
func (w *worker) doThen(ctx context.Context, run func(ctx context.Context, q querier) error, then func(err error, ambiguous bool)) error {
	return w.await(ctx, &job{run: run, done: then})
}

// await is do for a job.
func (w *worker) await(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return canceled(err)
	}
	end, then := make(chan error, 1), j.done
	j.done = func(err error, ambiguous bool) { then(err, ambiguous); end <- err }
	if w.queue(j) && !w.turn() {
		w.kick()
	}
	select {
	case err := <-end:
		return coded(err)
	case <-ctx.Done():
	}
	w.mu.Lock()
	if j.state == queued {
		j.state = withdrawn
		w.mu.Unlock()
		return canceled(ctx.Err())
	}
	w.mu.Unlock()
	return coded(<-end)
}

// hurry says that the worker is about to be closed: from now on transactions have so
// long, all together.
func (w *worker) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeBy = time.Now().Add(w.grace)
	w.late = time.AfterFunc(w.grace, w.stop)
}

// close lets what is queued go through, for a while, and ends the goroutine.
func (w *worker) close() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.kick()
	<-w.ended
	w.late.Stop()
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

// write runs transactions until there is nothing to write now, and tells how
// long there will not be. over: nor ever, since the worker is closed.
func (w *worker) write() (wait time.Duration, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.writing {
		var group []*job
		if group, wait = w.take(); len(group) == 0 {
			return wait, w.closing && len(w.jobs) == 0
		}
		w.transaction(group)
	}
	return time.Hour, false // who writes will say so
}

// turn runs one transaction, if nobody does, for a caller that has a job in the
// queue; that may be one of the next.
func (w *worker) turn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing || w.closing {
		return false
	}
	if group, _ := w.take(); len(group) > 0 {
		w.transaction(group)
	}
	if len(w.jobs) > 0 || w.closing {
		w.kick()
	}
	return true
}

// transaction gives up the lock while it runs one, and what comes after.
func (w *worker) transaction(group []*job) {
	defer fatal.OnPanic()
	w.writing = true
	last := w.closing && time.Now().After(w.closeBy)
	w.mu.Unlock()
	w.process(group, last)
	w.mu.Lock()
	w.writing, w.singly = false, false
	after := w.after
	if w.after = nil; len(after) == 0 {
		return
	}
	if len(w.jobs) > 0 {
		w.kick()
	}
	w.mu.Unlock()
	for _, f := range after {
		f()
	}
	w.mu.Lock()
}

// then has f called once the running transaction is over and others may write,
// by whoever ran it. A job's done calls it. It reports false where that could be
// long: f is not called.
func (w *worker) then(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.singly {
		return false
	}
	w.after = append(w.after, f)
	return true
}

// take gives the next transaction's jobs, or how long to wait for them. mu is held.
func (w *worker) take() (group []*job, wait time.Duration) {
	lazy := len(w.jobs) - w.urgent
	if wait = time.Until(w.pause); w.urgent == 0 && lazy > 0 && wait > 0 { // also if they are many, or the last
		return nil, wait
	}
	wait = 0
	if lazy > 0 && lazy < lazyJobs && !w.closing {
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
		if len(group) == groupJobs {
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
		if j.state == queued {
			j.state = taken
			group = append(group, j)
		}
	}
	w.jobs = rest
	return group, 0
}

// giveBack puts lazy jobs that failed back in front, to be tried a little later.
func (w *worker) giveBack(jobs []*job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		j.state = queued
	}
	w.jobs = append(append([]*job(nil), jobs...), w.jobs...)
	w.oldest = time.Now().Add(w.rest)
	w.pause = w.oldest
}

func (w *worker) process(group []*job, last bool) {
	err, ambiguous := w.transact(group)
	if err == nil || len(group) == 1 && !group[0].lazy {
		for _, j := range group {
			j.done(err, ambiguous)
		}
		return
	}
	w.mu.Lock()
	w.singly = true
	w.mu.Unlock()
	// What may have been committed must not be done twice: lazy jobs can be
	// repeated, the others fail.
	alone := !ambiguous && fault.CodeOf(err) != fault.Unavailable && len(group) > 1
	away := false                   // the database takes no lazy job just now
	behind := make(map[string]bool) // streams that have a job which failed
	var again []*job
	for _, j := range group {
		held := j.lazy && (away || behind[j.stream])
		one, maybe := err, ambiguous
		if alone && !held {
			one, maybe = w.transact([]*job{j})
		}
		switch {
		case one == nil || !j.lazy || last:
			j.done(one, maybe)
			continue
		case held:
		case passing(one):
			away = true
		case j.tries+1 < lazyTries:
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
		w.giveBack(again)
	}
}

// passing says of a job's error that it tells of the state the database is in, and not of the job.
func passing(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.DiskFull, fault.Usage: // Usage: the file cannot be written
		return true
	}
	return errors.Is(err, errGaveWay) || errors.Is(err, context.DeadlineExceeded)
}

// errGaveWay is in the error of a transaction that the database undid because it
// and another one waited for each other: as when one process drops a row while
// another takes the lease. Running it again is all there is to do.
var errGaveWay = errors.New("outbox: undone for the sake of another transaction")

// giveWays is how often a transaction may be undone for another one's sake.
const giveWays = 10

// transact runs jobs in one transaction.
func (w *worker) transact(group []*job) (err error, ambiguous bool) {
	for range giveWays {
		if err, ambiguous = w.attempt(group); ambiguous || !errors.Is(err, errGaveWay) {
			break
		}
	}
	return err, ambiguous
}

func (w *worker) attempt(group []*job) (err error, ambiguous bool) {
	// No caller's context: one that gives up must not undo what others wait for.
	ambiguous, err = w.box.db.write(w.ctx, func(q querier) error {
		w.lanes.begin()
		for _, j := range group {
			if err := j.run(w.ctx, q); err != nil {
				return err
			}
		}
		w.keepReached(q)
		w.box.findHolder(q)
		return nil
	})
	w.box.damage.met(err)
	if ambiguous {
		err = fault.Unavailable.Because(errors.Join(errUnsure, err), "the outbox's database went away while it committed: %v", err)
	}
	return err, ambiguous
}

// errUnsure is in the error of what may have been committed all the same.
var errUnsure = errors.New("outbox: perhaps committed")

// keepReached writes what reach has gathered: at the transaction's end, and
// before anything in it reads a stream's row.
func (w *worker) keepReached(q querier) {
	for session, to := range w.lanes.takeReached() {
		w.box.t.reached(q, session, to)
	}
}
