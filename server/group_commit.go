// Group commit: what waits on all connections goes into one transaction.
//
// A session's submissions form a line, in the order in which they came. Lines
// with something in them stand in a queue; a committer takes lines from its head
// until a transaction is full, runs session.Commit over all of it, answers, and
// puts back what is left of the lines at the queue's end. A line is in one
// transaction at a time, so a session's (and a stream's) order is kept with
// several of them in flight. Nothing waits for company: a submission that finds
// a committer idle is committed at once, and what comes while all are busy
// gathers for the next.
//
// A transaction that fails is tried again submission by submission, so that one
// cannot spoil the others; if the database is away, all are told so instead.

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/session"
)

// pendingCommit is one submission on its way.
type pendingCommit struct {
	sub   session.Submission
	ops   int
	bytes int

	// caller is the context of who asked. Work that has not begun when it ends
	// is dropped; what has begun is finished whatever becomes of its caller.
	caller context.Context

	// done takes the answer: once, in the line's order, while no other is given.
	// It must not block.
	done func(session.Answer)
}

// sessionQueue is one session's work in order.
type sessionQueue struct {
	session string
	pending []*pendingCommit
	ops     int           // of works
	bytes   int           // of works
	inTx    bool          // some of it is in a transaction
	txDone  chan struct{} // closed when that is over; nil if nobody waits for it
	queued  bool          // in the queue
}

// committer is safe for concurrent use.
//
// What a transaction came to goes through replies to one goroutine, which
// answers and publishes while the next transaction is under way already; if
// nothing waits for that, the committer answers by itself, which spares waking
// another. One at a time does, so a session's answers and events keep the order
// of its commits.
type committer struct {
	ctx context.Context // of transactions, which outlive their callers
	cfg Config
	// liveConfig are of cfg those that hold now.
	liveConfig   *liveConfig
	hub          *hub
	usage        *usageCounter
	limitHits    *limitHits
	measureQueue *measureQueue
	instruments  *instruments
	outage       *outage

	auditDenials func([]*capability.AuditRow) // counts them

	mu       sync.Mutex
	ready    *sync.Cond
	sessions map[string]*sessionQueue
	queue    []*sessionQueue
	ops      int // waiting
	bytes    int // waiting
	closed   bool
	wg       sync.WaitGroup

	replies        chan func()
	pendingReplies int           // of replies, not given yet
	replyMu        sync.Mutex    // held while one is given
	repliesDone    chan struct{} // closed when replies are through

	inFlight                int    // submissions in transactions now
	transactions, committed uint64 // counters: transactions committed, ops in them
	committedBytes          uint64 // of their arguments
}

func newCommitter(ctx context.Context, cfg Config, h *hub, uses *usageCounter, met *limitHits, full *measureQueue, seen *instruments, out *outage) *committer {
	c := &committer{ctx: ctx, cfg: cfg, hub: h, usage: uses, limitHits: met, measureQueue: full, instruments: seen, outage: out, auditDenials: func([]*capability.AuditRow) {}, sessions: map[string]*sessionQueue{}, liveConfig: new(liveConfig),
		replies: make(chan func(), maxPendingReplies), repliesDone: make(chan struct{})}
	c.ready = sync.NewCond(&c.mu)
	c.liveConfig.Store(&cfg)
	return c
}

// maxPendingReplies is how many transactions may be committed and not yet answered.
const maxPendingReplies = 4

// run runs the committers until close.
func (c *committer) run() {
	go func() {
		defer close(c.repliesDone)
		for reply := range c.replies {
			c.runReply(reply)
		}
	}()
	for range c.cfg.Transactions {
		c.wg.Go(func() {
			for {
				group, lines := c.nextGroup()
				if group == nil {
					return
				}
				c.commitGroup(group)
				c.endGroup(lines, len(group))
			}
		})
	}
}

// reply has f give what a transaction came to.
func (c *committer) reply(f func()) {
	c.mu.Lock()
	idle := c.pendingReplies == 0 && len(c.queue) == 0
	c.pendingReplies++
	c.mu.Unlock()
	if idle {
		c.runReply(f)
	} else {
		c.replies <- f
	}
}

func (c *committer) runReply(f func()) {
	c.replyMu.Lock()
	c.guard(f)
	c.replyMu.Unlock()
	c.mu.Lock()
	c.pendingReplies--
	c.mu.Unlock()
}

// guard runs f, which gives answers; a defect in giving one is its own caller's
// loss alone, who asks again: the others are answered and subscribers told.
func (c *committer) guard(f func()) {
	_ = catchPanic(c.cfg.Log, "answer", f) // it is in the log
}

// close has everything that waits committed, and waits for it. Work that comes
// later is refused.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.ready.Broadcast()
	c.mu.Unlock()
	c.wg.Wait()
	close(c.replies)
	<-c.repliesDone
}

