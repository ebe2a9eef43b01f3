//go:build unix

// The hub against everything it may hear: late, repeated, overtaken and wrong
// news must cost a look at most, never an event.

package fanout

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// logged is a session's log in memory, for a hub of which every step is known. It is
// used within one synctest bubble.
type logged struct {
	HubStore
	mu     sync.Mutex
	row    session.Row
	events []*session.Event
	grants map[string]*capability.Grant
	reads  int
	refs   int // the most that one read asked for
}

// newLogged is a log of one event, whose owner's ref is its id and ".owner".
func newLogged() *logged {
	id := capability.SessionPrefix + "01J0000000000000000000000A"
	l := &logged{row: session.Row{ID: id, Life: session.Live, Epoch: 1, AuthGen: 1}, grants: map[string]*capability.Grant{}}
	l.grant("owner", "")
	l.append(100)
	return l
}

// grant makes a ref of a name that may read, of one message alone if that is not "".
func (l *logged) grant(name, message string) *testAuthority {
	id := l.row.ID + "." + name
	l.grants[id] = &capability.Grant{ID: id, Target: l.row.ID, Rights: capability.Read, Epoch: 1, Message: message}
	return &testAuthority{session: l.row.ID, ref: id}
}

// append gives the cursor of a new event with so large a payload.
func (l *logged) append(bytes int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.row.Cursor++
	l.events = append(l.events, &session.Event{Cursor: l.row.Cursor, Key: "message/msg_1", Payload: make([]byte, bytes)})
	return l.row.Cursor
}

func (l *logged) ReadLog(_ context.Context, _ string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	l.refs = max(l.refs, len(refs))
	row := l.row
	page := &session.LogPage{Access: session.Access{Row: &row, Grants: l.grants}}
	bytes := 0
	for _, e := range l.events[min(after, row.Cursor):] {
		if bytes += len(e.Payload); len(page.Events) > 0 && (bytes > maxBytes || len(page.Events) == maxEvents) {
			page.More = true
			break
		}
		page.Events = append(page.Events, e)
	}
	return session.NewUnscoped(page), nil
}

// hubOn is a hub on a log, until its bubble ends.
func hubOn(t *testing.T, l *logged) *Hub {
	h := testHub(l, time.Minute)
	t.Cleanup(h.Close)
	return h
}

// noting is a sink that notes what it is sent, and answers with err.
type noting struct {
	mu    sync.Mutex
	upTo  uint64   // the cursor of the last event
	calls []string // "events", "ended"
	why   *fault.Error

	err func() error // what events answers; nil: nothing is wrong
}

func (n *noting) Events(shown *session.Shown, done func(error)) {
	events := shown.Events
	n.mu.Lock()
	n.calls = append(n.calls, "events")
	n.mu.Unlock()
	var err error
	if n.err != nil {
		err = n.err()
	}
	if err == nil {
		n.mu.Lock()
		n.upTo = events[len(events)-1].Cursor
		n.mu.Unlock()
	}
	done(err)
}

func (n *noting) Ended(why *fault.Error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls, n.why = append(n.calls, "ended"), why
	return true
}

func (n *noting) at() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.upTo
}

// wideConnState is a connection that takes whatever there is.
func wideConnState() *Flow { return &Flow{maxInFlight: 1 << 30, maxSubs: 10} }

// follow has n sent what comes after a cursor, over a connection.
func (h *Hub) follow(t *testing.T, a *testAuthority, after uint64, n Sink, l *Flow) *Subscription {
	t.Helper()
	return h.followKeys(t, a, nil, after, n, l)
}

// followKeys is follow, of some keys; nil are all.
func (h *Hub) followKeys(t *testing.T, a *testAuthority, keys *session.Selection, after uint64, n Sink, l *Flow) *Subscription {
	t.Helper()
	s := &Subscription{auth: a, keys: keys, conn: l, window: 1 << 20, sink: n, cursor: after,
		onStart: func(refused *fault.Error) {
			if refused != nil {
				t.Errorf("following: %v", refused)
			}
		}}
	if refused := h.Subscribe(a.session, s, nil); refused != nil {
		t.Fatal(refused)
	}
	return s
}

// News may be wrong: of a database that was put back to an earlier time, or anybody's
// NOTIFY. What comes after it is news all the same.
func TestWrongNewsMakesNobodyDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, n := newLogged(), &noting{}
		h := hubOn(t, log)
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		synctest.Wait()
		for _, wrong := range []struct{ cursor, gen uint64 }{{1000, 0}, {0, 1000}} {
			h.Notify(log.row.ID, wrong.cursor, wrong.gen)
			synctest.Wait()
			last := log.append(100)
			h.Notify(log.row.ID, last, 1)
			synctest.Wait()
			if n.at() != last {
				t.Errorf("after news of %+v event %d is not delivered", wrong, last)
			}
		}
		if log.reads > 10 {
			t.Errorf("the log was read %d times for five pieces of news", log.reads)
		}
	})
}

