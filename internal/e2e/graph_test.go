package e2e

// Random graphs of ops: several sessions, created and forked, references in any
// argument, of the right kind and the wrong one, across batches and sessions, to
// ops that apply and to ops that do not.

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
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
	batch   string   // the id of that one
	serial  int
	wanted  map[string]string // what was to be a session's id elsewhere → the batch that last said so
}

// madeOp is an op that later ones may refer to.
type madeOp struct {
	id, method, session string
	batch               string
	message             string // begin's and finalize's
	key                 string // appendText's, if it is a value
}

// newGraph makes n batches from a seed.
func newGraph(seed uint64, space capability.Ref, n int) *graph {
	g := &graph{rand: rand.New(rand.NewPCG(seed, 1)), space: space, model: newWorld().keepPast(), wanted: map[string]string{}}
	for i := range n {
		if i == 0 || len(g.owners) < 4 && g.rand.IntN(5) == 0 {
			g.owners = append(g.owners, space.New(capability.SessionPrefix+ulid.Make().String()))
			g.create(g.owners[len(g.owners)-1])
			continue
		}
		owner := g.owners[g.rand.IntN(len(g.owners))]
		if !g.model.session(owner.Target()).exists && g.rand.IntN(2) == 0 { // it was refused the last time
			g.create(owner)
			continue
		}
		b := batch(owner)
		b.Atomic = g.rand.IntN(5) == 0
		g.fill(&b, 1+g.rand.IntN(6))
		g.commit(b)
	}
	return g
}

// create makes a batch that creates a session, or forks another into it.
func (g *graph) create(owner capability.Ref) {
	b := creating(owner)
	if g.rand.IntN(2) == 0 {
		b = g.fork(owner, b)
	}
	o := &b.Ops[0]
	if len(g.ops) > 0 {
		if g.rand.IntN(3) == 0 {
			g.refer(&b, o)
		}
		if m, ok := g.any(func(madeOp) bool { return true }); ok && g.rand.IntN(8) == 0 {
			o.DependsOn = append(o.DependsOn, m.id)
		}
	}
	for _, a := range o.Args {
		if a.Name != "external" || a.Ref == nil {
			continue
		}
		// Of two sessions that want the same id, the first in the model is to be the first.
		if id, ok := g.model.resolve(a.Ref); ok {
			b.After, g.wanted[string(id)] = g.wanted[string(id)], b.ID
		}
	}
	b.Atomic = g.rand.IntN(5) == 0
	g.add(&b, madeOp{}, *o, true)
	g.fill(&b, g.rand.IntN(4))
	g.commit(b)
}

// fork is a batch that forks a session that is there; without one it is otherwise.
// What the source is at when the fork arrives is not known, so at is given.
func (g *graph) fork(owner capability.Ref, otherwise planBatch) planBatch {
	made, ok := g.any(func(m madeOp) bool { return (m.method == "create" || m.method == "fork") && g.applied(m) })
	if !ok {
		return otherwise
	}
	source := g.owners[slices.IndexFunc(g.owners, func(o capability.Ref) bool { return o.Target() == made.session })]
	b := forking(owner, source, 1)
	o := &b.Ops[0]
	if g.rand.IntN(2) == 0 {
		o.set(refArg("source", made.id, "session"))
	}
	if g.rand.IntN(2) == 0 {
		o.set(refArg("via", made.id, "ref"))
	}
	if at, ok := g.any(func(m madeOp) bool { return m.session == made.session && g.applied(m) }); ok && g.rand.IntN(4) > 0 {
		o.set(refArg("at", at.id, "cursor"))
	}
	if len(o.needs()) == 0 { // a source that did not come to be after all would be waited for
		o.DependsOn = []string{made.id}
	}
	return b
}

// applied says whether an op of an earlier batch applies.
func (g *graph) applied(m madeOp) bool {
	d := g.model.done[m.id]
	return d != nil && d.status == client.Applied
}

