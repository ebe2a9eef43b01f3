package capnweb_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

// ledger is an object that notes what it is called with, in order if it is asked for.
type ledger struct {
	ordered bool
	mu      sync.Mutex
	got     []any
}

func (l *ledger) KeepsOrder() bool { return l.ordered }

func (l *ledger) Serve(c *capnweb.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, c.Args()[0])
	c.Return(len(l.got))
}

// Calls on an Orderer do not overtake one that waits for its arguments, whether the object is there already or is
// promised itself; calls on others do.
func TestOrderedCallsWaitForOneAnother(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{true, false} {
		for _, pipelined := range []bool{true, false} {
			var resolves []func(any, error)
			l := &ledger{ordered: ordered}
			there, open := capnweb.NewPromise()
			p := serve(t, capnweb.NewMethods(map[string]any{
				"later": func() *capnweb.Promise {
					later, resolve := capnweb.NewPromise()
					resolves = append(resolves, resolve)
					return later
				},
				"ledger": func() any {
					if pipelined {
						return there
					}
					return l
				},
				"ready": func() {},
			}))
			main := p.client.Main()
			of := main.Call(bg, "ledger")
			if !pipelined {
				if _, err := of.Await(bg); err != nil {
					t.Fatal(err)
				}
			}
			a, b := main.Call(bg, "later"), main.Call(bg, "later")
			calls := []*capnweb.Promise{of.Call(bg, "note", 1), of.Call(bg, "note", a), of.Call(bg, "note", 3), of.Call(bg, "note", b), of.Call(bg, "note", 5)}
			await(t, main.Call(bg, "ready")) // all of it has arrived
			if pipelined {
				open(l, nil)
			}
			await(t, calls[0])
			resolves[1](4, nil)
			resolves[0](2, nil)
			for _, c := range calls {
				await(t, c)
				c.Release()
			}
			want := []any{1.0, 2.0, 3.0, 4.0, 5.0}
			if l.mu.Lock(); slices.Equal(l.got, want) != ordered {
				t.Errorf("ordered %v, pipelined %v: %v", ordered, pipelined, l.got)
			}
			l.mu.Unlock()
			for _, p := range []*capnweb.Promise{of, a, b} {
				p.Release()
			}
			main.Release()
		}
	}
}

// Who is given a promise calls it behind those that called it before: a call that takes a promise does not overtake
// calls on that promise that came first, however late that is known, and whether it is the whole of an argument, a part
// of what is promised, or a promise in what a promise came to.
func TestCallsWithAPromiseComeBehindCallsOnIt(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"the promise", "a property of it", "a promise of a promise", "a promise in it"} {
		l, log := &ledger{}, &ledger{}
		there, open := capnweb.NewPromise()
		p := serve(t, capnweb.NewMethods(map[string]any{
			"ledger": func() any { return there },
			"take": func(c *capnweb.Call, _ any) {
				l.mu.Lock()
				log.got = append(log.got, len(l.got)) // what was noted before this was called
				l.mu.Unlock()
				c.Return(nil)
			},
			"ready": func() {},
		}))
		main := p.client.Main()
		of := main.Call(bg, "ledger")
		target, arg := of, any(of)
		var parts []*capnweb.Promise
		part := func(name string) *capnweb.Promise {
			g := of.Get(name)
			parts = append(parts, g)
			return g
		}
		switch kind {
		case "a property of it":
			target, arg = part("ledger"), part("ledger")
		case "a promise in it":
			target = part("ledger")
		}
		calls := []*capnweb.Promise{target.Call(bg, "note", 1), target.Call(bg, "note", 2), main.Call(bg, "take", arg)}
		await(t, main.Call(bg, "ready")) // all of it has arrived
		inner, openInner := capnweb.NewPromise()
		switch kind {
		case "the promise":
			open(l, nil)
		case "a property of it":
			open(map[string]any{"ledger": l}, nil)
		case "a promise of a promise":
			open(inner, nil)
			openInner(l, nil)
		case "a promise in it":
			open(map[string]any{"ledger": inner}, nil)
			openInner(l, nil)
		}
		for _, c := range calls {
			await(t, c)
			c.Release()
		}
		if !slices.Equal(log.got, []any{2}) {
			t.Errorf("%s: when it was given to somebody, %v of 2 calls had come", kind, log.got)
		}
		for _, p := range append(parts, of) {
			p.Release()
		}
		main.Release()
	}
}

// Who has heard what a promise came to calls that behind those who called the promise: the answer leaves behind them.
func TestCallsAfterAnAnswerComeBehind(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	there, open := capnweb.NewPromise()
	slow := there.Get()
	p := serve(t, capnweb.NewMethods(map[string]any{"ledger": func() any { return there }, "ready": func() {}}))
	main := p.client.Main()
	of := main.Call(bg, "ledger")
	answer := make(chan any, 1)
	of.Then(func(v any, _ error) { answer <- v })
	calls := []*capnweb.Promise{of.Call(bg, "note", 1), of.Call(bg, "note", 2)}
	await(t, main.Call(bg, "ready"))
	called := make(chan struct{})
	slow.Then(func(any, error) { <-called }) // who learns of it after the answer has left keeps the rest waiting
	go open(l, nil)
	calls = append(calls, (<-answer).(*capnweb.Stub).Call(bg, "note", 3))
	await(t, main.Call(bg, "ready"))
	close(called)
	for _, c := range calls {
		await(t, c)
		c.Release()
	}
	if l.mu.Lock(); !slices.Equal(l.got, []any{1.0, 2.0, 3.0}) {
		t.Error(l.got)
	}
	l.mu.Unlock()
	of.Release()
	main.Release()
}

// The promise that an Orderer's call waits for may be resolved when the call's connection is gone.
func TestOrderedCallOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	l := &ledger{ordered: true}
	later, resolve := capnweb.NewPromise()
	obj := capnweb.NewMethods(map[string]any{
		"ledger": func() any { return capnweb.NewStub(l) },
		"later":  func() any { return later },
		"ready":  func() {},
	})
	note := func(p *pair, x any) *capnweb.Promise {
		main := p.client.Main()
		defer main.Release()
		of := main.Call(bg, "ledger")
		defer of.Release()
		return of.Call(bg, "note", x)
	}
	gone, stays := serve(t, obj), serve(t, obj)
	main := gone.client.Main()
	note(gone, main.Call(bg, "later"))
	await(t, main.Call(bg, "ready"))
	gone.client.Close("bye")
	gone.wg.Wait()
	resolve(1, nil)
	c := note(stays, 2)
	await(t, c)
	c.Release()
}
