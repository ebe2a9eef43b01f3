//go:build unix

// The world of a hub's random story (hub_property_test.go): logs that are written here
// and elsewhere and told of well or badly, and followers with every vice of a peer.

package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
)

// dice is safe for concurrent use. Everybody in a story has their own, so that what one
// draws does not hang on who was scheduled first.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newDice(seed, who uint64) *dice { return &dice{rnd: rand.New(rand.NewPCG(seed, who))} }

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

func (d *dice) chance(percent int) bool { return d.n(100) < percent }

func oneOf[T any](d *dice, of ...T) T { return of[d.n(len(of))] }

// quirks are what a story is full of, in percent of the times that it could happen.
type quirks struct {
	large, narrow, authority          int // events, grants, writes that change authority
	slow, down                        int // reads of the log
	held, late, busy, failing, deaf   int // answers of followers
	amid                              int // something happens within a read, or a delivery
	lost, wrong                       int // news
	trims, snapshots, hurried, skewed int
}

// story is one hub and all that happens to it.
type story struct {
	HubStore
	h       *Hub
	dice    *dice
	quirks  quirks
	logs    []*chronicle
	conns   []*Flow
	telling sync.Mutex // commits are told in their order

	mu        sync.Mutex
	begun     time.Time
	calm      bool // everything has become good
	ended     bool
	followers []*follower // those who are there
	came      int         // followers
	commits   []func()    // have begun here, and are to go on
	written   []func()    // are to be told
	news      []news
	stirs     int // what may cause a read
	reads     int
	notes     []string
	faults    []string
}

// chronicle is a log of which is known what was told of it. down, cursor and gen are
// guarded by the story's lock, all else by the log's.
type chronicle struct {
	*logged
	s    *story
	name string
	dice *dice
	down bool

	cursor, gen uint64 // the highest that was told, and was true

	changes map[uint64]uint64 // cursors at which authority changed, and the AuthGen since
	bumps   map[uint64]uint64 // epochs, and the cursors at which they ended
}

// news is what another replica tells of a commit.
type news struct {
	of          *chronicle
	cursor, gen uint64
}

func newStory(seed uint64) *story {
	d := newDice(seed, 0)
	s := &story{dice: d, begun: time.Now()}
	often := func(percent int) int { return d.n(2) * d.n(percent) } // or never
	s.quirks = quirks{large: often(30), narrow: often(100), authority: often(30), slow: often(100), down: often(20),
		held: often(100), late: often(100), busy: often(60), failing: often(3), deaf: often(60), amid: often(40),
		lost: often(100), wrong: often(100), trims: often(20), snapshots: often(60), hurried: often(100), skewed: often(100)}
	s.h = testHub(s, 200*time.Millisecond)
	s.h.pageBytes, s.h.tailBytes = oneOf(d, 500, 3000, 1<<20), oneOf(d, 1000, 4000, 1<<20)
	for i := range 1 + d.n(3) {
		l := &logged{row: session.Row{ID: capability.SessionPrefix + fmt.Sprintf("01J0000000000000000000000%d", i), Life: session.Live, Epoch: 1, AuthGen: 1},
			grants: map[string]*capability.Grant{}}
		c := &chronicle{logged: l, s: s, name: fmt.Sprintf("log%d", i), dice: newDice(seed, 100+uint64(i)), changes: map[uint64]uint64{}, bumps: map[uint64]uint64{}}
		s.logs = append(s.logs, c)
		for range d.n(20) {
			c.write(d, false)
		}
	}
	for range 1 + d.n(2) {
		s.conns = append(s.conns, &Flow{maxInFlight: oneOf(d, 1, 1000, 4000, 1<<30), maxSubs: oneOf(d, 3, 100), limitHits: &admission.LimitHits{}})
	}
	return s
}

func (s *story) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf("%6dms ", time.Since(s.begun).Milliseconds())+fmt.Sprintf(format, args...))
}

