package ledger_test

// Whatever a link, a client or a restored server does with batches (loss,
// repeats, any order, copies of an outbox, answers that never arrive), every
// op takes effect at most once, in order, and its first answer is repeated
// word for word. Checked against a model that runs the batches once each.

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// writer is an outbox as the ledger sees it.
type writer struct {
	batches []*ledger.Batch
	ops     uint64 // seqs given out
	acked   uint64 // acked_through
	stored  uint64 // outcomes that the writer has, a prefix of seqs
	names   uint64 // what op and batch ids are made from
}

func (w *writer) clone() *writer {
	c := *w
	c.batches = append([]*ledger.Batch(nil), w.batches...)
	return &c
}

func (w *writer) nextID() uint64 { w.names++; return w.names }

// commit makes a batch of random ops that may refer to any op not yet acknowledged.
func (w *writer) commit(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "ops")
	b := &ledger.Batch{Session: sessionID, Outbox: outboxID, Incarnation: 1, BatchID: id(w.nextID()),
		Atomic: rapid.IntRange(0, 3).Draw(t, "atomic") == 0}
	var earlier []string
	for _, old := range w.batches {
		for i := range old.Ops {
			if old.Ops[i].Seq > w.acked {
				earlier = append(earlier, old.Ops[i].OpID)
			}
		}
	}
	for range n {
		in := ledger.Intent{OpID: id(w.nextID())}
		ref := func(path string) *ledger.Ref {
			if len(earlier) == 0 || rapid.Bool().Draw(t, "no reference") {
				return nil
			}
			return &ledger.Ref{Op: rapid.SampledFrom(earlier).Draw(t, "refers to"), Path: path}
		}
		switch rapid.IntRange(0, 9).Draw(t, "method") {
		default:
			in.Method, in.Args = "add", []ledger.Arg{val("n", fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "n")))}
			if r := ref("cursor"); r != nil {
				in.Args[0] = ledger.Arg{Name: "n", Ref: r}
			}
		case 0:
			in.Method = "void"
		case 1:
			in.Method, in.Args = "fail", []ledger.Arg{val("code", `"turn_ended"`)}
		case 2:
			in.Method = "same"
		}
		if r := ref(""); r != nil && rapid.Bool().Draw(t, "depends") {
			in.DependsOn = []string{r.Op}
		}
		if rapid.IntRange(0, 4).Draw(t, "expects") == 0 {
			in.Expected = ledger.Expect{Set: true, Cursor: uint64(rapid.IntRange(0, 6).Draw(t, "expected"))}
		}
		b.Ops = append(b.Ops, in)
		earlier = append(earlier, in.OpID)
	}
	w.batches = append(w.batches, seal(b, w.ops+1))
	w.ops += uint64(n)
}

// mayAck is the highest seq that the writer may acknowledge: it has the
// outcomes, and no op without one refers to anything below.
func (w *writer) mayAck() uint64 {
	limit := w.stored
	seqOf := map[string]uint64{}
	for _, b := range w.batches {
		for i := range b.Ops {
			op := &b.Ops[i]
			seqOf[op.OpID] = op.Seq
			if op.Seq <= w.stored {
				continue
			}
			needs := append([]string(nil), op.DependsOn...)
			for _, r := range op.References() {
				needs = append(needs, r.Op)
			}
			for _, n := range needs {
				limit = min(limit, seqOf[n]-1)
			}
		}
	}
	return limit
}

// verdict is what the model says of one op.
type verdict struct {
	status ledger.Status
	cursor uint64
}

// model runs batches once each, in order, in the plainest way.
func model(batches []*ledger.Batch) (verdicts map[string]verdict, sum uint64) {
	verdicts = map[string]verdict{}
	var cursor uint64
	for _, b := range batches {
		base, trial, trialSum := cursor, cursor, sum
		mine := map[string]verdict{}
		find := func(op string) verdict {
			if v, ok := mine[op]; ok {
				return v
			}
			return verdicts[op]
		}
		voids, failed := 0, false
		for _, op := range b.Ops {
			v := verdict{status: ledger.Applied}
			var n uint64
			for _, d := range op.DependsOn {
				if find(d).status != ledger.Applied {
					v.status = ledger.Skipped
				}
			}
			for _, a := range op.Args {
				if a.Ref == nil {
					_, _ = fmt.Sscan(string(a.JSON), &n)
				} else if n = find(a.Ref.Op).cursor; find(a.Ref.Op).status != ledger.Applied {
					v.status = ledger.Skipped
				}
			}
			switch {
			case v.status == ledger.Skipped:
			case op.Expected.Set && op.Expected.Cursor != base:
				v.status = ledger.Conflict
			case op.Method == "void":
				v.status = ledger.Voided
			case op.Method == "fail":
				v.status = ledger.Rejected
			case op.Method == "add":
				trial, trialSum = trial+1, trialSum+n
			}
			if op.Method == "void" {
				voids++
			}
			if v.status == ledger.Applied {
				v.cursor = trial
			} else {
				failed = true
			}
			mine[op.OpID] = v
		}
		if b.Atomic && failed && voids < len(b.Ops) {
			for op := range mine {
				mine[op] = verdict{status: ledger.BatchAborted}
			}
			trial, trialSum = cursor, sum
		}
		cursor, sum = trial, trialSum
		for op, v := range mine {
			verdicts[op] = v
		}
	}
	return verdicts, sum
}

// world is one run: a server, its truth so far, and a writer.
type world struct {
	server *fakeServer
	truth  map[uint64]ledger.Outcome // by seq: the first answers
	taken  []*ledger.Batch           // what the server recorded, in order
}

