// The hub: who follows which session on this replica.
//
// It hears of new events in three ways: from this replica's own commits
// (published), from the database's notifications of other replicas' commits,
// which are hints, and by polling, which is the guarantee. It holds nothing that
// a subscriber could miss: cursors and a short tail; all else is in the log.

package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// hub is safe for concurrent use. Locks are taken in the order hub.mu, sessionFanout.mu.
type hub struct {
	ctx             context.Context // of everything the hub does; ended by close
	cancel          context.CancelFunc
	log             *slog.Logger
	store           Store
	timeout         time.Duration // one read
	reads           chan struct{} // bounds the reads of the log that run at once
	pageBytes       int
	tailBytes       int
	observeDelivery func(seconds float64) // is told how long deliveries took

	mu        sync.Mutex
	fanouts   map[string]*sessionFanout
	holds     map[string]*commitHold // sessions this replica is committing to now
	endReason *fault.Error

	runMu  sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// commitHold keeps what others tell of a session back while a commit to it runs
// here, since its events are about to be published.
type commitHold struct {
	commits     int
	cursor, gen uint64 // heard meanwhile
}

// The hub's own bounds.
const (
	hubReads      = 4
	hubPageBytes  = 1 << 20
	hubTailBytes  = 1 << 20
	hubPageEvents = 4096 // events
)

func newHub(store Store, timeout time.Duration, log *slog.Logger) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &hub{ctx: ctx, cancel: cancel, log: log, store: store, timeout: timeout,
		reads: make(chan struct{}, hubReads), pageBytes: hubPageBytes, tailBytes: hubTailBytes,
		observeDelivery: func(float64) {}, fanouts: map[string]*sessionFanout{}, holds: map[string]*commitHold{}}
}

// subscribe adds s to its session's fan-out; s.started is called when it is known
// whether it may follow the session. snapshot, if not nil, runs first, in a
// goroutine of its own, and ends with s.begin or s.over. The refusal returned is for limits; nothing is called then.
func (h *hub) subscribe(id string, s *subscription, snapshot func(context.Context)) *fault.Error {
	if !s.conn.addSub() {
		s.conn.limitHits.add(limitSubscriptions)
		return fault.Overloaded.With("this connection has %d subscriptions, the most it may: cancel some", s.conn.maxSubs)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.endReason != nil {
		s.conn.removeSub()
		return h.endReason
	}
	t := h.fanouts[id]
	if t == nil {
		t = &sessionFanout{hub: h, session: id, subs: map[*subscription]struct{}{}}
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
		if why := catchPanic(h.log, "send the state", func() { snapshot(ctx) }); why != nil {
			s.end(why)
		}
	}()
	return nil
}

// followers is how many follow how many sessions here, and how many events those lack
// that are known of: all of them together, and the one furthest behind.
func (h *hub) followers() (followers, sessions int, behind, most uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.fanouts {
		t.mu.Lock()
		followers += len(t.subs)
		for s := range t.subs {
			if s.cursor < t.cursor {
				behind, most = behind+t.cursor-s.cursor, max(most, t.cursor-s.cursor)
			}
		}
		t.mu.Unlock()
	}
	return followers, len(h.fanouts), behind, most
}

// forget forgets a fan-out that nobody follows any more.
func (h *hub) forget(t *sessionFanout) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.subs) == 0 && h.fanouts[t.session] == t {
		delete(h.fanouts, t.session)
	}
}

// beginCommit announces commits to sessions; committed follows in any case.
func (h *hub) beginCommit(sessions []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range sessions {
		if h.holds[id] == nil {
			h.holds[id] = &commitHold{}
		}
		h.holds[id].commits++
	}
}