// midway is a log at which something happens once, when a read has found what it found.
type midway struct {
	*logged
	then func()
}

func (m *midway) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	page, err := m.logged.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
	if then := m.then; then != nil {
		m.then = nil
		then()
	}
	return page, err
}

// Nor does wrong news make deaf to what comes while it is looked into.
func TestNewsWhileWrongNewsIsLookedInto(t *testing.T) {
	for _, event := range []bool{true, false} { // or authority alone changes
		synctest.Test(t, func(t *testing.T) { newsWhileWrongNewsIsLookedInto(t, event) })
	}
}

func newsWhileWrongNewsIsLookedInto(t *testing.T, event bool) {
	log, n, revoked := &midway{logged: newLogged()}, &noting{}, &noting{}
	h := testHub(log, time.Minute)
	defer h.Close()
	owner, other := log.grant("owner", ""), log.grant("other", "")
	h.follow(t, owner, 0, n, wideConnState())
	h.follow(t, other, 0, revoked, wideConnState())
	synctest.Wait()
	var last uint64
	log.then = func() {
		if last = log.row.Cursor; event {
			last = log.append(100)
		}
		dead := *log.grants[other.ref]
		dead.Revoked, dead.Cut = 1, last
		log.grants = map[string]*capability.Grant{owner.ref: log.grants[owner.ref], other.ref: &dead}
		log.row.AuthGen++
		h.Notify(log.row.ID, last, log.row.AuthGen)
	}
	h.Notify(log.row.ID, 1000, 1000)
	synctest.Wait()
	if n.at() != last {
		t.Errorf("event %d is not delivered", last)
	}
	if revoked.why == nil || revoked.why.Code != fault.Revoked {
		t.Errorf("who is revoked is told %v", revoked.why)
	}
}

// A commit that runs here holds back what is told of others' commits, but no revoke: a space's ref is revoked in its
// sessions beside their commits, and who follows under it is told while they last.
func TestARevokeIsHeardDuringACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, revoked := newLogged(), &noting{}
		other, h := log.grant("other", ""), hubOn(t, log)
		h.follow(t, other, 0, revoked, wideConnState())
		synctest.Wait()
		h.BeginCommit([]string{log.row.ID})
		defer h.EndCommit([]string{log.row.ID}, nil)
		log.append(100)
		h.Notify(log.row.ID, log.row.Cursor, 1)
		if synctest.Wait(); revoked.at() == log.row.Cursor {
			t.Error("another commit is not held back")
		}
		log.grants[other.ref].Revoked, log.grants[other.ref].Cut = 1, log.append(100)
		log.row.AuthGen++
		h.Notify(log.row.ID, log.row.Cursor, log.row.AuthGen)
		if synctest.Wait(); revoked.why == nil || revoked.why.Code != fault.Revoked {
			t.Errorf("who is revoked is told %v while a commit runs", revoked.why)
		}
	})
}

// What a read for one finds is news to all: who knew nothing of it would not know later
// either, since the hub knows it by then.
func TestOneReadServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, n, revoked := newLogged(), &noting{}, &noting{}
		owner, other, h := log.grant("owner", ""), log.grant("other", ""), hubOn(t, log)
		h.follow(t, owner, 0, n, wideConnState())
		h.follow(t, other, 0, revoked, wideConnState())
		synctest.Wait()
		last := log.append(100) // elsewhere
		h.follow(t, owner, last, &noting{}, wideConnState())
		synctest.Wait()
		h.Notify(log.row.ID, last, 1)
		synctest.Wait()
		if n.at() != last {
			t.Errorf("event %d is not delivered", last)
		}
		log.grants[other.ref].Revoked, log.grants[other.ref].Cut = 1, last
		log.row.AuthGen++
		h.follow(t, owner, last, &noting{}, wideConnState())
		synctest.Wait()
		h.Notify(log.row.ID, last, log.row.AuthGen)
		synctest.Wait()
		if revoked.why == nil || revoked.why.Code != fault.Revoked {
			t.Errorf("who is revoked is told %v", revoked.why)
		}
	})
}

