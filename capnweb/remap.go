// remap: running a peer's program for each element of a value.

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
