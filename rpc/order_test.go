// E-order: calls on one reference are delivered in the order in which they were made, whatever promises resolve to
// what in between, in real time and over real connections.

package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/until"
)

// inOrder checks that numbers arrived as 0, 1, 2 ...
func inOrder(t testing.TB, got []uint64, n int) {
	t.Helper()
	if len(got) != n {
		t.Errorf("%d calls arrived, %d were made", len(got), n)
	}
	for i, v := range got {
		if v != uint64(i) {
			t.Errorf("call %d arrived as number %d: %v", v, i, got[max(0, i-3):min(len(got), i+3)])
			return
		}
	}
}

// A result that turns out to be the caller's own object, while calls on it are under way to the peer and back.
func TestOrderOverLoopback(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		for range 10 {
			own := newTestObject("own")
			ref := NewLocal(own)
			p := boot.Call(ctx, mEcho, testSize, fill(0, "", ref))
			ref.Release()
			x := p.Cap(1)
			var all []*Promise
			const n = 100
			for i := range uint64(n) {
				all = append(all, x.Call(ctx, mEcho, testSize, fill(i, "", nil)))
			}
			for _, q := range all {
				if _, _, err := q.Wait(ctx); err != nil {
					t.Fatal(err)
				}
				q.Release()
			}
			until.True(t, "the capability is known as our own", func() bool { // a moment after the last call has been handed over
				got, ok := x.Object().(*testObject)
				return ok && got == own
			})
			x.Release()
			p.Release()
			inOrder(t, own.order(), n)
			select {
			case <-own.gone:
			case <-ctx.Done():
				t.Fatal("our object is not released")
			}
		}
	})
}

// A promise of the peer that resolves at a random moment: to an object of the peer's, of ours, or to a result of ours.
func TestOrderOverResolve(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	for round := range 40 {
		a, b := Pipe()
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			v := startVats(t, a, b, Limits{})
			ctx := testContext(t)
			boot := v.a.Bootstrap(ctx)
			defer boot.Release()
			p := boot.Call(ctx, mPromis, testSize, nil)
			x := p.Cap(1)
			defer x.Release()
			at, n := rnd.IntN(100), 100
			where := rnd.IntN(3)
			target := newTestObject("target")
			own := NewLocal(target)
			hand := boot.Call(ctx, mKeep, testSize, fill(0, "", own)) // so that b can name it
			if _, _, err := hand.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			hand.Release()
			resolve := func() {
				until.True(t, "the promise is made", func() bool {
					v.bObj.mu.Lock()
					defer v.bObj.mu.Unlock()
					return len(v.bObj.resolve) > 0
				})
				v.bObj.mu.Lock()
				f, kept := v.bObj.resolve[0], v.bObj.kept.AddRef()
				v.bObj.mu.Unlock()
				switch where {
				case 0: // ours
					f(kept, nil)
				case 1: // the peer's own object
					r := NewLocal(target)
					f(r, nil)
					r.Release()
				case 2: // a result that is ours
					aBoot := v.b.Bootstrap(ctx)
					q := aBoot.Call(ctx, mEcho, testSize, fill(0, "", kept))
					c := q.Cap(1)
					f(c, nil)
					c.Release()
					q.Release()
					aBoot.Release()
				}
				kept.Release()
			}
			var all []*Promise
			var wg sync.WaitGroup
			for i := range n {
				if i == at {
					wg.Go(resolve)
				}
				all = append(all, x.Call(ctx, mEcho, testSize, fill(uint64(i), "", nil)))
				if rnd.IntN(10) == 0 {
					runtime.Gosched()
				}
			}
			wg.Wait()
			for i, q := range all {
				if _, _, err := q.Wait(ctx); err != nil {
					t.Fatalf("call %d: %v", i, err)
				}
				q.Release()
			}
			p.Release()
			own.Release()
			inOrder(t, target.order(), n)
		})
	}
}