// Who catches up with a long log is served page after page. What comes meanwhile
// reaches the others between two of them.
func TestCatchingUpKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, upToDate, behind := newLogged(), &noting{}, &noting{}
		owner, other := log.grant("owner", ""), log.grant("other", "msg_none")
		const events = 50
		for range events {
			log.append(2 << 20) // a page each, and marks to who is behind: there is always room for those
		}
		h := hubOn(t, log)
		h.follow(t, owner, events+1, upToDate, wideConnState())
		synctest.Wait()
		var last uint64
		came := 0 // the page behind was sent last, when the news had come
		behind.err = func() error {
			switch pages := len(behind.calls); {
			case pages == 5: // whose turn is next is decided
				last = log.append(100)
				h.Notify(log.row.ID, last, 0)
			case last > 0 && upToDate.at() == last && came == 0:
				came = pages
			}
			return nil
		}
		h.follow(t, other, 0, behind, wideConnState())
		synctest.Wait()
		if came == 0 || came > 8 {
			t.Errorf("news that came with page 5 of %d was there with page %d", len(behind.calls), came)
		}
		if behind.at() != last {
			t.Errorf("who was behind is at %d of %d", behind.at(), last)
		}
	})
}

// What was cut for a subscriber who has left meanwhile is not sent.
func TestClosedConnectionIsSentNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, n := newLogged(), &noting{}
		for range 8 {
			log.append(300 << 10) // deliveries of one event, three in a window
		}
		h := hubOn(t, log)
		n.err = func() error { // the peer cancels while the runner has two more for it
			if to := h.fanout(log.row.ID); to != nil {
				for s := range to.subs {
					s.End(nil)
				}
			}
			return nil
		}
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		synctest.Wait()
		if !slices.Equal(n.calls, []string{"events", "ended"}) {
			t.Errorf("the sink was called: %v", n.calls)
		}
	})
}

// Who follows a session that is deleted is sent the log's last event, and then told.
func TestLastEventOfADeletedSessionIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, n := newLogged(), &noting{}
		h := hubOn(t, log)
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		synctest.Wait()
		last := log.append(100)
		log.row.Life = session.Deleted
		h.Notify(log.row.ID, last, 2)
		synctest.Wait()
		if !slices.Equal(n.calls, []string{"events", "events", "ended"}) || n.at() != last || n.why.Code != fault.SessionDeleted {
			t.Errorf("the sink was called: %v, up to %d, with %v", n.calls, n.at(), n.why)
		}
	})
}

// So is who can be sent nothing just then: first the last event, then the end.
func TestLastEventOfADeletedSessionIsSentToTheBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, n := newLogged(), &noting{}
		h := hubOn(t, log)
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		synctest.Wait()
		last := log.append(100)
		log.row.Life = session.Deleted
		busy := 2
		n.err = func() error {
			if busy--; busy >= 0 {
				return ErrWouldBlock
			}
			return nil
		}
		h.Notify(log.row.ID, last, 2)
		time.Sleep(3 * wouldBlockPause)
		synctest.Wait()
		if n.at() != last || n.why == nil || n.why.Code != fault.SessionDeleted {
			t.Errorf("the sink was called: %v, up to %d of %d, with %v", n.calls, n.at(), last, n.why)
		}
	})
}

// stuck is a log that cannot be read, once it says so.
type stuck struct {
	*logged
	on atomic.Bool
}

func (s *stuck) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.logged.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
}

// The end is told to everybody, also where the log cannot be read at that time.
func TestEndIsSentWhileTheLogIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &stuck{logged: newLogged()}
		owner, h := log.grant("owner", ""), testHub(log, time.Hour)
		follows, follows2 := &noting{}, &noting{}
		h.follow(t, owner, 0, follows, wideConnState())
		h.follow(t, owner, 0, follows2, wideConnState())
		synctest.Wait()
		log.on.Store(true)
		h.Notify(log.row.ID, log.append(100), 0)
		synctest.Wait()
		var refused *fault.Error
		comes := &Subscription{auth: owner, conn: wideConnState(), window: 1 << 20, sink: &noting{}, onStart: func(why *fault.Error) { refused = why }}
		if err := h.Subscribe(log.row.ID, comes, nil); err != nil {
			t.Fatal(err)
		}
		h.EndAll(fault.Draining.With("the server is stopping"))
		h.Close()
		for _, n := range []*noting{follows, follows2} {
			if n.why == nil || n.why.Code != fault.Draining {
				t.Errorf("who follows is told %v", n.why)
			}
		}
		if refused == nil || refused.Code != fault.Draining {
			t.Errorf("who comes is told %v", refused)
		}
	})
}

