package outbox

// The rows of a machine's random story (machine_property_test.go), as the databases keep
// them, and the sender's transactions on them.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// book is an outbox's database.
type book struct {
	rows        []*sqlstore.BatchRow // by num, those that are visible
	nums        int64
	at          map[string]*sqlstore.BatchRow // by op
	retries     map[string]string
	streams     map[string]sqlstore.StreamRow
	stopped     map[string]fault.Code
	incarnation int64
	drops       int64
	holder      *process
}

func (b *book) insert(r *sqlstore.BatchRow, bd *intent.Batch) {
	if r.Num == 0 {
		b.nums++
		r.Num = b.nums
	}
	i, _ := slices.BinarySearchFunc(b.rows, r.Num, func(r *sqlstore.BatchRow, num int64) int { return cmp.Compare(r.Num, num) })
	b.rows = slices.Insert(b.rows, i, r)
	for i := range bd.Ops {
		b.at[bd.Ops[i].ID] = r
		if old := bd.Ops[i].Retries; old != "" {
			b.retries[old] = bd.Ops[i].ID
		}
	}
}

func (b *book) row(num int64) *sqlstore.BatchRow {
	i, _ := slices.BinarySearchFunc(b.rows, num, func(r *sqlstore.BatchRow, num int64) int { return cmp.Compare(r.Num, num) })
	return b.rows[i]
}

// bodyOf is a row's body, which is nobody else's.
func bodyOf(r *sqlstore.BatchRow) *intent.Batch {
	bd, err := r.Decode()
	if err != nil {
		panic(err)
	}
	return bd
}

// opAt finds an op; found has no row if there is none.
func (b *book) opAt(op string) sqlstore.FoundOp {
	r := b.at[op]
	if r == nil {
		return sqlstore.FoundOp{}
	}
	bd := bodyOf(r)
	return sqlstore.FoundOp{Row: r, Body: bd, Index: slices.IndexFunc(bd.Ops, func(o intent.Op) bool { return o.ID == op })}
}

// finder is that of tables.
func (b *book) finder(reader int64) intent.Lookup {
	return func(op string) (*intent.Target, error) {
		var e *intent.Target
		for op != "" {
			f := b.opAt(op)
			if f.Row == nil || e != nil && f.Row.Num > reader && f.Row.State != sqlstore.RowFinished {
				return e, nil
			}
			var err error
			if e, err = f.Target(); err != nil || e.Outcome == nil || e.Outcome.Status == ledger.Applied {
				return e, err
			}
			op = b.retries[op]
		}
		return e, nil
	}
}

func (b *book) waits(session string) bool {
	return slices.ContainsFunc(b.rows, func(r *sqlstore.BatchRow) bool { return r.Session == session && r.FirstSeq == nil })
}

func (b *book) unsequencedSessions() []string {
	sessions := make(map[string]bool)
	for _, r := range b.rows {
		if r.FirstSeq == nil {
			sessions[r.Session] = true
		}
	}
	return slices.Sorted(maps.Keys(sessions))
}

