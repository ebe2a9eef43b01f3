package e2e

// Random graphs of ops: several sessions, references in any argument, across
// batches and sessions, to ops that apply and to ops that do not.

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// graph makes batches. It runs the model as it goes, so that most of what it
// makes has a chance to apply.
type graph struct {
	rand    *rand.Rand
	space   capability.Ref
	model   *world
	owners  []capability.Ref
	batches []planBatch
	ops     []madeOp // of all batches committed so far, and of the one being made
	serial  int
}

// madeOp is an op that later ones may refer to.
type madeOp struct {
	id, method, session string
	message             string // begin's and finalize's
}

// newGraph makes n batches from a seed.
func newGraph(seed uint64, space capability.Ref, n int) *graph {
	g := &graph{rand: rand.New(rand.NewPCG(seed, 1)), space: space, model: newWorld()}
	for i := range n {
		if i == 0 || len(g.owners) < 3 && g.rand.IntN(6) == 0 {
			owner := space.New(capability.SessionPrefix + ulid.Make().String())
			g.owners = append(g.owners, owner)
			b := creating(owner)
			g.add(&b, madeOp{method: "create"}, b.Ops[0], true)
			g.fill(&b, g.rand.IntN(4))
			g.commit(b)
			continue
		}
		b := batch(g.owners[g.rand.IntN(len(g.owners))])
		b.Atomic = g.rand.IntN(5) == 0
		g.fill(&b, 1+g.rand.IntN(6))
		g.commit(b)
	}
	return g
}

// commit runs the batch through the model and keeps it.
func (g *graph) commit(b planBatch) {
	if len(g.batches) > 2 && g.rand.IntN(6) == 0 {
		b.After = g.batches[g.rand.IntN(len(g.batches))].ID
	}
	g.model.run(&b, "agent")
	g.batches = append(g.batches, b)
}

func (g *graph) fill(b *planBatch, n int) {
	for range n {
		g.one(b)
	}
}

// add puts an op into b. there says that b has it already.
func (g *graph) add(b *planBatch, m madeOp, o planOp, there bool) {
	place := len(b.Ops) - 1
	if !there {
		place++
		b.Ops = append(b.Ops, o)
	}
	m.id, m.session, m.method = opID(b.ID, place), b.target(), o.Method
	g.ops = append(g.ops, m)
}

// fields are the names and kinds of what a method's result holds.
var fields = map[string]struct{ numbers, texts []string }{
	"create":     {[]string{"cursor"}, []string{"session", "ref"}},
	"put":        {[]string{"cursor"}, nil},
	"remove":     {[]string{"cursor"}, nil},
	"begin":      {[]string{"cursor"}, nil},
	"appendText": {[]string{"cursor", "length"}, nil},
	"finalize":   {[]string{"cursor"}, []string{"status"}},
	"share":      {[]string{"cursor", "epoch"}, []string{"ref", "actor"}},
	"revoke":     {[]string{"cursor", "cut"}, nil},
	"bumpEpoch":  {[]string{"cursor", "cut", "epoch"}, nil},
}

// any gives a random op made so far that has what is asked for.
func (g *graph) any(fits func(madeOp) bool) (madeOp, bool) {
	for range 40 {
		if m := g.ops[g.rand.IntN(len(g.ops))]; fits(m) {
			return m, true
		}
	}
	return madeOp{}, false
}

// numberRef is an argument that refers to a number.
func (g *graph) numberRef(name string) planArg {
	m := g.ops[g.rand.IntN(len(g.ops))]
	names := fields[m.method].numbers
	return refArg(name, m.id, names[g.rand.IntN(len(names))])
}

// textRef is an argument that refers to a text.
func (g *graph) textRef(name string) (planArg, bool) {
	m, ok := g.any(func(m madeOp) bool { return len(fields[m.method].texts) > 0 })
	if !ok {
		return planArg{}, false
	}
	names := fields[m.method].texts
	return refArg(name, m.id, names[g.rand.IntN(len(names))]), true
}

// object is a payload: a new one, or the whole result of an earlier op.
func (g *graph) object(name string) planArg {
	if g.rand.IntN(3) == 0 {
		return refArg(name, g.ops[g.rand.IntN(len(g.ops))].id, "")
	}
	g.serial++
	v := map[string]any{"n": g.serial, "time": map[string]any{"start": g.serial}}
	switch g.rand.IntN(4) {
	case 0:
		v["text"] = "ä" + fmt.Sprint(g.serial)
	case 1:
		v["state"] = map[string]any{"status": "running", "time": map[string]any{"start": 1}}
	case 2:
		v["weird"] = []any{nil, 1e300, "\u2028\"\\", map[string]any{}}
	}
	return arg(name, v)
}

func (g *graph) message() string { return fmt.Sprintf("m%d", g.rand.IntN(4)) }

func (g *graph) part() string {
	return fmt.Sprintf("part/%s/p%d", g.message(), g.rand.IntN(2))
}

// one adds a random op.
func (g *graph) one(b *planBatch) {
	o, m := g.op(b)
	switch g.rand.IntN(14) {
	case 0:
		o.DependsOn = append(o.DependsOn, g.ops[g.rand.IntN(len(g.ops))].id)
	case 1:
		e := g.numberRef("")
		o.Expected = &e
	case 2:
		e := arg("", g.model.session(b.target()).cursor+uint64(g.rand.IntN(2)))
		o.Expected = &e
	case 3: // a path to nothing: of an op of the same batch, since Commit refuses one in a result it knows
		for i, a := range o.Args {
			if a.Ref != nil && len(b.Ops) > 0 {
				o.Args[i].Ref = &ledger.Ref{Op: opID(b.ID, g.rand.IntN(len(b.Ops))), Path: "nothing.there"}
				break
			}
		}
	}
	g.add(b, m, o, false)
}

