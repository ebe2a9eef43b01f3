// Package target is an object to test Cap'n Web implementations on: capnweb/testserver serves it. Its first methods are
// those that the npm package's own tests call; the others cover the rest of the protocol. Each is documented at its
// function; internal/interop/npm/js has the same target in JavaScript.
package target

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
)

// Shared is the state that the targets of all connections share. Its methods may be called from any goroutine.
type Shared struct {
	mu             sync.Mutex
	made, disposed int // counters
	broken         int // kept stubs whose connection has ended
}

// NewShared returns a Shared with all counts 0.
func NewShared() *Shared { return new(Shared) }

// Target is one connection's main object.
type Target struct {
	*capnweb.Methods
	shared *Shared
	ctx    context.Context // ends with the connection
	end    context.CancelFunc

	mu       sync.Mutex
	log      []any
	held     []*capnweb.Stub
	produced int            // chunks of endless's stream that were written
	written  written        // to the last writable
	gate     chan struct{}  // closed: a slow writable goes on
	jobs     sync.WaitGroup // goroutines of callLater and of streams
}

// New returns a connection's main object.
func New(shared *Shared) *Target {
	t := &Target{shared: shared, gate: make(chan struct{})}
	t.ctx, t.end = context.WithCancel(context.Background())
	t.Methods = capnweb.NewMethods(t.methods()).
		WithProperty("answer", func() any { return 42 }).
		WithProperty("nested", func() any { return map[string]any{"a": map[string]any{"b": []any{1, 2, 3}}} })
	return t
}

// Release implements capnweb.Releaser: the connection has ended.
func (t *Target) Release() {
	t.end()
	t.letGo()
}

// methods returns the methods that peers call.
func (t *Target) methods() map[string]any {
	all := map[string]any{
		// As in the npm package's tests.
		"square":            func(i float64) float64 { return i * i },
		"callSquare":        callSquare,
		"callFunction":      callFunction,
		"throwError":        func() error { return &capnweb.Error{Name: "RangeError", Message: "test error"} },
		"makeCounter":       t.makeCounter,
		"incrementCounter":  incrementCounter,
		"generateFibonacci": fibonacci,
		"returnNull":        func() any { return nil },
		"returnUndefined":   func() any { return capnweb.Undefined{} },
		"returnNumber":      func(i float64) float64 { return i },
		"echo":              echo,
		"echoStub":          func(s *capnweb.Stub) *capnweb.Stub { return s.Dup() },
		"echoBlob":          func(b *capnweb.Blob) *capnweb.Blob { return b },

		// Order.
		"push":    t.push,
		"takeLog": t.takeLog,
		"slow":    slow,

		// Values: describe returns a value's description, make a value by its name (values.go).
		"describe": Describe,
		"make":     Make,
		"range":    numbers,

		// Errors.
		"fail":       fail,
		"failSecret": func() error { return fmt.Errorf("the secret is %s", "hunter2") },
		"panic":      func() { panic("the secret is hunter2") },

		// Capabilities.
		"self":             func(c *capnweb.Call) any { return t.self() },
		"tree":             t.tree,
		"later":            t.later,
		"laterCounter":     t.laterCounter,
		"makeDisposable":   makeDisposable,
		"counts":           t.counts,
		"hold":             t.hold,
		"held":             t.lastHeld,
		"callHeld":         t.callHeld,
		"heldCount":        t.heldCount,
		"release":          t.letGo,
		"callLater":        t.callLater,
		"callMany":         callMany,
		"pipelineCallback": pipelineCallback,
		"mapCallback":      mapCallback,
		"abort":            abort,
		"stats":            stats,
	}
	for name, f := range t.streamMethods() {
		all[name] = f
	}
	return all
}

// callSquare(self, i) answers with a promise in the result.
func callSquare(ctx context.Context, self *capnweb.Stub, i float64) map[string]any {
	return map[string]any{"result": self.Call(ctx, "square", i)}
}

// callFunction(func, i) waits for the function's result.
func callFunction(ctx context.Context, f *capnweb.Stub, i any) (any, error) {
	p := f.Call(ctx, "", i)
	defer p.Release()
	v, err := p.Await(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"result": keep(v)}, nil
}

func incrementCounter(ctx context.Context, c *capnweb.Stub, by *float64) *capnweb.Promise {
	amount := 1.0
	if by != nil {
		amount = *by
	}
	return c.Call(ctx, "increment", amount)
}

func fibonacci(length int) ([]float64, error) {
	if length < 0 || length > 1000 {
		return nil, &capnweb.Error{Name: "RangeError", Message: "0 to 1000 numbers"}
	}
	r := make([]float64, 0, length)
	for a, b := 0.0, 1.0; len(r) < length; a, b = b, a+b {
		r = append(r, a)
	}
	return r, nil
}

// echo returns its argument, copied by keep.
func echo(v any) any { return keep(v) }

func (t *Target) push(x any) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, keep(x))
	return len(t.log)
}

func (t *Target) takeLog() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	log := t.log
	t.log = nil
	if log == nil {
		log = []any{}
	}
	return log
}

// slow(ms, v) returns v after ms milliseconds.
func slow(ctx context.Context, ms float64, v any) (any, error) {
	select {
	case <-time.After(time.Duration(ms * float64(time.Millisecond))):
		return keep(v), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// range(n) returns 0 to n-1.
func numbers(n int) ([]int, error) {
	if n < 0 || n > 1_000_000 {
		return nil, &capnweb.Error{Name: "RangeError", Message: "0 to 1000000 numbers"}
	}
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r, nil
}

// fail(name, message, props) throws an error of these.
func fail(name, message string, props *map[string]any) error {
	e := &capnweb.Error{Name: name, Message: message}
	if props != nil {
		e.Props = *props
	}
	return e
}

// keep copies a value so that it outlives the call that it came with.
func keep(v any) any {
	switch v := v.(type) {
	case *capnweb.Stub:
		return v.Dup()
	case *capnweb.Readable:
		v.Keep()
		return v
	case *capnweb.Request:
		return &capnweb.Request{URL: v.URL, Method: v.Method, Headers: v.Headers, Body: keep(v.Body), Init: v.Init}
	case *capnweb.Response:
		r := *v
		r.Body = keep(v.Body)
		return &r
	case []any:
		r := make([]any, len(v))
		for i := range v {
			r[i] = keep(v[i])
		}
		return r
	case map[string]any:
		r := make(map[string]any, len(v))
		for k := range v {
			r[k] = keep(v[k])
		}
		return r
	default:
		return v
	}
}

// clamp bounds a number given by a caller.
func clamp(n int) int { return int(math.Min(math.Max(float64(n), 0), 1_000_000)) }
