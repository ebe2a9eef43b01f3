// The hub: the subscriptions of this replica, by session.
//
// It learns of new events in three ways: from this replica's own commits (EndCommit), from the
// database's notifications of other replicas' commits, which are hints, and by polling, which
// is the guarantee. It holds only cursors and a short tail of events; a subscriber reads
// everything else from the log, so nothing is lost with the hub.

package fanout

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
)

// HubConfig configures a hub.
type HubConfig struct {
	Log         *slog.Logger
	Store       HubStore
	ReadTimeout time.Duration // of one read

	// ObserveDelivery is called with the duration of each delivery.
	ObserveDelivery func(seconds float64)
	// ObserveCommit, if not nil, is called with the cursors of the events of each commit here to a session
	// before they are published.
	ObserveCommit func(session string, first, last uint64)

	// The loops, for what other replicas commit.
	Now          func() time.Time
	PollInterval time.Duration                 // 0 switches polling off
	IgnoreNotify bool                          // notifications are dropped
	Warn         func(label string, err error) // logs that something was not done
}

// HubStore is the store of a hub. A method returns authority and rows of one snapshot.
type HubStore interface {
	// ReadLog returns events after a cursor; hashesAt are cursors whose event hashes are
	// returned too. ReadRows returns the rows of the sessions that exist.
	ReadLog(ctx context.Context, session string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error)
	ReadRows(ctx context.Context, sessions []string) (map[string]*session.Row, error)

	// Listen calls heard for commits until ctx ends; heard("", 0) reports that notifications
	// may have been missed.
	Listen(ctx context.Context, heard func(session string, cursor uint64)) error
}

// Hub holds the fan-outs. It is safe for concurrent use. Locks are taken in the order hub.mu,
// sessionFanout.mu.
type Hub struct {
	cfg       HubConfig
	ctx       context.Context // of everything the hub does; ended by close
	cancel    context.CancelFunc
	log       *slog.Logger
	reads     chan struct{} // bounds the concurrent reads of the log
	pageBytes int
	tailBytes int

	mu        sync.Mutex
	fanouts   map[string]*sessionFanout
	holds     map[string]*commitHold // sessions this replica is committing to
	endReason *fault.Error

	runMu  sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// commitHold holds notifications of a session back while a commit to it runs here, since the
// commit's events are about to be published; not those of a change of authority.
type commitHold struct {
	commits     int
	cursor, gen uint64 // highest notified meanwhile
}

// Bounds of the hub: concurrent reads, and bytes and events of a page and of a tail.
const (
	hubReads      = 4
	hubPageBytes  = 1 << 20
	hubTailBytes  = 1 << 20
	hubPageEvents = 4096
)

// NewHub returns a hub without followers; its Loops have to run.
func NewHub(cfg HubConfig) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &Hub{cfg: cfg, ctx: ctx, cancel: cancel, log: cfg.Log, reads: make(chan struct{}, hubReads), pageBytes: hubPageBytes, tailBytes: hubTailBytes,
		fanouts: map[string]*sessionFanout{}, holds: map[string]*commitHold{}}
}

// Subscribe adds s to the fan-out of session id. s.onStart is called once it is known whether
// s may follow the session. If snapshot is not nil, it runs first, in a goroutine of its own,
// and ends with s.beginEvents or s.end. A returned fault is a limit or a drain; s.onStart is not
// called then.
func (h *Hub) Subscribe(id string, s *Subscription, snapshot func(context.Context)) *fault.Error {
	if !s.conn.addSub() {
		s.conn.limitHits.Add(admission.LimitSubscriptions)
		return fault.Overloaded.With("this connection has %d subscriptions, the maximum: cancel some", s.conn.maxSubs)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.endReason != nil {
		s.conn.removeSub()
		return h.endReason
	}
	t := h.fanouts[id]
	if t == nil {
		t = &sessionFanout{hub: h, session: id, subs: map[*Subscription]struct{}{}}
		h.fanouts[id] = t
	}
	s.fanout = t
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs[s] = struct{}{}
	if snapshot == nil {
		t.wake(s)
		return nil
	}
	s.inSnapshot = true
	if !h.beginTask() {
		delete(t.subs, s)
		s.finished = true
		s.conn.removeSub()
		return fault.Draining.With("the server is stopping")
	}
	ctx, cancel := context.WithCancel(h.ctx)
	s.cancelSnapshot = cancel
	go func() {
		defer h.endTask()
		defer cancel()
		if why := admission.CatchPanic(h.log, "send the state", func() { snapshot(ctx) }); why != nil {
			s.End(why)
		}
	}()
	return nil
}

// Followers returns the number of subscriptions and of followed sessions here, and how many
// known events the subscriptions have not been sent: the sum, and the largest lag of one.
func (h *Hub) Followers() (followers, sessions int, behind, lag uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.fanouts {
		t.mu.Lock()
		followers += len(t.subs)
		for s := range t.subs {
			if s.cursor < t.cursor {
				behind, lag = behind+t.cursor-s.cursor, max(lag, t.cursor-s.cursor)
			}
		}
		t.mu.Unlock()
	}
	return followers, len(h.fanouts), behind, lag
}

// forget removes a fan-out without subscriptions.
func (h *Hub) forget(t *sessionFanout) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.subs) == 0 && h.fanouts[t.session] == t {
		delete(h.fanouts, t.session)
	}
}