// op makes a random op of a random method.
func (g *graph) op(b *planBatch) (planOp, madeOp) {
	switch g.rand.IntN(16) {
	case 0, 1, 2:
		keys := []string{"session", "session_diff", "message/" + g.message(), g.part(), g.part(), "model/a/b"}
		o := op("put", arg("key", keys[g.rand.IntN(len(keys))]), g.object("payload"))
		if g.rand.IntN(4) == 0 {
			o.Args = append(o.Args, g.numberRef("schema_version"))
		}
		return o, madeOp{}
	case 3: // the same again
		if last, ok := lastPut(b); ok {
			return last, madeOp{}
		}
		return op("put", arg("key", "session"), g.object("payload")), madeOp{}
	case 4:
		if a, ok := g.textRef("key"); ok && g.rand.IntN(3) == 0 {
			return op("remove", a), madeOp{} // no result is a key
		}
		return op("remove", arg("key", []string{"message/" + g.message(), g.part()}[g.rand.IntN(2)])), madeOp{}
	case 5, 6:
		m := g.message()
		if a, ok := g.textRef("message"); ok && g.rand.IntN(4) == 0 {
			return op("begin", a, g.object("payload")), madeOp{}
		}
		return op("begin", arg("message", m), g.object("payload")), madeOp{message: m}
	case 7, 8, 9, 10:
		return g.appendText(b), madeOp{}
	case 11, 12:
		return g.finalize(b)
	case 13:
		return g.share(b), madeOp{}
	case 14:
		if m, ok := g.any(func(m madeOp) bool { return m.method == "share" }); ok {
			return op("revoke", refArg("ref", m.id, "ref")), madeOp{}
		}
		return g.share(b), madeOp{}
	default:
		return op("bumpEpoch"), madeOp{}
	}
}

func lastPut(b *planBatch) (planOp, bool) {
	for i := len(b.Ops) - 1; i >= 0; i-- {
		if o := b.Ops[i]; o.Method == "put" && o.Expected == nil {
			return planOp{Method: o.Method, Args: slices.Clone(o.Args)}, true
		}
	}
	return planOp{}, false
}

func (g *graph) appendText(b *planBatch) planOp {
	key := g.part()
	text := arg("text", "δ"+fmt.Sprint(g.serial))
	g.serial++
	if a, ok := g.textRef("text"); ok && g.rand.IntN(3) == 0 {
		text = a
	}
	var offset planArg
	at, ok := g.any(func(m madeOp) bool { return m.method == "appendText" && m.session == b.target() })
	e := g.model.session(b.target()).entries[key]
	switch {
	case ok && g.rand.IntN(3) > 0:
		offset = refArg("offset", at.id, "length")
		key = g.keyOf(at.id, key)
	case e != nil:
		offset = arg("offset", e.length())
	default:
		offset = arg("offset", g.rand.IntN(3))
	}
	return op("appendText", arg("key", key), offset, text)
}

// keyOf is the part that an earlier appendText was about.
func (g *graph) keyOf(id, otherwise string) string {
	for _, b := range g.batches {
		for i := range b.Ops {
			if opID(b.ID, i) == id {
				return parseValue(b.Ops[i].argument("key")).(string)
			}
		}
	}
	return otherwise
}

func (g *graph) finalize(b *planBatch) (planOp, madeOp) {
	m := g.message()
	if begun, ok := g.any(func(m madeOp) bool { return m.method == "begin" && m.message != "" && m.session == b.target() }); ok {
		m = begun.message
	}
	status := arg("status", []string{"completed", "failed", "aborted"}[g.rand.IntN(3)])
	if a, ok := g.any(func(m madeOp) bool { return m.method == "finalize" }); ok && g.rand.IntN(3) == 0 {
		status = refArg("status", a.id, "status")
	}
	o := op("finalize", arg("message", m), status)
	for _, name := range []string{"usage", "error", "payload"} {
		if g.rand.IntN(3) == 0 {
			o.Args = append(o.Args, g.object(name))
		}
	}
	switch g.rand.IntN(4) {
	case 0:
		o.Args = append(o.Args, g.numberRef("completed"))
	case 1:
		o.Args = append(o.Args, arg("parts", []any{map[string]any{"id": "p0", "payload": map[string]any{"type": "text", "text": "end"}}}))
	}
	return o, madeOp{message: m}
}

func (g *graph) share(b *planBatch) planOp {
	ref := g.space.New(b.target())
	o := op("share", arg("ref", ref.ID), arg("hash", hashText(ref.Secret.Hash())), arg("rights", []string{"read", "append"}))
	if a, ok := g.textRef("label"); ok && g.rand.IntN(2) == 0 {
		o.Args = append(o.Args, a)
	}
	switch g.rand.IntN(4) {
	case 0:
		o.Args = append(o.Args, arg("actor", "owner/x"))
	case 1:
		if a, ok := g.textRef("actor"); ok {
			o.Args = append(o.Args, a)
		}
	case 2:
		o.Args = append(o.Args, g.numberRef("from"))
	}
	return o
}
