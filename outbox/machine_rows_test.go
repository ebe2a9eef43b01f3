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
func (b *book) opAt(op string) foundOp {
	r := b.at[op]
	if r == nil {
		return foundOp{}
	}
	bd := bodyOf(r)
	return foundOp{r, bd, slices.IndexFunc(bd.ops, func(o opRow) bool { return o.id == op })}
}

// finder is that of tables.
func (b *book) finder(reader int64) opLookup {
	return func(op string) (*refTarget, error) {
		var e *refTarget
		for op != "" {
			f := b.opAt(op)
			if f.row == nil || e != nil && f.row.num > reader && f.row.state != rowFinished {
				return e, nil
			}
			var err error
			if e, err = f.target(); err != nil || e.outcome == nil || e.outcome.Status == ledger.Applied {
				return e, err
			}
			op = b.retries[op]
		}
		return e, nil
	}
}

func (b *book) waits(session string) bool {
	return slices.ContainsFunc(b.rows, func(r *batchRow) bool { return r.session == session && r.firstSeq == nil })
}

func (b *book) unsequencedSessions() []string {
	sessions := make(map[string]bool)
	for _, r := range b.rows {
		if r.firstSeq == nil {
			sessions[r.session] = true
		}
	}
	return slices.Sorted(maps.Keys(sessions))
}

