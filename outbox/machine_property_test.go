package outbox

// Whatever links, servers, databases and other processes do to a machine, each op has its
// effect once or its recorded refusal, in its batch and its order; what is acknowledged is
// stored; the bounds hold. And when everything becomes good, everything ends. The world of
// this is in machine_story_test.go, machine_rows_test.go and machine_line_test.go.

import (
	flags "flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

var (
	machineStories = flags.Int("stories", seed.Cases(500), "how many random stories of a machine are told")
)

func TestMachineStories(t *testing.T) {
	t.Parallel()
	first := seed.Of(t)
	for i := range *machineStories {
		if story := simulate(first+uint64(i), false); len(story.faults) > 0 {
			again := simulate(first+uint64(i), true)
			t.Fatalf("%s\n\n%s\nSEED=%d -run MachineStories -stories 1 tells it again", strings.Join(again.notes, "\n"), strings.Join(story.faults, "\n"), first+uint64(i))
		}
	}
}

// simulate tells one story, until something is wrong in it.
func simulate(seed uint64, aloud bool) (t *simulation) {
	t = newSimulation(seed, aloud)
	defer func() {
		if r := recover(); r != nil && !aloud {
			t.fault("%v", r)
		} else if r != nil {
			panic(fmt.Sprint(r, "\n", strings.Join(t.notes, "\n")))
		}
	}()
	for range 1 + t.dice.IntN(2) {
		for n := 50 + t.dice.IntN(300); n > 0 && len(t.faults) == 0; n-- {
			t.happen()
		}
		if len(t.faults) == 0 {
			t.settle()
		}
	}
	return t
}

// happen has one thing happen.
func (t *simulation) happen() {
	p := t.procs[t.dice.IntN(len(t.procs))]
	switch n := t.dice.IntN(200); {
	case n < 140:
		t.move()
	case n < 165:
		t.commit(p)
	case n < 175:
		t.pass([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Minute}[t.dice.IntN(5)])
	case n < 181:
		if p.s != nil {
			p.s.scan()
		}
	case n < 186:
		p.acquire(t.chance(30))
	case n < 187:
		if t.inject(4 * t.rates.stalled) {
			t.crash(p)
		}
	case n < 190:
		if len(t.lines) > 0 && t.inject(4*t.rates.down) {
			t.lines[t.dice.IntN(len(t.lines))].cut()
		}
	case n < 192:
		host := fmt.Sprint("host", t.dice.IntN(2))
		t.down[host] = t.inject(4*t.rates.down) && !t.down[host]
		t.note("%s is down: %v", host, t.down[host])
	case n < 194:
		t.wake()
	case n < 197:
		session := t.sessions[t.dice.IntN(len(t.sessions))]
		state := ""
		if t.inject(4 * t.rates.noRoute) {
			state = []string{"held", "routeless", "lost"}[t.dice.IntN(3)]
		}
		t.changeRoute(session, state)
	default:
		if len(t.batches) > 0 && t.inject(8*t.rates.drops) {
			b := t.batches[len(t.batches)-1-t.dice.IntN(min(len(t.batches), 6))]
			op := b.ops[t.dice.IntN(len(b.ops))]
			if b.durable > 0 && t.chance(70) {
				t.note("op %d of %s is to be dropped", slices.Index(b.ops, op)+1, b.row.ID)
				p.drop(op.ID)
			} else if b.durable > 0 {
				t.retry(p, op)
			}
		}
	}
}

// move has one thing go on that is under way; false if nothing is.
func (t *simulation) move() bool {
	t.moves++
	var can []func()
	for _, p := range t.procs {
		if len(p.chores) > 0 {
			can = append(can, p.write)
		}
		if p.begins != nil {
			can = append(can, func() { f := p.begins; p.begins = nil; f() })
		}
		if p.s != nil && p.s.due() {
			can = append(can, p.s.drainEvents)
		}
	}
	t.lines = slices.DeleteFunc(t.lines, func(l *line) bool { return (l.broken || l.closed) && len(l.forth)+len(l.back) == 0 })
	for _, l := range t.lines {
		if len(l.forth) > 0 {
			can = append(can, l.arrive)
		}
		if len(l.back) > 0 {
			can = append(can, func() { l.deliver(&l.back) })
		}
	}
	for i, f := range t.unseen {
		can = append(can, func() { t.unseen = slices.Delete(t.unseen, i, i+1); f() })
	}
	if len(can) == 0 {
		return false
	}
	can[t.dice.IntN(len(can))]()
	return true
}

func (t *simulation) pass(d time.Duration) {
	t.now = t.now.Add(d)
	for _, p := range t.procs {
		if s := p.s; s != nil {
			for _, f := range s.later {
				s.postAsync(f)
			}
			s.later = nil
		}
	}
}

func (t *simulation) wake() {
	t.note("links are back")
	for _, p := range t.procs {
		if s := p.s; s != nil {
			s.postAsync(func() { s.m.Wake(t.now) })
		}
	}
}

// changeRoute changes the refs of a session.
func (t *simulation) changeRoute(session, state string) {
	t.note("the refs of %s: %s", session, state)
	t.ways[session].state, t.ways[session+"v"].state = state, state
	for _, p := range t.procs {
		if s := p.s; s != nil {
			s.postAsync(func() { s.rerouted(session) })
		}
	}
}

// commit has a process commit a batch.
func (t *simulation) commit(p *process) {
	session := t.sessions[t.dice.IntN(len(t.sessions))]
	bd := &intent.Batch{Atomic: t.dice.IntN(5) == 0}
	id := t.id()
	first := !slices.ContainsFunc(t.batches, func(b *simBatch) bool { return b.row.Session == session })
	for i := range 1 + t.dice.IntN(3) {
		op := intent.Op{ID: opid.Of(id, i), Method: "put"}
		switch n := t.dice.IntN(40); {
		case first && i == 0 && t.server.session(session).managed:
			op.Method = intent.MethodCreate
			if n == 0 {
				op.Args = append(op.Args, ledger.Arg{Name: "refuse", JSON: []byte("1")})
			}
		case n < 3:
			op.Method = []string{"reject", "deny", "deny"}[n]
		}
		op.Args = append(op.Args, ledger.Arg{Name: "a", JSON: fmt.Appendf(nil, "[%d,  %q]", t.dice.IntN(100), strings.Repeat("x", t.dice.IntN(60)))})
		for k := range t.dice.IntN(3) {
			to := ""
			if n := len(t.batches); n > 0 {
				if b := t.batches[n-1-t.dice.IntN(min(n, 6))]; b.durable > 0 {
					to = b.ops[t.dice.IntN(len(b.ops))].ID
				}
			}
			if i > 0 && t.dice.IntN(3) == 0 {
				to = bd.Ops[t.dice.IntN(i)].ID
			}
			switch n := t.dice.IntN(3); {
			case to == "":
			case n == 0:
				op.Deps = append(op.Deps, to)
			default:
				op.Args = append(op.Args, ledger.Arg{Name: fmt.Sprint("r", k), Ref: &ledger.Ref{Op: to, Path: []string{"cursor", "args.a.0"}[n-1]}})
			}
		}
		bd.Ops = append(bd.Ops, op)
	}
	via := ""
	if t.dice.IntN(8) == 0 && !t.server.session(session).managed {
		via = "v"
	}
	t.take(p, &sqlstore.BatchRow{ID: id, Session: session, Via: via}, bd)
}

// retry has a process commit an op again that did not apply.
func (t *simulation) retry(p *process, op *simOp) {
	f := t.opAt(op.ID)
	if e, err := f.Target(); err != nil || e.Outcome == nil || e.Outcome.Status == ledger.Applied || t.retries[op.ID] != "" || f.Body.Compacted || intent.CreatesSession(op.Method) {
		return
	}
	old := f.Body.Ops[f.Index]
	id := t.id()
	t.note("%s is to be retried", op.ID)
	t.take(p, &sqlstore.BatchRow{ID: id, Session: f.Row.Session, Via: f.Row.Via},
		&intent.Batch{Ops: []intent.Op{{ID: opid.Of(id, 0), Method: "put", Args: old.Args, Deps: old.Deps, Retries: op.ID}}})
}

// take is Box.commit, of a batch whose refs are found and whose references are looked up.
func (t *simulation) take(p *process, r *sqlstore.BatchRow, bd *intent.Batch) {
	b := &simBatch{row: r, began: t.moves, atomic: bd.Atomic}
	for i := range bd.Ops {
		b.ops = append(b.ops, &simOp{Op: bd.Ops[i], of: b})
	}
	res, err := intent.Resolve(bd, r.Session, t.finder(sqlstore.UnwrittenRow), true)
	if err != nil {
		t.fault("batch %s cannot be committed: %v", r.ID, err)
		return
	}
	t.setBody(r, bd)
	keep := func() bool {
		for _, op := range b.ops {
			if op.Retries != "" && t.retries[op.Retries] != "" {
				return false // somebody was faster
			}
		}
		t.insert(r, bd)
		t.batches = append(t.batches, b)
		t.names[r.ID] = fmt.Sprint("batch", len(t.batches))
		for _, op := range b.ops {
			t.ops[op.ID] = op
		}
		return true
	}
	durable := func() {
		t.moves++
		b.durable = t.moves
		t.note("%s of %s is committed: %s", r.ID, r.Session, plain(b))
	}
	e := &machine.Entry{Session: r.Session, Via: r.Via, Body: bd}
	if t.setRoute(e); e.RouteErr != nil {
		return // the caller is told
	}
	if t.inject(t.rates.stalled) && bd.Ops[0].Method != intent.MethodCreate && bd.Ops[0].Retries == "" && !bd.Decided() {
		t.nums++
		r.Num = t.nums
		t.unseen = append(t.unseen, func() { keep(); durable() })
		return
	}
	var la *writer.StreamSeqs
	var first uint64
	n, stays, got := bd.SeqCount(), false, false
	p.queue(&simJob{
		run: func() error {
			la, first = nil, 0
			if len(res.BlockedOn) == 0 && !res.HasUnsequenced && n == len(bd.Ops) && !bd.Decided() {
				la, first = p.seqs.AllocateNow(r.Session, n, len(r.Body), res.OwnBatches, machine.Window(t.win))
			}
			behind := t.waits(r.Session)
			if stays = keep(); la != nil && stays && t.holder == p && !behind {
				at := int64(first)
				r.FirstSeq, r.State, got = &at, sqlstore.RowInFlight, true
			} else if la != nil {
				p.seqs.Deallocate(la, first)
			}
			if stays && bd.Decided() {
				t.finishLocally(r, bd)
			}
			return nil
		},
		done: func(err error) {
			switch {
			case err != nil || !stays:
				return
			case bd.Decided():
				p.decided([]string{r.ID})
			case got:
				p.seqs.Confirm(la, first+uint64(n), r.ID, len(r.Body))
				s, copied := p.s, *r
				if s == nil {
					break
				}
				s.postAsync(func() {
					e := copied.Entry(bd, res.PinSeq)
					if t.setRoute(e); t.inject(20) {
						e.Route.Rotating = true
						s.postAsync(func() {
							t.setRoute(e)
							if st := s.m.Streams[e.Session]; st != nil {
								s.m.Step(st, t.now)
							}
						})
					}
					s.m.Sequenced(e, t.now)
				})
			case p.s != nil:
				s, copied := p.s, *r
				s.postAsync(func() {
					head := copied.Entry(bd, 0)
					if t.setRoute(head); head.RouteErr == nil && opensUnread(head.Route, res) {
						s.m.Waiting(head, t.now)
					} else {
						s.m.BacklogFound([]string{r.Session}, t.now)
					}
				})
			}
			durable()
		}})
}