// A ref is asked for once a read, however many follow under it.
func TestRefIsReadOnceForAllWhoFollowUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLogged()
		owner, other, h := log.grant("owner", ""), log.grant("other", ""), hubOn(t, log)
		for i := range 10 {
			h.follow(t, []*testAuthority{owner, other}[i%2], 0, &noting{}, wideConnState())
		}
		synctest.Wait()
		log.refs = 0
		h.Notify(log.row.ID, 1, 2) // authority changed: everybody looks again
		synctest.Wait()
		if log.refs != 2 {
			t.Errorf("a read asked for %d refs, there are 2", log.refs)
		}
	})
}

// A defect in the runner ends the subscriptions it was at, and no others.
func TestDefectInFeedingEndsTheSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, n, again := newLogged(), &noting{}, &noting{}
		owner, h := log.grant("owner", ""), hubOn(t, log)
		h.follow(t, owner, 0, n, wideConnState())
		synctest.Wait()
		n.err = func() error { panic("a defect") }
		h.Notify(log.row.ID, log.append(100), 0)
		synctest.Wait()
		if !slices.Equal(n.calls, []string{"events", "events", "ended"}) || n.why.Code != fault.Internal {
			t.Errorf("the sink was called: %v, with %v", n.calls, n.why)
		}
		h.follow(t, owner, 0, again, wideConnState())
		synctest.Wait()
		if again.at() != 2 {
			t.Errorf("who comes next is at %d", again.at())
		}
	})
}

// silent is a sink whose peer never answers.
type silent struct{ done func(error) }

func (s *silent) Events(_ *session.Shown, done func(error)) { s.done = done }
func (s *silent) Ended(*fault.Error) bool                   { return true }

// TestUnansweredDeliveryKeepsNoEvents: they are sent, and what they hold may be far more than a window counts.
func TestUnansweredDeliveryKeepsNoEvents(t *testing.T) {
	t.Parallel()
	sink := &silent{}
	sub := &Subscription{fanout: &sessionFanout{}, sink: sink}
	sent := func() weak.Pointer[session.Event] {
		e := &session.Event{Payload: make([]byte, 100)}
		sub.fanout.deliver(delivery{sub: sub, shown: &session.Shown{Events: []*session.Event{e}}})
		return weak.Make(e)
	}()
	runtime.GC()
	if sink.done == nil || sent.Value() != nil {
		t.Error("the event is kept until there is an answer")
	}
	runtime.KeepAlive(sub)
}

// testHub is a hub on a store, whose reads may take so long.
func testHub(st HubStore, readTimeout time.Duration) *Hub {
	return NewHub(HubConfig{Log: slog.New(slog.DiscardHandler), Store: st, ReadTimeout: readTimeout, ObserveDelivery: func(float64) {}})
}

// testAuthority reads a session under one ref.
type testAuthority struct{ session, ref string }

func (a *testAuthority) Refs() []string { return []string{a.ref} }

func (a *testAuthority) Check(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error) {
	grant := at.Grants[a.ref]
	if grant != nil && grant.Target != a.session {
		grant = nil
	}
	acting, refused := capability.CheckLive(grant, nil, at.Row.Epoch, at.Now, need, "")
	if refused == nil && at.Row.Life == session.Deleted {
		refused = SessionDeleted()
	}
	return acting, refused
}

// A purge that is published makes what was published before it unfit to send.
func TestPublishedPurgeClearsTheTail(t *testing.T) {
	t.Parallel()
	h := testHub(nil, time.Minute)
	defer h.Close()
	s := &Subscription{conn: &Flow{maxInFlight: 1 << 20, maxSubs: 1}, window: 1 << 20, authorized: true, authGen: 1, cursor: 1}
	top := &sessionFanout{hub: h, session: "ses_x", subs: map[*Subscription]struct{}{s: {}}, running: true, cursor: 1, gen: 1}
	s.fanout = top
	put := &session.Event{Cursor: 2, Method: session.MethodPut, Payload: []byte(`{"leaked":1}`)}
	top.publish(&session.PublishedSession{Row: session.Row{Cursor: 2, AuthGen: 1}, Events: session.NewUnscopedEvents([]*session.Event{put})})
	if !top.tail.Covers(2) {
		t.Fatal("what was published is not in the tail: this test shows nothing")
	}
	purge := &session.Event{Cursor: 3, Method: session.MethodPurge, Payload: []byte(`{}`)}
	top.publish(&session.PublishedSession{Row: session.Row{Cursor: 3, AuthGen: 2}, Events: session.NewUnscopedEvents([]*session.Event{purge}), AuthChanged: true})
	if r, _ := top.nextRound(); len(r.out) != 0 || len(r.readers) != 1 {
		t.Errorf("%d deliveries from memory, %d readers of the log", len(r.out), len(r.readers))
	}
}