func (s *story) fault(format string, args ...any) {
	s.note("FAULT "+format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *story) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

// quirk is whether a vice shows now.
func (s *story) quirk(d *dice, percent int) bool { return d.chance(percent) && !s.isCalm() }

func (s *story) stir() {
	s.mu.Lock()
	s.stirs++
	s.mu.Unlock()
}

// clock is the database's, Unix ms.
func clock() int64 { return time.Now().UnixMilli() }

// write commits a few events, which may change authority.
func (c *chronicle) write(d *dice, authority bool) *session.PublishedSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row.Life == session.Deleted {
		return nil
	}
	p := &session.PublishedSession{}
	first := len(c.events)
	events, at := 1+d.n(3), -1
	if authority {
		at = d.n(events)
	}
	for i := range events {
		size := d.n(300)
		if d.chance(c.s.quirks.large) {
			size = oneOf(d, 4000, 20000)
		}
		c.row.Cursor++
		e := &session.Event{Session: c.row.ID, Cursor: c.row.Cursor, At: clock(), Payload: make([]byte, size),
			Key: oneOf(d, "message/msg_1", "message/msg_2", "part/msg_1/prt", "ref/other")}
		c.events = append(c.events, e)
		if i == at {
			p.AuthChanged = true
			c.row.AuthGen++
			c.changes[c.row.Cursor] = c.row.AuthGen
			if c.change(d) {
				break // nothing comes after a deletion
			}
		}
	}
	p.Row, p.Events = c.row, session.NewUnscopedEvents(c.events[first:len(c.events):len(c.events)])
	c.s.note("%s is at %d, authority %d", c.name, c.row.Cursor, c.row.AuthGen)
	return p
}

// change changes authority, at the last event. mu is held.
func (c *chronicle) change(d *dice) (over bool) {
	grants := maps.Clone(c.grants)
	c.grants = grants
	switch n := d.n(20); {
	case n == 0:
		c.row.Life = session.Deleted
		c.s.note("%s is deleted", c.name)
		return true
	case n == 1:
		c.bumps[c.row.Epoch] = c.row.Cursor
		c.row.Epoch++
		c.s.note("%s has epoch %d", c.name, c.row.Epoch)
	case n < 6: // a purge
	default:
		for _, id := range slices.Sorted(maps.Keys(grants)) {
			if grants[id].Revoked == 0 && d.chance(30) {
				dead := *grants[id]
				dead.Revoked, dead.Cut = clock(), c.row.Cursor
				grants[id] = &dead
				c.s.note("%s is revoked at %d", id, dead.Cut)
				break
			}
		}
	}
	return false
}

// now is the log's row and a ref's grant.
func (c *chronicle) now(ref string) (session.Row, *capability.Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.row, c.grants[ref]
}

// notified notes that this was told, and was true.
func (c *chronicle) notified(cursor, gen uint64) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.cursor, c.gen = max(c.cursor, cursor), max(c.gen, gen)
}

var errAway = fault.Unavailable.With("the database is away")

func (c *chronicle) isDown() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.down && !c.s.calm
}