func (w *world) clone() *world {
	c := &world{server: w.server.clone(), truth: map[uint64]ledger.Outcome{}, taken: append([]*ledger.Batch(nil), w.taken...)}
	for k, v := range w.truth {
		c.truth[k] = v
	}
	return c
}

// deliver hands a batch to the server and checks the answer against the truth.
func (w *world) deliver(t *rapid.T, b *ledger.Batch, acked uint64) (ack, fault.Code) {
	sent := *b
	sent.AckedThrough = acked
	before := w.server.stream.LastSeq
	ack, err := w.server.handle(&sent)
	if err != nil {
		if w.server.stream.LastSeq != before {
			t.Fatalf("refused with %s, yet recorded", err.Code)
		}
		return ack, err.Code
	}
	first := b.Ops[0].Seq
	if !ack.Repeated {
		if first != before+1 {
			t.Fatalf("seq %d recorded after %d", first, before)
		}
		for i, o := range ack.Outcomes {
			w.truth[first+uint64(i)] = o
		}
		w.taken = append(w.taken, b)
		return ack, fault.None
	}
	for i, o := range ack.Outcomes {
		if o.Status == 0 {
			if o.Reason != fault.Pruned || first+uint64(i) > w.server.stream.AckedThrough {
				t.Fatalf("seq %d is gone without having been acknowledged", first+uint64(i))
			}
			continue
		}
		sameOutcomes(t, []ledger.Outcome{o}, []ledger.Outcome{w.truth[first+uint64(i)]})
	}
	return ack, fault.None
}

// check compares the server with the model of what it took.
func (w *world) check(t *rapid.T) {
	verdicts, sum := model(w.taken)
	if w.server.sum != sum {
		t.Fatalf("sum %d, the model has %d", w.server.sum, sum)
	}
	for seq, o := range w.truth {
		v := verdicts[o.OpID]
		if o.Status != v.status || o.Status == ledger.Applied && o.Cursor != v.cursor {
			t.Fatalf("seq %d: %s at %d, the model says %s at %d", seq, o.Status, o.Cursor, v.status, v.cursor)
		}
	}
	for op, times := range w.server.effects {
		if times != 1 || verdicts[op].status != ledger.Applied {
			t.Fatalf("op %s took effect %d times, the model says %s", op, times, verdicts[op].status)
		}
	}
	for _, r := range w.server.records {
		if r.LastSeq() <= w.server.stream.AckedThrough {
			t.Fatalf("the record of seq %d was kept though acknowledged", r.FirstSeq)
		}
	}
}

func TestReplaysAreHarmless(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{server: newServer(), truth: map[uint64]ledger.Outcome{}}
		out := &writer{}
		var saved *world
		behind := false  // the server was restored to before what was acknowledged
		stopped := false // or to before what the writer has outcomes of: a gap tells it, and it stops
		note := func(b *ledger.Batch, got ack, code fault.Code) {
			if behind && code != fault.ServerBehind {
				t.Fatalf("a server behind answered %v %s", got, code)
			}
			if behind {
				return
			}
			switch code {
			case fault.None:
				if last := b.Ops[len(b.Ops)-1].Seq; b.Ops[0].Seq <= out.stored+1 && rapid.Bool().Draw(t, "answer arrives") {
					out.stored = max(out.stored, last)
				}
			case fault.Gap:
			default:
				t.Fatalf("an honest batch got %s", code)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) { out.commit(t) },
			"send any": func(t *rapid.T) {
				if len(out.batches) == 0 || stopped && !behind {
					return
				}
				b := rapid.SampledFrom(out.batches).Draw(t, "batch")
				ack, code := w.deliver(t, b, out.acked)
				note(b, ack, code)
			},
			"send next": func(t *rapid.T) {
				for _, b := range out.batches {
					if !stopped && b.Ops[0].Seq == w.server.stream.LastSeq+1 {
						ack, code := w.deliver(t, b, out.acked)
						note(b, ack, code)
						return
					}
				}
			},
			"acknowledge": func(t *rapid.T) {
				if may := out.mayAck(); may > out.acked && !stopped {
					out.acked = rapid.Uint64Range(out.acked, may).Draw(t, "through")
				}
			},
			"back up the server": func(*rapid.T) { saved = w.clone() },
			"restore the server": func(*rapid.T) {
				if saved != nil && !stopped {
					w = saved.clone()
					behind = out.acked > w.server.stream.LastSeq
					stopped = out.stored > w.server.stream.LastSeq
				}
			},
			"send from a copied outbox": func(t *rapid.T) {
				if stopped {
					return
				}
				c := out.clone()
				c.names += 1 << 16 // a copy makes other ids
				c.batches = nil
				for _, b := range out.batches { // the copy was made some time ago
					if len(c.batches) < len(out.batches)/2 {
						c.batches = append(c.batches, b)
						c.ops = b.Ops[len(b.Ops)-1].Seq
					}
				}
				if len(c.batches) == 0 || c.ops >= w.server.stream.LastSeq {
					return // were the copy first, it would be the one that is believed
				}
				c.commit(t)
				_, code := w.deliver(t, c.batches[len(c.batches)-1], 0)
				if code != fault.OutboxDiverged && !(code == fault.None && c.ops < w.server.stream.AckedThrough) {
					t.Fatalf("a copied outbox got %s at seq %d", code, c.ops)
				}
			},
			"": func(t *rapid.T) { w.check(t) },
		})
		if stopped {
			return
		}
		for _, b := range out.batches {
			if _, code := w.deliver(t, b, out.acked); code != fault.None {
				t.Fatalf("draining got %s", code)
			}
		}
		w.check(t)
		if len(w.taken) != len(out.batches) {
			t.Fatalf("%d batches of %d recorded", len(w.taken), len(out.batches))
		}
	})
}
