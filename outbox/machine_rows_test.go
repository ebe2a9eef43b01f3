package outbox

// The rows of a machine's random story (machine_property_test.go), as the databases keep
// them, and the sender's transactions on them.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// book is an outbox's database.
type book struct {
	rows        []*batchRow // by num, those that are visible
	nums        int64
	at          map[string]*batchRow // by op
	retries     map[string]string
	streams     map[string]streamRow
	stopped     map[string]fault.Code
	incarnation int64
	drops       int64
	holder      *process
}

func (b *book) insert(r *batchRow, bd *body) {
	if r.num == 0 {
		b.nums++
		r.num = b.nums
	}
	i, _ := slices.BinarySearchFunc(b.rows, r.num, func(r *batchRow, num int64) int { return cmp.Compare(r.num, num) })
	b.rows = slices.Insert(b.rows, i, r)
	for i := range bd.ops {
		b.at[bd.ops[i].id] = r
		if old := bd.ops[i].retries; old != "" {
			b.retries[old] = bd.ops[i].id
		}
	}
}

func (b *book) row(num int64) *batchRow {
	i, _ := slices.BinarySearchFunc(b.rows, num, func(r *batchRow, num int64) int { return cmp.Compare(r.num, num) })
	return b.rows[i]
}

// bodyOf is a row's body, which is nobody else's.
func bodyOf(r *batchRow) *body {
	bd, err := r.decode()
	if err != nil {
		panic(err)
	}
	return bd
}

// opAt finds an op; found has no row if there is none.
func (b *book) opAt(op string) found {
	r := b.at[op]
	if r == nil {
		return found{}
	}
	bd := bodyOf(r)
	return found{r, bd, slices.IndexFunc(bd.ops, func(o opRow) bool { return o.id == op })}
}

// finder is that of tables.
func (b *book) finder(reader int64) finder {
	return func(op string) (*earlier, error) {
		var e *earlier
		for op != "" {
			f := b.opAt(op)
			if f.row == nil || e != nil && f.row.num > reader && f.row.state != rowFinished {
				return e, nil
			}
			var err error
			if e, err = f.earlier(); err != nil || e.outcome == nil || e.outcome.Status == ledger.Applied {
				return e, err
			}
			op = b.retries[op]
		}
		return e, nil
	}
}

func (b *book) waits(session string) bool {
	return slices.ContainsFunc(b.rows, func(r *batchRow) bool { return r.session == session && r.first == nil })
}

func (b *book) waitingSessions() []string {
	sessions := make(map[string]bool)
	for _, r := range b.rows {
		if r.first == nil {
			sessions[r.session] = true
		}
	}
	return slices.Sorted(maps.Keys(sessions))
}

