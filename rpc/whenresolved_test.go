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
	told := 0
	object.WhenResolved(func() { told++ })
	NewBroken(Failedf("broken")).WhenResolved(func() { told++ })
	(*Ref)(nil).WhenResolved(func() { told++ })
	if told != 3 {
		t.Fatalf("%d of 3 were told at once", told)
	}

	inner, resolveInner := NewPromise()
	outer, resolveOuter := NewPromise()
	defer inner.Release()
	defer outer.Release()
	outer.WhenResolved(func() { told++ })
	resolveOuter(inner, nil)
	if told != 3 || outer.Object() != nil {
		t.Fatal("a promise of a promise is not settled")
	}
	resolveInner(object, nil)
	if told != 4 || outer.Object() != object.Object() {
		t.Fatalf("told %d times, it leads to %v", told, outer.Object())
	}
	outer.WhenResolved(func() { told++ })
	if told != 5 {
		t.Fatal("what is settled is told at once")
	}
}