// lending answers the call that it holds when it is given a result of that, calls what it was given, and only then, perhaps,
// is it known what the result is.
type lending struct {
	*testObject
	held   chan *Call
	result *Ref
	known  func()
}

func (o *lending) Serve(c *Call) {
	switch c.Method().ID {
	case mHold.ID:
		o.held <- c
	case mCall.ID:
		p, caps := c.Params()
		ptr, _ := p.Ptr(1)
		lent := caps.Get(ptr)
		(<-o.held).Return(testSize, fill(0, "", o.result))
		q := lent.Call(context.Background(), mEcho, testSize, fill(2, "", nil))
		lent.Release()
		q.Notify(q.Release)
		o.known()
		c.Return(testSize, nil)
	default:
		o.testObject.Serve(c)
	}
}

// Who is given a result of a call that has not returned calls it behind those who called it before, whatever it turns out
// to be.
func TestOrderOfWhoIsGivenAResult(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"an object", "a promise", "another vat's"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, target := testContext(t), newTestObject("target")
			o := &lending{testObject: newTestObject("b"), held: make(chan *Call, 1), known: func() {}}
			defer func() { o.result.Release() }()
			switch kind {
			case "an object":
				o.result = NewLocal(target)
			case "a promise":
				promise, resolve := NewPromise()
				o.result = promise
				o.known = func() {
					r := NewLocal(target)
					resolve(r, nil)
					r.Release()
				}
			default:
				near, far := Pipe()
				third := startVats(t, near, far, Limits{})
				target, o.result = third.bObj, third.a.Bootstrap(ctx)
			}
			near, far := Pipe()
			a, b := NewConn(near, Config{}), NewConn(far, Config{Bootstrap: o})
			var wg sync.WaitGroup
			for _, c := range []*Conn{a, b} {
				wg.Go(func() { _ = c.Run(context.Background()) })
			}
			defer wg.Wait()
			defer a.Close("")
			boot := a.Bootstrap(ctx)
			defer boot.Release()
			held := boot.Call(ctx, mHold, testSize, nil)
			x := held.Cap(1)
			all := []*Promise{held, x.Call(ctx, mEcho, testSize, fill(0, "", nil)), x.Call(ctx, mEcho, testSize, fill(1, "", nil)),
				boot.Call(ctx, mCall, testSize, fill(0, "", x))}
			x.Release()
			for _, p := range all {
				if _, _, err := p.Wait(ctx); err != nil {
					t.Fatal(err)
				}
				p.Release()
			}
			until.True(t, "all have arrived", func() bool { return len(target.order()) == 3 })
			inOrder(t, target.order(), 3)
		})
	}
}

// Both sides call each other's objects through each other's promises at the same time.
func TestOrderBothWays(t *testing.T) {
	t.Parallel()
	a, b := dialTest(t, nil)
	v := startVats(t, a, b, Limits{})
	var wg sync.WaitGroup
	for _, side := range []*Conn{v.a, v.b} {
		wg.Go(func() {
			ctx := testContext(t)
			boot := side.Bootstrap(ctx)
			defer boot.Release()
			for range 30 {
				own := newTestObject("own")
				ref := NewLocal(own)
				p := boot.Call(ctx, mEcho, testSize, fill(0, "", ref))
				x := p.Cap(1)
				p2 := boot.Call(ctx, mEcho, testSize, fill(0, "", x)) // a promise as an argument
				y := p2.Cap(1)
				const n = 40
				var all []*Promise
				for i := range uint64(n) {
					all = append(all, y.Call(ctx, mHold, testSize, fill(i, "", nil)))
				}
				for range n {
					select {
					case call := <-own.holding:
						call.Return(testSize, nil)
					case <-ctx.Done():
						t.Error("not all calls arrived")
						return
					}
				}
				for _, q := range all {
					q.Release()
				}
				inOrder(t, own.order(), n)
				for _, r := range []*Ref{ref, x, y} {
					r.Release()
				}
				p.Release()
				p2.Release()
			}
		})
	}
	wg.Wait()
}
