//go:build unix

// A follower in a hub's random story, which holds every call it gets against the log.

package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// follower is a sink. Its fields are guarded by the story's lock.
type follower struct {
	s     *story
	of    *chronicle
	name  string
	dice  *dice
	ref   string
	from  uint64 // of the ref
	sub   *Subscription
	start uint64 // where it began, and whether the log was there
	ahead bool

	at       uint64 // the last event it has had
	held     []func(error)
	underway int  // bytes, not answered
	calls    int  // not answered
	holding  bool // it waits for its snapshot
	left     bool
	failed   bool
	began    int
	refused  *fault.Error
	ends     int
	why      *fault.Error
}

// follow has somebody come.
func (s *story) follow(c *chronicle, d *dice) {
	s.mu.Lock()
	n, full := s.came, len(s.followers) >= 14
	s.came++
	s.mu.Unlock()
	if full {
		return
	}
	row, _ := c.now("")
	f := &follower{s: s, of: c, name: fmt.Sprintf("f%d", n), dice: newDice(uint64(d.n(1<<30)), 200+uint64(n))}
	auth := c.ref(f, row, d)
	f.start = uint64(d.n(int(row.Cursor) + 1))
	switch {
	case d.chance(40):
		f.start = row.Cursor
	case d.chance(5):
		f.start = row.Cursor + 1 + uint64(d.n(3))
	}
	f.ahead = f.start > row.Cursor
	f.at = max(f.start, f.from-1)
	f.sub = &Subscription{auth: auth, sink: f, cursor: f.start, conn: s.conns[d.n(len(s.conns))], window: oneOf(d, 1, 1000, 3000, 10000, 1<<20), onStart: f.started}
	var first func(context.Context)
	if d.chance(s.quirks.snapshots) {
		f.ahead, f.holding, first = false, true, f.first
	}
	s.note("%s comes to %s after %d under %s, snapshot %v, window %d", f.name, c.name, f.start, auth.ref, first != nil, f.sub.window)
	refused := s.h.Subscribe(c.row.ID, f.sub, first)
	s.mu.Lock()
	ended := s.ended
	if refused == nil {
		s.followers = append(s.followers, f) // not before: who is being subscribed cannot leave
	}
	s.mu.Unlock()
	if refused != nil {
		if s.note("%s may not: %v", f.name, refused); refused.Code != fault.Overloaded && (refused.Code != fault.Draining || !ended) {
			s.fault("%s is refused with %v", f.name, refused)
		}
	}
}

// ref makes a ref for f, or takes one that is there.
func (c *chronicle) ref(f *follower, row session.Row, d *dice) *testAuthority {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ids := slices.Sorted(maps.Keys(c.grants)); len(ids) > 0 && d.chance(40) {
		g := c.grants[oneOf(d, ids...)]
		f.ref, f.from = g.ID, max(g.VisibleFrom, 1)
		return &testAuthority{session: c.row.ID, ref: g.ID}
	}
	c.grants = maps.Clone(c.grants)
	auth := c.grant(fmt.Sprintf("r%d", len(c.grants)), "")
	g := c.grants[auth.ref]
	g.Epoch, g.Owner = row.Epoch, d.chance(50)
	if d.chance(c.s.quirks.narrow) {
		g.Message = oneOf(d, "msg_1", "msg_2")
	}
	if d.chance(c.s.quirks.narrow) {
		g.VisibleFrom = uint64(d.n(int(row.Cursor) + 6))
	}
	if d.chance(c.s.quirks.hurried) {
		g.Expires = clock() + int64(oneOf(d, d.n(3000), 3_600_000))
	}
	f.ref, f.from = g.ID, max(g.VisibleFrom, 1)
	return auth
}

// started is the subscription's.
func (f *follower) started(refused *fault.Error) {
	f.s.note("%s has begun: %v", f.name, refused)
	f.s.mu.Lock()
	f.began++
	f.refused = refused
	f.s.mu.Unlock()
	if refused != nil {
		f.judge(refused)
	}
}

// leave is a peer's cancel.
func (f *follower) leave() {
	f.s.note("%s leaves", f.name)
	f.s.mu.Lock()
	f.left = true
	f.s.mu.Unlock()
	f.sub.End(nil)
}