// flying are the rows that have seqs and no outcomes, in the order of their seqs.
func (b *book) flying() (rows []*batchRow) {
	for _, r := range b.rows {
		if r.sequenced() && r.state != rowFinished {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(x, y *batchRow) int { return cmp.Compare(*x.first, *y.first) })
	return rows
}

func (b *book) setBody(r *batchRow, bd *body) {
	r.body = bd.encode(r.session, r.id)
	r.bytes = int64(len(r.body))
}

func (b *book) finish(r *batchRow, outs []ledger.Outcome, ops []opRow, slim bool) {
	if r.state == rowFinished {
		return
	}
	r.state, r.outcomes, r.dropping, r.nextRetry = rowFinished, encodeOutcomes(outs, ops), false, 0
	if r.first == nil {
		r.first = new(int64)
	}
	if slim {
		r.body = (&body{atomic: bodyOf(r).atomic, slim: true, ops: ops}).encode(r.session, r.id)
	}
}

// decide finishes a row all of whose ops have verdicts.
func (t *tale) decide(r *batchRow, bd *body) {
	if creates(bd.ops[0].method) {
		t.streams[r.session] = streamRow{t.streams[r.session].lastSeq, "space", "own"}
	}
	t.setBody(r, bd)
	t.finish(r, bd.outcomes(nil), bd.ops, false)
}

// load is Box.load's transaction.
func (s *sender) load(session string, batches, bytes int, no *refusal) (ld loaded, err error) {
	p, t := s.p, s.p.t
	if t.holder != p || !p.lanes.leads(s.term) {
		return ld, errFenced
	}
	ld.st = t.streams[session]
	if no != nil && ld.st.lastSeq > 0 {
		ld.known = no.why
		return ld, nil
	} else if no != nil {
		t.giveBack(session)
	}
	ld.lane = p.lanes.learn(session, ld.st.lastSeq+1)
	given := make(map[string]*earlier)
	seen := 0
	for _, r := range t.rows {
		if r.session != session || r.first != nil {
			continue
		}
		if seen++; seen > max(batches, headRows) {
			ld.more = true
			return ld, nil
		}
		stored := t.finder(r.num)
		bd := bodyOf(r)
		res, err := resolve(bd, session, func(op string) (*earlier, error) {
			if e := given[op]; e != nil {
				return e, nil
			}
			return stored(op)
		}, false)
		switch {
		case err != nil:
			return ld, err
		case bd.decided():
			t.decide(r, bd)
			ld.st = t.streams[session]
			ld.done = append(ld.done, decidedRow{id: r.id})
			continue
		case len(res.owed) > 0:
			for _, e := range res.owed {
				ld.owed = append(ld.owed, e.batch)
			}
			ld.more = true
			return ld, nil
		case no != nil:
			e := newEntry(r, bd, 0)
			if t.find(e); !no.to.serves(e.route) {
				ld.more = true
				return ld, nil
			}
			bd.deny(no.why)
			t.decide(r, bd)
			ld.st = t.streams[session]
			ld.done = append(ld.done, decidedRow{id: r.id})
			continue
		case batches == 0:
			t.setBody(r, bd)
			ld.head, ld.hbody, ld.more = r, bd, true
			return ld, nil
		}
		data := bd.encode(r.session, r.id)
		if n := len(ld.rows); n > 0 && (n >= batches || len(data) > bytes) {
			ld.more = true
			return ld, nil
		}
		bytes -= len(data)
		t.setBody(r, bd)
		first := int64(p.lanes.give(ld.lane, bd.travelling()))
		r.first, r.state = &first, rowInFlight
		for k := range bd.ops {
			if e, err := (found{r, bd, k}).earlier(); err == nil {
				given[e.id] = e
			}
		}
		copied := *r
		ld.rows = append(ld.rows, sequencedRow{&copied, bd, res.hold})
	}
	return ld, nil
}

// giveBack is that of tables.
func (t *tale) giveBack(session string) {
	for _, r := range t.flying() {
		if r.session != session {
			continue
		}
		if bd := bodyOf(r); bd.dropped() {
			t.setBody(r, bd)
		}
		r.first, r.state, r.dropping = nil, rowPending, false
	}
}

// refuse ends what goes through a stream that the server does not make.
func (s *sender) refuse(a action) {
	p, t := s.p, s.p.t
	var ld loaded
	p.queue(&chore{
		run: func() (err error) {
			ld, err = s.load(a.session, aheadFactor*t.win.Batches, aheadFactor*t.win.Bytes, &refusal{a.route, a.err})
			return err
		},
		done: func(err error) {
			switch {
			case err == errFenced:
				s.hand(func() { s.end(errFenced) })
			case err != nil:
				s.later = append(s.later, func() { s.refuse(a) })
			case ld.known != nil:
				s.hand(func() { s.m.refused(a.session, ld.known) })
			default:
				p.lanes.restart(a.session)
				t.note("process %d: the server makes no %s, %d batches end", p.name, a.session, len(ld.done))
				s.hand(func() { s.m.refused(a.session, nil) })
				s.looked(a.session, ld, nil)
			}
		},
	})
}

// looked tells the machine of what load found.
func (s *sender) looked(session string, ld loaded, err error) {
	p, t := s.p, s.p.t
	if err == nil {
		for _, r := range ld.rows {
			p.lanes.gave(ld.lane, uint64(*r.row.first)+uint64(r.body.travelling()), r.row.id, len(r.row.body))
		}
		p.decided(ld.done)
	}
	s.hand(func() {
		if err == errFenced {
			s.end(errFenced)
			return
		}
		if err != nil {
			s.later = append(s.later, func() { s.m.looked(session, nil, nil, true, nil, route{}, t.now) })
			return
		}
		var entries []*entry
		for _, r := range ld.rows {
			e := newEntry(r.row, r.body, r.hold)
			t.find(e)
			entries = append(entries, e)
		}
		var head *entry
		if ld.head != nil {
			head = newEntry(ld.head, ld.hbody, 0)
			head.first, head.n, head.bytes, head.marked, head.wire = 0, 0, 0, false, nil
			t.find(head)
		}
		s.m.looked(session, entries, head, ld.more, ld.owed, making(ld.st), t.now)
	})
}

func making(st streamRow) route { return (*loop)(nil).making(st) }

// decided tells the sender, if there is one, of batches that needed no server.
func (p *process) decided(rows []decidedRow) {
	if s := p.s; s != nil && len(rows) > 0 {
		s.hand(func() {
			for _, d := range rows {
				s.m.finished(d.id, p.t.now)
			}
		})
	}
}

// store keeps the outcomes of a batch.
func (s *sender) store(e *entry, answer []ledger.Outcome, reach route) {
	p, t := s.p, s.p.t
	outs, held := e.body.outcomes(answer), false
	p.queue(&chore{lazy: true,
		run: func() error {
			held = t.holder == p
			p.lanes.storing(e.session, e.id)
			r := t.row(e.num)
			st := t.streams[e.session]
			if creates(e.body.ops[0].method) && r.state != rowFinished {
				st.spaceRef, st.ownerRef = reach.space, reach.ref
			}
			t.finish(r, outs, e.body.ops, e.body.count(outs) == (tally{}))
			st.lastSeq = max(st.lastSeq, e.last())
			t.streams[e.session] = st
			return nil
		},
		done: func(err error) {
			if err == nil {
				p.lanes.stored(e.session, e.id)
			}
			s.hand(func() {
				if err == nil && !held {
					s.end(errFenced)
					return
				}
				if err != nil {
					s.m.unstorable(e.session, fault.Internal.With("told to"), t.now)
					return
				}
				s.m.storedThrough(e.session, e.last(), t.now)
				s.m.finished(e.id, t.now)
			})
		}})
}

// settle decides what becomes of ops that were to be dropped.
func (s *sender) settle(a action) {
	p, t := s.p, s.p.t
	bodies := make(map[int64]*body)
	p.queue(&chore{lazy: true,
		run: func() error {
			if t.holder != p || !p.lanes.leads(s.term) {
				return errFenced
			}
			for _, e := range a.entries {
				if r := t.row(e.num); r.state != rowFinished {
					bd := bodyOf(r)
					bd.settleDrop(e.first > a.through, a.drops[e.num])
					r.dropping = false
					t.setBody(r, bd)
					bodies[e.num] = bd
				}
			}
			return nil
		},
		done: func(err error) {
			s.hand(func() {
				if err == errFenced {
					s.end(errFenced)
					return
				}
				if err != nil {
					s.m.unstorable(a.session, fault.Internal.With("told to"), t.now)
					return
				}
				s.m.settled(a.session, a.conn, withBodies(a.entries, bodies), t.now)
			})
		}})
}

// drop is Box.drop's transaction, in a process.
func (p *process) drop(op string) {
	t := p.t
	told := func(*sender) {}
	p.queue(&chore{
		run: func() error {
			f := t.opAt(op)
			r, bd := f.row, f.body
			switch {
			case r.state == rowFinished || bd.ops[f.place].verdict != nil || bd.ops[f.place].void:
				return nil
			case r.sequenced():
				bd.ops[f.place].dropAsked, r.dropping = true, true
				t.setBody(r, bd)
				told = func(s *sender) { s.m.dropAsked(r.session, r.num, t.now) }
			default:
				bd.settle(f.place, voided(op))
				bd.cascade()
				t.setBody(r, bd)
				if bd.decided() {
					t.decide(r, bd)
				}
				over := bd.decided()
				told = func(s *sender) {
					if over {
						s.m.finished(r.id, t.now)
					}
					s.m.headsDropped(t.now)
				}
			}
			t.ops[op].dropped = true
			t.drops++
			return nil
		},
		done: func(error) {
			if s := p.s; s != nil {
				s.hand(func() { told(s) })
			}
		}})
}