// endCommit hands on what a commit wrote (nothing, if it failed). Events of one
// session come in the order of their commits.
func (h *hub) endCommit(sessions []string, published *session.Published) {
	if published != nil {
		for i := range published.Sessions {
			if t := h.fanout(published.Sessions[i].Row.ID); t != nil {
				t.publish(&published.Sessions[i])
			}
		}
	}
	for _, id := range sessions {
		h.mu.Lock()
		held := h.holds[id]
		cursor, gen := held.cursor, held.gen // also if the next commit runs already: there may be no end of them
		held.cursor, held.gen = 0, 0
		held.commits--
		if held.commits == 0 {
			delete(h.holds, id)
		}
		t := h.fanouts[id]
		h.mu.Unlock()
		if t != nil {
			t.notify(cursor, gen)
		}
	}
}

func (h *hub) fanout(id string) *sessionFanout {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fanouts[id]
}

// notify takes word of a session's cursor (and AuthGen, 0 if not known) from
// outside. It may be late, repeated or wrong: it only causes a look, and what that
// finds counts.
func (h *hub) notify(id string, cursor, gen uint64) {
	h.mu.Lock()
	t := h.fanouts[id]
	if held := h.holds[id]; held != nil {
		held.cursor, held.gen = max(held.cursor, cursor), max(held.gen, gen)
		t = nil
	}
	h.mu.Unlock()
	if t != nil {
		t.notify(cursor, gen)
	}
}

// all gives the present fan-outs.
func (h *hub) all() []*sessionFanout {
	h.mu.Lock()
	defer h.mu.Unlock()
	topics := make([]*sessionFanout, 0, len(h.fanouts))
	for _, t := range h.fanouts {
		topics = append(topics, t)
	}
	return topics
}

// pollBatch is how many sessions one poll asks for at once.
const pollBatch = 500

// poll looks at every followed session's row once.
func (h *hub) poll(ctx context.Context) error {
	topics := h.all()
	for len(topics) > 0 {
		n := min(len(topics), pollBatch)
		ids := make([]string, n)
		for i, t := range topics[:n] {
			ids[i] = t.session
		}
		topics = topics[n:]
		rows, err := h.store.ReadRows(ctx, ids)
		if err != nil {
			return err
		}
		for id, row := range rows {
			h.notify(id, row.Cursor, row.AuthGen)
		}
	}
	return nil
}

// expire has subscriptions checked whose refs may have expired.
func (h *hub) expire(now int64) {
	for _, t := range h.all() {
		t.expire(now)
	}
}

// endAll refuses new subscriptions and ends those there are, telling them why.
func (h *hub) endAll(why *fault.Error) {
	h.mu.Lock()
	h.endReason = why
	h.mu.Unlock()
	for _, t := range h.all() {
		t.endAll(why)
	}
}

// close stops everything and waits for it. Subscribers are not told.
func (h *hub) close() {
	h.runMu.Lock()
	h.closed = true
	h.runMu.Unlock()
	h.cancel()
	h.wg.Wait()
}

// beginTask counts a goroutine of the hub in; false when it is closed.
func (h *hub) beginTask() bool {
	h.runMu.Lock()
	defer h.runMu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Add(1)
	return true
}

func (h *hub) endTask() { h.wg.Done() }

// runAfter runs f in a while, unless the hub is closed before.
func (h *hub) runAfter(delay time.Duration, f func()) {
	if !h.beginTask() {
		return
	}
	go func() {
		defer h.endTask()
		select {
		case <-h.ctx.Done():
		case <-time.After(delay):
			_ = catchPanic(h.log, "go on after a pause", f) // it is in the log
		}
	}()
}

// readLog reads a page after cursor from, no larger than a subscriber's window
// needs, with the grants of refs in the same snapshot.
func (h *hub) readLog(id string, from uint64, window int, refs []string, hashesAt ...uint64) (*session.LogPage, error) {
	select {
	case h.reads <- struct{}{}:
		defer func() { <-h.reads }()
	case <-h.ctx.Done():
		return nil, h.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.timeout)
	defer cancel()
	return h.store.ReadLog(ctx, id, from, min(window, h.pageBytes), hubPageEvents, refs, hashesAt...)
}