// Events implements sink.
func (f *follower) Events(shown *session.Shown, done func(error)) {
	events := shown.Events
	s := f.s
	s.stir()
	s.note("%s is sent %d to %d", f.name, events[0].Cursor, events[len(events)-1].Cursor)
	if s.quirk(f.dice, s.quirks.busy) {
		s.note("%s is busy", f.name)
		done(ErrWouldBlock)
		return
	}
	row, grant := f.of.now(f.ref)
	s.mu.Lock()
	gone, at, began := f.ends > 0 || f.refused != nil, f.at, f.began
	s.mu.Unlock()
	bytes := 0
	for _, e := range events {
		if why := f.mayHave(e, at, &row, grant); why != "" && !gone {
			s.fault("%s is sent %d (hidden: %v) after %d: %s", f.name, e.Cursor, e.Hidden, at, why)
		}
		if at = e.Cursor; !e.Hidden {
			bytes += e.Bytes()
		}
	}
	if began == 0 && !gone {
		s.fault("%s is sent events before it has begun", f.name)
	}
	if !gone {
		s.mu.Lock()
		f.at = at
		s.mu.Unlock()
	}
	f.takes(bytes, done)
}

// mayHave says what is wrong with an event as the one after cursor at.
func (f *follower) mayHave(e *session.Event, at uint64, row *session.Row, grant *capability.Grant) string {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	switch {
	case e.Cursor <= at || e.Cursor > row.Cursor || !e.Hidden && e.Cursor != at+1:
		return "it is not the next"
	case grant.Revoked != 0 && e.Cursor > grant.Cut:
		return "the ref is revoked"
	case grant.Expires != 0 && f.of.events[e.Cursor-1].At >= grant.Expires:
		return "the ref had expired"
	case !grant.Owner && grant.Epoch != row.Epoch && e.Cursor > f.of.bumps[grant.Epoch]:
		return "the epoch is over"
	case !e.Hidden && (e != f.of.events[e.Cursor-1] || !session.InScope(grant, e.Key)):
		return "it is another, or not for it"
	}
	if e.Hidden {
		for _, hidden := range f.of.events[at:e.Cursor] {
			if session.InScope(grant, hidden.Key) {
				return fmt.Sprintf("event %d is hidden", hidden.Cursor)
			}
		}
	}
	return ""
}

// takes answers a call, now or later, and holds it against the window.
func (f *follower) takes(bytes int, done func(error)) {
	s := f.s
	s.mu.Lock()
	f.underway, f.calls = f.underway+bytes, f.calls+1
	if f.calls > 1 && f.underway > f.sub.window && f.ends == 0 {
		s.mu.Unlock()
		s.fault("%s has %d bytes under way in %d calls, its window is %d", f.name, f.underway, f.calls, f.sub.window)
		s.mu.Lock()
	}
	s.mu.Unlock()
	answer := func(err error) {
		s.mu.Lock()
		f.underway, f.calls = f.underway-bytes, f.calls-1
		s.stirs++
		s.mu.Unlock()
		done(err)
	}
	for f.of.quirkAmid(f.dice) {
		s.happen(f.dice)
	}
	switch {
	case s.quirk(f.dice, s.quirks.failing):
		s.note("%s fails", f.name)
		s.mu.Lock()
		f.failed = true
		s.mu.Unlock()
		answer(errors.New("the sink is broken"))
	case s.quirk(f.dice, s.quirks.held):
		s.mu.Lock()
		f.held = append(f.held, answer)
		s.mu.Unlock()
	case s.quirk(f.dice, s.quirks.late):
		time.AfterFunc(time.Duration(f.dice.n(40))*time.Millisecond, func() { answer(nil) })
	default:
		answer(nil)
	}
}

// answer answers some of the calls that are held, in any order.
func (f *follower) answer(d *dice, n int) {
	for range n {
		f.s.mu.Lock()
		if len(f.held) == 0 {
			f.s.mu.Unlock()
			return
		}
		i := d.n(len(f.held))
		next := f.held[i]
		f.held = slices.Delete(f.held, i, i+1)
		f.s.mu.Unlock()
		next(nil)
	}
}

