// Parameters that are encoded once for many calls.

package rpc

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// placeRandom fills in a struct of two words of data and two pointers with numbers, a text and a list of structs with texts.
func placeRandom(rnd *rand.Rand) (size capnp.ObjectSize, place func(capnp.Struct) error) {
	size = capnp.ObjectSize{DataSize: 12, PointerCount: 2}
	number, text, items := rnd.Uint64(), strings.Repeat("x", rnd.IntN(3000)), rnd.IntN(20)
	return size, func(s capnp.Struct) error {
		s.SetUint64(0, number)
		if err := s.SetText(0, text); err != nil || items == 0 {
			return err
		}
		list, err := capnp.NewCompositeList(s.Segment(), capnp.ObjectSize{DataSize: 8, PointerCount: 1}, int32(items))
		for i := 0; err == nil && i < items; i++ {
			list.Struct(i).SetUint64(0, uint64(i))
			err = list.Struct(i).SetText(0, text[:len(text)/(i+1)])
		}
		if err == nil {
			err = s.SetPtr(1, list.ToPtr())
		}
		return err
	}
}

// TestEncodedCalls: a callee finds the parameters that a Call would have brought it, wherever it is; and many calls share them.
func TestEncodedCalls(t *testing.T) {
	t.Parallel()
	number := seed.Of(t)
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx, rnd := testContext(t), rand.New(rand.NewPCG(number, 0))
		got := make(chan []byte, 10)
		callee := callFunc(func(c *Call) {
			s, _ := c.Params()
			b, err := capnp.Canonicalize(s)
			if err != nil {
				t.Error(err)
			}
			c.Return(capnp.ObjectSize{}, nil)
			got <- b
		})
		own := NewLocal(callee)
		defer own.Release()
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		for range 30 {
			size, place := placeRandom(rnd)
			params, err := EncodeParams(size, place)
			if err != nil {
				t.Fatal(err)
			}
			memory := bytes.Clone(params.memory)
			plain := own.Call(ctx, Method{Interface: 1, ID: 2}, size, func(s capnp.Struct, _ *CapTable) error { return place(s) })
			want := <-got
			plain.Release()
			promised, resolve := NewPromise()
			answer := boot.Call(ctx, mEcho, testSize, fill(0, "", own))
			pipelined := answer.Cap(1) // ours, as will turn out
			for name, to := range map[string]*Ref{"local": own, "promised": promised, "pipelined": pipelined} {
				p := to.CallEncoded(ctx, Method{Interface: 1, ID: 2}, params)
				if name == "promised" {
					resolve(own.AddRef(), nil)
				}
				if b := <-got; !bytes.Equal(b, want) {
					t.Fatalf("%s: %x, want %x", name, b, want)
				}
				p.Release()
			}
			pipelined.Release()
			answer.Release()
			promised.Release()
			if !bytes.Equal(params.memory, memory) {
				t.Fatal("a call has changed the parameters")
			}
		}
	})
}

// TestEncodedCallsToAPeer: the message is the same, byte for byte.
func TestEncodedCallsToAPeer(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	for _, traced := range []bool{false, true} {
		for range 50 {
			size, place := placeRandom(rnd)
			params, err := EncodeParams(size, place)
			if err != nil {
				t.Fatal(err)
			}
			message := func(call func(*Ref) *Promise) []byte {
				h := newHostile(t, nil, Limits{})
				if !traced {
					h.c.trace = nil
				}
				boot := h.c.Bootstrap(context.Background())
				defer boot.Release()
				h.c.mu.Lock()
				h.c.out.TakeMessages()
				h.c.mu.Unlock()
				h.say("return a=0 results cap=hosted:7")
				p := call(boot)
				defer p.Release()
				h.c.mu.Lock()
				defer h.c.mu.Unlock()
				messages := h.c.out.TakeMessages()
				return messages[len(messages)-1]
			}
			plain := message(func(r *Ref) *Promise {
				return r.Call(context.Background(), Method{Interface: 1, ID: 2}, size, func(s capnp.Struct, _ *CapTable) error { return place(s) })
			})
			encoded := message(func(r *Ref) *Promise { return r.CallEncoded(context.Background(), Method{Interface: 1, ID: 2}, params) })
			if !bytes.Equal(plain, encoded) {
				t.Fatalf("%d bytes\n%x, want %d\n%x", len(encoded), encoded, len(plain), plain)
			}
		}
	}
}

func TestWhatCannotBeEncodedOnce(t *testing.T) {
	t.Parallel()
	if _, err := EncodeParams(testSize, func(capnp.Struct) error { return errCanceled }); err != errCanceled {
		t.Errorf("%v", err)
	}
	withCap := func(s capnp.Struct) error {
		return s.SetPtr(0, capnp.NewInterface(s.Segment(), s.Message().CapTable().Add(capnp.Client{})).ToPtr())
	}
	if _, err := EncodeParams(testSize, withCap); err == nil {
		t.Error("a capability was encoded")
	}
	var null *Ref
	p := null.CallEncoded(context.Background(), mEcho, &EncodedParams{})
	if _, _, err := p.Wait(context.Background()); err == nil {
		t.Error("a call on nothing has succeeded")
	}
}

// TestEncodedIsKnownToTheCallee of a call within the process, and to no other; and what is made of it is made once.
func TestEncodedIsKnownToTheCallee(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	encoded, err := EncodeParams(testSize, func(capnp.Struct) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *EncodedParams, 1)
	own := NewLocal(callFunc(func(c *Call) {
		c.Return(capnp.ObjectSize{}, nil)
		got <- c.Encoded()
	}))
	defer own.Release()
	promised, resolve := NewPromise()
	defer promised.Release()
	resolve(own, nil)
	for _, c := range []struct {
		name string
		call func() *Promise
		want *EncodedParams
	}{
		{"encoded", func() *Promise { return own.CallEncoded(ctx, mEcho, encoded) }, encoded},
		{"encoded, of a promise", func() *Promise { return promised.CallEncoded(ctx, mEcho, encoded) }, encoded},
		{"not encoded", func() *Promise { return own.Call(ctx, mEcho, testSize, nil) }, nil},
	} {
		p := c.call()
		if p := <-got; p != c.want {
			t.Errorf("%s: the callee finds %p, want %p", c.name, p, c.want)
		}
		p.Release()
	}
	params, made := new(EncodedParams), 0
	for range 2 {
		for _, key := range []string{"x", "y"} {
			if got := params.Derived(key, func() any { made++; return key + "!" }); got != key+"!" {
				t.Errorf("derived %v from %s", got, key)
			}
		}
	}
	if made != 2 {
		t.Errorf("derived %d times, want 2", made)
	}
}