// submit queues w. If it is refused (Overloaded, Draining), done is not called.
func (c *committer) submit(w *pendingCommit) *fault.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := w.sub.Batch.Session
	l := c.sessions[id]
	if l == nil {
		l = &sessionQueue{session: id}
	}
	switch {
	case c.closed:
		return fault.Draining.With("the server is stopping: go to another, or come back")
	case c.ops > 0 && (queueFull(w, c.ops, l.ops, w.ops, c.liveConfig.Load().QueueOps) || queueFull(w, c.bytes, l.bytes, w.bytes, c.cfg.QueueBytes)):
		c.limitHits.add(limitQueue)
		return fault.Overloaded.With("%d ops wait to be committed: try again later", c.ops)
	}
	c.sessions[id] = l
	l.pending = append(l.pending, w)
	c.charge(l, w.ops, w.bytes)
	c.schedule(l)
	return nil
}

// waitTx waits until the transaction has ended in which a session's work is now, if any is.
func (c *committer) waitTx(ctx context.Context, session string) error {
	c.mu.Lock()
	l := c.sessions[session]
	if l == nil || !l.inTx {
		c.mu.Unlock()
		return nil
	}
	if l.txDone == nil {
		l.txDone = make(chan struct{})
	}
	ended := l.txDone
	c.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// queueFull says whether w's own ops or bytes, above all that wait and its session's among
// them, are too many. Only sessions with less than a quarter of the most have the last
// quarter. What changes authority has an eighth more: who fills the queue must not keep
// himself from being revoked.
func queueFull(w *pendingCommit, waiting, session, own, most int) bool {
	switch do := w.sub.Direct; {
	case do != nil && !do.Ops:
		most += most / 8
	case session+own > most/4:
		most -= most / 4
	}
	return waiting+own > most
}

// charge counts what came into a line, or left it. mu is held.
func (c *committer) charge(l *sessionQueue, ops, bytes int) {
	l.ops, l.bytes = l.ops+ops, l.bytes+bytes
	c.ops, c.bytes = c.ops+ops, c.bytes+bytes
}

// stats is how many ops wait, and how many transactions, ops and bytes were committed.
func (c *committer) stats() (waiting int, transactions, committed, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops, c.transactions, c.committed, c.committedBytes
}

// schedule puts a line with work into the queue. mu is held.
func (c *committer) schedule(l *sessionQueue) {
	if !l.inTx && !l.queued && len(l.pending) > 0 {
		l.queued = true
		c.queue = append(c.queue, l)
		c.ready.Signal()
	}
}

// nextGroup waits for work and takes a transaction's worth; nil when all is done.
func (c *committer) nextGroup() (group []*pendingCommit, lines []*sessionQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		// A line that is busy now may have more: its committer will see to it.
		if c.closed {
			return nil, nil
		}
		c.ready.Wait()
	}
	ops, bytes := 0, 0
	for len(c.queue) > 0 {
		l := c.queue[0]
		n := 0
		for _, w := range l.pending {
			if len(group) > 0 && (ops+w.ops > c.cfg.GroupOps || bytes+w.bytes > c.cfg.GroupBytes) {
				break
			}
			group, n = append(group, w), n+1
			ops, bytes = ops+w.ops, bytes+w.bytes
			c.charge(l, -w.ops, -w.bytes)
		}
		if n == 0 {
			break
		}
		l.pending = append([]*pendingCommit(nil), l.pending[n:]...)
		l.queued, l.inTx = false, true
		lines = append(lines, l)
		c.queue = c.queue[1:]
		if len(l.pending) > 0 {
			break // the transaction is full
		}
	}
	c.inFlight += len(group)
	return group, lines
}

// endGroup lets lines go on, after a transaction with n submissions.
func (c *committer) endGroup(lines []*sessionQueue, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight -= n
	for _, l := range lines {
		l.inTx = false
		if l.txDone != nil {
			close(l.txDone)
			l.txDone = nil
		}
		if len(l.pending) == 0 {
			delete(c.sessions, l.session)
			continue
		}
		c.schedule(l)
	}
}

// commitGroup commits a group and sees that all of it is answered.
func (c *committer) commitGroup(group []*pendingCommit) {
	live := group[:0:0]
	for _, w := range group {
		if w.caller.Err() != nil {
			c.refuse(fault.ContextError(context.Cause(w.caller), nil), w)
			continue
		}
		live = append(live, w)
	}
	if len(live) == 0 {
		return
	}
	err := c.transact(live)
	if err == nil {
		return
	}
	if len(live) == 1 || retryFutile(err) {
		c.refuse(toFault(c.logOf(live[0]), err, "commit"), live...)
		return
	}
	c.cfg.Log.Warn("a group failed and is tried one by one", "submissions", len(live), "error", err)
	late := 0 // of those tried one by one, took too long
	for i, w := range live {
		err := c.transact([]*pendingCommit{w})
		if err == nil {
			continue
		}
		c.refuse(toFault(c.logOf(w), err, "commit"), w)
		if errors.Is(err, context.DeadlineExceeded) {
			late++
		}
		// One may be slow by itself; when a second is, it is the database.
		if retryFutile(err) || late > 1 {
			c.refuse(toFault(c.cfg.Log, err, "commit"), live[i+1:]...)
			return
		}
	}
}

