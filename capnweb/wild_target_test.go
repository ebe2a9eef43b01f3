// What a wild peer (wild_test.go) calls: objects with every kind of method.

package capnweb

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// wildTarget is what a wild peer calls.
type wildTarget struct{ *wildState }

// wildState is what all objects of a connection have in common.
type wildState struct {
	alive atomic.Int64 // objects not yet released
	made  sync.Map     // these, and where they were made
	mu    sync.Mutex
	held  []*Stub
	kept  []*Call
	proms []func(any, error)
}

func newWildTarget(s *wildState) *wildTarget {
	s.alive.Add(1)
	w := &wildTarget{s}
	_, _, line, _ := runtime.Caller(1)
	s.made.Store(w, line)
	return w
}

func (w *wildTarget) Release() { w.alive.Add(-1); w.made.Delete(w) }

func (w *wildTarget) Get(name string) (any, bool) {
	switch name {
	case "list":
		return []any{1, 2, []any{3}}, true
	case "child":
		return newWildTarget(w.wildState), true
	}
	return nil, false
}

var wildMethods = []string{"echo", "make", "later", "apply", "hold", "use", "keep", "answer", "promise", "fulfil", "fail",
	"panic", "slurp", "stream", "sink", "throw", "list", "nonsense", "toString"}

func (w *wildTarget) Serve(c *Call) {
	arg := func() any {
		if len(c.Args()) > 0 {
			return c.Args()[0]
		}
		return nil
	}
	switch c.Method() {
	case "echo":
		c.Return(arg())
	case "make":
		c.Return(map[string]any{"o": newWildTarget(w.wildState), "l": []any{1, newWildTarget(w.wildState)}})
	case "later":
		c.Go(func(context.Context) {
			runtime.Gosched()
			c.Return(arg())
		})
	case "apply":
		if s, ok := arg().(*Stub); ok {
			c.Return(s.Call(context.Background(), "f", c.Args()[1:]...))
			return
		}
		c.Fail(TypeErrorf("no stub"))
	case "hold":
		if s, ok := arg().(*Stub); ok {
			w.mu.Lock()
			w.held = append(w.held, s.Dup())
			var old *Stub
			if len(w.held) > 4 {
				old, w.held = w.held[0], w.held[1:]
			}
			w.mu.Unlock()
			old.Release()
		}
		c.Return(nil)
	case "use":
		w.mu.Lock()
		var s *Stub
		if len(w.held) > 0 {
			s = w.held[0].Dup()
		}
		w.mu.Unlock()
		if s == nil {
			c.Return(nil)
			return
		}
		p := s.Call(context.Background(), "g", 1)
		p.Then(func(v any, err error) {
			if err != nil {
				c.Fail(err)
			} else {
				c.Return(v)
			}
		})
		p.Release()
		c.Return(s)
	case "keep":
		w.mu.Lock()
		w.kept = append(w.kept, c)
		var old *Call
		if len(w.kept) > 4 {
			old, w.kept = w.kept[0], w.kept[1:]
		}
		w.mu.Unlock()
		if old != nil {
			old.Return("at last")
		}
	case "answer":
		w.mu.Lock()
		kept := w.kept
		w.kept = nil
		w.mu.Unlock()
		for _, k := range kept {
			k.Return(map[string]any{"o": newWildTarget(w.wildState)})
		}
		c.Return(len(kept))
	case "promise":
		p, resolve := NewPromise()
		w.mu.Lock()
		w.proms = append(w.proms, resolve)
		var old func(any, error)
		if len(w.proms) > 4 {
			old, w.proms = w.proms[0], w.proms[1:]
		}
		w.mu.Unlock()
		if old != nil {
			old(newWildTarget(w.wildState), nil)
		}
		c.Return([]any{p, 1})
	case "fulfil":
		w.mu.Lock()
		proms := w.proms
		w.proms = nil
		w.mu.Unlock()
		for i, f := range proms {
			if i%2 == 0 {
				f(newWildTarget(w.wildState), nil)
			} else {
				f(nil, errors.New("secret"))
			}
		}
		c.Return(nil)
	case "fail":
		c.Fail(&Error{Name: "TypeError", Message: "no", Props: map[string]any{"f": func() {}}})
	case "throw":
		c.Fail(errors.New("secret"))
	case "panic":
		panic("wild")
	case "slurp":
		r, ok := arg().(*Readable)
		if !ok {
			c.Return(nil)
			return
		}
		c.Go(func(ctx context.Context) {
			n := 0
			for {
				if _, err := r.Read(ctx); err != nil {
					if err != io.EOF {
						c.Fail(err)
					}
					break
				}
				n++
			}
			c.Return(n)
		})
	case "stream":
		r, wr := NewReadable()
		c.Go(func(ctx context.Context) {
			c.Return(r)
			conn, done := c.via.context()
			defer done()
			for i := range 5 {
				if err := wr.Write(conn, i); err != nil {
					wr.Abort(err)
					return
				}
			}
			_ = wr.Close(conn)
		})
	case "sink":
		c.Return(NewWritable(func(context.Context, any) error { return nil }, func(error) {}))
	case "list":
		c.Return([]any{1, 2, newWildTarget(w.wildState)})
	default:
		c.Fail(notAFunction(c.Path()))
	}
}

// finish answers what is kept: nobody else will.
func (w *wildState) finish() {
	w.mu.Lock()
	kept, proms, held := w.kept, w.proms, w.held
	w.kept, w.proms, w.held = nil, nil, nil
	w.mu.Unlock()
	for _, k := range kept {
		k.Return(nil)
	}
	for _, f := range proms {
		f(nil, errors.New("over"))
	}
	for _, s := range held {
		s.Release()
	}
}
