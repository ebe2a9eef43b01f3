package outbox

// Random batches with references into each other, committed by several
// processes, sent over links that break, swallow answers and refuse for a while,
// by senders that crash: against a sequential model.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// crash ends a Box the way a power cut would: what it has not written is lost,
// its lease is not given back.
func (b *Box) crash() {
	b.w.Discard()
	_ = b.Close()
}

// chaos decides what goes wrong. It is safe for concurrent use.
type chaos struct {
	mu   sync.Mutex
	rng  *rand.Rand
	calm bool
}

func (c *chaos) happens(percent int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.calm && c.rng.IntN(100) < percent
}

func (c *chaos) pick(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) install(s *fakeServer) {
	s.before = func(*ledger.Batch) (error, bool) {
		switch {
		case c.happens(6):
			return nil, true
		case c.happens(4):
			return fault.Overloaded.With("busy"), false
		case c.happens(2):
			return fault.Unavailable.With("the database is away"), false
		}
		return nil, false
	}
	s.after = func(*ledger.Batch) bool { return c.happens(8) }
}

// modelOp is what the model knows of an op.
type modelOp struct {
	id      string
	method  string
	args    []ledger.Arg
	needs   []string // ops it refers to or depends on
	dropped bool     // somebody tried
}

type modelBatch struct {
	ticket  Ticket
	session string
	by      int // who committed it
	atomic  bool
	ops     []*modelOp
}

// model runs batches one after the other.
type model struct {
	byOp    map[string]*modelOp
	all     []*modelOp
	batches []*modelBatch
}

// random makes a batch.
func (m *model) random(c *chaos, session string, by int) (Batch, *modelBatch) {
	batch := Batch{ID: opid.NewBatch(), Session: session, Atomic: c.pick(5) == 0}
	mb := &modelBatch{session: session, by: by, atomic: batch.Atomic}
	for i := range 1 + c.pick(4) {
		op := Op{Method: "put"}
		if c.pick(10) == 0 {
			op.Method = []string{"reject", "deny"}[c.pick(2)]
		}
		if c.pick(12) == 0 {
			op.ID = opid.NewBatch() // an id that does not tell its batch
		}
		mo := &modelOp{id: op.ID, method: op.Method}
		if mo.id == "" {
			mo.id = opid.Of(batch.ID, i)
		}
		earlier := append(append([]*modelOp(nil), m.all...), mb.ops...)
		for k := range c.pick(3) {
			arg := ledger.Arg{Name: fmt.Sprint("a", k), JSON: fmt.Appendf(nil, "[%d,  %q]", c.pick(100), mo.id)}
			if len(earlier) > 0 && c.pick(2) == 0 {
				to := earlier[len(earlier)-1-c.pick(min(len(earlier), 8))].id
				arg = ledger.Arg{Name: arg.Name, Ref: &ledger.Ref{Op: to, Path: []string{"", "cursor", "args"}[c.pick(3)]}}
				mo.needs = append(mo.needs, to)
			}
			op.Args = append(op.Args, arg)
		}
		if len(earlier) > 0 && c.pick(8) == 0 {
			op.DependsOn = []string{earlier[c.pick(len(earlier))].id}
			mo.needs = append(mo.needs, op.DependsOn...)
		}
		mo.args = op.Args
		batch.Ops = append(batch.Ops, op)
		mb.ops = append(mb.ops, mo)
	}
	return batch, mb
}

// expect says how the batch's ops had to end, given how all others did.
// Dropping may have come too late or not, which got tells.
func (mb *modelBatch) expect(got []ledger.Outcome, others map[string]ledger.Outcome) []ledger.Status {
	want := make([]ledger.Status, len(mb.ops))
	inside := make(map[string]ledger.Status)
	aborted := false
	for i, o := range mb.ops {
		want[i] = map[string]ledger.Status{"put": ledger.Applied, "reject": ledger.Rejected, "deny": ledger.Denied}[o.method]
		for _, id := range o.needs {
			status, in := inside[id]
			if !in {
				status = others[id].Status
			}
			if status != ledger.Applied {
				want[i] = ledger.Skipped
			}
		}
		if o.dropped && got[i].Status == ledger.Voided || o.dropped && mb.atomic && got[i].Status == ledger.BatchAborted {
			want[i] = ledger.Voided
		}
		inside[o.id] = want[i]
		aborted = aborted || want[i] != ledger.Applied
	}
	if mb.atomic && aborted {
		for i := range want {
			// One alone may be told by itself, or as its batch.
			if len(want) > 1 || got[i].Status == ledger.BatchAborted {
				want[i] = ledger.BatchAborted
			}
		}
	}
	return want
}

func (m *model) keep(mb *modelBatch) {
	m.batches = append(m.batches, mb)
	for _, o := range mb.ops {
		m.all = append(m.all, o)
		m.byOp[o.id] = o
	}
}

