// When it is told what a promise came to: once, and behind the calls that waited for it.

package capnweb

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
)

// An argument is asked for while its call ends, and a value is read while its promises are asked for.
func TestAskingWhileItEnds(t *testing.T) {
	t.Parallel()
	s := NewStub(NewMethods(map[string]any{"take": func(any) {}}))
	defer s.Release()
	for range 200 {
		pending, open := NewPromise()
		failing, fail := NewPromise()
		args := []any{failing.Get()}
		for range 50 {
			args = append(args, pending.Get("x"))
		}
		go fail(nil, errors.New("no"))
		p := s.Call(t.Context(), "take", args...)
		if _, err := p.Await(t.Context()); err == nil {
			t.Error("the call did not fail")
		}
		p.Release()
		value, give := NewPromise()
		give(map[string]any{"x": pending.Get("p"), "y": pending.Get("q"), "z": []any{}}, nil)
		read := make(chan struct{})
		go func() {
			z := value.Get("z")
			z.target() // reads it
			z.Release()
			close(read)
		}()
		taken := s.Call(t.Context(), "take", value)
		<-read
		open(map[string]any{}, nil)
		if _, err := taken.Await(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What a promise came to is told nobody before the calls that waited for it, over whatever connection, have their place:
// not while another connection's lock is held, as it is while something large is written.
func TestToldOnceInOrder(t *testing.T) {
	for _, kind := range []string{"a promise", "a stub", "an answer"} {
		there, open := NewPromise()
		f := there.node.(*future)
		var got []string
		obj := func() *Conn {
			a, _ := Pipe()
			return NewConn(a, Config{Main: NewMethods(map[string]any{
				"later": func() any { return there.Get() },
				"give": func() any {
					if kind == "a stub" {
						return []any{there.Stub()}
					}
					return []any{there.Get()}
				},
			})})
		}
		busy, conn := obj(), obj()
		sayAll(t, busy, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["other"],[]]]`)
		sayAll(t, conn, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["note"],["first"]]]`)
		busy.mu.Lock()
		opened, notified := make(chan struct{}), make(chan struct{})
		go func() {
			open(NewMethods(map[string]any{"note": func(s string) { got = append(got, s) }, "other": func() {}}), nil)
			close(opened)
		}()
		for !f.reached(stateBound) {
			runtime.Gosched()
		}
		go func() {
			defer close(notified)
			if kind == "an answer" {
				_ = say(conn, `["pull",1]`)
			} else {
				_ = say(conn, `["push",["pipeline",0,["give"],[]]]`)
				_ = say(conn, `["pull",3]`)
			}
			_ = say(conn, `["push",["pipeline",-1,["note"],["second"]]]`)
		}()
		select {
		case <-notified:
		case <-time.After(50 * time.Millisecond):
		}
		busy.mu.Unlock()
		<-opened
		<-notified
		sayAll(t, conn, `["push",1]`) // delivers
		if !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("%s: %v, said %s", kind, got, saidBy(conn))
		}
		ended(conn)
		ended(busy)
	}
}

// A call that is given the peer's own promise, which turns out to be one of ours, comes behind the calls on that.
func TestPeersPromiseOfOurs(t *testing.T) {
	a, _ := Pipe()
	var got []string
	there, open := NewPromise()
	conn := NewConn(a, Config{Main: NewMethods(map[string]any{
		"later": func() any { return there },
		"take":  func(any) { got = append(got, "take") },
	})})
	sayAll(t, conn, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["note"],[]]]`,
		`["push",["pipeline",0,["take"],[["promise",-1]]]]`, `["resolve",-1,["pipeline",1]]`)
	open(NewMethods(map[string]any{"note": func() { got = append(got, "note") }}), nil)
	sayAll(t, conn, `["push",1]`) // delivers
	if !slices.Equal(got, []string{"note", "take"}) {
		t.Error(got)
	}
	ended(conn)
}
