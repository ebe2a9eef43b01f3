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
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// faultRates are what a story is full of, in percent of the times that it could happen.
type faultRates struct {
	refusing, deaf, down, eager int // the server, links
	away, storeFails            int // the outbox's database
	drops, noRoute, stalled     int // callers
}

// simulation is one outbox and all that happens to it.
type simulation struct {
	book
	dice     *rand.Rand
	rates    faultRates
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
	ways     map[string]*simRoute
	sessions []string
	batches  []*simBatch
	ops      map[string]*simOp
	ends     map[string]ledger.Outcome // what the server has recorded
	ids      uint64
}

// simBatch is a batch as its author knows it.
type simBatch struct {
	row            *sqlstore.BatchRow
	began, durable int  // moves; 0: not yet
	spoiled        bool // the server was told not to take it
	ops            []*simOp
	atomic         bool
}

type simOp struct {
	intent.Op
	of      *simBatch
	dropped bool
}

func newSimulation(seed uint64, aloud bool) *simulation {
	d := rand.New(rand.NewPCG(seed, 0))
	t := &simulation{dice: d, aloud: aloud, begun: time.Unix(1_000_000, 0), server: newFakeServer(), names: map[string]string{}, down: map[string]bool{}, dead: map[string]bool{},
		ways: map[string]*simRoute{}, ops: map[string]*simOp{}, ends: map[string]ledger.Outcome{}}
	t.now = t.begun
	t.book = book{at: map[string]*sqlstore.BatchRow{}, retries: map[string]string{}, streams: map[string]sqlstore.StreamRow{}, stopped: map[string]fault.Code{}}
	often := func(percent int) int { return d.IntN(2) * d.IntN(percent) } // or never
	t.rates = faultRates{refusing: often(40), deaf: often(40), down: often(12), eager: often(150), away: often(30), storeFails: often(4),
		drops: often(12), noRoute: often(12), stalled: often(20)}
	t.win = Window{Batches: 1 + d.IntN(5), Bytes: []int{60, 400, 1 << 20}[d.IntN(3)], Streams: 1 + d.IntN(3)}
	for i := range 1 + d.IntN(4) {
		id := capability.SessionPrefix + fmt.Sprintf("01J0000000000000000000000%d", i)
		t.names[id] = string(rune('A' + i))
		t.sessions = append(t.sessions, id)
		t.server.session(id).managed = d.IntN(3) == 0
		host := fmt.Sprint("host", d.IntN(2))
		t.ways[id] = &simRoute{host: host}
		t.ways[id+"v"] = &simRoute{host: host}
	}
	for range 2 {
		t.procs = append(t.procs, t.process())
	}
	return t
}

func (t *simulation) chance(percent int) bool { return t.dice.IntN(100) < percent }

// inject is whether one shows now.
func (t *simulation) inject(percent int) bool { return !t.calm && t.chance(percent) }

func (t *simulation) note(format string, args ...any) {
	if t.aloud {
		text := fmt.Sprintf(format, args...)
		for id, name := range t.names {
			text = strings.ReplaceAll(text, id, name)
		}
		t.notes = append(t.notes, fmt.Sprintf("%4d %8s  %s", t.moves, t.now.Sub(t.begun).Round(time.Millisecond), text))
	}
}