// refer replaces a random argument of o, or adds one, by a reference to any result,
// half the time of the right kind.
func (g *graph) refer(b *planBatch, o *planOp) {
	takes := arguments[o.Method]
	if len(takes) == 0 {
		return
	}
	fitting := g.rand.IntN(2) == 0
	for range 60 {
		a := takes[g.rand.IntN(len(takes))]
		m, ok := g.any(func(madeOp) bool { return true })
		if !ok {
			return
		}
		numbers, texts := fields[m.method].numbers, fields[m.method].texts
		if n := g.rand.IntN(2 + len(numbers) + len(texts)); n < 2 {
			if a.kind == aObject || !fitting {
				o.set(refArg(a.name, m.id, ""))
				return
			}
		} else if n -= 2; n < len(numbers) {
			if (a.kind == aNumber || a.kind == aSchema || !fitting) && g.mayBeNumber(o, a, m, numbers[n]) {
				o.set(refArg(a.name, m.id, numbers[n]))
				return
			}
		} else if text := texts[n-len(numbers)]; (a.kind < aNumber || !fitting) && mayBeText(b, o, a, m, text) {
			o.set(refArg(a.name, m.id, text))
			return
		}
	}
}

// mayBeNumber leaves out where a fork would begin if that depends on what another
// stream has done by then.
func (g *graph) mayBeNumber(o *planOp, a argument, m madeOp, field string) bool {
	if o.Method != "fork" || a.name != "at" {
		return true
	}
	source, made := o.argument("source"), ""
	if source != nil {
		made = parseValue(source).(string)
	} else {
		for _, s := range o.Args {
			if s.Name == "source" {
				made = g.made(s.Ref.Op).session
			}
		}
	}
	return m.session == made && field != "length" && field != "at"
}

// mayBeText leaves out what would be right in the model and wrong outside: ids that
// other graphs use too, refs that the agent has not got, and the end of all authority.
func mayBeText(b *planBatch, o *planOp, a argument, m madeOp, field string) bool {
	owners := m.method == "create" || m.method == "fork"
	switch o.Method + " " + a.name {
	case "create external", "fork external":
		return field != "status" && field != "actor"
	case "fork via":
		return field != "ref" || owners
	case "revoke ref":
		return field != "ref" || !owners || m.session != b.target()
	}
	return true
}

// made is the op with an id.
func (g *graph) made(id string) madeOp {
	return g.ops[slices.IndexFunc(g.ops, func(m madeOp) bool { return m.id == id })]
}

// commit runs the batch through the model and keeps it.
func (g *graph) commit(b planBatch) {
	if b.After == "" && len(g.batches) > 2 && g.rand.IntN(6) == 0 {
		b.After = g.batches[g.rand.IntN(len(g.batches))].ID
	}
	g.model.run(&b, "agent")
	g.batches = append(g.batches, b)
}

func (g *graph) fill(b *planBatch, n int) {
	g.batch = b.ID
	for range n {
		if g.rand.IntN(6) == 0 {
			g.turn(b)
		} else {
			g.one(b)
		}
	}
}

// turn begins a turn and streams some text, each piece from where the one before
// has ended.
func (g *graph) turn(b *planBatch) {
	g.serial++
	m := fmt.Sprintf("t%d", g.serial)
	key := "part/" + m + "/p0"
	g.add(b, madeOp{message: m}, op("begin", arg("message", m), arg("payload", map[string]any{"n": g.serial})), false)
	g.add(b, madeOp{}, put(key, map[string]any{"type": "text", "text": "¶", "time": map[string]any{"start": 1}}), false)
	offset := arg("offset", len("¶"))
	for range 1 + g.rand.IntN(3) {
		text := arg("text", "δ"+fmt.Sprint(g.serial))
		if a, ok := g.textRef("text"); ok && g.rand.IntN(3) == 0 {
			text = a
		}
		g.add(b, madeOp{}, op("appendText", arg("key", key), offset, text), false)
		offset = refArg("offset", g.ops[len(g.ops)-1].id, "length")
	}
}

