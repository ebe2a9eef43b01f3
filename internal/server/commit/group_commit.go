// Group commit: the pending submissions of all connections share transactions.
//
// A session's submissions form a sessionQueue, in order of arrival. Queues with pending
// submissions stand in the committer's run queue. A committer goroutine takes sessions from its
// head until a transaction is full, runs decide.Commit over all of it, answers, and appends
// the sessions with submissions left to the run queue again. A session is in one transaction at
// a time, so the order of a session (and of a stream) is kept with several transactions in
// flight. There is no delay to fill a group: a submission that finds a committer idle is
// committed at once, and submissions that arrive while all are busy form the next group.
//
// A transaction that fails is retried submission by submission, so that one cannot fail the
// others; if the database is unavailable, all of them are refused instead.

package commit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// Pending is a submission that is queued or in a transaction.
type Pending struct {
	Sub   decide.Submission
	Ops   int
	Bytes int

	// Caller is the context of the call. A submission that is still queued when it ends is
	// dropped; one in a transaction is finished in any case.
	Caller context.Context

	// Done is called once with the answer, in the session's order, and never
	// concurrently with another done. It must not block.
	Done func(decide.Answer)
}

// sessionQueue holds one session's pending submissions in order.
type sessionQueue struct {
	session string
	pending []*Pending
	ops     int           // of pending
	bytes   int           // of pending
	inTx    bool          // some of its submissions are in a transaction
	txDone  chan struct{} // closed when that transaction ends; nil if nobody waits for it
	queued  bool          // in committer.queue
}

// Config configures a committer. All fields are required.
type Config struct {
	Context context.Context // of transactions, which outlive their callers
	Log     *slog.Logger
	Session decide.Config // of decide.Commit

	Transactions int           // at once
	GroupOps     int           // in one transaction; a larger submission gets one of its own
	GroupBytes   int           // in one transaction; a larger submission gets one of its own
	QueueOps     int           // pending, one session at most three quarters of them
	QueueBytes   int           // pending, one session at most three quarters of them
	Timeout      time.Duration // of one transaction
	SlowCommit   time.Duration // a transaction that takes longer is reported to Outage

	Store  Store
	Hub    Publisher
	Outage Outage

	QuotaMet    func(session string)         // called for a session that has met a quota
	AskFork     func(r *session.ForkRequest) // called for a fork whose answer is that it is copied
	Audit       *admission.Auditor           // counts the denials that got no row
	Usage       *admission.UsageCounter
	Instruments *admission.Instruments
	LimitHits   *admission.LimitHits
}

// Store is the store of a committer.
type Store interface {
	// Update runs fn in one read-write transaction and commits if fn returns nil; otherwise it
	// returns fn's error unchanged.
	Update(ctx context.Context, fn func(session.Tx) error) error
}

// Publisher delivers the events of commits to subscribers.
type Publisher interface {
	// BeginCommit announces commits to sessions. EndCommit ends them, in any case: published is
	// nil if they failed. The commits of one session end in their order.
	BeginCommit(sessions []string)
	EndCommit(sessions []string, published *session.Published)
	// Notify says that a session has changed, which was not announced.
	Notify(id string, cursor, gen uint64)
}

// Outage is informed whether commits succeed.
type Outage interface {
	RecordFailure(err error, bytes int)
	RecordSuccess() // of a transaction that wrote something
	Suspect(cause dbfault.Cause)
}

