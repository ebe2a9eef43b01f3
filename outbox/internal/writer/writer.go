package writer

// The one writer of a Box to its database. Jobs submitted while a transaction runs go into the
// next one: commits of many callers, outcomes, seqs. If a transaction fails, its jobs are tried
// one by one.
//
// A caller that waits for its job and finds no transaction running runs one itself, with the
// other jobs that are due: handing it to another goroutine and back costs more than most
// commits. The writer's own goroutine runs the others.

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Job is a part of a transaction.
type Job struct {
	// Run makes its statements. It may be run again, after a rollback, so it sets all its
	// result variables anew each time.
	Run func(ctx context.Context, q sqlstore.Querier) error
	// Done is called with the result, in the order of the jobs, by the writing goroutine and
	// before anything else is written; it must not block. ambiguous: it failed but may have
	// been committed.
	Done func(err error, ambiguous bool)
	// Lazy jobs wait a while for others to go with. They are tried again until they succeed;
	// one that fails by itself is given up after MaxLazyTries, and Done gets its error.
	Lazy bool
	// Stream is the session whose lazy jobs are written in order: none of them goes ahead of
	// one that has failed. "" for a job without an order.
	Stream string
	// Commit marks a caller's batch: it does not take lazy jobs along before they are due, so
	// that its caller need not wait for them.
	Commit bool

	state int // guarded by Writer.mu
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
	MaxLazyJobs    = 128 // this many lazy jobs do not wait longer
	lazyRetryDelay = 200 * time.Millisecond
	MaxLazyTries   = 10 // tries of a lazy job, until it is given up
	grace          = 5 * time.Second
)

// Config configures a Writer.
type Config struct {
	DB      sqlstore.Database
	Tables  *sqlstore.Tables
	Outbox  string // its id, for the log
	Logger  *slog.Logger
	Delay   time.Duration   // how long lazy jobs wait for others
	Observe func(err error) // gets the result of each transaction
}

// Writer runs the transactions. It is safe for concurrent use.
type Writer struct {
	Config
	Seqs       Seqs          // the streams' seqs, while this Box sends
	RetryDelay time.Duration // failed lazy jobs are tried again after this; tests shorten it
	Grace      time.Duration // how long BeginClose leaves for transactions; tests shorten it

	wake  chan struct{}
	ended chan struct{}
	ctx   context.Context // of all transactions; ends when closing takes too long
	stop  context.CancelFunc

	mu         sync.Mutex // guards the fields below
	jobs       []*Job
	urgent     int       // number of jobs that are not lazy
	oldest     time.Time // when the first lazy job came
	retryAfter time.Time // until then failed lazy jobs are not tried again
	writing    bool      // a goroutine runs a transaction
	afterTx    []func()  // functions to call after the transaction, from its jobs
	oneByOne   bool      // it failed, and its jobs are tried one by one
	closing    bool
	closeBy    time.Time // after it failed lazy jobs are given up
	closeTimer *time.Timer
}

// New returns a Writer; Close ends its goroutine.
func New(cfg Config) *Writer {
	w := &Writer{Config: cfg, RetryDelay: lazyRetryDelay, Grace: grace, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.Background())
	go w.run()
	return w
}

// Submit queues a job; Done will be called, with ErrClosed if the Writer is closed.
func (w *Writer) Submit(j *Job) {
	if w.enqueue(j) {
		w.signal()
	}
}

func (w *Writer) enqueue(j *Job) bool {
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		j.Done(sqlstore.ErrClosed, false)
		return false
	}
	if j.Lazy {
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

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Do submits a job and waits for it. If ctx ends before the job has begun it is withdrawn; once
// begun its end is awaited, so that the result is certain.
func (w *Writer) Do(ctx context.Context, run func(ctx context.Context, q sqlstore.Querier) error) error {
	return w.DoThen(ctx, run, func(error, bool) {})
}

// DoThen is Do, with then called before anything else is written.
func (w *Writer) DoThen(ctx context.Context, run func(ctx context.Context, q sqlstore.Querier) error, then func(err error, ambiguous bool)) error {
	return w.DoJob(ctx, &Job{Run: run, Done: then})
}

// DoJob is Do for a job.
func (w *Writer) DoJob(ctx context.Context, j *Job) error {
	if err := ctx.Err(); err != nil {
		return sqlstore.AsCanceled(err)
	}
	end, then := make(chan error, 1), j.Done
	j.Done = func(err error, ambiguous bool) { then(err, ambiguous); end <- err }
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

// BeginClose announces Close: from now on transactions have Grace, all together.
func (w *Writer) BeginClose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeBy = time.Now().Add(w.Grace)
	w.closeTimer = time.AfterFunc(w.Grace, w.stop)
}

// Close writes the queued jobs, for a while, and ends the goroutine.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.signal()
	<-w.ended
	w.closeTimer.Stop()
	w.stop()
}