// add puts an op into b. there says that b has it already.
func (g *graph) add(b *planBatch, m madeOp, o planOp, there bool) {
	place := len(b.Ops) - 1
	if !there {
		place++
		b.Ops = append(b.Ops, o)
	}
	m.id, m.session, m.method, m.batch = opID(b.ID, place), b.target(), o.Method, b.ID
	if key := o.argument("key"); key != nil {
		m.key = parseValue(key).(string)
	}
	g.ops = append(g.ops, m)
}

// fields are the names and kinds of what a method's result holds.
var fields = map[string]struct{ numbers, texts []string }{
	"create":     {[]string{"cursor"}, []string{"session", "ref"}},
	"fork":       {[]string{"cursor", "at"}, []string{"session", "ref", "source"}},
	"put":        {[]string{"cursor"}, nil},
	"remove":     {[]string{"cursor"}, nil},
	"begin":      {[]string{"cursor"}, nil},
	"appendText": {[]string{"cursor", "length"}, nil},
	"finalize":   {[]string{"cursor"}, []string{"status"}},
	"share":      {[]string{"cursor", "epoch"}, []string{"ref", "actor"}},
	"revoke":     {[]string{"cursor", "cut"}, nil},
	"bumpEpoch":  {[]string{"cursor", "cut", "epoch"}, nil},
}

// any gives a random op made so far that has what is asked for, mostly one that
// does not make what refers to it skipped.
func (g *graph) any(fits func(madeOp) bool) (madeOp, bool) {
	for range min(60, 60*len(g.ops)) {
		m := g.ops[g.rand.IntN(len(g.ops))]
		if fits(m) && (g.applied(m) || m.batch == g.batch || g.rand.IntN(8) == 0) {
			return m, true
		}
	}
	return madeOp{}, false
}

// numberRef is an argument that refers to a number.
func (g *graph) numberRef(name string) planArg {
	m, _ := g.any(func(madeOp) bool { return true })
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
		m, _ := g.any(func(madeOp) bool { return true })
		return refArg(name, m.id, "")
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
	if g.rand.IntN(5) == 0 {
		g.refer(b, &o)
	}
	switch g.rand.IntN(14) {
	case 0:
		m, _ := g.any(func(madeOp) bool { return true })
		o.DependsOn = append(o.DependsOn, m.id)
	case 1:
		e := g.numberRef("")
		o.Expected = &e
	case 2:
		e := arg("", g.model.session(b.target()).cursor+uint64(g.rand.IntN(2)))
		o.Expected = &e
	case 3: // a path to nothing: of an op of the same batch, since Commit refuses one in a result it knows
		for i, a := range o.Args {
			if a.Ref != nil && len(b.Ops) > 0 {
				o.Args[i].Ref = &planRef{Op: opID(b.ID, g.rand.IntN(len(b.Ops))), Path: "nothing.there"}
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
	if open := g.model.session(b.target()).growing(); len(open) > 0 && g.rand.IntN(4) > 0 {
		key = open[g.rand.IntN(len(open))]
	}
	text := arg("text", "δ"+fmt.Sprint(g.serial))
	g.serial++
	if a, ok := g.textRef("text"); ok && g.rand.IntN(3) == 0 {
		text = a
	}
	var offset planArg
	same := func(m madeOp) bool { return m.method == "appendText" && m.session == b.target() && m.key == key }
	at, ok := g.any(same)
	if g.rand.IntN(4) > 0 { // the last one: the text has no other length since
		for _, m := range g.ops {
			if same(m) && (g.applied(m) || m.batch == b.ID) {
				at, ok = m, true
			}
		}
	}
	e := g.model.session(b.target()).entries[key]
	switch {
	case ok && g.rand.IntN(3) > 0:
		offset = refArg("offset", at.id, "length")
	case e != nil:
		offset = arg("offset", e.length())
	default:
		offset = arg("offset", g.rand.IntN(3))
	}
	return op("appendText", arg("key", key), offset, text)
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
	for _, more := range []planArg{arg("methods", []string{"put", "begin"}), arg("message", g.message()),
		arg("expires_at", int64(4e12)), arg("redemptions", 3)} {
		if g.rand.IntN(6) == 0 {
			o.Args = append(o.Args, more)
		}
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
