// Which parameters and results may be read by hand.

package rpc

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/capnpfast"
)

// holds says that content to be read by hand is what fill has written.
func holds(m capnpfast.Message, number uint64, text string) bool {
	s := m.Root()
	return s.Uint64(0) == number && string(s.Text(0)) == text && s.Null(1) && m.Supported()
}

// resolved is the peer's object, when calls on it name it as what it is and not as an answer to come.
func resolved(t *testing.T, v *vats) *Ref {
	t.Helper()
	r := v.a.Bootstrap(testContext(t))
	_, p, err := ask(t, r, mEcho, 0, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	return r
}

func TestPlainContents(t *testing.T) {
	t.Parallel()
	a, b := Pipe()
	v := startVats(t, a, b, Limits{})
	ctx := testContext(t)
	peers := resolved(t, v)
	defer peers.Release()

	p := peers.Call(ctx, mHold, testSize, fill(1, "from afar", nil))
	if _, ok := p.PlainResults(); ok {
		t.Error("there are results before the answer")
	}
	call := <-v.bObj.holding
	params, ok := call.PlainParams()
	if !ok || !holds(params, 1, "from afar") {
		t.Errorf("plain parameters: %v", ok)
	}
	call.Return(testSize, fill(2, "to afar", nil))
	if _, ok := call.PlainParams(); ok {
		t.Error("there are parameters after the answer")
	}
	if _, _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if results, ok := p.PlainResults(); !ok || !holds(results, 2, "to afar") {
		t.Errorf("plain results: %v", ok)
	}
	p.Release()
	if !holds(params, 1, "from afar") {
		t.Error("the parameters have not lasted")
	}

	// With capabilities, as an error, and within a vat.
	p = peers.Call(ctx, mHold, testSize, fill(1, "", peers))
	call = <-v.bObj.holding
	if _, ok := call.PlainParams(); ok {
		t.Error("parameters with a capability are plain")
	}
	r := NewLocal(newTestObject("result"))
	call.Return(testSize, fill(1, "", r))
	r.Release()
	if _, _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.PlainResults(); ok {
		t.Error("results with a capability are plain")
	}
	p.Release()
	_, p, err := ask(t, peers, mFail, uint64(Failed), "no", nil)
	if _, ok := p.PlainResults(); ok || !IsFailed(err) {
		t.Errorf("an error has plain results: %v, %v", ok, err)
	}
	p.Release()
	o := newTestObject("local")
	local := NewLocal(o)
	p = local.Call(ctx, mHold, testSize, fill(1, "", nil))
	call = <-o.holding
	if _, ok := call.PlainParams(); ok {
		t.Error("parameters that did not come from a peer are plain")
	}
	call.Return(testSize, fill(2, "", nil))
	if _, _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.PlainResults(); ok {
		t.Error("results that did not come from a peer are plain")
	}
	p.Release()
	local.Release()
}

// envelopeDepth is how many pointers lead to the content of a message.
const envelopeDepth = 3

// Where nothing may nest deep, who reads by hand would not notice that something does.
func TestPlainContentsOfShallowMessages(t *testing.T) {
	t.Parallel()
	for nesting, plain := range map[int]bool{envelopeDepth + capnpfast.MaxDepth: false, envelopeDepth + capnpfast.MaxDepth + 1: true} {
		a, b := Pipe()
		v := startVats(t, a, b, Limits{Nesting: nesting})
		ctx := testContext(t)
		peers := resolved(t, v)
		p := peers.Call(ctx, mHold, testSize, fill(1, "", nil))
		call := <-v.bObj.holding
		if _, ok := call.PlainParams(); ok != plain {
			t.Errorf("with a nesting of %d, parameters are plain: %v", nesting, ok)
		}
		call.Return(testSize, fill(2, "", nil))
		if _, _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, ok := p.PlainResults(); ok != plain {
			t.Errorf("with a nesting of %d, results are plain: %v", nesting, ok)
		}
		p.Release()
		peers.Release()
	}
}
