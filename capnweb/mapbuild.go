// mapbuild: recording the program of a map while the program's function runs with placeholders.

package capnweb

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

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
