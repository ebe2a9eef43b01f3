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
