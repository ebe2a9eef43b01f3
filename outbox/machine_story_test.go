package outbox

// The world of a machine's random story (machine_property_test.go): processes that commit
// to an outbox and send from it as the loop does, and lines to a server that goes by the
// ledger's rules. Whatever is on its way anywhere comes when the dice say so.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// vices are what a story is full of, in percent of the times that it could happen.
type vices struct {
	refusing, deaf, down, eager int // the server, links
	away, unkept                int // the outbox's database
	drops, astray, stalled      int // callers
}

// tale is one outbox and all that happens to it.
type tale struct {
	book
	dice     *rand.Rand
	vices    vices
	win      Window
	begun    time.Time
	now      time.Time
	moves    int
	calm     bool // everything has become good
	aloud    bool // notes are kept
	notes    []string
	faults   []string
	names    map[string]string // of sessions and batches, for notes
	procs    []*process
	lines    []*line
	unseen   []func() // rows of transactions that are still open
	server   *fakeServer
	down     map[string]bool // hosts
	dead     map[string]bool // what lines go through
	ways     map[string]*way
	sessions []string
	batches  []*told
	ops      map[string]*toldOp
	ends     map[string]ledger.Outcome // what the server has recorded
	ids      uint64
}

// told is a batch as its author knows it.
type told struct {
	row            *batchRow
	began, durable int  // moves; 0: not yet
	spoiled        bool // the server was told not to take it
	ops            []*toldOp
	atomic         bool
}

type toldOp struct {
	opRow
	of      *told
	dropped bool
}

func newTale(seed uint64, aloud bool) *tale {
	d := rand.New(rand.NewPCG(seed, 0))
	t := &tale{dice: d, aloud: aloud, begun: time.Unix(1_000_000, 0), server: newFakeServer(), names: map[string]string{}, down: map[string]bool{}, dead: map[string]bool{},
		ways: map[string]*way{}, ops: map[string]*toldOp{}, ends: map[string]ledger.Outcome{}}
	t.now = t.begun
	t.book = book{at: map[string]*batchRow{}, retries: map[string]string{}, streams: map[string]streamRow{}, stopped: map[string]fault.Code{}}
	often := func(percent int) int { return d.IntN(2) * d.IntN(percent) } // or never
	t.vices = vices{refusing: often(40), deaf: often(40), down: often(12), eager: often(150), away: often(30), unkept: often(4),
		drops: often(12), astray: often(12), stalled: often(20)}
	t.win = Window{Batches: 1 + d.IntN(5), Bytes: []int{60, 400, 1 << 20}[d.IntN(3)], Streams: 1 + d.IntN(3)}
	for i := range 1 + d.IntN(4) {
		id := capability.SessionPrefix + fmt.Sprintf("01J0000000000000000000000%d", i)
		t.names[id] = string(rune('A' + i))
		t.sessions = append(t.sessions, id)
		t.server.session(id).managed = d.IntN(3) == 0
		host := fmt.Sprint("host", d.IntN(2))
		t.ways[id] = &way{host: host}
		t.ways[id+"v"] = &way{host: host}
	}
	for range 2 {
		t.procs = append(t.procs, t.process())
	}
	return t
}

func (t *tale) chance(percent int) bool { return t.dice.IntN(100) < percent }

// vice is whether one shows now.
func (t *tale) vice(percent int) bool { return !t.calm && t.chance(percent) }

func (t *tale) note(format string, args ...any) {
	if t.aloud {
		text := fmt.Sprintf(format, args...)
		for id, name := range t.names {
			text = strings.ReplaceAll(text, id, name)
		}
		t.notes = append(t.notes, fmt.Sprintf("%4d %8s  %s", t.moves, t.now.Sub(t.begun).Round(time.Millisecond), text))
	}
}

