package gate

import (
	"sync"
	"testing"
)

func TestGate(t *testing.T) {
	g := New(3, 2)
	for i, step := range []struct {
		address string
		leaves  bool
		want    Met
		count   int
	}{
		{"a", false, None, 1},
		{"a", false, None, 2},
		{"a", false, PerAddress, 2},
		{"b", false, None, 3},
		{"b", false, Limit, 3},
		{"c", false, Limit, 3},
		{"a", true, None, 2},
		{"a", false, None, 3},
		{"b", true, None, 2},
		{"c", false, None, 3},
	} {
		met := None
		if step.leaves {
			g.Leave(step.address)
		} else {
			met = g.Enter(step.address)
		}
		if met != step.want || g.Count() != step.count {
			t.Fatalf("step %d: met %d with %d in, want %d with %d", i, met, g.Count(), step.want, step.count)
		}
	}
	for _, address := range []string{"a", "a", "c"} {
		g.Leave(address)
	}
	if g.Count() != 0 || len(g.from) != 0 {
		t.Errorf("%d are in, and %d addresses are kept", g.Count(), len(g.from))
	}
	for _, closed := range []*Gate{New(0, 5), New(5, 0)} {
		if closed.Enter("a") == None {
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
				if g.Enter("a") == None {
					if n := g.Count(); n < 1 || n > 10 {
						t.Errorf("%d are in", n)
					}
					g.Leave("a")
				}
			}
		})
	}
	all.Wait()
	if g.Count() != 0 {
		t.Errorf("%d are in still", g.Count())
	}
}
