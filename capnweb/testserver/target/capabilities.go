// Objects that the target passes to its peers, and its use of theirs.

package target

import (
	"context"
	"errors"
	"sync"

	"github.com/mooring-rpc/mooring/capnweb"
)

// counter is a counter object; Shared counts how many exist.
type counter struct {
	*capnweb.Methods
	shared *Shared
	mu     sync.Mutex
	i      float64
}

// makeCounter(i) returns an object with increment(amount = 1) and the property value.
func (t *Target) makeCounter(i *float64) *counter {
	n := &counter{shared: t.shared}
	if i != nil {
		n.i = *i
	}
	n.Methods = capnweb.NewMethods(map[string]any{"increment": n.increment}).
		WithProperty("value", func() any { return n.value() })
	t.shared.mu.Lock()
	t.shared.made++
	t.shared.mu.Unlock()
	return n
}

func (n *counter) increment(by *float64) float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if by == nil {
		n.i++
	} else {
		n.i += *by
	}
	return n.i
}

func (n *counter) value() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.i
}

// Release implements capnweb.Releaser.
func (n *counter) Release() {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	n.shared.disposed++
}

// counts() returns how many counters all connections have made and disposed of, and how many kept stubs broke.
func (t *Target) counts() map[string]any {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	return map[string]any{"made": t.shared.made, "disposed": t.shared.disposed, "broken": t.shared.broken}
}

// self() returns the main object itself; disposing it does not end the connection.
func (t *Target) self() any { return t.Methods }

// tree() returns stubs and functions deep in a plain value.
func (t *Target) tree() map[string]any {
	ten, twenty := 10.0, 20.0
	return map[string]any{
		"name": "tree",
		"deep": map[string]any{"counter": t.makeCounter(&ten), "double": func(i float64) float64 { return 2 * i }},
		"list": []any{t.makeCounter(&twenty), t.makeCounter(nil)},
	}
}

// later(ms, v) returns v after ms milliseconds, as a promise in the result.
func (t *Target) later(ms float64, v any) map[string]any {
	p, resolve := capnweb.NewPromise()
	kept := keep(v)
	t.background(func(ctx context.Context) { resolve(slow(ctx, ms, kept)) })
	return map[string]any{"later": p}
}

// laterCounter(ms, i) makes a counter after ms milliseconds: calls on it wait meanwhile.
func (t *Target) laterCounter(ctx context.Context, ms, i float64) (any, error) {
	if _, err := slow(ctx, ms, nil); err != nil {
		return nil, err
	}
	return t.makeCounter(&i), nil
}

// disposable calls a function when it is not referenced any more.
type disposable struct {
	*capnweb.Methods
	gone func()
}

func (d *disposable) Release() { d.gone() }

// makeDisposable(onDisposed) returns an object with ping(); onDisposed() is called when it is not referenced any more.
func makeDisposable(onDisposed *capnweb.Stub) *disposable {
	f := onDisposed.Dup()
	return &disposable{
		capnweb.NewMethods(map[string]any{"ping": func() string { return "pong" }}),
		func() {
			p := f.Call(context.Background(), "")
			p.Then(func(any, error) { p.Release(); f.Release() })
		},
	}
}

// hold(stub) keeps it and returns how many are kept.
func (t *Target) hold(s *capnweb.Stub) int {
	kept := s.Dup()
	kept.OnBroken(func(error) {
		t.shared.mu.Lock()
		defer t.shared.mu.Unlock()
		t.shared.broken++
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = append(t.held, kept)
	return len(t.held)
}

var errNothingHeld = &capnweb.Error{Name: "Error", Message: "nothing is held"}

// lastHeld returns the stub kept last.
func (t *Target) lastHeld() (*capnweb.Stub, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.held) == 0 {
		return nil, errNothingHeld
	}
	return t.held[len(t.held)-1].Dup(), nil
}

// callHeld(x) calls the stub kept last and returns its answer.
func (t *Target) callHeld(ctx context.Context, x any) (any, error) {
	f, err := t.lastHeld()
	if err != nil {
		return nil, err
	}
	defer f.Release()
	p := f.Call(ctx, "", x)
	defer p.Release()
	v, err := p.Await(ctx)
	return keep(v), err
}

func (t *Target) heldCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}

// letGo is release(): it releases all kept stubs.
func (t *Target) letGo() {
	t.mu.Lock()
	held := t.held
	t.held = nil
	t.mu.Unlock()
	for _, s := range held {
		s.Release()
	}
}

// background runs f until it returns or the connection ends.
func (t *Target) background(f func(ctx context.Context)) {
	t.jobs.Add(1)
	go func() {
		defer t.jobs.Done()
		f(t.ctx)
	}()
}

// callLater(func, n) answers at once; then it calls func(0) to func(n-1), each when the last is answered.
func (t *Target) callLater(f *capnweb.Stub, n int) {
	f = f.Dup()
	t.background(func(ctx context.Context) {
		defer f.Release()
		for i := range clamp(n) {
			p := f.Call(ctx, "", i)
			_, err := p.Await(ctx)
			p.Release()
			if err != nil {
				return
			}
		}
	})
}

// callMany(func, n) calls func(0) to func(n-1) at once and returns all answers.
func callMany(ctx context.Context, f *capnweb.Stub, n int) []any {
	answers := make([]any, clamp(n))
	for i := range answers {
		answers[i] = f.Call(ctx, "", i)
	}
	return answers
}

// pipelineCallback(func, by) calls increment on func's result before it has arrived.
func pipelineCallback(ctx context.Context, f *capnweb.Stub, by float64) *capnweb.Promise {
	made := f.Call(ctx, "")
	defer made.Release()
	return made.Call(ctx, "increment", by)
}

// mapCallback(make, each) makes the caller map each over make's result.
func mapCallback(ctx context.Context, list, each *capnweb.Stub) *capnweb.Promise {
	made := list.Call(ctx, "")
	defer made.Release()
	return made.Map(func(in *capnweb.Promise) any { return each.Call(ctx, "", in) })
}

// abort(message) ends the connection.
func abort(c *capnweb.Call, message string) error {
	conn := c.Conn()
	if conn == nil {
		return errors.New("no connection")
	}
	conn.Abort(&capnweb.Error{Name: "Error", Message: message})
	return nil
}

// stats() returns the connection's table sizes, this call included.
func stats(c *capnweb.Call) map[string]any {
	s := c.Conn().Stats()
	return map[string]any{"imports": s.Imports, "exports": s.Exports}
}
