// What several calls wait for: none of them is another's concern.

package capnweb_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

// A call that was answered, for one of its arguments failed, needs the others no more: what they are the answer of is
// told when nobody else waits for it, and a batch ends without it.
func TestAnsweredCallGivesItsArgumentsUp(t *testing.T) {
	t.Parallel()
	cancelled := make(chan struct{}, 2)
	target := func() any {
		return capnweb.NewMethods(map[string]any{
			"slow": func(ctx context.Context) { <-ctx.Done(); cancelled <- struct{}{} },
			"fail": func() error { return &capnweb.Error{Name: "Error", Message: "x"} },
			"take": func(_, _ any) {},
		})
	}
	p := serve(t, target())
	main := p.client.Main()
	slow, fail := main.Call(bg, "slow"), main.Call(bg, "fail")
	take := main.Call(bg, "take", slow, fail)
	awaitErr(t, take)
	for _, p := range []*capnweb.Promise{take, fail, slow} {
		p.Release()
	}
	main.Release()
	<-cancelled

	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		capnweb.ServeBatch(w, r, capnweb.Config{Main: target()}, capnweb.AcceptOptions{})
	}))
	defer srv.Close()
	status, answer := post(t, srv.URL, `["push",["pipeline",0,["slow"],[]]]
["push",["pipeline",0,["fail"],[]]]
["push",["pipeline",0,["take"],[["pipeline",1],["pipeline",2]]]]
["pull",3]
["release",1,1]
["release",2,1]`)
	if status != http.StatusOK || answer != `["reject",3,["error","Error","x"]]` {
		t.Errorf("%d %s", status, answer)
	}
}

// property is an object with one.
type property struct{}

func (property) Serve(c *capnweb.Call)       { c.Return(nil) }
func (property) Get(name string) (any, bool) { return "the " + name, true }

// Two connections' calls wait for the same value: what is in the way of one, or ends it, is nothing to the other.
func TestAValueOfTwoConnections(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"blocked", "ended"} {
		outer, open := capnweb.NewPromise()
		inner, openInner := capnweb.NewPromise()
		open(map[string]any{"x": inner.Get("prop")}, nil)
		unblock, blocking := make(chan struct{}), make(chan struct{})
		obj := capnweb.NewMethods(map[string]any{
			"outer": func() any { return outer.Get() },
			"take":  func(v any) any { return v },
			"block": func() { close(blocking); <-unblock },
			"ready": func() {},
		})
		a, b := serve(t, obj), serve(t, obj)
		am, bm := a.client.Main(), b.client.Main()
		am.Call(bg, "take", am.Call(bg, "outer")).Then(func(any, error) {}) // first
		await(t, am.Call(bg, "ready"))
		if way == "blocked" {
			am.Call(bg, "block").Then(func(any, error) {})
			<-blocking
		} else {
			a.client.Close("bye")
			a.wg.Wait()
		}
		taken := bm.Call(bg, "take", bm.Call(bg, "outer"))
		await(t, bm.Call(bg, "ready"))
		openInner(property{}, nil)
		if v, ok := await(t, taken).(map[string]any); !ok || v["x"] != "the prop" {
			t.Errorf("%s: %v", way, v)
		}
		close(unblock)
	}
}
