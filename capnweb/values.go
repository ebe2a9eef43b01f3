// Values: the types for which Go has none, errors among them, and copies of a program's values, made of the package's own types, with
// their own references.

package capnweb

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"runtime/debug"
	"time"

	"github.com/mooring-rpc/mooring/internal/incident"
)

// Undefined is JavaScript's undefined.
type Undefined struct{}

// Bytes is a container of bytes other than Uint8Array, numbers in it little-endian.
type Bytes struct {
	Container string // ArrayBuffer, DataView, Int8Array … Float64Array
	Data      []byte
}

// URL is the text of a URL.
type URL string

// Headers are HTTP headers, names in lower case, in order.
type Headers [][2]string

// Request is an HTTP request as a value.
type Request struct {
	URL     string
	Method  string // empty: GET
	Headers Headers
	Body    any            // nil, string, []byte or *Readable
	Init    map[string]any // other members of RequestInit that were sent: cache, redirect, …
}

// Response is an HTTP response as a value.
type Response struct {
	Status     int // 0: 200
	StatusText string
	Headers    Headers
	Body       any // nil, string, []byte or *Readable
	Init       map[string]any
}

// Blob is bytes with a media type. On the wire it is a pipe; a received one is delivered whole, within
// Limits.BlobBytes.
type Blob struct {
	Type string
	Data []byte
}

// Error is an error on the wire. A handler that returns one determines exactly what is sent to the peer; any other error
// is sent as Config.Redact returns it.
type Error struct {
	Name    string // Error, TypeError, RangeError, …; others arrive as Error
	Message string
	Stack   string
	Props   map[string]any // own properties, cause and errors among them; peers before 0.8 drop them
}

func (e *Error) Error() string {
	if e.Name == "" || e.Name == "Error" {
		return e.Message
	}
	return e.Name + ": " + e.Message
}

// TypeErrorf returns a TypeError.
func TypeErrorf(format string, args ...any) *Error {
	return &Error{Name: "TypeError", Message: fmt.Sprintf(format, args...)}
}

// BrokenError says why something cannot be reached any more: the connection has ended, or the stub was released.
type BrokenError struct {
	Reason string
	Err    error
}

func (e *BrokenError) Error() string { return e.Reason }
func (e *BrokenError) Unwrap() error { return e.Err }

// errInternal is sent to a peer for an error whose text is withheld.
var errInternal = &Error{Name: "Error", Message: "internal error"}

// panicError logs a panic of a program's code and returns the error for the caller.
func panicError(log *slog.Logger, what string, p any, more ...any) *Error {
	name := incident.New()
	log.Error(what, append([]any{"incident", name, "panic", p, "stack", string(debug.Stack())}, more...)...)
	return &Error{Name: "Error", Message: incident.Internal(name)}
}

// redact returns the error to send to a peer for err.
func (c *Conn) redact(err error) *Error {
	if e, ok := err.(*Error); ok && e != nil {
		return e
	}
	if e, ok := errors.AsType[*BrokenError](err); ok {
		c.log.Debug("a call met something broken", "peer", c.RemoteAddr(), "reason", e.Reason)
		return errUnreachable
	}
	if c.cfg.Redact != nil {
		if e := c.callRedact(err); e != nil {
			return e
		}
		return errInternal
	}
	c.log.Warn("an error was sent as internal", "peer", c.RemoteAddr(), "error", err)
	return errInternal
}

func (c *Conn) callRedact(err error) (e *Error) {
	defer func() {
		if p := recover(); p != nil {
			e = panicError(c.log, "Redact panicked", p)
		}
	}()
	return c.cfg.Redact(err)
}

var errUnreachable = &Error{Name: "Error", Message: "what was called cannot be reached any more"}

// maxDepth is how deep a value to be sent may nest: no peer accepts more.
const maxDepth = 256

var errTooDeepOut = &Error{Name: "RangeError", Message: "the value nests too deep, or contains itself"}

// copier copies a value. With dup, stubs stay the program's and the copy has its own references; without, they are
// taken over, except those that belong to a payload.
type copier struct {
	dup     bool
	p       payload
	size    int         // about how many bytes were copied
	builder *mapBuilder // of a placeholder in the value
	conn    *Conn       // the connection to its receiver, if known
}

// copyInArgs copies the arguments of a call. conn is the connection they will be sent over, nil if that is not known.
func copyInArgs(args []any, conn *Conn) (*payload, *mapBuilder, error) {
	t := copier{dup: true, conn: conn}
	out := make([]any, len(args))
	for i, a := range args {
		v, err := t.copyIn(a, 1)
		if err != nil {
			t.p.release()
			return nil, nil, err
		}
		out[i] = v
	}
	t.p.value = out
	return &t.p, t.builder, nil
}

// copyInResult copies a method's result.
func copyInResult(v any, conn *Conn) (*payload, error) {
	switch v.(type) {
	case nil, bool, string, float64, Undefined:
		return &payload{value: v}, nil
	}
	return copyInValue(v, &copier{conn: conn})
}