// BeginCommit announces commits to sessions; the caller calls EndCommit in any case.
func (h *Hub) BeginCommit(sessions []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range sessions {
		if h.holds[id] == nil {
			h.holds[id] = &commitHold{}
		}
		h.holds[id].commits++
	}
}

// EndCommit publishes the events of a commit (nil if it failed) and releases the notifications
// held back. Callers pass the commits of one session in their order.
func (h *Hub) EndCommit(sessions []string, published *session.Published) {
	if published != nil {
		for i := range published.Sessions {
			p := &published.Sessions[i]
			if h.cfg.ObserveCommit != nil && p.Events.Len() > 0 {
				h.cfg.ObserveCommit(p.Row.ID, p.Events.First(), p.Events.Last())
			}
			if t := h.fanout(p.Row.ID); t != nil {
				t.publish(p)
			}
		}
	}
	for _, id := range sessions {
		h.mu.Lock()
		hold := h.holds[id]
		cursor, gen := hold.cursor, hold.gen // even if the next commit runs already: there might always be one
		hold.cursor, hold.gen = 0, 0
		hold.commits--
		if hold.commits == 0 {
			delete(h.holds, id)
		}
		t := h.fanouts[id]
		h.mu.Unlock()
		if t != nil {
			t.notify(cursor, gen)
		}
	}
}

func (h *Hub) fanout(id string) *sessionFanout {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fanouts[id]
}

// Notify handles a notification of a session's cursor (and AuthGen, 0 if not known) from
// outside. It may be late, repeated or wrong: it only causes a read of the log, and only the
// rows read count.
func (h *Hub) Notify(id string, cursor, gen uint64) {
	h.mu.Lock()
	t := h.fanouts[id]
	if hold := h.holds[id]; hold != nil && (t == nil || !t.isNewAuthority(gen)) {
		hold.cursor, hold.gen = max(hold.cursor, cursor), max(hold.gen, gen)
		t = nil
	}
	h.mu.Unlock()
	if t != nil {
		t.notify(cursor, gen)
	}
}

// all returns the current fan-outs.
func (h *Hub) all() []*sessionFanout {
	h.mu.Lock()
	defer h.mu.Unlock()
	topics := make([]*sessionFanout, 0, len(h.fanouts))
	for _, t := range h.fanouts {
		topics = append(topics, t)
	}
	return topics
}

// pollBatch is the number of sessions whose rows one poll reads at once.
const pollBatch = 500

// poll reads the row of every followed session once.
func (h *Hub) poll(ctx context.Context) error {
	topics := h.all()
	for len(topics) > 0 {
		n := min(len(topics), pollBatch)
		ids := make([]string, n)
		for i, t := range topics[:n] {
			ids[i] = t.session
		}
		topics = topics[n:]
		rows, err := h.cfg.Store.ReadRows(ctx, ids)
		if err != nil {
			return err
		}
		for id, row := range rows {
			h.Notify(id, row.Cursor, row.AuthGen)
		}
	}
	return nil
}

// expire checks the subscriptions whose refs may have expired by now, in Unix ms.
func (h *Hub) expire(now int64) {
	for _, t := range h.all() {
		t.expire(now)
	}
}

// EndAll ends all subscriptions with why, and refuses new ones with it.
func (h *Hub) EndAll(why *fault.Error) {
	h.mu.Lock()
	h.endReason = why
	h.mu.Unlock()
	for _, t := range h.all() {
		t.endAll(why)
	}
}

// Close stops all tasks of the hub and waits for them. Subscribers are not notified.
func (h *Hub) Close() {
	h.runMu.Lock()
	h.closed = true
	h.runMu.Unlock()
	h.cancel()
	h.wg.Wait()
}

// beginTask counts a goroutine of the hub; it returns false if the hub is closed.
func (h *Hub) beginTask() bool {
	h.runMu.Lock()
	defer h.runMu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Add(1)
	return true
}

func (h *Hub) endTask() { h.wg.Done() }

// runAfter runs f after delay, unless the hub is closed first.
func (h *Hub) runAfter(delay time.Duration, f func()) {
	if !h.beginTask() {
		return
	}
	go func() {
		defer h.endTask()
		select {
		case <-h.ctx.Done():
		case <-time.After(delay):
			_ = admission.CatchPanic(h.log, "go on after a pause", f) // it is logged
		}
	}()
}

// readLog reads a page after cursor from, no larger than a subscriber's window, with the
// grants of refs in the same snapshot.
func (h *Hub) readLog(id string, from uint64, window int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	select {
	case h.reads <- struct{}{}:
		defer func() { <-h.reads }()
	case <-h.ctx.Done():
		return nil, h.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.ReadTimeout)
	defer cancel()
	return h.cfg.Store.ReadLog(ctx, id, from, min(window, h.pageBytes), hubPageEvents, refs, hashesAt...)
}