func (w *Writer) run() {
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
func (w *Writer) write() (wait time.Duration, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.writing {
		var group []*Job
		if group, wait = w.nextGroup(); len(group) == 0 {
			return wait, w.closing && len(w.jobs) == 0
		}
		w.runTx(group)
	}
	return time.Hour, false // the writing goroutine signals
}

// tryWrite runs one transaction, if none is running, for a caller that has a job in the queue;
// the job may be in a later one.
func (w *Writer) tryWrite() bool {
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

// runTx releases mu while it runs a transaction, and the functions after it. mu is waits.
func (w *Writer) runTx(group []*Job) {
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

// OnTxEnd makes the goroutine that runs the transaction call f once it is over and others may
// write. A job's Done calls it. It reports false where that could take long: f is not called.
func (w *Writer) OnTxEnd(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.oneByOne {
		return false
	}
	w.afterTx = append(w.afterTx, f)
	return true
}

// nextGroup returns the next transaction's jobs, or how long to wait for them. mu is waits.
func (w *Writer) nextGroup() (group []*Job, wait time.Duration) {
	lazy := len(w.jobs) - w.urgent
	if wait = time.Until(w.retryAfter); w.urgent == 0 && lazy > 0 && wait > 0 { // also if they are many, or the last
		return nil, wait
	}
	wait = 0
	if lazy > 0 && lazy < MaxLazyJobs && !w.closing {
		wait = max(time.Until(w.oldest.Add(w.Delay)), 0)
	}
	if w.urgent == 0 && (wait > 0 || lazy == 0) && !w.closing {
		if lazy == 0 {
			wait = time.Hour
		}
		return nil, wait
	}
	leave := wait > 0 && !slices.ContainsFunc(w.jobs, func(j *Job) bool { return !j.Lazy && !j.Commit })
	var rest []*Job
	for i, j := range w.jobs {
		if len(group) == maxGroupJobs {
			rest = append(rest, w.jobs[i:]...)
			break
		}
		if j.Lazy && leave {
			rest = append(rest, j)
			continue
		}
		if !j.Lazy {
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

// requeue puts failed lazy jobs back in front, to be tried after RetryDelay.
func (w *Writer) requeue(jobs []*Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		j.state = jobQueued
	}
	w.jobs = append(append([]*Job(nil), jobs...), w.jobs...)
	w.oldest = time.Now().Add(w.RetryDelay)
	w.retryAfter = w.oldest
}

func (w *Writer) runGroup(group []*Job, last bool) {
	err, ambiguous := w.writeGroup(group)
	if err == nil || len(group) == 1 && !group[0].Lazy {
		for _, j := range group {
			j.Done(err, ambiguous)
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
	var again []*Job
	for _, j := range group {
		waits := j.Lazy && (away || behind[j.Stream])
		one, maybe := err, ambiguous
		if alone && !waits {
			one, maybe = w.writeGroup([]*Job{j})
		}
		switch {
		case one == nil || !j.Lazy || last:
			j.Done(one, maybe)
			continue
		case waits:
		case isDBState(one):
			away = true
		case j.tries+1 < MaxLazyTries:
			j.tries++
		default:
			w.Logger.Error("data that could not be written to the outbox is lost", "outbox", w.Outbox, "session", j.Stream, "error", one)
			j.Done(one, false)
			continue
		}
		again = append(again, j)
		behind[j.Stream] = j.Stream != ""
	}
	if len(again) > 0 {
		w.Logger.Warn("outcomes cannot be stored yet", "outbox", w.Outbox, "error", err)
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

// MaxTxConflicts is how often a transaction may be rolled back to break deadlocks.
const MaxTxConflicts = 10

// writeGroup runs jobs in one transaction.
func (w *Writer) writeGroup(group []*Job) (err error, ambiguous bool) {
	for range MaxTxConflicts {
		if err, ambiguous = w.writeOnce(group); ambiguous || !errors.Is(err, sqlstore.ErrTxConflict) {
			break
		}
	}
	return err, ambiguous
}

func (w *Writer) writeOnce(group []*Job) (err error, ambiguous bool) {
	// No caller's context: a caller that gives up must not roll back others' jobs.
	ambiguous, err = w.DB.Write(w.ctx, func(q sqlstore.Querier) error {
		w.Seqs.BeginTx()
		for _, j := range group {
			if err := j.Run(w.ctx, q); err != nil {
				return err
			}
		}
		w.WriteHighWater(q)
		w.checkHolder(q)
		return nil
	})
	w.Observe(err)
	if ambiguous {
		err = fault.Unavailable.Because(errors.Join(ErrAmbiguous, err), "the outbox's database went away while it committed: %v", err)
	}
	return err, ambiguous
}

// ErrAmbiguous is in the error of a write that failed but may have been committed.
var ErrAmbiguous = errors.New("outbox: perhaps committed")

// WriteHighWater writes the high-water marks that raiseHighWater has gathered: at the
// transaction's end, and before anything in it reads a stream's row.
func (w *Writer) WriteHighWater(q sqlstore.Querier) {
	for session, to := range w.Seqs.takeHighWater() {
		w.Tables.SetHighWater(q, session, to.Seq, to.Incarnation)
	}
}

// ShareLease blocks takeovers until the transaction ends, once for all its jobs. *isHolder is set
// in the transaction to whether the lease is this Box's; tells says that a later statement of
// the caller sets it.
func (w *Writer) ShareLease(q sqlstore.Querier, tells bool) (isHolder *bool) {
	isHolder, first := w.Seqs.probeLease(tells)
	if first {
		w.DB.ShareLease(q, w.Tables.Box)
	}
	return isHolder
}

// checkHolder adds a statement that sets whether the lease is this Box's, if a job needs it and
// no other statement sets it.
func (w *Writer) checkHolder(q sqlstore.Querier) {
	if isHolder := w.Seqs.unansweredProbe(); isHolder != nil {
		w.Tables.IsHolder(q, isHolder)
	}
}

// Discard closes the Writer without writing what is queued, as a crash would: for tests.
func (w *Writer) Discard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing, w.jobs, w.urgent = true, nil, 0
}

// Pending is the number of queued jobs that are not lazy: for tests.
func (w *Writer) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.urgent
}
