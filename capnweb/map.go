// Maps: running a peer's program for each element of a value, and recording one while the program's function runs with placeholders.

package capnweb

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// mapProgram is the instructions of a remap, and the steps that remain.
type mapProgram struct {
	c            *Conn // whose limits apply, nil for the program's own
	instructions []any
	stepsLeft    *atomic.Int64
	size, cost   int
}

// variables are the ids' meanings inside of a map: captures below zero, the input at zero, results above.
type variables struct {
	captures []node
	values   []node
	m        *mapProgram
}

var errMapSteps = &Error{Name: "RangeError", Message: "overloaded: the map takes too many steps"}

// spend counts n steps. An error is the answer of the map.
func (v *variables) spend(n int) error { return v.m.spend(n) }

func (m *mapProgram) spend(n int) error {
	if m.stepsLeft.Add(-int64(n)) < 0 {
		if m.c != nil {
			m.c.countHit(LimitMapSteps)
		}
		return errMapSteps
	}
	return nil
}

func (v *variables) lookup(id int64) (node, error) {
	var n node
	switch {
	case id < 0 && -id <= int64(len(v.captures)):
		n = v.captures[-id-1]
	case id >= 0 && id < int64(len(v.values)):
		n = v.values[id]
	default:
		return nil, expr.Violationf("no variable %d", id)
	}
	n.ref()
	return n, nil
}

// remap evaluates a remap expression.
func (e *evaluator) remap(a []any, depth int) (node, error) {
	if len(a) != 5 {
		return nil, expr.Violationf("a bad remap expression")
	}
	caps, ok1 := a[3].([]any)
	instructions, ok2 := a[4].([]any)
	if !ok1 || !ok2 {
		return nil, expr.Violationf("a bad remap expression")
	}
	path, err := e.path(a[2])
	if err != nil {
		return nil, err
	}
	n, err := e.lookup(a[1])
	if err != nil {
		return nil, err
	}
	defer n.unref()
	captures := make([]node, 0, len(caps))
	for _, x := range caps {
		capture, err := e.capture(x)
		if err != nil {
			releaseNodes(captures)
			return nil, err
		}
		captures = append(captures, capture)
	}
	m := &mapProgram{c: e.c, instructions: instructions, size: e.size, cost: e.cost}
	if e.vars != nil {
		m.stepsLeft = e.vars.m.stepsLeft // one budget for all nested maps
	} else {
		m.stepsLeft = new(atomic.Int64)
		m.stepsLeft.Store(int64(e.steps()))
	}
	b, err := e.chargeCall()
	if err != nil {
		releaseNodes(captures)
		return chargeError(err)
	}
	r := n.remap(e.on, path, captures, m)
	b.releaseWhenResolved(r)
	return r, nil
}

func (e *evaluator) capture(x any) (node, error) {
	a, _ := x.([]any)
	if len(a) != 2 {
		return nil, expr.Violationf("a bad capture of a map")
	}
	switch a[0] {
	case "import":
		return e.lookup(a[1])
	case "export":
		id, ok := expr.ID(a[1])
		if !ok || e.vars != nil {
			break
		}
		return e.c.importStub(id, false)
	}
	return nil, expr.Violationf("a bad capture of a map")
}

// apply runs the program for each element of a value, which is a part of owner's, and takes captures over.
func (m *mapProgram) apply(on via, v any, owner *payload, captures []node) node {
	defer releaseNodes(captures)
	switch v := v.(type) {
	case nil, Undefined:
		return newValue(&payload{value: v})
	case []any:
		out := &payload{}
		list := make([]any, len(v))
		before := m.stepsLeft.Load()
		for i, x := range v {
			p, err := m.run(on, x, owner, captures)
			if err != nil {
				out.release()
				return newError(err)
			}
			list[i] = p.value
			out.refs = append(out.refs, p.refs...)
			out.promises = append(out.promises, p.promises...)
		}
		out.value, out.size = list, int(before-m.stepsLeft.Load())*expr.StepBytes
		return on.chargeHeld(newValue(out))
	}
	p, err := m.run(on, v, owner, captures)
	if err != nil {
		return newError(err)
	}
	return nodeOf(p)
}

// run runs the program once.
func (m *mapProgram) run(on via, x any, owner *payload, captures []node) (*payload, error) {
	if len(m.instructions) == 0 {
		return nil, &Error{Name: "Error", Message: "a map without instructions"}
	}
	vars := &variables{captures: captures, m: m}
	vars.values = append(make([]node, 0, len(m.instructions)), newValue(owner.part(x)))
	defer func() { releaseNodes(vars.values) }()
	e := &evaluator{c: m.c, on: on, size: m.size, cost: m.cost, vars: vars}
	for i, instruction := range m.instructions {
		if err := m.spend(1); err != nil {
			return nil, err
		}
		if i == len(m.instructions)-1 {
			p := &payload{}
			var err error
			if p.value, err = e.eval(instruction, 0, p); err != nil {
				p.release()
				return nil, mapError(err)
			}
			return p, nil
		}
		n, err := e.node(instruction)
		if err != nil {
			return nil, mapError(err)
		}
		vars.values = append(vars.values, n)
	}
	return nil, nil // not reached
}

// mapError converts a violation of the protocol inside of a map to an answer.
func mapError(err error) error {
	if v, ok := err.(*expr.Violation); ok {
		return TypeErrorf("in a map: %s", v.Reason)
	}
	return err
}