// Committer runs the transactions. It is safe for concurrent use.
//
// The results of a transaction go through replies to one goroutine, which answers and publishes
// while the next transaction runs already. If no other work is pending, the committer answers
// by itself, which saves waking that goroutine. One result is handled at a time, so a session's
// answers and events keep the order of its commits.
type Committer struct {
	cfg  Config
	live atomic.Pointer[commitLimits]

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

// New returns a committer; Run starts it.
func New(cfg Config) *Committer {
	c := &Committer{cfg: cfg, sessions: map[string]*sessionQueue{}, replies: make(chan func(), maxPendingReplies), repliesDone: make(chan struct{})}
	c.ready = sync.NewCond(&c.mu)
	c.SetLimits(cfg.QueueOps, cfg.Session)
	return c
}

// commitLimits are the limits that can be changed while the committer runs.
type commitLimits struct {
	queueOps int
	session  decide.Config
}

// SetLimits changes the bound on pending ops, and the configuration of decide.Commit, from now on.
func (c *Committer) SetLimits(queueOps int, cfg decide.Config) {
	c.live.Store(&commitLimits{queueOps, cfg})
}

// maxPendingReplies is the number of transactions that may be committed and not yet answered.
const maxPendingReplies = 4

// Run starts the committers; they run until close.
func (c *Committer) Run() {
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
func (c *Committer) reply(f func()) {
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

func (c *Committer) runReply(f func()) {
	c.replyMu.Lock()
	c.guard(f)
	c.replyMu.Unlock()
	c.mu.Lock()
	c.pendingReplies--
	c.mu.Unlock()
}

// guard runs f, which gives answers. A panic in it affects only its own caller, who retries:
// the others are answered and subscribers notified.
func (c *Committer) guard(f func()) {
	_ = admission.CatchPanic(c.cfg.Log, "answer", f) // it is logged
}

// Close commits all pending submissions and waits for that. Later submissions are refused.
func (c *Committer) Close() {
	c.mu.Lock()
	c.closed = true
	c.ready.Broadcast()
	c.mu.Unlock()
	c.wg.Wait()
	close(c.replies)
	<-c.repliesDone
}

// Submit queues w. If it returns a refusal (Overloaded, Draining), w.done is not called.
func (c *Committer) Submit(w *Pending) *fault.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := w.Sub.Batch.Session
	l := c.sessions[id]
	if l == nil {
		l = &sessionQueue{session: id}
	}
	switch {
	case c.closed:
		return fault.Draining.With("the server is stopping: use another one, or try again later")
	case c.ops > 0 && (queueFull(w, c.ops, l.ops, w.Ops, c.live.Load().queueOps) || queueFull(w, c.bytes, l.bytes, w.Bytes, c.cfg.QueueBytes)):
		c.cfg.LimitHits.Add(admission.LimitQueue)
		return fault.Overloaded.With("%d ops wait to be committed: try again later", c.ops)
	}
	c.sessions[id] = l
	l.pending = append(l.pending, w)
	c.charge(l, w.Ops, w.Bytes)
	c.schedule(l)
	return nil
}

// WaitTx waits until the transaction that a session is in now has ended, if there is one.
func (c *Committer) WaitTx(ctx context.Context, session string) error {
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
func queueFull(w *Pending, waiting, session, own, limit int) bool {
	switch do := w.Sub.Direct; {
	case do != nil && !do.Ops:
		limit += limit / 8
	case session+own > limit/4:
		limit -= limit / 4
	}
	return waiting+own > limit
}

// charge adds to the counts of l and of c. mu is held.
func (c *Committer) charge(l *sessionQueue, ops, bytes int) {
	l.ops, l.bytes = l.ops+ops, l.bytes+bytes
	c.ops, c.bytes = c.ops+ops, c.bytes+bytes
}

// Stats counts what a committer has to do and has done.
type Stats struct {
	PendingOps   int    // of Pending
	QueueOps     int    // that may be pending
	Pending      int    // submissions that wait for a transaction
	InFlight     int    // submissions in transactions
	Waiting      int    // sessions whose transaction somebody waits for
	Transactions uint64 // committed
	Ops, Bytes   uint64 // of op intents, and of their arguments, in them
}

// Stats returns the counts.
func (c *Committer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Stats{PendingOps: c.ops, QueueOps: c.live.Load().queueOps, InFlight: c.inFlight, Transactions: c.transactions, Ops: c.committed, Bytes: c.committedBytes}
	for _, l := range c.sessions {
		st.Pending += len(l.pending)
		if l.txDone != nil {
			st.Waiting++
		}
	}
	return st
}

// schedule appends l to the run queue if it has pending submissions. mu is held.
func (c *Committer) schedule(l *sessionQueue) {
	if !l.inTx && !l.queued && len(l.pending) > 0 {
		l.queued = true
		c.queue = append(c.queue, l)
		c.ready.Signal()
	}
}

// nextGroup waits for pending submissions and takes a transaction's worth; nil after close.
func (c *Committer) nextGroup() (group []*Pending, lines []*sessionQueue) {
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
			if len(group) > 0 && (ops+w.Ops > c.cfg.GroupOps || bytes+w.Bytes > c.cfg.GroupBytes) {
				break
			}
			group, n = append(group, w), n+1
			ops, bytes = ops+w.Ops, bytes+w.Bytes
			c.charge(l, -w.Ops, -w.Bytes)
		}
		if n == 0 {
			break
		}
		l.pending = append([]*Pending(nil), l.pending[n:]...)
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
func (c *Committer) endGroup(lines []*sessionQueue, n int) {
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
func (c *Committer) commitGroup(group []*Pending) {
	live := group[:0:0]
	for _, w := range group {
		if w.Caller.Err() != nil {
			c.refuse(fault.ContextError(context.Cause(w.Caller), nil), w)
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
		c.refuse(fault.From(c.logOf(live[0]), err, "commit"), live...)
		return
	}
	c.cfg.Log.Warn("a group failed and is tried one by one", "submissions", len(live), "error", err)
	late := 0 // of those tried one by one, timed out
	for i, w := range live {
		err := c.transact([]*Pending{w})
		if err == nil {
			continue
		}
		c.refuse(fault.From(c.logOf(w), err, "commit"), w)
		if errors.Is(err, context.DeadlineExceeded) {
			late++
		}
		// One may be slow by itself; if a second is, the database is.
		if retryFutile(err) || late > 1 {
			c.refuse(fault.From(c.cfg.Log, err, "commit"), live[i+1:]...)
			return
		}
	}
}

// logOf returns the log for lines about a submission. A batch id is the client's text: unless
// it is a ULID it may be anything, even a secret, and is left out.
func (c *Committer) logOf(w *Pending) *slog.Logger {
	log := incident.Logger(w.Caller, c.cfg.Log).With("session", w.Sub.Batch.Session)
	if _, err := ulid.ParseStrict(w.Sub.Batch.BatchID); err == nil {
		log = log.With("batch", w.Sub.Batch.BatchID)
	}
	return log
}

// logRefused logs which batch was refused, or had an op refused: the client knows it by its id.
func (c *Committer) logRefused(w *Pending, code fault.Code) {
	if code != fault.None && c.cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		c.logOf(w).Debug("batch refused", "code", code)
	}
}

// refuse answers works as a whole: nothing of them was committed.
func (c *Committer) refuse(why *fault.Error, works ...*Pending) {
	c.reply(func() {
		for _, w := range works {
			c.logRefused(w, why.Code)
			c.guard(func() { w.Done(decide.Answer{Err: why}) })
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
func (c *Committer) transact(group []*Pending) error {
	subs := make([]decide.Submission, len(group))
	ids := make([]string, 0, len(group))
	seen := make(map[string]struct{}, len(group))
	ops, bytes := 0, 0
	for i, w := range group {
		subs[i], ops, bytes = w.Sub, ops+w.Ops, bytes+w.Bytes
		if id := w.Sub.Batch.Session; !has(seen, id) {
			seen[id] = struct{}{}
			ids = append(ids, id)
		}
	}
	ctx, cancel := context.WithTimeout(c.cfg.Context, c.cfg.Timeout)
	defer cancel()

	var answers []decide.Answer
	var published *session.Published
	c.cfg.Hub.BeginCommit(ids)
	began := time.Now()
	late := time.AfterFunc(c.cfg.SlowCommit, func() { c.cfg.Outage.Suspect(dbfault.Timeout) })
	defer late.Stop()
	err := c.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		answers, published, err = decide.Commit(ctx, tx, subs, c.live.Load().session)
		crashpoint.Hit(crashpoint.ServerCommitBefore)
		return err
	})
	if err != nil {
		c.cfg.Hub.EndCommit(ids, nil)
		c.cfg.Outage.RecordFailure(err, bytes)
		return err
	}
	crashpoint.Hit(crashpoint.ServerCommitAfter)
	published, below := splitPublished(published, seen)
	c.cfg.Instruments.Commits.Observe(time.Since(began).Seconds())
	if published != nil && len(published.Sessions) > 0 {
		c.cfg.Outage.RecordSuccess()
	}
	c.mu.Lock()
	c.transactions++
	c.committed += uint64(ops)
	c.committedBytes += uint64(bytes)
	c.mu.Unlock()
	for i, w := range group {
		w.Sub.Opening.Note(&answers[i])
		if err := answers[i].Err; err != nil && err.Code == fault.QuotaExceeded {
			c.cfg.QuotaMet(w.Sub.Batch.Session)
		}
		if r := answers[i].Fork; r != nil {
			c.cfg.AskFork(r)
		}
		c.logRefused(w, c.cfg.Instruments.CountAnswer(&answers[i]))
		c.cfg.Audit.AddCounts(answers[i].Denied)
		c.cfg.Usage.Add(w.Sub.Peer, answers[i].Cursor, answers[i].Uses...)
	}
	publish := func() {
		c.cfg.Hub.EndCommit(ids, published)
		for _, p := range below {
			c.cfg.Hub.Notify(p.Row.ID, p.Row.Cursor, p.Row.AuthGen)
		}
		crashpoint.Hit(crashpoint.ServerPublishAfter)
	}
	cuts := changesAuthority(published) || len(below) > 0
	c.reply(func() {
		if cuts {
			publish()
		}
		for i, w := range group {
			c.guard(func() { w.Done(answers[i]) })
		}
		crashpoint.Hit(crashpoint.ServerAckAfter)
		if !cuts {
			publish()
		}
	})
	return nil
}

// changesAuthority reports whether a session's authority was changed. Such a commit is published before it is
// answered, so that a revoke returns when this server's subscribers are no longer sent events that are in memory
// without a check; any other commit is answered first.
func changesAuthority(p *session.Published) bool {
	return p != nil && slices.ContainsFunc(p.Sessions, func(s session.PublishedSession) bool { return s.AuthChanged })
}

// splitPublished returns what is published of the group's own sessions, and of those below them in which a ref was
// cut off: other commits of these are not in one order with this one, so their subscribers read the log.
func splitPublished(p *session.Published, own map[string]struct{}) (in *session.Published, below []session.PublishedSession) {
	if p == nil || !slices.ContainsFunc(p.Sessions, func(s session.PublishedSession) bool { return !has(own, s.Row.ID) }) {
		return p, nil
	}
	in = &session.Published{}
	for _, s := range p.Sessions {
		if has(own, s.Row.ID) {
			in.Sessions = append(in.Sessions, s)
		} else {
			below = append(below, s)
		}
	}
	return in, below
}

func has(set map[string]struct{}, key string) bool {
	_, ok := set[key]
	return ok
}