// inFlight are the rows that have seqs and no outcomes, in the order of their seqs.
func (b *book) inFlight() (rows []*sqlstore.BatchRow) {
	for _, r := range b.rows {
		if r.Sequenced() && r.State != sqlstore.RowFinished {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(x, y *sqlstore.BatchRow) int { return cmp.Compare(*x.FirstSeq, *y.FirstSeq) })
	return rows
}

func (b *book) setBody(r *sqlstore.BatchRow, bd *intent.Batch) {
	r.Body = bd.Encode(r.Session, r.ID)
	r.Bytes = int64(len(r.Body))
}

func (b *book) finish(r *sqlstore.BatchRow, outs []ledger.Outcome, ops []intent.Op, slim bool) {
	if r.State == sqlstore.RowFinished {
		return
	}
	r.State, r.Outcomes, r.Dropping, r.NextRetry = sqlstore.RowFinished, intent.EncodeOutcomes(outs, ops), false, 0
	if r.FirstSeq == nil {
		r.FirstSeq = new(int64)
	}
	if slim {
		r.Body = (&intent.Batch{Atomic: bodyOf(r).Atomic, Compacted: true, Ops: ops}).Encode(r.Session, r.ID)
	}
}

// finishLocally finishes a row all of whose ops have verdicts.
func (t *simulation) finishLocally(r *sqlstore.BatchRow, bd *intent.Batch) {
	if intent.CreatesSession(bd.Ops[0].Method) {
		t.streams[r.Session] = sqlstore.StreamRow{LastSeq: t.streams[r.Session].LastSeq, SpaceRef: "space", OwnerRef: "own"}
	}
	t.setBody(r, bd)
	t.finish(r, bd.Outcomes(nil), bd.Ops, false)
}

// loadResult is what load finds and changes, as the sender's.
type loadResult struct {
	rows            []loadedRow
	unsequenced     *sqlstore.BatchRow
	unsequencedBody *intent.Batch
	more            bool
	blockedOn       []string
	st              sqlstore.StreamRow
	decided         []string
	seqs            *writer.StreamSeqs
	stopErr         *fault.Error
}

type loadedRow struct {
	row    *sqlstore.BatchRow
	body   *intent.Batch
	pinSeq uint64
}

// load is the sender's transaction of that name.
func (s *simSender) load(session string, batches, bytes int, no *machine.Refusal) (ld loadResult, err error) {
	p, t := s.p, s.p.t
	if t.holder != p || !p.seqs.LeadsTerm(s.term) {
		return ld, sqlstore.ErrFenced
	}
	ld.st = t.streams[session]
	if no != nil && ld.st.LastSeq > 0 {
		ld.stopErr = no.Err
		return ld, nil
	} else if no != nil {
		t.clearSeqs(session)
	}
	ld.seqs = p.seqs.AddStream(session, ld.st.LastSeq+1)
	given := make(map[string]*intent.Target)
	seen := 0
	for _, r := range t.rows {
		if r.Session != session || r.FirstSeq != nil {
			continue
		}
		if seen++; seen > max(batches, 8) {
			ld.more = true
			return ld, nil
		}
		stored := t.finder(r.Num)
		bd := bodyOf(r)
		res, err := intent.Resolve(bd, session, func(op string) (*intent.Target, error) {
			if e := given[op]; e != nil {
				return e, nil
			}
			return stored(op)
		}, false)
		switch {
		case err != nil:
			return ld, err
		case bd.Decided():
			t.finishLocally(r, bd)
			ld.st = t.streams[session]
			ld.decided = append(ld.decided, r.ID)
			continue
		case len(res.BlockedOn) > 0:
			for _, e := range res.BlockedOn {
				ld.blockedOn = append(ld.blockedOn, e.Batch)
			}
			ld.more = true
			return ld, nil
		case no != nil:
			e := r.Entry(bd, 0)
			if t.setRoute(e); !no.Route.Serves(e.Route) {
				ld.more = true
				return ld, nil
			}
			bd.Deny(no.Err)
			t.finishLocally(r, bd)
			ld.st = t.streams[session]
			ld.decided = append(ld.decided, r.ID)
			continue
		case batches == 0:
			t.setBody(r, bd)
			ld.unsequenced, ld.unsequencedBody, ld.more = r, bd, true
			return ld, nil
		}
		data := bd.Encode(r.Session, r.ID)
		if n := len(ld.rows); n > 0 && (n >= batches || len(data) > bytes) {
			ld.more = true
			return ld, nil
		}
		bytes -= len(data)
		t.setBody(r, bd)
		first := int64(p.seqs.Allocate(ld.seqs, bd.SeqCount()))
		r.FirstSeq, r.State = &first, sqlstore.RowInFlight
		for k := range bd.Ops {
			if e, err := (sqlstore.FoundOp{Row: r, Body: bd, Index: k}).Target(); err == nil {
				given[e.ID] = e
			}
		}
		copied := *r
		ld.rows = append(ld.rows, loadedRow{&copied, bd, res.PinSeq})
	}
	return ld, nil
}

// clearSeqs is that of tables.
func (t *simulation) clearSeqs(session string) {
	for _, r := range t.inFlight() {
		if r.Session != session {
			continue
		}
		if bd := bodyOf(r); bd.VoidRequestedDrops() {
			t.setBody(r, bd)
		}
		r.FirstSeq, r.State, r.Dropping = nil, sqlstore.RowPending, false
	}
}

// endRefused ends what goes through a stream that the server does not make.
func (s *simSender) endRefused(a machine.Action) {
	p, t := s.p, s.p.t
	var ld loadResult
	p.queue(&simJob{
		run: func() (err error) {
			ld, err = s.load(a.Session, machine.WindowsAhead*t.win.Batches, machine.WindowsAhead*t.win.Bytes, &machine.Refusal{Route: a.Route, Err: a.Err})
			return err
		},
		done: func(err error) {
			switch {
			case err == sqlstore.ErrFenced:
				s.postAsync(func() { s.end(sqlstore.ErrFenced) })
			case err != nil:
				s.later = append(s.later, func() { s.endRefused(a) })
			case ld.stopErr != nil:
				s.postAsync(func() { s.m.StreamRefused(a.Session, ld.stopErr) })
			default:
				p.seqs.Forget(a.Session)
				t.note("process %d: the server makes no %s, %d batches end", p.name, a.Session, len(ld.decided))
				s.postAsync(func() { s.m.StreamRefused(a.Session, nil) })
				s.loaded(a.Session, ld, nil)
			}
		},
	})
}

// loaded tells the machine of what load found.
func (s *simSender) loaded(session string, ld loadResult, err error) {
	p, t := s.p, s.p.t
	if err == nil {
		for _, r := range ld.rows {
			p.seqs.Confirm(ld.seqs, uint64(*r.row.FirstSeq)+uint64(r.body.SeqCount()), r.row.ID, len(r.row.Body))
		}
		p.decided(ld.decided)
	}
	s.postAsync(func() {
		if err == sqlstore.ErrFenced {
			s.end(sqlstore.ErrFenced)
			return
		}
		if err != nil {
			s.later = append(s.later, func() { s.m.Loaded(session, nil, nil, true, nil, machine.Route{}, t.now) })
			return
		}
		var entries []*machine.Entry
		for _, r := range ld.rows {
			e := r.row.Entry(r.body, r.pinSeq)
			t.setRoute(e)
			entries = append(entries, e)
		}
		var head *machine.Entry
		if ld.unsequenced != nil {
			head = ld.unsequenced.Entry(ld.unsequencedBody, 0)
			head.FirstSeq, head.SeqCount, head.Bytes, head.MarkedInFlight, head.WireBatch = 0, 0, 0, false, nil
			t.setRoute(head)
		}
		s.m.Loaded(session, entries, head, ld.more, ld.blockedOn, ld.st.CreateRoute(), t.now)
	})
}

// decided tells the sender, if there is one, of batches that needed no server.
func (p *process) decided(rows []string) {
	if s := p.s; s != nil && len(rows) > 0 {
		s.postAsync(func() {
			for _, d := range rows {
				s.m.Finished(d, p.t.now)
			}
		})
	}
}

// store keeps the outcomes of a batch.
func (s *simSender) store(e *machine.Entry, answer []ledger.Outcome, reach machine.Route) {
	p, t := s.p, s.p.t
	outs, held := e.Body.Outcomes(answer), false
	p.queue(&simJob{lazy: true,
		run: func() error {
			held = t.holder == p
			p.seqs.MarkStoring(e.Session, e.ID)
			r := t.row(e.Num)
			st := t.streams[e.Session]
			if intent.CreatesSession(e.Body.Ops[0].Method) && r.State != sqlstore.RowFinished {
				st.SpaceRef, st.OwnerRef = reach.Space, reach.Ref
			}
			t.finish(r, outs, e.Body.Ops, e.Body.Count(outs) == (intent.Tally{}))
			st.LastSeq = max(st.LastSeq, e.LastSeq())
			t.streams[e.Session] = st
			return nil
		},
		done: func(err error) {
			if err == nil {
				p.seqs.MarkStored(e.Session, e.ID)
			}
			s.postAsync(func() {
				if err == nil && !held {
					s.end(sqlstore.ErrFenced)
					return
				}
				if err != nil {
					s.m.StoreFailed(e.Session, fault.Internal.With("on request"), t.now)
					return
				}
				s.m.OutcomesStored(e.Session, e.LastSeq(), t.now)
				s.m.Finished(e.ID, t.now)
			})
		}})
}

// resolveDrops decides what becomes of ops that were to be dropped.
func (s *simSender) resolveDrops(a machine.Action) {
	p, t := s.p, s.p.t
	bodies := make(map[int64]*intent.Batch)
	p.queue(&simJob{lazy: true,
		run: func() error {
			if t.holder != p || !p.seqs.LeadsTerm(s.term) {
				return sqlstore.ErrFenced
			}
			for _, e := range a.Entries {
				if r := t.row(e.Num); r.State != sqlstore.RowFinished {
					bd := bodyOf(r)
					bd.ResolveDrop(e.FirstSeq > a.Through, a.Drops[e.Num])
					r.Dropping = false
					t.setBody(r, bd)
					bodies[e.Num] = bd
				}
			}
			return nil
		},
		done: func(err error) {
			s.postAsync(func() {
				if err == sqlstore.ErrFenced {
					s.end(sqlstore.ErrFenced)
					return
				}
				if err != nil {
					s.m.StoreFailed(a.Session, fault.Internal.With("on request"), t.now)
					return
				}
				s.m.DropsResolved(a.Session, a.ConnID, machine.WithBodies(a.Entries, bodies), t.now)
			})
		}})
}

// drop is Box.drop's transaction, in a process.
func (p *process) drop(op string) {
	t := p.t
	then := func(*simSender) {}
	p.queue(&simJob{
		run: func() error {
			f := t.opAt(op)
			r, bd := f.Row, f.Body
			switch {
			case r.State == sqlstore.RowFinished || bd.Ops[f.Index].LocalOutcome != nil || bd.Ops[f.Index].Void:
				return nil
			case r.Sequenced():
				bd.Ops[f.Index].DropRequested, r.Dropping = true, true
				t.setBody(r, bd)
				then = func(s *simSender) { s.m.DropRequested(r.Session, r.Num, t.now) }
			default:
				bd.SetLocalOutcome(f.Index, intent.VoidOutcome(op))
				bd.SkipDependents()
				t.setBody(r, bd)
				if bd.Decided() {
					t.finishLocally(r, bd)
				}
				over := bd.Decided()
				then = func(s *simSender) {
					if over {
						s.m.Finished(r.ID, t.now)
					}
					s.m.UnsequencedDropped(t.now)
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
