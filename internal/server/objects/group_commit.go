// Group commit: the pending submissions of all connections share transactions.
//
// A session's submissions form a sessionQueue, in order of arrival. Queues with pending
// submissions stand in the committer's run queue. A committer goroutine takes sessions from its
// head until a transaction is full, runs session.Commit over all of it, answers, and appends
// the sessions with submissions left to the run queue again. A session is in one transaction at
// a time, so the order of a session (and of a stream) is kept with several transactions in
// flight. There is no delay to fill a group: a submission that finds a committer idle is
// committed at once, and submissions that arrive while all are busy form the next group.
//
// A transaction that fails is retried submission by submission, so that one cannot fail the
// others; if the database is unavailable, all of them are refused instead.

package objects

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
	"github.com/mooring-rpc/mooring/internal/session"
)

// pendingCommit is a submission that is queued or in a transaction.
type pendingCommit struct {
	sub   session.Submission
	ops   int
	bytes int

	// caller is the context of the call. A submission that is still queued when it ends is
	// dropped; one in a transaction is finished in any case.
	caller context.Context

	// done is called once with the answer, in the session's order, and never
	// concurrently with another done. It must not block.
	done func(session.Answer)
}

// sessionQueue holds one session's pending submissions in order.
type sessionQueue struct {
	session string
	pending []*pendingCommit
	ops     int           // of pending
	bytes   int           // of pending
	inTx    bool          // some of its submissions are in a transaction
	txDone  chan struct{} // closed when that transaction ends; nil if nobody waits for it
	queued  bool          // in committer.queue
}

// committer runs the transactions. It is safe for concurrent use.
//
// The results of a transaction go through replies to one goroutine, which answers and publishes
// while the next transaction runs already. If no other work is pending, the committer answers
// by itself, which saves waking that goroutine. One result is handled at a time, so a session's
// answers and events keep the order of its commits.
type committer struct {
	ctx context.Context // of transactions, which outlive their callers
	cfg Config
	// liveConfig is cfg with the current limits.
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
	ops      int // pending
	bytes    int // pending
	closed   bool
	wg       sync.WaitGroup

	replies        chan func()
	pendingReplies int           // in replies, or being given
	replyMu        sync.Mutex    // held while one is given
	repliesDone    chan struct{} // closed when replies is drained

	inFlight                int    // submissions in transactions
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

// maxPendingReplies is the number of transactions that may be committed and not yet answered.
const maxPendingReplies = 4

// run starts the committers; they run until close.
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

// reply runs f, which delivers the results of a transaction, here or in the reply goroutine.
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

// guard runs f, which gives answers. A panic in it affects only its own caller, who retries:
// the others are answered and subscribers notified.
func (c *committer) guard(f func()) {
	_ = catchPanic(c.cfg.Log, "answer", f) // it is logged
}

// close commits all pending submissions and waits for that. Later submissions are refused.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.ready.Broadcast()
	c.mu.Unlock()
	c.wg.Wait()
	close(c.replies)
	<-c.repliesDone
}

// submit queues w. If it returns a refusal (Overloaded, Draining), w.done is not called.
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

// waitTx waits until the transaction that a session is in now has ended, if there is one.
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

// queueFull reports whether own, the ops or bytes of w, exceed the bound most, given all that
// are waiting and those of w's session. Only sessions with at most a quarter of the bound may
// use the last quarter. A change of authority gets an eighth more: filling the queue must not
// protect a peer from being revoked.
func queueFull(w *pendingCommit, waiting, session, own, most int) bool {
	switch do := w.sub.Direct; {
	case do != nil && !do.Ops:
		most += most / 8
	case session+own > most/4:
		most -= most / 4
	}
	return waiting+own > most
}

// charge adds to the counts of l and of c. mu is held.
func (c *committer) charge(l *sessionQueue, ops, bytes int) {
	l.ops, l.bytes = l.ops+ops, l.bytes+bytes
	c.ops, c.bytes = c.ops+ops, c.bytes+bytes
}

// stats returns the number of pending ops, and of committed transactions, ops and bytes.
func (c *committer) stats() (waiting int, transactions, committed, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops, c.transactions, c.committed, c.committedBytes
}

// schedule appends l to the run queue if it has pending submissions. mu is held.
func (c *committer) schedule(l *sessionQueue) {
	if !l.inTx && !l.queued && len(l.pending) > 0 {
		l.queued = true
		c.queue = append(c.queue, l)
		c.ready.Signal()
	}
}

// nextGroup waits for pending submissions and takes a transaction's worth; nil after close.
func (c *committer) nextGroup() (group []*pendingCommit, lines []*sessionQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		// A session in a transaction may have more: its committer schedules it.
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

// endGroup makes lines eligible again, after a transaction with n submissions.
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

// commitGroup commits a group; every submission of it is answered.
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
	late := 0 // of those tried one by one, timed out
	for i, w := range live {
		err := c.transact([]*pendingCommit{w})
		if err == nil {
			continue
		}
		c.refuse(toFault(c.logOf(w), err, "commit"), w)
		if errors.Is(err, context.DeadlineExceeded) {
			late++
		}
		// One may be slow by itself; if a second is, the database is.
		if retryFutile(err) || late > 1 {
			c.refuse(toFault(c.cfg.Log, err, "commit"), live[i+1:]...)
			return
		}
	}
}

// logOf returns the log for lines about a submission. A batch id is the client's text: unless
// it is a ULID it may be anything, even a secret, and is left out.
func (c *committer) logOf(w *pendingCommit) *slog.Logger {
	log := logOf(w.caller, c.cfg.Log).With("session", w.sub.Batch.Session)
	if _, err := ulid.ParseStrict(w.sub.Batch.BatchID); err == nil {
		log = log.With("batch", w.sub.Batch.BatchID)
	}
	return log
}

// logRefused logs which batch was refused, or had an op refused: the client knows it by its id.
func (c *committer) logRefused(w *pendingCommit, code fault.Code) {
	if code != fault.None && c.cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		c.logOf(w).Debug("batch refused", "code", code)
	}
}

// refuse answers works as a whole: nothing of them was committed.
func (c *committer) refuse(why *fault.Error, works ...*pendingCommit) {
	c.reply(func() {
		for _, w := range works {
			c.logRefused(w, why.Code)
			c.guard(func() { w.done(session.Answer{Err: why}) })
		}
	})
}

// retryFutile reports whether a retry one by one would fail the same way. A timeout may be due
// to one submission of the group.
func retryFutile(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable:
		return !errors.Is(err, context.DeadlineExceeded)
	case fault.DiskFull:
		return true
	}
	return false
}

// transact runs one transaction; if it commits, it answers and publishes.
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

// catchPanic runs f and recovers a panic, so that it ends f and not the server. The panic is
// logged; the fault to send for it is returned.
func catchPanic(log *slog.Logger, doing string, f func()) *fault.Error {
	return toFault(log, func() (err error) {
		defer recoverPanic(&err)
		f()
		return nil
	}(), doing)
}

// recoverPanic turns a panic into an error, so that it ends a transaction and not the server.
// It is called by defer.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}
