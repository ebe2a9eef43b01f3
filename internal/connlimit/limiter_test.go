package connlimit

import (
	"sync"
	"testing"
)

func TestGate(t *testing.T) {
	g := New(3, 2)
	for i, step := range []struct {
		address string
		leaves  bool
		want    Bound
		count   int
	}{
		{"a", false, None, 1},
		{"a", false, None, 2},
		{"a", false, PerAddress, 2},
		{"b", false, None, 3},
		{"b", false, Total, 3},
		{"c", false, Total, 3},
		{"a", true, None, 2},
		{"a", false, None, 3},
		{"b", true, None, 2},
		{"c", false, None, 3},
	} {
		met := None
		if step.leaves {
			g.Release(step.address)
		} else {
			met = g.Acquire(step.address)
		}
		if met != step.want || g.Count() != step.count {
			t.Fatalf("step %d: met %d with %d in, want %d with %d", i, met, g.Count(), step.want, step.count)
		}
	}
	for _, address := range []string{"a", "a", "c"} {
		g.Release(address)
	}
	if g.Count() != 0 || len(g.byAddress) != 0 {
		t.Errorf("%d are in, and %d addresses are kept", g.Count(), len(g.byAddress))
	}
	for _, closed := range []*Limiter{New(0, 5), New(5, 0)} {
		if closed.Acquire("a") == None {
			t.Error("a limit of 0 lets somebody in")
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	g := New(10, 10)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 200 {
				if g.Acquire("a") == None {
					if n := g.Count(); n < 1 || n > 10 {
						t.Errorf("%d are in", n)
					}
					g.Release("a")
				}
			}
		})
	}
	all.Wait()
	if g.Count() != 0 {
		t.Errorf("%d are in still", g.Count())
	}
}

// Other limits hold for who comes; who is in stays.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	g := New(3, 2)
	g.Acquire("a")
	g.Acquire("b")
	g.SetLimits(1, 1)
	if met := g.Acquire("c"); met != Total || g.Count() != 2 {
		t.Errorf("beyond the new limit: met %d with %d in", met, g.Count())
	}
	g.SetLimits(4, 1)
	if met := g.Acquire("a"); met != PerAddress {
		t.Errorf("beyond the new one of an address: met %d", met)
	}
	if met := g.Acquire("c"); met != None {
		t.Errorf("within them: met %d", met)
	}
	e := NewEvictingLimiter(2, 1)
	gone := ""
	enter := func(name string) { e.Acquire(name[:1], func() { gone += name }) }
	enter("a1")
	e.SetLimits(5, 3)
	enter("a2")
	enter("a3")
	enter("b1")
	if gone != "" || e.Count() != 4 {
		t.Errorf("%q had to go of what there is room for, %d are in", gone, e.Count())
	}
	e.SetLimits(2, 1)
	enter("a4")
	enter("c1")
	if gone != "a1a2" || e.Count() != 4 {
		t.Errorf("%q had to go, one for one, and %d are in", gone, e.Count())
	}
}
