// eval: expressions to values, making the calls in them.

package capnweb

import (
	"math"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// evaluator evaluates one expression. An error is a violation of the protocol.
type evaluator struct {
	c       *Conn
	on      via
	size    int        // of the message: charged for the calls in it
	cost    int        // its decoded size
	noCalls bool       // stubs must not be used: it is an error's value
	vars    *variables // the ids' meanings inside of a map; nil outside
}

var defaultLimits = DefaultLimits()

// limits are the connection's, or those of a map that the program runs itself.
func (e *evaluator) limits() *Limits {
	if e.c == nil {
		return &defaultLimits
	}
	return &e.c.limits
}

// steps returns how many steps a map may take.
func (e *evaluator) steps() int {
	if e.c == nil {
		return defaultLimits.MapSteps
	}
	return e.c.steps()
}

func (e *evaluator) countHit(l Limit) {
	if e.c != nil {
		e.c.countHit(l)
	}
}

// node evaluates an expression to a node: a reference for the caller.
func (e *evaluator) node(expr any) (node, error) {
	if a, ok := expr.([]any); ok && len(a) == 4 && a[0] == "pipeline" { // a single call
		return e.pipeline(a, 0)
	}
	p := &payload{}
	v, err := e.eval(expr, 0, p)
	if err != nil {
		p.release()
		return nil, err
	}
	p.value = v
	return nodeOf(p), nil
}

func (e *evaluator) eval(v any, depth int, p *payload) (any, error) {
	switch v := v.(type) {
	case []any:
		if depth >= e.limits().Depth {
			return nil, e.tooDeep()
		}
		return e.special(v, depth, p)
	case map[string]any:
		if depth >= e.limits().Depth {
			return nil, e.tooDeep()
		}
		return e.object(v, depth, p)
	}
	if e.vars != nil {
		return v, e.vars.spend(1)
	}
	return v, nil
}

func (e *evaluator) tooDeep() error {
	e.countHit(LimitDepth)
	return violation("a value nests too deep")
}

// object evaluates in place, except in maps, whose instructions are evaluated repeatedly.
func (e *evaluator) object(m map[string]any, depth int, p *payload) (any, error) {
	out := m
	if e.vars != nil {
		if err := e.vars.spend(1 + len(m)); err != nil {
			return nil, err
		}
		out = make(map[string]any, len(m))
	}
	for k, x := range m {
		switch x.(type) {
		case []any, map[string]any:
			y, err := e.eval(x, depth+1, p)
			if err != nil {
				return nil, err
			}
			x = y
			out[k] = y
		default:
			if e.vars != nil {
				out[k] = x
			}
		}
		if k == "toJSON" || isReserved(k) {
			delete(out, k) // its contents have been evaluated, and are released with the rest
		}
	}
	return out, nil
}

func (e *evaluator) array(a []any, depth int, p *payload) ([]any, error) {
	out := a
	if e.vars != nil {
		if err := e.vars.spend(1 + len(a)); err != nil {
			return nil, err
		}
		out = make([]any, len(a))
	}
	for i, x := range a {
		switch x.(type) {
		case []any, map[string]any:
			y, err := e.eval(x, depth+1, p)
			if err != nil {
				return nil, err
			}
			out[i] = y
		default:
			out[i] = x
		}
	}
	return out, nil
}

func (e *evaluator) special(a []any, depth int, p *payload) (any, error) {
	if len(a) == 1 {
		if inner, ok := a[0].([]any); ok {
			return e.array(inner, depth, p)
		}
	}
	if len(a) == 0 {
		return nil, violation("an empty array is no expression")
	}
	tag, ok := a[0].(string)
	if !ok {
		return nil, violation("an array that is no expression")
	}
	if e.vars != nil {
		if err := e.vars.spend(stepCost(tag, a)); err != nil {
			return nil, err
		}
	}
	switch tag {
	case "undefined":
		if len(a) == 1 {
			return Undefined{}, nil
		}
	case "inf":
		return math.Inf(1), nil
	case "-inf":
		return math.Inf(-1), nil
	case "nan":
		return math.NaN(), nil
	case "bigint":
		if s, ok := str(a, 1); ok && len(a) == 2 {
			return e.bigint(s)
		}
	case "date":
		if len(a) == 2 {
			return e.date(a[1])
		}
	case "bytes":
		if s, ok := str(a, 1); ok && (len(a) == 2 || len(a) == 3) {
			return e.bytes(s, a[2:])
		}
	case "error":
		if len(a) >= 3 && len(a) <= 5 {
			return e.error(a, depth, p)
		}
	case "url":
		if s, ok := str(a, 1); ok && len(a) == 2 {
			e.notePeerVersion(11)
			return URL(s), nil
		}
	case "headers":
		if len(a) == 2 {
			e.notePeerVersion(5)
			return headersOf(a[1])
		}
	case "request":
		if len(a) == 3 {
			return e.request(a, depth, p)
		}
	case "response":
		if len(a) == 3 {
			return e.response(a, depth, p)
		}
	case "blob":
		if len(a) == 3 {
			return e.blob(a, p)
		}
	case "import", "pipeline":
		n, err := e.pipeline(a, depth)
		if err != nil {
			return nil, err
		}
		if tag == "import" {
			return addStub(p, n), nil
		}
		return addPromise(p, n), nil
	case "remap":
		n, err := e.remap(a, depth)
		if err != nil {
			return nil, err
		}
		return addPromise(p, n), nil
	case "export", "promise":
		id, ok := idOf(a, 1)
		if !ok || len(a) != 2 {
			break
		}
		if e.vars != nil {
			return nil, violation("a map cannot export")
		}
		in, err := e.c.importStub(id, tag == "promise")
		if err != nil {
			return nil, err
		}
		if tag == "promise" {
			return addPromise(p, in), nil
		}
		return addStub(p, in), nil
	case "writable":
		if id, ok := idOf(a, 1); ok && len(a) == 2 && e.vars == nil {
			e.notePeerVersion(5)
			return e.writable(id, p)
		}
	case "readable":
		if id, ok := idOf(a, 1); ok && len(a) == 2 && e.vars == nil {
			e.notePeerVersion(5)
			return e.readable(id, p)
		}
	default:
		return nil, violation("unknown expression %s", quoted(tag))
	}
	return nil, violation("a bad %s expression", tag)
}

func addStub(p *payload, n node) *Stub {
	s := &Stub{node: n, borrowed: true}
	markCaptured(n)
	p.refs = append(p.refs, stubRef{s})
	return s
}

func addPromise(p *payload, n node) *Promise {
	pr := &Promise{node: n, borrowed: true}
	markCaptured(n)
	p.refs = append(p.refs, promiseRef{pr})
	p.promises = append(p.promises, pr)
	return pr
}

func (e *evaluator) notePeerVersion(n int) {
	if e.vars == nil && e.c.peerVersion < n { // only this goroutine sets it
		e.c.notePeerVersion(n)
	}
}

func str(a []any, at int) (string, bool) {
	if at >= len(a) {
		return "", false
	}
	s, ok := a[at].(string)
	return s, ok
}

// lookup returns the node of an id: a reference.
func (e *evaluator) lookup(v any) (node, error) {
	id, ok := integerID(v)
	if !ok {
		return nil, violation("an id that is no integer")
	}
	if e.vars != nil {
		return e.vars.lookup(id)
	}
	if e.noCalls {
		return nil, violation("an error cannot call")
	}
	n := e.c.lookup(id)
	if n == nil {
		return nil, violation("no export %d", id)
	}
	return n, nil
}

// path reads the path of an expression: text, and numbers as array indexes.
func (e *evaluator) path(v any) ([]string, error) {
	a, ok := v.([]any)
	if !ok {
		return nil, violation("a bad path")
	}
	if len(a) > e.limits().Depth {
		e.countHit(LimitDepth)
		return nil, violation("a path is too long")
	}
	if len(a) == 0 {
		return nil, nil
	}
	path := make([]string, len(a))
	for i, x := range a {
		switch x := x.(type) {
		case string:
			path[i] = x
		case float64:
			path[i] = string(jsontext.AppendNumber(nil, x))
		default:
			return nil, violation("a bad path")
		}
	}
	return path, nil
}

// pipeline evaluates an import or pipeline expression.
func (e *evaluator) pipeline(a []any, depth int) (node, error) {
	if len(a) < 2 || len(a) > 4 {
		return nil, violation("a bad pipeline expression")
	}
	n, err := e.lookup(a[1])
	if err != nil {
		return nil, err
	}
	defer n.unref()
	var path []string
	if len(a) > 2 {
		if path, err = e.path(a[2]); err != nil {
			return nil, err
		}
	}
	if len(a) < 4 {
		return e.get(n, path)
	}
	list, ok := a[3].([]any)
	if !ok {
		return nil, violation("a bad pipeline expression")
	}
	return e.call(n, path, list, depth)
}

// get evaluates a get. While pending it is charged like a call, since it may wait in a queue.
func (e *evaluator) get(n node, path []string) (node, error) {
	if len(path) == 0 {
		return n.get(e.on, path), nil
	}
	b, err := e.chargeCall()
	if err != nil {
		return chargeError(err)
	}
	r := n.get(e.on, path)
	b.releaseWhenResolved(r)
	return r, nil
}

// chargeError converts an error of chargeCall: to a violation of the protocol, or to a node with that error.
func chargeError(err error) (node, error) {
	if v, ok := err.(*protocolError); ok {
		return nil, v
	}
	return newError(err), nil
}

// call makes a call, with arguments that are still expressions.
func (e *evaluator) call(n node, path []string, list []any, depth int) (node, error) {
	if depth+1 >= e.limits().Depth {
		return nil, e.tooDeep()
	}
	args := &payload{}
	var err error
	if args.value, err = e.array(list, depth+1, args); err != nil {
		args.release()
		return nil, err
	}
	b, err := e.chargeCall()
	if err != nil {
		args.release()
		return chargeError(err)
	}
	r := n.call(e.on, path, args)
	b.releaseWhenResolved(r)
	return r, nil
}