// state implements StateSink.
func (f *follower) state(_ *session.StateChunk, bytes int, done func(error)) {
	f.s.stir()
	if f.s.quirk(f.dice, f.s.quirks.busy) {
		done(ErrWouldBlock)
		return
	}
	f.takes(bytes, done)
}

// first sends a state as sess.first does: at its pace, over the link.
func (f *follower) first(ctx context.Context) {
	p := sendWindow{window: f.sub.window, conn: f.sub.conn, stallTimeout: time.Minute, wake: make(chan struct{}, 1), onSend: func(int) {}, onAck: func() {}}
	row, refused := f.send(ctx, &p)
	if refused != nil {
		f.sub.End(refused)
		return
	}
	f.s.note("%s has the state of %d", f.name, row.Cursor)
	f.s.mu.Lock()
	f.at, f.holding = max(row.Cursor, f.from-1), false
	f.s.mu.Unlock()
	f.sub.beginEvents(row)
}

func (f *follower) send(ctx context.Context, p *sendWindow) (of *session.Row, refused *fault.Error) {
	defer p.close()
	row, _ := f.of.now("")
	page, err := f.s.ReadLog(ctx, row.ID, row.Cursor, 1, 1, nil)
	if err != nil {
		return nil, fault.From(f.s.h.log, err, "read the state")
	}
	if _, refused := f.sub.auth.Check(page.Access(), capability.Read); refused != nil {
		return nil, refused
	}
	if started := f.sub.takeOnStart(); started != nil {
		started(nil)
	}
	for range 1 + f.dice.n(4) {
		bytes := 256 + f.dice.n(2000)
		if err := p.send(ctx, bytes, func(done func(error)) { f.state(nil, bytes, done) }); err != nil {
			return nil, fault.From(f.s.h.log, err, "send the state")
		}
	}
	return page.Access().Row, fault.From(f.s.h.log, p.drain(ctx), "send the state")
}

// Ended implements sink.
func (f *follower) Ended(why *fault.Error) bool {
	s := f.s
	if why != nil && s.quirk(f.dice, s.quirks.deaf) {
		return false
	}
	s.note("%s is told its end: %v", f.name, why)
	s.mu.Lock()
	f.ends++
	f.why = why
	silent := why == nil && (f.left || f.refused != nil)
	s.mu.Unlock()
	if !silent {
		f.judge(why)
	}
	return true
}

// judge says whether this is a reason for f's end.
func (f *follower) judge(why *fault.Error) {
	row, grant := f.of.now(f.ref)
	s := f.s
	s.mu.Lock()
	at, holding, failed, left, ended := f.at, f.holding, f.failed, f.left, s.ended
	begun := f.began > 0 && f.refused == nil
	s.mu.Unlock()
	right := false
	switch fault.CodeOf(f.asError(why)) {
	case fault.Revoked:
		right = grant.Revoked != 0
	case fault.StaleEpoch:
		right = !grant.Owner && grant.Epoch != row.Epoch
	case fault.Expired:
		right = grant.Expires != 0 && clock() >= grant.Expires
	case fault.SessionDeleted:
		right = row.Life == session.Deleted && (at >= row.Cursor || holding)
	case fault.CursorExpired:
		right = at < row.Base
	case fault.ServerBehind:
		right = f.ahead
	case fault.Unavailable:
		right = !begun // the log could not be read
	case fault.Canceled:
		right = failed || left
	case fault.Draining:
		right = ended
	}
	if !right {
		s.fault("%s, at %d of %d, is told %v", f.name, at, row.Cursor, why)
	}
}

func (f *follower) asError(why *fault.Error) error {
	if why == nil {
		return nil
	}
	return why
}

// cut is the cursor at which f's ref died, or its session; 0 if they live.
func (f *follower) cut() uint64 {
	row, grant := f.of.now(f.ref)
	switch {
	case grant.Revoked != 0:
		return grant.Cut
	case !grant.Owner && grant.Epoch != row.Epoch:
		f.of.mu.Lock()
		defer f.of.mu.Unlock()
		return f.of.bumps[grant.Epoch]
	case row.Life == session.Deleted:
		return row.Cursor
	}
	return 0
}

func (f *follower) expired() bool {
	_, grant := f.of.now(f.ref)
	return grant.Expires != 0 && clock() >= grant.Expires
}