// ReadLog is logged's, of a log that may be trimmed, away or slow.
func (s *story) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	c := s.of(id)
	s.mu.Lock()
	s.reads++
	reads := s.reads
	s.mu.Unlock()
	if reads > 50000 { // else it would go on for ever
		s.fault("%d reads", reads)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	wait := func() error {
		if !s.quirk(c.dice, s.quirks.slow) {
			return nil
		}
		select {
		case <-time.After(time.Duration(oneOf(c.dice, 0, 1, 5, 30, 150)) * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(); err != nil {
		return nil, err
	}
	if c.isDown() {
		s.stir()
		return nil, errAway
	}
	row, _ := c.now("")
	page, err := c.logged.ReadLog(ctx, id, max(after, row.Base), maxBytes, maxEvents, refs, hashesAt...)
	page.Access().Now = clock()
	s.note("%s is read from %d: %d events of %d", c.name, after, session.EventsOf(page).Len(), page.Access().Row.Cursor)
	for c.quirkAmid(c.dice) {
		s.happen(c.dice)
	}
	return page, errors.Join(err, wait())
}

func (c *chronicle) quirkAmid(d *dice) bool { return c.s.quirk(d, c.s.quirks.amid) }

// ReadRows is the poll's.
func (s *story) ReadRows(_ context.Context, ids []string) (map[string]*session.Row, error) {
	rows := map[string]*session.Row{}
	for _, id := range ids {
		row, _ := s.of(id).now("")
		rows[id] = &row
	}
	return rows, nil
}

func (s *story) of(id string) *chronicle {
	return s.logs[slices.IndexFunc(s.logs, func(c *chronicle) bool { return c.row.ID == id })]
}

// happen has one thing happen. It may be called at any time, from within the hub as well.
func (s *story) happen(d *dice) {
	s.stir()
	c := s.logs[d.n(len(s.logs))]
	switch n := d.n(40); {
	case n < 6:
		s.elsewhere(c, d)
	case n < 11:
		s.commit(d)
	case n < 17:
		s.advance(d)
	case n < 21:
		s.tell(d)
	case n < 24 && d.chance(s.quirks.wrong):
		row, _ := c.now("")
		cursor, gen := uint64(d.n(int(row.Cursor)+30)), uint64(d.n(int(row.AuthGen)+3)*d.n(2))
		s.note("%s is said to be at %d, authority %d", c.name, cursor, gen)
		s.h.Notify(c.row.ID, cursor, gen)
	case n < 25:
		s.poll()
	case n < 29:
		s.follow(c, d)
	case n < 35:
		for _, f := range s.some(d) {
			f.answer(d, 1+d.n(3))
		}
	case n < 36:
		for _, f := range s.some(d) {
			f.leave()
		}
	case n < 37:
		skew := 0
		if d.chance(s.quirks.skewed) {
			skew = d.n(4000) - 1000
		}
		s.note("refs are looked over, %d ms ahead", skew)
		s.h.expire(clock() + int64(skew))
	case n < 38 && d.chance(s.quirks.trims):
		c.mu.Lock()
		c.row.Base += uint64(d.n(int(c.row.Cursor-c.row.Base) + 1))
		s.note("%s begins after %d", c.name, c.row.Base)
		c.mu.Unlock()
	case n < 39 && (d.chance(s.quirks.down) || c.isDown()):
		s.mu.Lock()
		c.down = !c.down
		s.mu.Unlock()
		s.note("%s is away: %v", c.name, c.isDown())
	}
}

// some is one of the followers, if there is any.
func (s *story) some(d *dice) []*follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.followers) == 0 {
		return nil
	}
	i := d.n(len(s.followers))
	return s.followers[i : i+1 : i+1]
}

// elsewhere is a commit of another replica, of which there will be news, or not.
func (s *story) elsewhere(c *chronicle, d *dice) {
	p := c.write(d, d.chance(s.quirks.authority))
	if p == nil || d.chance(s.quirks.lost) {
		return
	}
	item := news{of: c, cursor: p.Row.Cursor, gen: p.Row.AuthGen * uint64(d.n(2))}
	s.mu.Lock()
	s.news = append(s.news, item)
	s.mu.Unlock()
	if d.chance(50) {
		s.tell(d)
	}
}

// tell tells a piece of news, and perhaps keeps it, to be told again.
func (s *story) tell(d *dice) {
	s.mu.Lock()
	if len(s.news) == 0 {
		s.mu.Unlock()
		return
	}
	i := d.n(len(s.news))
	item := s.news[i]
	if d.chance(75) {
		s.news = slices.Delete(s.news, i, i+1)
	}
	s.mu.Unlock()
	s.note("%s is heard to be at %d, authority %d", item.of.name, item.cursor, item.gen)
	s.h.Notify(item.of.row.ID, item.cursor, item.gen)
	item.of.notified(item.cursor, item.gen)
}

func (s *story) poll() {
	rows := map[*chronicle]session.Row{}
	for _, c := range s.logs {
		rows[c], _ = c.now("")
	}
	s.note("a poll")
	if err := s.h.poll(context.Background()); err != nil {
		s.fault("polling: %v", err)
	}
	for c, row := range rows {
		c.notified(row.Cursor, row.AuthGen)
	}
}

// commit begins a commit of this replica to a session or two.
func (s *story) commit(d *dice) {
	var to []*chronicle
	for _, c := range s.logs {
		if len(to) < 2 && d.chance(60) {
			to = append(to, c)
		}
	}
	ids := make([]string, len(to))
	for i, c := range to {
		ids[i] = c.row.ID
	}
	s.h.BeginCommit(ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits = append(s.commits, func() {
		if d.chance(20) {
			s.note("a commit fails")
			s.h.EndCommit(ids, nil)
			return
		}
		s.telling.Lock()
		defer s.telling.Unlock()
		published := &session.Published{}
		for _, c := range to {
			if p := c.write(d, d.chance(s.quirks.authority)); p != nil && !d.chance(10) {
				published.Sessions = append(published.Sessions, *p)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written = append(s.written, func() {
			for _, p := range published.Sessions {
				s.note("%s is published, %d to %d", s.of(p.Row.ID).name, p.Events.First(), p.Row.Cursor)
			}
			s.h.EndCommit(ids, published)
			for _, p := range published.Sessions {
				s.of(p.Row.ID).notified(p.Row.Cursor, p.Row.AuthGen)
			}
		})
	})
}

// advance goes on with a commit, if there is any.
func (s *story) advance(d *dice) bool {
	s.mu.Lock()
	if n := len(s.commits); n > 0 && (len(s.written) == 0 || d.chance(50)) {
		i := d.n(n)
		next := s.commits[i]
		s.commits = slices.Delete(s.commits, i, i+1)
		s.mu.Unlock()
		next()
		return true
	}
	s.mu.Unlock()
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	if len(s.written) == 0 {
		s.mu.Unlock()
		return false
	}
	next := s.written[0]
	s.written = s.written[1:]
	s.mu.Unlock()
	next()
	return true
}