func (t *tale) fault(format string, args ...any) {
	t.note("FAULT "+format, args...)
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

// process is a Box, until it crashes.
type process struct {
	t      *tale
	name   int
	lanes  lanes
	chores []*chore
	asks   bool   // for the lease
	begins func() // its term
	s      *sender
	step   int64
}

// chore is a job of the worker.
type chore struct {
	run  func() error
	done func(error)
	lazy bool // is tried again
	sure bool // … and again
}

func (t *tale) process() *process {
	return &process{t: t, name: len(t.procs), step: 1}
}

func (p *process) queue(c *chore) { p.chores = append(p.chores, c) }

// write is one transaction.
func (p *process) write() {
	t := p.t
	n := 1 + t.dice.IntN(min(len(p.chores), 5))
	group := slices.Clone(p.chores[:n])
	p.chores = p.chores[n:]
	errs := make([]error, n)
	p.lanes.begin()
	if t.vice(t.vices.away) {
		var again []*chore
		for _, c := range group {
			if c.sure || c.lazy && !t.vice(t.vices.unkept) {
				again = append(again, c)
			} else {
				c.done(fault.Unavailable.With("the database is away"))
			}
		}
		p.chores = append(again, p.chores...)
		return
	}
	for i, c := range group {
		errs[i] = c.run()
	}
	if t.vice(t.vices.stalled / 4) {
		t.crash(p)
		return
	}
	for i, c := range group {
		c.done(errs[i])
	}
}

// crash has a process end, and another take its place.
func (t *tale) crash(p *process) {
	t.note("process %d crashes", p.name)
	p.chores, p.begins = nil, nil
	if s := p.s; s != nil {
		s.end(errFenced)
	}
	p.chores = nil
	i := slices.Index(t.procs, p)
	t.procs[i] = t.process()
	t.procs[i].name = p.name + 10
}

// acquire tries to get the lease; lapsed if nobody else can have it any more.
func (p *process) acquire(lapsed bool) {
	t := p.t
	if p.s != nil || p.begins != nil || p.asks {
		return
	}
	p.asks = true
	var tk *taking
	p.queue(&chore{
		run: func() error {
			if t.holder != nil && t.holder != p && !lapsed && slices.Contains(t.procs, t.holder) {
				return nil
			}
			t.incarnation += p.step
			t.holder = p
			clear(t.stopped)
			tk = &taking{incarnation: t.incarnation, drops: t.drops, streams: map[string]streamRow{}, waiting: t.waitingSessions()}
			for _, r := range t.flying() {
				r.state = rowPending
				copied := *r
				tk.rows = append(tk.rows, &copied)
				tk.streams[r.session] = t.streams[r.session]
			}
			return nil
		},
		done: func(err error) {
			if p.asks = false; err != nil || tk == nil {
				return
			}
			tk.term = p.lanes.lead(true)
			for _, session := range t.sessions {
				if rows := bySession(tk.rows)[session]; len(rows) > 0 {
					p.learn(session, rows, tk.streams[session])
				}
			}
			p.begins = func() { p.lead(tk) }
		}})
}

// learn is Box.learnLane.
func (p *process) learn(session string, rows []*batchRow, st streamRow) {
	next := st.lastSeq + 1
	for _, r := range rows {
		next = max(next, uint64(*r.first)+uint64(bodyOf(r).travelling()))
	}
	la := p.lanes.learn(session, next)
	for _, r := range rows {
		p.lanes.gave(la, next, r.id, len(r.body))
	}
}

// sender is a term of sending: a loop.
type sender struct {
	p           *process
	m           *machine
	term        int
	incarnation int64
	seen        int64 // drops
	conns       map[string]*line
	events      []func()
	later       []func() // are handed after a while
	over        bool
}

// ceiled waits 1s, 2s, 4s … 30s without chance.
type ceiled struct{ doubling }

func (c *ceiled) NextBackOff() time.Duration { return min(c.doubling.NextBackOff(), 30*time.Second) }

func (p *process) lead(tk *taking) {
	t := p.t
	s := &sender{p: p, m: newMachine(t.win, func() backoff.BackOff { return &ceiled{} }), term: tk.term, incarnation: tk.incarnation,
		seen: tk.drops, conns: map[string]*line{}}
	p.s = s
	t.note("process %d leads, incarnation %d", p.name, tk.incarnation)
	by := bySession(tk.rows)
	for _, session := range t.sessions {
		if len(by[session]) == 0 {
			continue
		}
		var entries []*entry
		drops := make(map[int64]*fault.Error)
		for _, r := range by[session] {
			bd := bodyOf(r)
			e := newEntry(r, bd, t.holdOf(session, bd))
			t.find(e)
			if r.dropping {
				drops[r.num] = nil
			}
			entries = append(entries, e)
		}
		s.m.recovered(session, entries, making(tk.streams[session]), drops, t.now)
	}
	s.m.found(tk.waiting, t.now)
	s.act()
	s.scan()
}

// holdOf is that of the loop.
func (t *tale) holdOf(session string, bd *body) (hold uint64) {
	for _, id := range bd.outside() {
		if f := t.opAt(id); f.row != nil && f.row.session == session {
			if seq := f.seq(); seq > 0 && (hold == 0 || seq < hold) {
				hold = seq
			}
		}
	}
	return hold
}

// end ends the term.
func (s *sender) end(why error) {
	if s.over {
		return
	}
	p, t := s.p, s.p.t
	t.note("process %d leads no more: %v", p.name, why)
	s.over = true
	p.s = nil
	p.lanes.lead(false)
	for _, session := range t.sessions {
		if l := s.conns[session]; l != nil {
			s.drop(l)
		}
	}
	if why != errFenced {
		p.step *= 2
		p.queue(&chore{done: func(error) {}, run: func() error {
			if t.holder == p {
				t.holder = nil
			}
			return nil
		}})
	}
}

func (s *sender) hand(f func()) {
	if !s.over {
		s.events = append(s.events, f)
	}
}

// due says whether there is something to do in a turn.
func (s *sender) due() bool {
	at := s.m.wakeAt()
	return len(s.events) > 0 || !at.IsZero() && !at.After(s.p.t.now)
}

func (s *sender) turn() {
	t := s.p.t
	for n := 1 + t.dice.IntN(6); n > 0 && len(s.events) > 0 && !s.over; n-- {
		f := s.events[0]
		s.events = s.events[1:]
		f()
		s.act()
	}
	if !s.over {
		s.m.tick(t.now)
		s.act()
		s.sound()
	}
}

// scan looks for what others have done.
func (s *sender) scan() {
	p, t := s.p, s.p.t
	holder, sessions, dropped := t.holder, t.waitingSessions(), t.drops != s.seen
	s.seen = t.drops
	var drops []drop
	for _, r := range t.flying() {
		if dropped && r.dropping {
			drops = append(drops, drop{r.num, r.session})
		}
	}
	s.hand(func() {
		if holder != p {
			s.end(errFenced)
			return
		}
		s.m.found(sessions, t.now)
		for _, d := range drops {
			s.m.dropAsked(d.session, d.num, t.now)
		}
		if dropped {
			s.m.headsDropped(t.now)
		}
	})
}

// act does what the machine asks for.
func (s *sender) act() {
	for i := 0; i < len(s.m.out) && !s.over; i++ {
		s.one(s.m.out[i])
	}
	s.m.out = nil
}

func (s *sender) one(a action) {
	p, t := s.p, s.p.t
	switch a.kind {
	case actLook, actLoad:
		if a.kind == actLoad && (a.batches < 1 || a.batches > aheadFactor*t.win.Batches) {
			t.fault("%d batches are to be loaded of %s", a.batches, a.session)
		}
		var ld loaded
		p.queue(&chore{
			run:  func() (err error) { ld, err = s.load(a.session, a.batches, a.bytes, nil); return err },
			done: func(err error) { s.looked(a.session, ld, err) },
		})
	case actFind:
		s.hand(func() {
			for _, e := range a.entries {
				t.find(e)
			}
			s.m.routed(a.session, t.now)
		})
	case actOpen:
		s.open(a)
	case actClose:
		if l := s.conns[a.session]; l != nil && l.conn == a.conn {
			t.note("process %d closes %s", p.name, a.session)
			s.drop(l)
		} else {
			t.fault("process %d closes line %d of %s, which is not open", p.name, a.conn, a.session)
		}
	case actSend:
		s.send(a)
	case actAck:
		l := s.conns[a.session]
		if l == nil || l.conn != a.conn || !l.live {
			t.fault("process %d acknowledges on line %d of %s, which is not open", p.name, a.conn, a.session)
			return
		}
		t.acknowledged(s, a.session, a.through)
		if !l.broken {
			l.forth = append(l.forth, func() { t.acks(l, a.through) })
		}
	case actFinish:
		s.store(a.entry, a.answer, a.route)
	case actNote:
		for _, e := range a.entries {
			s.leading(func() {
				if r := t.row(e.num); r.state != rowFinished {
					r.nextRetry = max(a.at.UnixNano(), 0)
				}
			})
		}
	case actMark:
		s.leading(func() {
			if r := t.row(a.entry.num); r.state == rowPending {
				r.state = rowInFlight
			}
		})
	case actStop:
		code := fault.None
		if a.err != nil {
			code = a.err.Code
		}
		t.note("process %d: %s stands still: %s", p.name, a.session, code)
		s.leading(func() { t.stopped[a.session] = code })
		s.hand(func() { s.reconsider(a.session) })
	case actRaise:
		s.raise()
	case actSettle:
		s.settle(a)
	case actRefuse:
		s.refuse(a)
	case actFenced:
		s.end(a.err)
	}
}

// leading writes something of this term.
func (s *sender) leading(f func()) {
	s.p.queue(&chore{lazy: true, sure: true, done: func(error) {}, run: func() error {
		if s.p.t.holder == s.p && s.p.lanes.leads(s.term) {
			f()
		}
		return nil
	}})
}

func (s *sender) raise() {
	p, t := s.p, s.p.t
	from := s.incarnation
	p.queue(&chore{
		run: func() error {
			if t.holder != p {
				return errFenced
			}
			t.incarnation++
			return nil
		},
		done: func(err error) {
			s.hand(func() {
				switch {
				case err == errFenced:
					s.end(errFenced)
				case err != nil:
					s.later = append(s.later, func() { s.raise() })
				default:
					s.incarnation = from + 1
					s.m.raised(t.now)
				}
			})
		}})
}

// id makes a batch id.
func (t *tale) id() string {
	var id ulid.ULID
	t.ids++
	_ = id.SetTime(t.ids)
	return id.String()
}
