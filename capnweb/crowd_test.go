// Many clients at once over real WebSockets, some of which go without a word.

package capnweb_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/until"
)

// held is an object that is counted while somebody holds it.
type held struct{ n *atomic.Int64 }

func (h *held) Serve(c *capnweb.Call) { c.Return(c.Args()) }
func (h *held) Release()              { h.n.Add(-1) }

// Whatever clients do and however they go, nothing of theirs stays: no goroutine, no object, no entry of a table.
func TestCrowd(t *testing.T) {
	var alive, conns atomic.Int64
	var stats sync.Map // of *capnweb.Conn to bool
	main := func(*http.Request) any {
		conns.Add(1)
		return capnweb.NewMethods(map[string]any{
			"make": func(c *capnweb.Call) *held {
				stats.Store(c.Conn(), true)
				alive.Add(1)
				return &held{&alive}
			},
			"keep": func(ctx context.Context, s *capnweb.Stub) error {
				p := s.Call(ctx, "", 1)
				defer p.Release()
				_, err := p.Await(ctx)
				return err
			},
			"never": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			"count": func(c *capnweb.Call, n int) {
				r, w := capnweb.NewReadable()
				c.Return(r)
				go func() {
					for i := range n {
						if w.Write(context.Background(), i) != nil {
							w.Abort(nil)
							return
						}
					}
					_ = w.Close(context.Background())
				}()
			},
		})
	}
	handler := capnweb.Handler(main, capnweb.Config{}, capnweb.AcceptOptions{})
	var served, clients sync.WaitGroup
	url := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		defer served.Done()
		handler.ServeHTTP(w, r)
	}))
	for n := range 12 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			link, err := capnweb.Dial(t.Context(), url, capnweb.DialOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			c := capnweb.NewConn(link, capnweb.Config{})
			ran := make(chan error, 1)
			go func() { ran <- c.Run(context.Background()) }()
			var callers sync.WaitGroup
			for i := range 4 {
				r := rand.New(rand.NewPCG(uint64(n), uint64(2+i)))
				callers.Go(func() { crowdCaller(t, c, r) })
			}
			if n%3 == 0 { // it goes in the middle of something
				p := c.Main().Call(bg, "never")
				for range r.IntN(20) {
					_, _ = c.Main().Call(bg, "make").Await(bg)
				}
				_ = link.Close(1000, "")
				if _, err := p.Await(bg); err == nil {
					t.Error("an answer from nowhere")
				}
			}
			callers.Wait()
			c.Close("done")
			<-ran
			if s := c.Stats(); s.Exports != 0 || s.Imports != 0 || s.Calls != 0 {
				t.Errorf("a client holds %+v", s)
			}
		})
	}
	clients.Wait()
	served.Wait()
	if conns.Load() != 12 {
		t.Errorf("%d connections", conns.Load())
	}
	// A call within the process, as keep makes of what it is given back, may give its object up a moment after its answer.
	until.True(t, "nobody holds an object", func() bool { return alive.Load() == 0 })
	stats.Range(func(c, _ any) bool {
		if s := c.(*capnweb.Conn).Stats(); s.Exports != 0 || s.Imports != 0 || s.Calls != 0 {
			t.Errorf("the server holds %+v", s)
		}
		return true
	})
}

// crowdCaller does a bit of everything, as long as the connection is there.
func crowdCaller(t *testing.T, c *capnweb.Conn, r *rand.Rand) {
	main := c.Main()
	defer main.Release()
	for range 60 {
		var p *capnweb.Promise
		switch r.IntN(6) {
		case 0:
			p = main.Call(bg, "make")
			q := p.Call(bg, "", "x")
			if r.IntN(2) == 0 {
				_, _ = q.Await(bg)
			}
			q.Release()
		case 1:
			p = main.Call(bg, "keep", func(n int) int { return n })
			_, _ = p.Await(bg)
		case 2:
			p = main.Call(bg, "never")
			p.Then(func(any, error) {})
		case 3:
			p = main.Call(bg, "make")
			if v, err := p.Await(bg); err == nil {
				s := v.(*capnweb.Stub).Dup()
				q := main.Call(bg, "keep", s)
				s.Release()
				_, _ = q.Await(bg)
				q.Release()
			}
		case 4:
			p = main.Call(bg, "count", r.IntN(50))
			if v, err := p.Await(bg); err == nil {
				for stop := r.IntN(60); stop > 0; stop-- {
					if _, err := v.(*capnweb.Readable).Read(bg); err != nil {
						break
					}
				}
			}
		case 5:
			p = main.Call(bg, "nothing")
			_, err := p.Await(bg)
			if _, ok := errors.AsType[*capnweb.Error](err); !ok && !isBroken(err) || errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		p.Release()
	}
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*capnweb.BrokenError](err)
	return ok
}
