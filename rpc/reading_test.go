// What reading one message may cost: how deep its pointers go, and how much is read out of it.

package rpc

import (
	"context"
	"testing"

	"capnproto.org/go/capnp/v3"
)

// diver follows the first pointers of its parameters down, as often as the number says, and reads the text there.
type diver struct{}

func (diver) Serve(call *Call) {
	s, _ := call.Params()
	for range s.Uint64(0) {
		p, err := s.Ptr(0)
		if err != nil {
			call.Fail(err)
			return
		}
		if down := p.Struct(); down.IsValid() {
			s = down
		}
	}
	call.Return(testSize, nil)
}

// chain fills in structs nested so deep.
func chain(reads uint64, depth int) func(capnp.Struct, *CapTable) error {
	return func(s capnp.Struct, _ *CapTable) error {
		s.SetUint64(0, reads)
		for range depth {
			down, err := capnp.NewStruct(s.Segment(), testSize)
			if err != nil {
				return err
			}
			if err := s.SetPtr(0, down.ToPtr()); err != nil {
				return err
			}
			s = down
		}
		text, err := capnp.NewText(s.Segment(), string(make([]byte, 1000)))
		if err == nil {
			err = s.SetPtr(0, text.ToPtr())
		}
		return err
	}
}

func TestReadingIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lim   Limits
		reads uint64
		depth int
		hit   Limit
		fails bool
	}{
		{"as deep as allowed", Limits{Nesting: 30}, 10, 10, LimitNesting, false},
		{"deeper", Limits{Nesting: 30}, 40, 40, LimitNesting, true},
		{"as much as allowed", Limits{Traversal: 20_000}, 10, 0, LimitTraversal, false},
		{"the same text again and again", Limits{Traversal: 20_000}, 40, 0, LimitTraversal, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ta, tb := Pipe()
			var hits LimitHits
			a, b := NewConn(ta, Config{}), NewConn(tb, Config{Bootstrap: diver{}, Limits: c.lim, LimitHits: &hits})
			ran := make(chan error, 2)
			for _, conn := range []*Conn{a, b} {
				go func() { ran <- conn.Run(context.Background()) }()
			}
			ctx := testContext(t)
			boot := a.Bootstrap(ctx)
			p := boot.Call(ctx, mEcho, testSize, chain(c.reads, c.depth))
			if _, _, err := p.Wait(ctx); (err != nil) != c.fails {
				t.Errorf("answered %v", err)
			}
			p.Release()
			if n := hits.Of(c.hit); (n > 0) != c.fails {
				t.Errorf("%v was met %d times", c.hit, n)
			}
			// It is the call that fails, not the connection.
			p = boot.Call(ctx, mEcho, testSize, chain(1, 0))
			if _, _, err := p.Wait(ctx); err != nil {
				t.Errorf("the next call: %v", err)
			}
			p.Release()
			boot.Release()
			a.Close("test over")
			<-ran
			<-ran
		})
	}
}