// inFlight are the rows that have seqs and no outcomes, in the order of their seqs.
func (b *book) inFlight() (rows []*batchRow) {
	for _, r := range b.rows {
		if r.sequenced() && r.state != rowFinished {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(x, y *batchRow) int { return cmp.Compare(*x.firstSeq, *y.firstSeq) })
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
	if r.firstSeq == nil {
		r.firstSeq = new(int64)
	}
	if slim {
		r.body = (&body{atomic: bodyOf(r).atomic, compacted: true, ops: ops}).encode(r.session, r.id)
	}
}

// finishLocally finishes a row all of whose ops have verdicts.
func (t *simulation) finishLocally(r *batchRow, bd *body) {
	if createsSession(bd.ops[0].method) {
		t.streams[r.session] = streamRow{t.streams[r.session].lastSeq, "space", "own"}
	}
	t.setBody(r, bd)
	t.finish(r, bd.outcomes(nil), bd.ops, false)
}

// load is Box.load's transaction.
func (s *sender) load(session string, batches, bytes int, no *refusal) (ld loadResult, err error) {
	p, t := s.p, s.p.t
	if t.holder != p || !p.seqs.leadsTerm(s.term) {
		return ld, errFenced
	}
	ld.st = t.streams[session]
	if no != nil && ld.st.lastSeq > 0 {
		ld.stopErr = no.err
		return ld, nil
	} else if no != nil {
		t.clearSeqs(session)
	}
	ld.seqs = p.seqs.addStream(session, ld.st.lastSeq+1)
	given := make(map[string]*refTarget)
	seen := 0
	for _, r := range t.rows {
		if r.session != session || r.firstSeq != nil {
			continue
		}
		if seen++; seen > max(batches, peekRows) {
			ld.more = true
			return ld, nil
		}
		stored := t.finder(r.num)
		bd := bodyOf(r)
		res, err := resolve(bd, session, func(op string) (*refTarget, error) {
			if e := given[op]; e != nil {
				return e, nil
			}
			return stored(op)
		}, false)
		switch {
		case err != nil:
			return ld, err
		case bd.decided():
			t.finishLocally(r, bd)
			ld.st = t.streams[session]
			ld.decided = append(ld.decided, decidedRow{id: r.id})
			continue
		case len(res.blockedOn) > 0:
			for _, e := range res.blockedOn {
				ld.blockedOn = append(ld.blockedOn, e.batch)
			}
			ld.more = true
			return ld, nil
		case no != nil:
			e := newEntry(r, bd, 0)
			if t.setRoute(e); !no.route.serves(e.route) {
				ld.more = true
				return ld, nil
			}
			bd.deny(no.err)
			t.finishLocally(r, bd)
			ld.st = t.streams[session]
			ld.decided = append(ld.decided, decidedRow{id: r.id})
			continue
		case batches == 0:
			t.setBody(r, bd)
			ld.unsequenced, ld.unsequencedBody, ld.more = r, bd, true
			return ld, nil
		}
		data := bd.encode(r.session, r.id)
		if n := len(ld.rows); n > 0 && (n >= batches || len(data) > bytes) {
			ld.more = true
			return ld, nil
		}
		bytes -= len(data)
		t.setBody(r, bd)
		first := int64(p.seqs.allocate(ld.seqs, bd.seqCount()))
		r.firstSeq, r.state = &first, rowInFlight
		for k := range bd.ops {
			if e, err := (foundOp{r, bd, k}).target(); err == nil {
				given[e.id] = e
			}
		}
		copied := *r
		ld.rows = append(ld.rows, sequencedRow{&copied, bd, res.pinSeq})
	}
	return ld, nil
}

// clearSeqs is that of tables.
func (t *simulation) clearSeqs(session string) {
	for _, r := range t.inFlight() {
		if r.session != session {
			continue
		}
		if bd := bodyOf(r); bd.voidRequestedDrops() {
			t.setBody(r, bd)
		}
		r.firstSeq, r.state, r.dropping = nil, rowPending, false
	}
}

// endRefused ends what goes through a stream that the server does not make.
func (s *sender) endRefused(a action) {
	p, t := s.p, s.p.t
	var ld loadResult
	p.queue(&simJob{
		run: func() (err error) {
			ld, err = s.load(a.session, windowsAhead*t.win.Batches, windowsAhead*t.win.Bytes, &refusal{a.route, a.err})
			return err
		},
		done: func(err error) {
			switch {
			case err == errFenced:
				s.postAsync(func() { s.end(errFenced) })
			case err != nil:
				s.later = append(s.later, func() { s.endRefused(a) })
			case ld.stopErr != nil:
				s.postAsync(func() { s.m.streamRefused(a.session, ld.stopErr) })
			default:
				p.seqs.forget(a.session)
				t.note("process %d: the server makes no %s, %d batches end", p.name, a.session, len(ld.decided))
				s.postAsync(func() { s.m.streamRefused(a.session, nil) })
				s.loaded(a.session, ld, nil)
			}
		},
	})
}

// loaded tells the machine of what load found.
func (s *sender) loaded(session string, ld loadResult, err error) {
	p, t := s.p, s.p.t
	if err == nil {
		for _, r := range ld.rows {
			p.seqs.confirm(ld.seqs, uint64(*r.row.firstSeq)+uint64(r.body.seqCount()), r.row.id, len(r.row.body))
		}
		p.decided(ld.decided)
	}
	s.postAsync(func() {
		if err == errFenced {
			s.end(errFenced)
			return
		}
		if err != nil {
			s.later = append(s.later, func() { s.m.loaded(session, nil, nil, true, nil, route{}, t.now) })
			return
		}
		var entries []*entry
		for _, r := range ld.rows {
			e := newEntry(r.row, r.body, r.pinSeq)
			t.setRoute(e)
			entries = append(entries, e)
		}
		var head *entry
		if ld.unsequenced != nil {
			head = newEntry(ld.unsequenced, ld.unsequencedBody, 0)
			head.firstSeq, head.seqCount, head.bytes, head.markedInFlight, head.wireBatch = 0, 0, 0, false, nil
			t.setRoute(head)
		}
		s.m.loaded(session, entries, head, ld.more, ld.blockedOn, making(ld.st), t.now)
	})
}

func making(st streamRow) route { return (*loop)(nil).createRoute(st) }

// decided tells the sender, if there is one, of batches that needed no server.
func (p *process) decided(rows []decidedRow) {
	if s := p.s; s != nil && len(rows) > 0 {
		s.postAsync(func() {
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
	p.queue(&simJob{lazy: true,
		run: func() error {
			held = t.holder == p
			p.seqs.markStoring(e.session, e.id)
			r := t.row(e.num)
			st := t.streams[e.session]
			if createsSession(e.body.ops[0].method) && r.state != rowFinished {
				st.spaceRef, st.ownerRef = reach.space, reach.ref
			}
			t.finish(r, outs, e.body.ops, e.body.count(outs) == (tally{}))
			st.lastSeq = max(st.lastSeq, e.lastSeq())
			t.streams[e.session] = st
			return nil
		},
		done: func(err error) {
			if err == nil {
				p.seqs.markStored(e.session, e.id)
			}
			s.postAsync(func() {
				if err == nil && !held {
					s.end(errFenced)
					return
				}
				if err != nil {
					s.m.storeFailed(e.session, fault.Internal.With("on request"), t.now)
					return
				}
				s.m.outcomesStored(e.session, e.lastSeq(), t.now)
				s.m.finished(e.id, t.now)
			})
		}})
}

// resolveDrops decides what becomes of ops that were to be dropped.
func (s *sender) resolveDrops(a action) {
	p, t := s.p, s.p.t
	bodies := make(map[int64]*body)
	p.queue(&simJob{lazy: true,
		run: func() error {
			if t.holder != p || !p.seqs.leadsTerm(s.term) {
				return errFenced
			}
			for _, e := range a.entries {
				if r := t.row(e.num); r.state != rowFinished {
					bd := bodyOf(r)
					bd.resolveDrop(e.firstSeq > a.through, a.drops[e.num])
					r.dropping = false
					t.setBody(r, bd)
					bodies[e.num] = bd
				}
			}
			return nil
		},
		done: func(err error) {
			s.postAsync(func() {
				if err == errFenced {
					s.end(errFenced)
					return
				}
				if err != nil {
					s.m.storeFailed(a.session, fault.Internal.With("on request"), t.now)
					return
				}
				s.m.dropsResolved(a.session, a.connID, withBodies(a.entries, bodies), t.now)
			})
		}})
}

// drop is Box.drop's transaction, in a process.
func (p *process) drop(op string) {
	t := p.t
	then := func(*sender) {}
	p.queue(&simJob{
		run: func() error {
			f := t.opAt(op)
			r, bd := f.row, f.body
			switch {
			case r.state == rowFinished || bd.ops[f.index].localOutcome != nil || bd.ops[f.index].void:
				return nil
			case r.sequenced():
				bd.ops[f.index].dropRequested, r.dropping = true, true
				t.setBody(r, bd)
				then = func(s *sender) { s.m.dropRequested(r.session, r.num, t.now) }
			default:
				bd.setLocalOutcome(f.index, voidOutcome(op))
				bd.skipDependents()
				t.setBody(r, bd)
				if bd.decided() {
					t.finishLocally(r, bd)
				}
				over := bd.decided()
				then = func(s *sender) {
					if over {
						s.m.finished(r.id, t.now)
					}
					s.m.unsequencedDropped(t.now)
				}
			}
			t.ops[op].dropped = true
			t.drops++
			return nil
		},
		done: func(error) {
			if s := p.s; s != nil {
				s.postAsync(func() { then(s) })
			}
		}})
}
