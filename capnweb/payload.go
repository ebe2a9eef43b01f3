// payload: a value with the references that it owns. Its tree is immutable, so that it can be shared.

package capnweb

import (
	"math"
	"math/big"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capnweb/internal/expr"
)

// ownedRef is a reference that a payload releases: a stub, promise or stream in its value.
type ownedRef interface {
	drop()
	refersTo() node // nil for streams
}

// payload is a value, and the references in it. The zero payload is null and owns nothing.
type payload struct {
	value    any
	refs     []ownedRef
	size     int          // about how many bytes were copied for it
	promises []*Promise   // those among refs that must be resolved before the value is delivered
	encoded  *EncodedArgs // whose value it is; nil for others

	tooLargeFor atomic.Int64 // the largest Limits.MessageBytes that it was found to exceed

	mu         sync.Mutex
	settlement *settlement // of waiting for promises; nil if nobody waited
	released   bool
}

// settlement is the state of waiting for the promises of a payload. Waiters reference it, and not the payload.
type settlement struct {
	mu        sync.Mutex
	unsettled any // the value with the promises in it, until it is done
	pending   int
	results   map[*Promise]any
	value     any
	err       error
	done      atomic.Bool // value and err are set, for good
	waiters   waiters[func(any, error)]
}

// release releases the payload's references; waiters for its promises get an error. Further calls do nothing.
func (p *payload) release() {
	if p == nil || p.ownsNothing() {
		return
	}
	p.mu.Lock()
	refs, s := p.refs, p.settlement
	if p.released {
		refs, s = nil, nil
	}
	p.released = true
	p.mu.Unlock()
	if s != nil {
		s.finish(nil, errReleased)
	}
	for _, r := range refs {
		r.drop()
	}
}

// ownsNothing needs no lock: a payload with promises owns some from the beginning, and others never come to own any.
func (p *payload) ownsNothing() bool { return len(p.promises) == 0 && len(p.refs) == 0 }

// own adds a reference to the payload; if it has been released already, r is released at once.
func (p *payload) own(r ownedRef) {
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		r.drop()
		return
	}
	p.refs = append(p.refs, r)
	p.mu.Unlock()
}

// nodeRef is a reference to a node owned by a payload.
type nodeRef struct{ n node }

func (r nodeRef) drop()          { r.n.unref() }
func (r nodeRef) refersTo() node { return r.n }

// whenSettled calls f with the payload's value, every promise in it replaced by its result: at once if there are none or
// all are resolved, else when the last one is, on the goroutine that resolves it. An error of any of them is the error of
// all, and so is an earlier release of the payload. The value is valid until that. Once over is set, if it is given, f need
// not be called.
func (p *payload) whenSettled(f func(any, error), over *atomic.Bool) {
	if p == nil {
		f(nil, nil)
		return
	}
	if len(p.promises) == 0 {
		f(p.value, nil)
		return
	}
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		f(nil, errReleased)
		return
	}
	s := p.settlement
	first := s == nil
	if first {
		s = &settlement{unsettled: p.value, pending: len(p.promises), results: make(map[*Promise]any, len(p.promises))}
		p.settlement = s
	}
	p.mu.Unlock()
	s.wait(f, over)
	if !first {
		return
	}
	for _, pr := range p.promises {
		if s.done.Load() { // a waiter may have released the payload
			return
		}
		p.pull(pr, s)
	}
}

// pull asks for the result of a promise in the payload, with all promises in that.
func (p *payload) pull(pr *Promise, s *settlement) {
	n := pr.node
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		return
	}
	n.ref() // the payload's own may be released meanwhile
	p.mu.Unlock()
	if len(pr.path) > 0 {
		part := n.get(via{}, pr.path)
		n.unref()
		n = part
		n.ref()
		p.own(nodeRef{n})
	}
	n.pull(func(q *payload, err error) {
		switch {
		case s.done.Load():
		case err != nil:
			s.record(pr, nil, err)
		default:
			q.whenSettled(func(v any, err error) { s.record(pr, v, err) }, &s.done)
		}
	}, &s.done)
	n.unref()
}

