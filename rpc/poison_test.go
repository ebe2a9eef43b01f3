// That memory which is used again shows it: whoever uses it after it was given back meets poison.

package rpc

import (
	"bytes"
	"context"
	"testing"

	"capnproto.org/go/capnp/v3"
)

// A struct kept beyond its place function, against the rules, is garbage at once.
func TestKeptPlaceIsPoison(t *testing.T) {
	t.Parallel()
	h := newHostile(t, newTestObject("boot"), Limits{})
	boot := h.c.Bootstrap(context.Background())
	defer boot.Release()
	var kept capnp.Struct
	p := boot.Call(context.Background(), mEcho, testSize, func(s capnp.Struct, _ *CapTable) error {
		kept = s
		s.SetUint64(0, 7)
		return s.SetText(0, "params")
	})
	defer p.Release()
	if n := kept.Uint64(0); n != 0xa7a7a7a7a7a7a7a7 {
		t.Errorf("the number is %x still", n)
	}
	if text := textOf(kept, 0); text == "params" {
		t.Error("the text can be read still")
	}
}

// Parameters and results are no pooled memory: they stay, whatever comes after them.
func TestKeptMessagesStay(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	ctx := testContext(t)
	p := boot.Call(ctx, mHold, testSize, fill(5, "kept parameters", nil))
	defer p.Release()
	call := <-v.bObj.holding
	params, _ := call.Params()
	call.Return(testSize, fill(6, "kept results", nil))
	results, _, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, q, err := ask(t, boot, mEcho, uint64(i), "something else", nil); err != nil {
			t.Fatal(err)
		} else {
			q.Release()
		}
	}
	if params.Uint64(0) != 5 || textOf(params, 0) != "kept parameters" {
		t.Errorf("the parameters are %d, %q", params.Uint64(0), textOf(params, 0))
	}
	if results.Uint64(0) != 6 || textOf(results, 0) != "kept results" {
		t.Errorf("the results are %d, %q", results.Uint64(0), textOf(results, 0))
	}
}

// keeper is a transport that keeps what it is given to write, against the rules.
type keeper struct {
	Transport
	first []byte
	wrote chan struct{}
}

func (k *keeper) WriteBatch(ctx context.Context, b []byte) error {
	err := k.Transport.WriteBatch(ctx, b)
	if k.first == nil {
		k.first = b
		close(k.wrote)
	}
	return err
}

func TestWrittenBytesArePoison(t *testing.T) {
	t.Parallel()
	a, b := Pipe()
	k := &keeper{Transport: a, wrote: make(chan struct{})}
	v := startVats(t, k, b, Limits{})
	boot := v.a.Bootstrap(testContext(t))
	<-k.wrote
	boot.Release()
	v.a.Close("enough")
	v.wait(t)
	if !bytes.Equal(k.first, bytes.Repeat([]byte{0xa7}, len(k.first))) {
		t.Errorf("bytes that were written can be used still: %x", k.first)
	}
}