func (t *simulation) fault(format string, args ...any) {
	t.note("FAULT "+format, args...)
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

// process is a Box, until it crashes.
type process struct {
	t      *simulation
	name   int
	seqs   writer.Seqs
	chores []*simJob
	asks   bool   // for the lease
	begins func() // its term
	s      *simSender
	step   int64
}

// simJob is a job of the worker.
type simJob struct {
	run          func() error
	done         func(error)
	lazy         bool // is tried again
	neverDropped bool // … and again
}

func (t *simulation) process() *process {
	return &process{t: t, name: len(t.procs), step: 1}
}

func (p *process) queue(c *simJob) { p.chores = append(p.chores, c) }

// write is one transaction.
func (p *process) write() {
	t := p.t
	n := 1 + t.dice.IntN(min(len(p.chores), 5))
	group := slices.Clone(p.chores[:n])
	p.chores = p.chores[n:]
	errs := make([]error, n)
	p.seqs.BeginTx()
	if t.inject(t.rates.away) {
		var again []*simJob
		for _, c := range group {
			if c.neverDropped || c.lazy && !t.inject(t.rates.storeFails) {
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
	if t.inject(t.rates.stalled / 4) {
		t.crash(p)
		return
	}
	for i, c := range group {
		c.done(errs[i])
	}
}

// crash has a process end, and another take its place.
func (t *simulation) crash(p *process) {
	t.note("process %d crashes", p.name)
	p.chores, p.begins = nil, nil
	if s := p.s; s != nil {
		s.end(sqlstore.ErrFenced)
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
	var tk *lease.Takeover
	p.queue(&simJob{
		run: func() error {
			if t.holder != nil && t.holder != p && !lapsed && slices.Contains(t.procs, t.holder) {
				return nil
			}
			t.incarnation += p.step
			t.holder = p
			clear(t.stopped)
			tk = &lease.Takeover{Incarnation: t.incarnation, Drops: t.drops, Streams: map[string]sqlstore.StreamRow{}, Unsequenced: t.unsequencedSessions()}
			for _, r := range t.inFlight() {
				r.State = sqlstore.RowPending
				copied := *r
				tk.Rows = append(tk.Rows, &copied)
				tk.Streams[r.Session] = t.streams[r.Session]
			}
			return nil
		},
		done: func(err error) {
			if p.asks = false; err != nil || tk == nil {
				return
			}
			tk.Term = p.seqs.SetLeading(true)
			for _, session := range t.sessions {
				if rows := sqlstore.BySession(tk.Rows)[session]; len(rows) > 0 {
					p.learn(session, rows, tk.Streams[session])
				}
			}
			p.begins = func() { p.lead(tk) }
		}})
}

// learn is Box.loadSeqs.
func (p *process) learn(session string, rows []*sqlstore.BatchRow, st sqlstore.StreamRow) {
	next := st.LastSeq + 1
	for _, r := range rows {
		next = max(next, uint64(*r.FirstSeq)+uint64(bodyOf(r).SeqCount()))
	}
	la := p.seqs.AddStream(session, next)
	for _, r := range rows {
		p.seqs.Confirm(la, next, r.ID, len(r.Body))
	}
}

// simSender is a term of sending: a loop.
type simSender struct {
	p           *process
	m           *machine.Machine
	term        int
	incarnation int64
	seen        int64 // drops
	conns       map[string]*line
	events      []func()
	later       []func() // are handed after a while
	over        bool
}

// ceiled waits 1s, 2s, 4s … 30s without chance.
type ceiled struct{ n time.Duration }

func (c *ceiled) Reset() { c.n = 0 }
func (c *ceiled) NextBackOff() time.Duration {
	c.n = min(max(2*c.n, time.Second), 30*time.Second)
	return c.n
}

func (p *process) lead(tk *lease.Takeover) {
	t := p.t
	s := &simSender{p: p, m: machine.New(machine.Window(t.win), func() backoff.BackOff { return &ceiled{} }), term: tk.Term, incarnation: tk.Incarnation,
		seen: tk.Drops, conns: map[string]*line{}}
	p.s = s
	t.note("process %d leads, incarnation %d", p.name, tk.Incarnation)
	by := sqlstore.BySession(tk.Rows)
	for _, session := range t.sessions {
		if len(by[session]) == 0 {
			continue
		}
		var entries []*machine.Entry
		drops := make(map[int64]*fault.Error)
		for _, r := range by[session] {
			bd := bodyOf(r)
			e := r.Entry(bd, t.pinSeqOf(session, bd))
			t.setRoute(e)
			if r.Dropping {
				drops[r.Num] = nil
			}
			entries = append(entries, e)
		}
		s.m.Recovered(session, entries, tk.Streams[session].CreateRoute(), drops, t.now)
	}
	s.m.BacklogFound(tk.Unsequenced, t.now)
	s.performActions()
	s.scan()
}

// pinSeqOf is that of the loop.
func (t *simulation) pinSeqOf(session string, bd *intent.Batch) (hold uint64) {
	for _, id := range bd.ExternalRefs() {
		if f := t.opAt(id); f.Row != nil && f.Row.Session == session {
			if seq := f.Seq(); seq > 0 && (hold == 0 || seq < hold) {
				hold = seq
			}
		}
	}
	return hold
}

// end ends the term.
func (s *simSender) end(why error) {
	if s.over {
		return
	}
	p, t := s.p, s.p.t
	t.note("process %d leads no more: %v", p.name, why)
	s.over = true
	p.s = nil
	p.seqs.SetLeading(false)
	for _, session := range t.sessions {
		if l := s.conns[session]; l != nil {
			s.drop(l)
		}
	}
	if why != sqlstore.ErrFenced {
		p.step *= 2
		p.queue(&simJob{done: func(error) {}, run: func() error {
			if t.holder == p {
				t.holder = nil
			}
			return nil
		}})
	}
}

func (s *simSender) postAsync(f func()) {
	if !s.over {
		s.events = append(s.events, f)
	}
}

// due says whether there is something to do in a turn.
func (s *simSender) due() bool {
	at := s.m.WakeAt()
	return len(s.events) > 0 || !at.IsZero() && !at.After(s.p.t.now)
}

func (s *simSender) drainEvents() {
	t := s.p.t
	for n := 1 + t.dice.IntN(6); n > 0 && len(s.events) > 0 && !s.over; n-- {
		f := s.events[0]
		s.events = s.events[1:]
		f()
		s.performActions()
	}
	if !s.over {
		s.m.Tick(t.now)
		s.performActions()
		s.checkInvariants()
	}
}

// scan looks for what others have done.
func (s *simSender) scan() {
	p, t := s.p, s.p.t
	holder, sessions, dropped := t.holder, t.unsequencedSessions(), t.drops != s.seen
	s.seen = t.drops
	var drops []sqlstore.Drop
	for _, r := range t.inFlight() {
		if dropped && r.Dropping {
			drops = append(drops, sqlstore.Drop{Num: r.Num, Session: r.Session})
		}
	}
	s.postAsync(func() {
		if holder != p {
			s.end(sqlstore.ErrFenced)
			return
		}
		s.m.BacklogFound(sessions, t.now)
		for _, d := range drops {
			s.m.DropRequested(d.Session, d.Num, t.now)
		}
		if dropped {
			s.m.UnsequencedDropped(t.now)
		}
	})
}

// performActions does what the machine asks for.
func (s *simSender) performActions() {
	for i := 0; i < len(s.m.Actions) && !s.over; i++ {
		s.perform(s.m.Actions[i])
	}
	s.m.Actions = nil
}

func (s *simSender) perform(a machine.Action) {
	p, t := s.p, s.p.t
	switch a.Kind {
	case machine.ActPeek, machine.ActLoad:
		if a.Kind == machine.ActLoad && (a.Batches < 1 || a.Batches > machine.WindowsAhead*t.win.Batches) {
			t.fault("%d batches are to be loaded of %s", a.Batches, a.Session)
		}
		var ld loadResult
		p.queue(&simJob{
			run:  func() (err error) { ld, err = s.load(a.Session, a.Batches, a.Bytes, nil); return err },
			done: func(err error) { s.loaded(a.Session, ld, err) },
		})
	case machine.ActFindRoute:
		s.postAsync(func() {
			for _, e := range a.Entries {
				t.setRoute(e)
			}
			s.m.Routed(a.Session, t.now)
		})
	case machine.ActOpen:
		s.open(a)
	case machine.ActClose:
		if l := s.conns[a.Session]; l != nil && l.conn == a.ConnID {
			t.note("process %d closes %s", p.name, a.Session)
			s.drop(l)
		} else {
			t.fault("process %d closes line %d of %s, which is not open", p.name, a.ConnID, a.Session)
		}
	case machine.ActSend:
		s.send(a)
	case machine.ActAck:
		l := s.conns[a.Session]
		if l == nil || l.conn != a.ConnID || !l.live {
			t.fault("process %d acknowledges on line %d of %s, which is not open", p.name, a.ConnID, a.Session)
			return
		}
		t.acknowledged(s, a.Session, a.Through)
		if !l.broken {
			l.forth = append(l.forth, func() { t.acks(l, a.Through) })
		}
	case machine.ActFinish:
		s.store(a.Entry, a.Outcomes, a.Route)
	case machine.ActRecordAttempt:
		for _, e := range a.Entries {
			s.leading(func() {
				if r := t.row(e.Num); r.State != sqlstore.RowFinished {
					r.NextRetry = max(a.At.UnixNano(), 0)
				}
			})
		}
	case machine.ActMarkInFlight:
		s.leading(func() {
			if r := t.row(a.Entry.Num); r.State == sqlstore.RowPending {
				r.State = sqlstore.RowInFlight
			}
		})
	case machine.ActSetStopped:
		code := fault.None
		if a.Err != nil {
			code = a.Err.Code
		}
		t.note("process %d: %s stands still: %s", p.name, a.Session, code)
		s.leading(func() { t.stopped[a.Session] = code })
		s.postAsync(func() { s.resumeIfRerouted(a.Session) })
	case machine.ActRaiseIncarnation:
		s.raiseIncarnation()
	case machine.ActResolveDrops:
		s.resolveDrops(a)
	case machine.ActEndRefused:
		s.endRefused(a)
	case machine.ActFenced:
		s.end(a.Err)
	}
}

// leading writes something of this term.
func (s *simSender) leading(f func()) {
	s.p.queue(&simJob{lazy: true, neverDropped: true, done: func(error) {}, run: func() error {
		if s.p.t.holder == s.p && s.p.seqs.LeadsTerm(s.term) {
			f()
		}
		return nil
	}})
}

func (s *simSender) raiseIncarnation() {
	p, t := s.p, s.p.t
	from := s.incarnation
	p.queue(&simJob{
		run: func() error {
			if t.holder != p {
				return sqlstore.ErrFenced
			}
			t.incarnation++
			return nil
		},
		done: func(err error) {
			s.postAsync(func() {
				switch {
				case err == sqlstore.ErrFenced:
					s.end(sqlstore.ErrFenced)
				case err != nil:
					s.later = append(s.later, func() { s.raiseIncarnation() })
				default:
					s.incarnation = from + 1
					s.m.IncarnationRaised(t.now)
				}
			})
		}})
}

// id makes a batch id.
func (t *simulation) id() string {
	var id ulid.ULID
	t.ids++
	_ = id.SetTime(t.ids)
	return id.String()
}
