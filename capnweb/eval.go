// eval: expressions to values, making the calls in them.

package capnweb

import (
	"maps"
	"math"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
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
func (e *evaluator) node(x any) (node, error) {
	if a, ok := x.([]any); ok && len(a) == 4 && a[0] == "pipeline" { // a single call
		return e.pipeline(a, 0)
	}
	p := &payload{}
	v, err := e.eval(x, 0, p)
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
	return expr.Violationf("a value nests too deep")
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
		if k == "toJSON" || expr.IsReserved(k) {
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
		return nil, expr.Violationf("an empty array is no expression")
	}
	tag, ok := a[0].(string)
	if !ok {
		return nil, expr.Violationf("an array that is no expression")
	}
	if e.vars != nil {
		if err := e.vars.spend(expr.Steps(tag, a)); err != nil {
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
		if s, ok := expr.TextAt(a, 1); ok && len(a) == 2 {
			if len(s) > e.limits().BigIntDigits {
				e.countHit(LimitBigIntDigits)
				return nil, expr.Violationf("a bigint of %d digits is too large", len(s))
			}
			return expr.BigInt(s)
		}
	case "date":
		if len(a) == 2 {
			if a[1] == nil {
				e.notePeerVersion(8)
			}
			return expr.Date(a[1])
		}
	case "bytes":
		if s, ok := expr.TextAt(a, 1); ok && (len(a) == 2 || len(a) == 3) {
			data, container, err := expr.Bytes(s, a[2:])
			if len(a) == 3 {
				e.notePeerVersion(11)
			}
			if err != nil || container == "" {
				return data, err
			}
			return Bytes{container, data}, nil
		}
	case "error":
		if len(a) >= 3 && len(a) <= 5 {
			return e.error(a, depth, p)
		}
	case "url":
		if s, ok := expr.TextAt(a, 1); ok && len(a) == 2 {
			e.notePeerVersion(11)
			return URL(s), nil
		}
	case "headers":
		if len(a) == 2 {
			e.notePeerVersion(5)
			h, err := expr.Headers(a[1])
			return Headers(h), err
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
		id, ok := expr.IDAt(a, 1)
		if !ok || len(a) != 2 {
			break
		}
		if e.vars != nil {
			return nil, expr.Violationf("a map cannot export")
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
		if id, ok := expr.IDAt(a, 1); ok && len(a) == 2 && e.vars == nil {
			e.notePeerVersion(5)
			return e.writable(id, p)
		}
	case "readable":
		if id, ok := expr.IDAt(a, 1); ok && len(a) == 2 && e.vars == nil {
			e.notePeerVersion(5)
			return e.readable(id, p)
		}
	default:
		return nil, expr.Violationf("unknown expression %s", expr.Quoted(tag))
	}
	return nil, expr.Violationf("a bad %s expression", tag)
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

// lookup returns the node of an id: a reference.
func (e *evaluator) lookup(v any) (node, error) {
	id, ok := expr.ID(v)
	if !ok {
		return nil, expr.Violationf("an id that is no integer")
	}
	if e.vars != nil {
		return e.vars.lookup(id)
	}
	if e.noCalls {
		return nil, expr.Violationf("an error cannot call")
	}
	n := e.c.lookup(id)
	if n == nil {
		return nil, expr.Violationf("no export %d", id)
	}
	return n, nil
}

// path reads the path of an expression.
func (e *evaluator) path(v any) ([]string, error) {
	if a, _ := v.([]any); len(a) > e.limits().Depth {
		e.countHit(LimitDepth)
		return nil, expr.Violationf("a path is too long")
	}
	return expr.Path(v)
}

// pipeline evaluates an import or pipeline expression.
func (e *evaluator) pipeline(a []any, depth int) (node, error) {
	if len(a) < 2 || len(a) > 4 {
		return nil, expr.Violationf("a bad pipeline expression")
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
		return nil, expr.Violationf("a bad pipeline expression")
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
	if v, ok := err.(*expr.Violation); ok {
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

func (e *evaluator) error(a []any, depth int, p *payload) (any, error) {
	name, ok1 := a[1].(string)
	message, ok2 := a[2].(string)
	if !ok1 || !ok2 {
		return nil, expr.Violationf("a bad error expression")
	}
	err := &Error{Name: expr.ErrorName(name), Message: message}
	if len(a) > 3 {
		switch stack := a[3].(type) {
		case string:
			err.Stack = stack
		case nil:
		default:
			return nil, expr.Violationf("a bad error expression")
		}
	}
	if len(a) == 5 {
		props, ok := a[4].(map[string]any)
		if !ok {
			return nil, expr.Violationf("a bad error expression")
		}
		e.notePeerVersion(8)
		delete(props, "name")
		delete(props, "message")
		delete(props, "stack")
		v, verr := e.eval(props, depth+1, p)
		if verr != nil {
			return nil, verr
		}
		if m := v.(map[string]any); len(m) > 0 {
			err.Props = m
		}
	}
	return err, nil
}

func (e *evaluator) request(a []any, depth int, p *payload) (any, error) {
	url, ok1 := a[1].(string)
	init, ok2 := a[2].(map[string]any)
	if !ok1 || !ok2 {
		return nil, expr.Violationf("a bad request expression")
	}
	e.notePeerVersion(5)
	init = maps.Clone(init)
	r := &Request{URL: url}
	var err error
	if r.Headers, err = expr.TakeHeaders(init); err != nil {
		return nil, err
	}
	if m, ok := init["method"]; ok {
		if r.Method, ok = m.(string); !ok {
			return nil, expr.Violationf("a bad request expression")
		}
	}
	if b, ok := init["body"]; ok && b != nil {
		if r.Body, err = e.eval(b, depth+1, p); err != nil {
			return nil, err
		}
		if !isBody(r.Body) {
			return nil, expr.Violationf("a request's body must be a stream, a string or bytes")
		}
	}
	if s, ok := init["signal"]; ok && s != nil {
		return nil, expr.Violationf("a request cannot carry a signal")
	}
	r.Init = expr.Rest(init, "method", "body", "signal", "duplex")
	return r, nil
}

func (e *evaluator) response(a []any, depth int, p *payload) (any, error) {
	init, ok := a[2].(map[string]any)
	if !ok {
		return nil, expr.Violationf("a bad response expression")
	}
	e.notePeerVersion(5)
	init = maps.Clone(init)
	r := &Response{}
	var err error
	if r.Body, err = e.eval(a[1], depth+1, p); err != nil {
		return nil, err
	}
	if !isBody(r.Body) {
		return nil, expr.Violationf("a response's body must be a stream, a string or bytes")
	}
	if r.Headers, err = expr.TakeHeaders(init); err != nil {
		return nil, err
	}
	if s, ok := init["status"]; ok {
		f, ok := s.(float64)
		if !ok || f != math.Trunc(f) || f < 200 || f > 599 {
			return nil, expr.Violationf("a bad response expression")
		}
		r.Status = int(f)
	}
	if s, ok := init["statusText"]; ok {
		if r.StatusText, ok = s.(string); !ok {
			return nil, expr.Violationf("a bad response expression")
		}
	}
	if s, ok := init["webSocket"]; ok && s != nil {
		return nil, expr.Violationf("a response cannot carry a socket")
	}
	r.Init = expr.Rest(init, "status", "statusText", "webSocket")
	return r, nil
}
