// encode: values to expressions, with the exports in them. It is done under the connection's lock, so that ids are in the
// order of the wire.

package capnweb

import (
	"math/big"
	"strconv"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// encoder writes one message. Its exports are taken back if the message cannot be sent.
type encoder struct {
	c        *Conn // nil in a map
	limits   encodeLimits
	builder  *mapBuilder // of the map that is being written; nil outside
	b        []byte
	pooled   *[]byte // whose memory b is in, between start and sending; nil otherwise
	exports  []int64
	promises []int64 // exports to be answered when they are resolved
	pumps    []func()
	pipes    []int64
	omitted  int // bytes of properties of errors that were written and removed again
}

// encodeBuffers are for messages while they are made: a connection that rests has none.
var encodeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// start begins a message.
func (e *encoder) start(c *Conn, head string) []byte {
	e.c = c
	e.limits = encodeLimits{c.limits.MessageBytes, c.limits.BigIntDigits, c.peerVersion}
	e.exports, e.promises, e.pumps, e.pipes, e.omitted = e.exports[:0], e.promises[:0], nil, e.pipes[:0], 0
	if e.pooled == nil {
		e.pooled = encodeBuffers.Get().(*[]byte)
		e.b = *e.pooled
	}
	e.b = append(e.b[:0], head...)
	return e.b
}

var errTooLarge = &Error{Name: "RangeError", Message: "the message is too large"}

func errOverloaded(why string) error {
	return &Error{Name: "Error", Message: "overloaded: " + why}
}

// send queues the message.
func (e *encoder) send() error {
	if len(e.b) > e.limits.bytes {
		return errTooLarge
	}
	e.mustSend()
	return nil
}

func (e *encoder) mustSend() {
	c := e.c
	c.emit(e.b, true)
	for _, id := range e.promises {
		ex := c.exports[id]
		ex.node.ref()
		c.afterUnlock = append(c.afterUnlock, func() {
			c.answerPull(id, ex)
			ex.node.unref()
		})
	}
	c.afterUnlock = append(c.afterUnlock, e.pumps...)
	e.release()
}

// sendLazily queues the message to leave with the next one: nobody waits for it.
func (e *encoder) sendLazily() {
	e.c.emit(e.b, false)
	e.release()
}

// release releases the message's memory.
func (e *encoder) release() {
	if *e.pooled = e.b; cap(e.b) <= 64<<10 {
		encodeBuffers.Put(e.pooled)
	}
	e.b, e.pooled, e.pumps = nil, nil, nil
}

// undo takes back the message's exports.
func (e *encoder) undo() {
	for _, id := range e.exports {
		e.c.releaseExport(id, 1)
	}
	for _, id := range e.pipes {
		e.c.dropPipe(id)
	}
	e.exports, e.promises, e.pumps, e.pipes = e.exports[:0], e.promises[:0], nil, e.pipes[:0]
}

// args writes a call's arguments.
func (e *encoder) args(p *payload) error {
	if p.encoded == nil || e.limits.digits < DefaultLimits().BigIntDigits {
		return e.list(p.value.([]any), 1)
	}
	text, err := p.encoded.text(e.limits.peerVersion)
	e.b = append(e.b, text...)
	return err
}

func (e *encoder) list(vs []any, depth int) error {
	e.b = append(e.b, '[')
	for i, v := range vs {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		if err := e.value(v, depth); err != nil {
			return err
		}
	}
	e.b = append(e.b, ']')
	return nil
}

func (e *encoder) value(v any, depth int) error {
	if depth >= maxDepth {
		return errTooDeepOut
	}
	if len(e.b) > e.limits.bytes {
		return errTooLarge
	}
	switch v := v.(type) {
	case nil:
		e.b = append(e.b, "null"...)
	case bool:
		e.b = strconv.AppendBool(e.b, v)
	case string:
		e.b = jsontext.AppendString(e.b, v)
	case float64:
		e.b = expr.AppendNumber(e.b, v)
	case Undefined:
		e.b = append(e.b, `["undefined"]`...)
	case *big.Int:
		e.b = append(e.b, `["bigint","`...)
		if v.BitLen() > 4*e.limits.digits {
			return &Error{Name: "RangeError", Message: "the bigint is too large"}
		}
		e.b = append(v.Append(e.b, 10), '"', ']')
	case time.Time:
		e.b = expr.AppendDate(e.b, v, e.limits.peerVersion)
	case []byte:
		e.b = expr.AppendBytes(e.b, v, "", e.limits.peerVersion)
	case Bytes:
		if err := expr.CheckBytes(v.Container, len(v.Data)); err != nil {
			return TypeErrorf("%v", err)
		}
		e.b = expr.AppendBytes(e.b, v.Data, v.Container, e.limits.peerVersion)
	case []any:
		e.b = append(e.b, '[')
		if err := e.list(v, depth+1); err != nil {
			return err
		}
		e.b = append(e.b, ']')
	case map[string]any:
		return e.object(v, depth)
	case *Stub:
		return e.stub(v)
	case *Promise:
		return e.promise(v, depth)
	case *Error:
		return e.error(v, depth)
	case URL:
		e.b = append(jsontext.AppendString(append(e.b, `["url",`...), string(v)), ']')
	case Headers:
		e.b = append(expr.AppendHeaders(append(e.b, `["headers",`...), v), ']')
	case *Request:
		return e.request(v, depth)
	case *Response:
		return e.response(v, depth)
	case *Blob:
		if e.builder != nil {
			return errInMap
		}
		return e.blob(v)
	case *Readable:
		if e.builder != nil {
			return errInMap
		}
		return e.readable(v)
	case *Writable:
		if e.builder != nil {
			return errInMap
		}
		return e.writable(v)
	default:
		return TypeErrorf("a value of type %T cannot be sent", v)
	}
	return nil
}

func (e *encoder) object(m map[string]any, depth int) error {
	e.b = append(e.b, '{')
	first := true
	for _, k := range jsontext.SortedNames(m) {
		if !first {
			e.b = append(e.b, ',')
		}
		first = false
		e.b = append(jsontext.AppendString(e.b, k), ':')
		if err := e.value(m[k], depth+1); err != nil {
			return err
		}
	}
	e.b = append(e.b, '}')
	return nil
}

// stub writes a stub's target: an import from this peer by its id, or an export.
func (e *encoder) stub(s *Stub) error {
	if e.builder != nil {
		e.b = append(expr.AppendID(append(e.b, `["import",`...), int64(e.builder.variable(s.node))), ']')
		return nil
	}
	if _, ok := s.node.(*placeholder); ok {
		return errPlaceholder
	}
	n := shortcut(s.node)
	if in, ok := n.(*importNode); ok && in.c == e.c && !in.dropped {
		e.b = append(expr.AppendID(append(e.b, `["import",`...), in.id), ']')
		return nil
	}
	id, err := e.c.newExport(n)
	if err != nil {
		return err
	}
	e.exports = append(e.exports, id)
	e.b = append(expr.AppendID(append(e.b, `["export",`...), id), ']')
	return nil
}

// promise writes a promise's target: an import from this peer, or an export that is answered without being pulled.
func (e *encoder) promise(p *Promise, depth int) error {
	if e.builder != nil {
		e.b = expr.AppendID(append(e.b, `["pipeline",`...), int64(e.builder.variable(p.node)))
		if len(p.path) > 0 {
			e.b = expr.AppendPath(append(e.b, ','), p.path)
		}
		e.b = append(e.b, ']')
		return nil
	}
	if _, ok := p.node.(*placeholder); ok {
		return errPlaceholder
	}
	n := shortcut(p.node)
	if in, ok := n.(*importNode); ok && in.c == e.c && !in.dropped {
		e.b = expr.AppendID(append(e.b, `["pipeline",`...), in.id)
		if len(p.path) > 0 {
			e.b = expr.AppendPath(append(e.b, ','), p.path)
		}
		e.b = append(e.b, ']')
		return nil
	}
	// A resolved value can be sent itself.
	switch t := n.(type) {
	case *localNode, *methodNode:
		if len(p.path) == 0 {
			return e.stub(&Stub{node: n})
		}
	case *future:
		if leaf, ok := t.leaf(p.path); ok {
			return e.value(leaf, depth+1)
		}
	case *importNode:
		if leaf, ok := t.leaf(p.path); ok {
			return e.value(leaf, depth+1)
		}
	}
	n = p.node
	if len(p.path) > 0 {
		n.ref()
		n = newPath(n, p.path)
		defer func() { e.c.drops = append(e.c.drops, n) }()
	}
	id, err := e.c.newExport(n)
	if err != nil {
		return err
	}
	e.c.markPulled(e.c.exports[id])
	e.exports = append(e.exports, id)
	e.promises = append(e.promises, id)
	e.b = append(expr.AppendID(append(e.b, `["promise",`...), id), ']')
	return nil
}

// maxOmitted is how many bytes of properties are omitted from a message's errors, in relation to its limit.
const maxOmitted = 8

// error writes an error without its stack. Properties that cannot be encoded are omitted; an error is returned if they are too many.
func (e *encoder) error(v *Error, depth int) error {
	name := v.Name
	if name == "" {
		name = "Error"
	}
	e.b = jsontext.AppendString(append(e.b, `["error",`...), name)
	e.b = jsontext.AppendString(append(e.b, ','), v.Message)
	if len(v.Props) > 0 {
		mark := len(e.b)
		e.b = append(e.b, `,null,{`...)
		first := true
		for _, k := range jsontext.SortedNames(v.Props) {
			if k == "name" || k == "message" || k == "stack" {
				continue
			}
			before, exports, promises, pumps, pipes := len(e.b), len(e.exports), len(e.promises), len(e.pumps), len(e.pipes)
			if !first {
				e.b = append(e.b, ',')
			}
			e.b = append(jsontext.AppendString(e.b, k), ':')
			if err := e.value(v.Props[k], depth+1); err != nil {
				if e.omitted += len(e.b) - before; e.omitted/maxOmitted > e.limits.bytes {
					return errTooLarge
				}
				for _, id := range e.exports[exports:] {
					e.c.releaseExport(id, 1)
				}
				for _, id := range e.pipes[pipes:] {
					e.c.dropPipe(id)
				}
				e.b, e.exports, e.promises = e.b[:before], e.exports[:exports], e.promises[:promises]
				e.pumps, e.pipes = e.pumps[:pumps], e.pipes[:pipes]
				continue
			}
			first = false
		}
		if first {
			e.b = e.b[:mark]
		} else {
			e.b = append(e.b, '}')
		}
	}
	e.b = append(e.b, ']')
	return nil
}

var errBody = &Error{Name: "TypeError", Message: "a body must be null, a string, bytes or a stream"}

func isBody(v any) bool {
	switch v.(type) {
	case nil, string, []byte, *Readable:
		return true
	}
	return false
}

func (e *encoder) request(r *Request, depth int) error {
	if !isBody(r.Body) {
		return errBody
	}
	b := append(jsontext.AppendString(append(e.b, `["request",`...), r.URL), ',', '{')
	start := len(b)
	if r.Method != "" && r.Method != "GET" {
		b = jsontext.AppendString(expr.AppendField(b, start, "method"), r.Method)
	}
	if len(r.Headers) > 0 {
		b = expr.AppendHeaders(expr.AppendField(b, start, "headers"), r.Headers)
	}
	e.b = b
	if r.Body != nil {
		e.b = expr.AppendField(b, start, "body")
		if err := e.value(r.Body, depth+1); err != nil {
			return err
		}
		e.b = append(e.b, `,"duplex":"half"`...)
	}
	return e.init(r.Init, start, "method", "headers", "body", "duplex", "signal")
}

func (e *encoder) response(r *Response, depth int) error {
	if !isBody(r.Body) {
		return errBody
	}
	e.b = append(e.b, `["response",`...)
	if err := e.value(r.Body, depth+1); err != nil {
		return err
	}
	b := append(e.b, ',', '{')
	start := len(b)
	if r.Status != 0 && r.Status != 200 {
		b = strconv.AppendInt(expr.AppendField(b, start, "status"), int64(r.Status), 10)
	}
	if r.StatusText != "" {
		b = jsontext.AppendString(expr.AppendField(b, start, "statusText"), r.StatusText)
	}
	if len(r.Headers) > 0 {
		b = expr.AppendHeaders(expr.AppendField(b, start, "headers"), r.Headers)
	}
	e.b = b
	return e.init(r.Init, start, "status", "statusText", "headers", "webSocket")
}

// init writes the other members of an init object, which are plain JSON, and its end.
func (e *encoder) init(init map[string]any, start int, but ...string) error {
	b, err := expr.AppendInit(e.b, start, init, but...)
	if err != nil {
		return TypeErrorf("%v", err)
	}
	e.b = append(b, '}', ']')
	return nil
}
