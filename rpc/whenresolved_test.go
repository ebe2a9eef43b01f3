package rpc

import (
	"testing"

	"capnproto.org/go/capnp/v3"
)

type nothing struct{}

func (*nothing) Serve(c *Call) { c.Return(capnp.ObjectSize{}, nil) }

func TestSettled(t *testing.T) {
	t.Parallel()
	object := NewLocal(&nothing{})
	defer object.Release()
	notified := 0
	object.WhenResolved(func() { notified++ })
	NewBroken(Failedf("broken")).WhenResolved(func() { notified++ })
	(*Ref)(nil).WhenResolved(func() { notified++ })
	if notified != 3 {
		t.Fatalf("%d of 3 were told at once", notified)
	}

	inner, resolveInner := NewPromise()
	outer, resolveOuter := NewPromise()
	defer inner.Release()
	defer outer.Release()
	outer.WhenResolved(func() { notified++ })
	resolveOuter(inner, nil)
	if notified != 3 || outer.Object() != nil {
		t.Fatal("a promise of a promise is not settled")
	}
	resolveInner(object, nil)
	if notified != 4 || outer.Object() != object.Object() {
		t.Fatalf("told %d times, it leads to %v", notified, outer.Object())
	}
	outer.WhenResolved(func() { notified++ })
	if notified != 5 {
		t.Fatal("what is settled is told at once")
	}
}