// wait calls f when the settlement is done: at once if it is.
func (s *settlement) wait(f func(any, error), over *atomic.Bool) {
	s.mu.Lock()
	if !s.done.Load() {
		s.waiters.add(f, over)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	f(s.value, s.err)
}

// record records the result of a promise.
func (s *settlement) record(pr *Promise, v any, err error) {
	s.mu.Lock()
	if s.done.Load() {
		s.mu.Unlock()
		return
	}
	s.pending--
	s.results[pr] = v
	if s.pending > 0 && err == nil {
		s.mu.Unlock()
		return
	}
	if v = nil; err == nil {
		v = substitute(s.unsettled, s.results)
		if left := maxSettledBytes; !fits(v, &left, 0) { // a few promises of each other would expand beyond memory
			v, err = nil, errTooLarge
		}
	}
	s.finishLocked(v, err)
}

// finish sets the outcome, whatever the promises still do.
func (s *settlement) finish(v any, err error) {
	s.mu.Lock()
	if s.done.Load() {
		s.mu.Unlock()
		return
	}
	s.finishLocked(v, err)
}

// finishLocked is finish with the lock held, and releases it.
func (s *settlement) finishLocked(v any, err error) {
	s.value, s.err = v, err
	s.unsettled, s.results = nil, nil
	waiters := s.waiters.drain()
	s.done.Store(true)
	s.mu.Unlock()
	for _, w := range waiters {
		w.f(v, err)
	}
}

// maxSettledBytes is about how large a value may become with its promises' results, in bytes.
const maxSettledBytes = 64 << 20

// sizeOf returns about how many bytes a value takes.
func sizeOf(v any) int {
	left := math.MaxInt
	fits(v, &left, 0)
	return math.MaxInt - left
}

// fits reports whether a value takes no more than left and nests no deeper than maxDepth, and counts its bytes down from
// left.
func fits(v any, left *int, depth int) bool {
	if *left -= 16; depth > maxDepth {
		return false
	}
	switch v := v.(type) {
	case string:
		*left -= len(v) - 8
	case []byte:
		*left -= len(v) - 8
	case Bytes:
		*left -= len(v.Data) - 8
	case *Blob:
		*left -= len(v.Data) - 8
	case URL:
		*left -= len(v)
	case *big.Int:
		*left -= v.BitLen() / 8
	case Headers:
		for _, h := range v {
			*left -= 32 + len(h[0]) + len(h[1])
		}
	case *Error:
		*left -= len(v.Message) + len(v.Stack)
		return fits(v.Props, left, depth)
	case *Request:
		*left -= len(v.URL)
		return fits(v.Headers, left, depth) && fits(v.Body, left, depth+1) && fits(v.Init, left, depth)
	case *Response:
		return fits(v.Headers, left, depth) && fits(v.Body, left, depth+1) && fits(v.Init, left, depth)
	case []any:
		for _, e := range v {
			if !fits(e, left, depth+1) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if *left -= len(k) + 8; !fits(e, left, depth+1) {
				return false
			}
		}
	}
	return *left >= 0
}

// substitute copies the parts that contain promises, with their results.
func substitute(v any, found map[*Promise]any) any {
	switch v := v.(type) {
	case *Promise:
		if w, ok := found[v]; ok {
			return w
		}
	case []any:
		w := make([]any, len(v))
		for i := range v {
			w[i] = substitute(v[i], found)
		}
		return w
	case map[string]any:
		w := make(map[string]any, len(v))
		for k, e := range v {
			w[k] = substitute(e, found)
		}
		return w
	case *Request:
		w := *v
		w.Body = substitute(v.Body, found)
		return &w
	case *Response:
		w := *v
		w.Body = substitute(v.Body, found)
		return &w
	case *Error:
		w := *v
		if v.Props != nil {
			w.Props = substitute(v.Props, found).(map[string]any)
		}
		return &w
	}
	return v
}

// part returns a payload of a part of p's value, with its own references. The caller keeps p meanwhile.
func (p *payload) part(leaf any) *payload {
	if isScalar(leaf) || p.ownsNothing() {
		return &payload{value: leaf}
	}
	t := copier{dup: true}
	v, err := t.copyIn(leaf, 0)
	if err != nil { // too deep: it cannot be deeper than the value it is a part of
		t.p.release()
		return &payload{value: Undefined{}}
	}
	t.p.value, t.p.size = v, t.size
	return &t.p
}

func isScalar(v any) bool {
	switch v.(type) {
	case nil, bool, string, float64, Undefined:
		return true
	}
	return false
}

// follow follows a path into a value: to a part of it, or to a node and the rest of the path.
func follow(v any, path []string) (leaf any, n node, rest []string, err error) {
	for i, name := range path {
		switch t := v.(type) {
		case *Stub:
			return nil, t.node, path[i:], nil
		case *Promise:
			return nil, t.node, expr.JoinPath(t.path, path[i:]), nil
		}
		if expr.IsReserved(name) {
			v = Undefined{}
			continue
		}
		switch t := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = t[name]; !ok {
				v = Undefined{}
			}
		case []any:
			if k := expr.ArrayIndex(name); k >= 0 && k < len(t) {
				v = t[k]
			} else {
				v = Undefined{}
			}
		case Undefined:
			return nil, nil, nil, TypeErrorf("cannot read a property of undefined")
		default:
			v = Undefined{}
		}
	}
	if t, ok := v.(*Promise); ok {
		return nil, t.node, t.path, nil
	}
	return v, nil, nil, nil
}