// logOf is the log for what becomes of a submission. A batch's id is its client's text: one
// that is no ULID may be anything, a secret too.
func (c *committer) logOf(w *pendingCommit) *slog.Logger {
	log := logOf(w.caller, c.cfg.Log).With("session", w.sub.Batch.Session)
	if _, err := ulid.ParseStrict(w.sub.Batch.BatchID); err == nil {
		log = log.With("batch", w.sub.Batch.BatchID)
	}
	return log
}

// logRefused writes which batch was refused, or had an op refused: its client knows it by that id.
func (c *committer) logRefused(w *pendingCommit, code fault.Code) {
	if code != fault.None && c.cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		c.logOf(w).Debug("batch refused", "code", code)
	}
}

// refuse answers works as a whole: nothing of them was done.
func (c *committer) refuse(why *fault.Error, works ...*pendingCommit) {
	c.reply(func() {
		for _, w := range works {
			c.logRefused(w, why.Code)
			c.guard(func() { w.done(session.Answer{Err: why}) })
		}
	})
}

// retryFutile says that trying again one by one would meet the same. What took too long may
// have done so for one of them.
func retryFutile(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable:
		return !errors.Is(err, context.DeadlineExceeded)
	case fault.DiskFull:
		return true
	}
	return false
}

// transact runs one transaction; if it commits, it is answered and published.
func (c *committer) transact(group []*pendingCommit) error {
	subs := make([]session.Submission, len(group))
	ids := make([]string, 0, len(group))
	seen := make(map[string]struct{}, len(group))
	ops, bytes := 0, 0
	for i, w := range group {
		subs[i], ops, bytes = w.sub, ops+w.ops, bytes+w.bytes
		if id := w.sub.Batch.Session; !has(seen, id) {
			seen[id] = struct{}{}
			ids = append(ids, id)
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.CommitTimeout)
	defer cancel()

	var answers []session.Answer
	var published *session.Published
	c.hub.beginCommit(ids)
	began := time.Now()
	late := time.AfterFunc(c.outage.slowCommit, func() { c.outage.suspect(dbfault.Timeout) })
	defer late.Stop()
	err := c.cfg.Store.UpdateOptimistic(ctx, func(tx session.Tx) (err error) {
		defer recoverPanic(&err)
		answers, published, err = session.Commit(ctx, tx, subs, c.liveConfig.Load().Session)
		crashpoint.Hit(crashpoint.ServerCommitBefore)
		return err
	})
	if err != nil {
		c.hub.endCommit(ids, nil)
		c.outage.recordFailure(err, bytes)
		return err
	}
	crashpoint.Hit(crashpoint.ServerCommitAfter)
	c.instruments.commits.Observe(time.Since(began).Seconds())
	if published != nil && len(published.Sessions) > 0 {
		c.outage.recordSuccess()
	}
	c.mu.Lock()
	c.transactions++
	c.committed += uint64(ops)
	c.committedBytes += uint64(bytes)
	c.mu.Unlock()
	for i, w := range group {
		w.sub.Opening.Note(&answers[i])
		if err := answers[i].Err; err != nil && err.Code == fault.QuotaExceeded {
			c.measureQueue.add(w.sub.Batch.Session)
		}
		c.logRefused(w, c.instruments.countAnswer(&answers[i]))
		c.auditDenials(answers[i].Denied)
		c.usage.add(w.sub.Peer, answers[i].Cursor, answers[i].Uses...)
	}
	c.reply(func() {
		for i, w := range group {
			c.guard(func() { w.done(answers[i]) })
		}
		crashpoint.Hit(crashpoint.ServerAckAfter)
		c.hub.endCommit(ids, published)
		crashpoint.Hit(crashpoint.ServerPublishAfter)
	})
	return nil
}

func has(set map[string]struct{}, key string) bool {
	_, ok := set[key]
	return ok
}

// catchPanic runs f. A defect in it ends f and not the server: it goes to the log, and
// what is told of it is given.
func catchPanic(log *slog.Logger, doing string, f func()) *fault.Error {
	return toFault(log, func() (err error) {
		defer recoverPanic(&err)
		f()
		return nil
	}(), doing)
}

// recoverPanic turns a panic into an error, so that it ends a transaction and not
// the server.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}