// check compares what happened with what had to.
func (m *model) check(t *rapid.T, b *Box, srv *fakeServer, sessions []string) {
	outcome := make(map[string]ledger.Outcome)
	for _, mb := range m.batches {
		outs, err := b.Wait(limitedRapid(t), mb.ticket.Batch)
		if err != nil {
			t.Fatalf("wait for %s: %v", mb.ticket.Batch, err)
		}
		want := mb.expect(outs, outcome)
		for i, o := range outs {
			outcome[o.OpID] = o
			if o.OpID != mb.ops[i].id || o.Status != want[i] {
				t.Fatalf("op %d of batch %s: %+v, want %s with status %d", i, mb.ticket.Batch, o, mb.ops[i].id, want[i])
			}
		}
	}
	for _, session := range sessions {
		log := srv.log(session)
		place := make(map[string]int)
		for i, e := range log {
			if _, twice := place[e.op]; twice {
				t.Fatalf("op %s applied twice", e.op)
			}
			place[e.op] = i
			if o := outcome[e.op]; o.Cursor != uint64(i+1) {
				t.Fatalf("op %s is event %d, its outcome says %d", e.op, i+1, o.Cursor)
			}
			if i > 0 && log[i-1].batch != e.batch {
				for _, f := range log[:i-1] {
					if f.batch == e.batch {
						t.Fatalf("batch %s was split", e.batch)
					}
				}
			}
			for k, a := range m.byOp[e.op].args {
				want := a.JSON
				if a.Ref != nil {
					want, _ = ledger.Resolve(outcome[a.Ref.Op].Result, a.Ref.Path)
				}
				if string(e.args[k].JSON) != string(want) {
					t.Fatalf("op %s: argument %s is %s, want %s", e.op, a.Name, e.args[k].JSON, want)
				}
			}
		}
		last := make(map[int]int)
		for _, mb := range m.batches {
			if mb.session != session {
				continue
			}
			for _, o := range mb.ops {
				at, applied := place[o.id]
				if applied != (outcome[o.id].Status == ledger.Applied) {
					t.Fatalf("op %s applied: %v, its outcome: %+v", o.id, applied, outcome[o.id])
				}
				if applied {
					if at < last[mb.by] {
						t.Fatalf("op %s overtook an earlier one of its committer", o.id)
					}
					last[mb.by] = at
				}
			}
		}
	}
}

func TestExactlyOnceInOrder(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		n, most := 0, seed.Cases(25)
		if p.kind == "postgres" {
			most = seed.Cases(8)
		}
		rapid.Check(t, func(t *rapid.T) {
			if n++; n <= most { // -count runs more
				exactlyOnce(t, p.fresh(n))
			}
		})
	})
}

// fresh is another outbox in the same place.
func (p place) fresh(n int) place {
	if p.kind == "sqlite" {
		p.at += fmt.Sprint(n)
	}
	p.name += fmt.Sprint("/", n)
	return p
}

func exactlyOnce(t *rapid.T, p place) {
	c := &chaos{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
	cfg := quick()
	cfg.Lease = 60 * time.Millisecond
	cfg.Window = Window{Batches: 1 + c.pick(6), Bytes: 4 << 10, Streams: 1 + c.pick(3)}
	cfg.Backoff.Max = 8 * time.Millisecond
	srv := newFakeServer()
	c.install(srv)

	boxes := make([]*Box, 1+c.pick(2))
	stops := make([]func(), len(boxes))
	start := func(i int) {
		b, err := p.tryOpen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		boxes[i], stops[i] = b, runIn(t, b, srv)
	}
	for i := range boxes {
		start(i)
	}
	defer func() {
		for i := range boxes {
			_ = boxes[i].Close()
			stops[i]()
		}
	}()
	sessions := make([]string, 1+c.pick(3))
	for i := range sessions {
		sessions[i] = newSession()
		if err := boxes[0].PutRef(limitedRapid(t), testAddress.New(sessions[i]), RefMeta{Role: SessionOwner}); err != nil {
			t.Fatal(err)
		}
	}
	m := &model{byOp: make(map[string]*modelOp)}
	for range rapid.IntRange(5, 40).Draw(t, "batches") {
		by := c.pick(len(boxes))
		switch {
		case c.pick(12) == 0:
			boxes[by].crash()
			stops[by]()
			start(by)
		case c.pick(15) == 0:
			srv.cutAll()
		case len(m.all) > 0 && c.pick(8) == 0:
			op := m.all[len(m.all)-1-c.pick(min(len(m.all), 12))]
			op.dropped = true
			if err := boxes[by].Drop(limitedRapid(t), op.id); err != nil && !errors.Is(err, fault.Usage) {
				t.Fatalf("drop: %v", err)
			}
		}
		batch, mb := m.random(c, sessions[c.pick(len(sessions))], by)
		ticket, err := boxes[by].Commit(limitedRapid(t), batch)
		if err != nil {
			t.Fatalf("commit: %v", err)
		}
		mb.ticket = ticket
		m.keep(mb)
		if c.pick(4) == 0 {
			if _, err := boxes[c.pick(len(boxes))].Wait(limitedRapid(t), ticket.Batch); err != nil {
				t.Fatalf("wait for %s: %v\n%s", ticket.Batch, err, dump(boxes))
			}
		}
	}
	c.mu.Lock()
	c.calm = true
	c.mu.Unlock()
	if err := boxes[0].Drain(limitedRapid(t), nil); err != nil {
		t.Fatalf("drain: %v\n%s", err, dump(boxes))
	}
	m.check(t, boxes[c.pick(len(boxes))], srv, sessions)
}

// dump tells what the Boxes' senders are about, for a failure's message.
func dump(boxes []*Box) string {
	var out strings.Builder
	for i, b := range boxes {
		st, err := b.Status(context.Background())
		fmt.Fprintf(&out, "box %d: %+v %v\n", i, st, err)
		notified := make(chan struct{})
		if !b.sender.Post(func(m *machine.Machine, now time.Time) {
			defer close(notified)
			for id, s := range m.Streams {
				fmt.Fprintf(&out, "  %s: %+v\n", id, *s)
			}
			for id, h := range m.Hosts {
				fmt.Fprintf(&out, "  %s: %+v at %s\n", id, *h, now)
			}
			fmt.Fprintf(&out, "  places %d, ready %d, wake at %s\n", m.OpenStreams, len(m.OpenQueue), m.WakeAt())
		}) {
			continue
		}
		select {
		case <-notified:
		case <-time.After(time.Second):
			out.WriteString("  its loop does not answer\n")
		}
	}
	return out.String()
}