// copyInProperty copies the value of a property, which stays the object's.
func copyInProperty(v any, conn *Conn) (*payload, error) {
	return copyInValue(v, &copier{dup: true, conn: conn})
}

func copyInValue(v any, t *copier) (*payload, error) {
	w, err := t.copyIn(v, 0)
	if err != nil {
		t.p.release()
		return nil, err
	}
	t.p.value, t.p.size = w, t.size
	return &t.p, nil
}

func (t *copier) copyIn(v any, depth int) (any, error) {
	if depth >= maxDepth {
		return nil, errTooDeepOut
	}
	switch v := v.(type) {
	case string:
		t.size += len(v)
		return v, nil
	case nil, bool, float64, Undefined, time.Time, URL:
		return v, nil
	case *Blob:
		if v == nil {
			return nil, nil
		}
		return v, nil
	case []byte:
		t.size += len(v)
		if t.dup {
			return bytes.Clone(v), nil
		}
		return v, nil
	case Bytes:
		t.size += len(v.Data)
		if t.dup {
			v.Data = bytes.Clone(v.Data)
		}
		return v, nil
	case int:
		return exactInt(int64(v))
	case int64:
		return exactInt(v)
	case int32:
		return float64(v), nil
	case *big.Int:
		if v == nil {
			return nil, nil
		}
		return v, nil
	case Headers:
		return v, nil
	case []any:
		if v == nil {
			return nil, nil
		}
		w := make([]any, len(v))
		t.size += 24 + 16*len(v)
		for i := range v {
			var err error
			if w[i], err = t.copyIn(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return w, nil
	case map[string]any:
		if v == nil {
			return nil, nil
		}
		return t.copyMap(v, depth)
	case *Stub:
		return t.copyStub(v), nil
	case *Promise:
		return t.copyPromise(v), nil
	case *Readable:
		if v == nil {
			return nil, nil
		}
		w, err := v.transfer()
		if err != nil {
			return nil, err
		}
		t.p.refs = append(t.p.refs, readableRef{w})
		return w, nil
	case *Writable:
		if v == nil {
			return nil, nil
		}
		w, err := v.transfer()
		if err != nil {
			return nil, err
		}
		t.p.refs = append(t.p.refs, writableRef{w})
		return w, nil
	case *Error:
		return t.copyError(v, depth)
	case *Request:
		if v == nil {
			return nil, nil
		}
		w := *v
		t.size += 128
		var err error
		if w.Body, err = t.copyIn(v.Body, depth+1); err != nil {
			return nil, err
		}
		return &w, nil
	case *Response:
		if v == nil {
			return nil, nil
		}
		w := *v
		t.size += 128
		var err error
		if w.Body, err = t.copyIn(v.Body, depth+1); err != nil {
			return nil, err
		}
		return &w, nil
	case Object:
		s := NewStub(v)
		t.p.refs = append(t.p.refs, stubRef{s})
		s.borrowed = true
		return s, nil
	case error:
		if e, ok := errors.AsType[*Error](v); ok {
			return t.copyError(e, depth)
		}
		if t.conn != nil {
			return t.copyError(t.conn.redact(v), depth)
		}
		return errInternal, nil
	}
	w, err := goValue(v)
	if err != nil {
		return nil, err
	}
	return t.copyIn(w, depth+1)
}

func (t *copier) copyMap(v map[string]any, depth int) (map[string]any, error) {
	w := make(map[string]any, len(v))
	t.size += 48 + 32*len(v)
	for k, e := range v {
		x, err := t.copyIn(e, depth+1)
		if err != nil {
			return nil, err
		}
		w[k] = x
	}
	return w, nil
}

// copyError copies an error without the properties that cannot be sent.
func (t *copier) copyError(e *Error, depth int) (any, error) {
	if e == nil {
		return nil, nil
	}
	if e.Props == nil {
		return e, nil
	}
	w := *e
	w.Props = make(map[string]any, len(e.Props))
	t.size += 112 + 32*len(e.Props)
	for k, v := range e.Props {
		refs, proms := len(t.p.refs), len(t.p.promises)
		if x, err := t.copyIn(v, depth+1); err == nil {
			w.Props[k] = x
			continue
		}
		for _, r := range t.p.refs[refs:] {
			r.drop()
		}
		t.p.refs, t.p.promises = t.p.refs[:refs], t.p.promises[:proms]
	}
	return &w, nil
}

func (t *copier) copyStub(s *Stub) any {
	if s == nil {
		return nil
	}
	w := s.transfer(!t.dup)
	t.p.refs = append(t.p.refs, stubRef{w})
	t.noteReference(w.node)
	return w
}

func (t *copier) copyPromise(p *Promise) any {
	if p == nil {
		return nil
	}
	w := p.transfer(!t.dup)
	t.p.refs = append(t.p.refs, promiseRef{w})
	t.p.promises = append(t.p.promises, w)
	t.noteReference(w.node)
	return w
}

func (t *copier) noteReference(n node) {
	markCaptured(n)
	if ph, ok := n.(*placeholder); ok && (t.builder == nil || ph.builder.depth > t.builder.depth) {
		t.builder = ph.builder
	}
}