// sendRemap sends a map. The lock is held.
func (c *Conn) sendRemap(id int64, path []string, captures []node, m *mapProgram) (*importNode, error) {
	b := c.enc.start(c, `["push",["remap",`)
	b = expr.AppendPath(append(expr.AppendID(b, id), ','), path)
	c.enc.b = append(b, ',', '[')
	for i, n := range captures {
		if i > 0 {
			c.enc.b = append(c.enc.b, ',')
		}
		if err := c.enc.stub(&Stub{node: n}); err != nil {
			c.enc.undo()
			return nil, err
		}
	}
	c.enc.b = append(c.enc.b, ']', ',')
	c.enc.b = append(jsontext.Append(c.enc.b, m.instructions), ']', ']')
	return c.sendEncodedPush()
}

// mapBuilder is a map that is being recorded.
type mapBuilder struct {
	parent       *mapBuilder // the map that this one is part of
	depth        uint64      // of two nested ones being recorded, the inner one has the larger number
	captures     []node      // counted
	index        map[node]int
	instructions []any
	finished     bool
	err          error
}

// mapBuilders counts them: inner ones are made later.
var mapBuilders atomic.Uint64

// placeholder stands for a value inside of a map that is being recorded: its input, or the result of an instruction. It has
// no value outside, so everything except being part of an instruction fails.
type placeholder struct {
	builder *mapBuilder
	id      int
}

var errPlaceholder = &Error{Name: "Error", Message: "a placeholder of a map was used outside of the map's function, or awaited"}

func (*placeholder) ref()   {}
func (*placeholder) unref() {}

func (*placeholder) call(_ via, _ []string, args *payload) node {
	args.release()
	return newError(errPlaceholder)
}

func (*placeholder) get(via, []string) node { return newError(errPlaceholder) }

func (*placeholder) remap(_ via, _ []string, captures []node, _ *mapProgram) node {
	releaseNodes(captures)
	return newError(errPlaceholder)
}

func (*placeholder) pull(f func(*payload, error), _ *atomic.Bool) { f(nil, errPlaceholder) }
func (*placeholder) onBroken(func(error))                         {}

// nestIn makes the map part of another, whose placeholders it uses.
func (b *mapBuilder) nestIn(parent *mapBuilder) {
	if b.parent == nil && parent != b {
		b.parent = parent
	}
}

// variable returns the number of a node inside of the map, capturing it if it comes from outside.
func (b *mapBuilder) variable(n node) int {
	if ph, ok := n.(*placeholder); ok {
		if ph.builder == b {
			return ph.id
		}
		if ph.builder.finished {
			b.err = errPlaceholder
			return 0
		}
		b.nestIn(ph.builder)
	}
	id, ok := b.index[n]
	if !ok {
		n.ref()
		b.captures = append(b.captures, n)
		id = -len(b.captures)
		if b.index == nil {
			b.index = make(map[node]int)
		}
		b.index[n] = id
	}
	return id
}

// add appends an instruction and returns a promise of its result.
func (b *mapBuilder) add(instruction []any) *Promise {
	b.instructions = append(b.instructions, instruction)
	return &Promise{node: &placeholder{b, len(b.instructions)}, borrowed: true}
}

// call appends a call.
func (b *mapBuilder) call(n node, path []string, args *payload) *Promise {
	defer args.release()
	if b.finished {
		return &Promise{node: newError(errPlaceholder)}
	}
	call, err := b.expression(args.value)
	if err != nil {
		return &Promise{node: newError(err)}
	}
	list := call.([]any)[0] // unescaped
	return b.add([]any{"pipeline", float64(b.variable(n)), expr.OfPath(path), list})
}

// expression makes an expression of a value in which stubs and promises are variables.
func (b *mapBuilder) expression(v any) (any, error) {
	e := encoder{b: nil, builder: b, limits: encodeLimits{bytes: DefaultLimits().MessageBytes, digits: DefaultLimits().BigIntDigits, peerVersion: 5}}
	if err := e.value(v, 0); err != nil {
		return nil, err
	}
	if b.err != nil {
		return nil, b.err
	}
	return jsontext.Parse(e.b, 2*maxDepth)
}

// sendMap records a map and sends it.
func sendMap(n node, path []string, f func(in *Promise) any) *Promise {
	b := &mapBuilder{depth: mapBuilders.Add(1)}
	if ph, ok := n.(*placeholder); ok {
		if ph.builder.finished {
			return &Promise{node: newError(errPlaceholder)}
		}
		b.nestIn(ph.builder)
	}
	captures, program, err := b.write(f)
	if err != nil {
		releaseNodes(captures)
		return &Promise{node: newError(err)}
	}
	if p := b.parent; p != nil {
		caps := make([]any, len(captures))
		for i, c := range captures {
			caps[i] = []any{"import", float64(p.variable(c))}
		}
		releaseNodes(captures)
		return p.add([]any{"remap", float64(p.variable(n)), expr.OfPath(path), caps, program})
	}
	m := &mapProgram{instructions: program, stepsLeft: new(atomic.Int64)}
	m.stepsLeft.Store(int64(DefaultLimits().MapSteps))
	return &Promise{node: n.remap(via{}, path, captures, m)}
}

// write runs the map's function.
func (b *mapBuilder) write(f func(in *Promise) any) (captures []node, program []any, err error) {
	done := false
	defer func() {
		b.finished = true
		if !done { // f has panicked
			releaseNodes(b.captures)
		}
	}()
	p, err := copyInResult(f(&Promise{node: &placeholder{b, 0}, borrowed: true}), nil)
	done = true
	if err != nil {
		return b.captures, nil, err
	}
	defer p.release()
	result, err := b.expression(p.value)
	if err != nil {
		return b.captures, nil, err
	}
	return b.captures, append(b.instructions, result), nil
}

var errInMap = &Error{Name: "TypeError", Message: "streams and blobs cannot be made in a map"}

// encodeLimits are the limits of a message's receiver.
type encodeLimits struct {
	bytes, digits, peerVersion int
}
