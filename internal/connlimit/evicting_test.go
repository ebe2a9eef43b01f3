package connlimit

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// Steps: a name comes in from the address that is its first letter; +name is busy, -name leaves, =name is busy no more.
func TestEvicting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ steps, gone, met string }{
		{"a1 a2 b1 c1", "", ""},
		{"a1 a2 a3 b1 c1", "a1", "limit"},
		{"a1 a2 a3 a4", "a1", "address"},
		{"a1 a2 a3 b1 c1 d1", "a1 a2", "limit limit"},
		{"+a1 a2 a3 b1 c1", "a2", "limit"},
		{"+a1 +a2 +a3 b1 c1", "a1", "limit"},
		{"+a1 a2 a3 =a1 b1 c1", "a2", "limit"},
		{"a1 a2 a3 -a1 b1 c1", "", ""},
		{"a1 b1 c1 d1 d2", "d1", "limit"},
	} {
		e := NewEvictingLimiter(4, 3)
		entries, gone, mets := map[string]*Entry{}, []string{}, []string{}
		for _, step := range strings.Fields(c.steps) {
			name := strings.TrimLeft(step, "+-=")
			if entries[name] == nil {
				entry, met := e.Acquire(name[:1], func() { gone = append(gone, name) })
				entries[name] = entry
				if met != None {
					mets = append(mets, map[Bound]string{Total: "limit", PerAddress: "address"}[met])
				}
			}
			switch step[0] {
			case '-':
				e.Release(entries[name])
			case '+', '=':
				e.SetBusy(entries[name], step[0] == '+')
			}
		}
		if strings.Join(gone, " ") != c.gone || strings.Join(mets, " ") != c.met {
			t.Errorf("%s: %v had to go for %v, want %s for %s", c.steps, gone, mets, c.gone, c.met)
		}
	}
}

// Whatever comes and goes, the bounds hold, and what is counted is what is in.
func TestManyEvicted(t *testing.T) {
	t.Parallel()
	e, seeds := NewEvictingLimiter(20, 8), seed.Of(t)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seeds, uint64(g)))
			var in []*Entry
			for range 2000 {
				if len(in) == 0 || random.IntN(3) > 0 {
					entry, _ := e.Acquire(string(rune('a'+random.IntN(5))), func() {})
					in = append(in, entry)
				} else {
					at := random.IntN(len(in))
					e.SetBusy(in[at], random.IntN(2) == 0)
					if random.IntN(2) == 0 {
						e.Release(in[at])
						in = slices.Delete(in, at, at+1)
					}
				}
				if n := e.Count(); n > 20 {
					t.Errorf("%d are in", n)
				}
			}
			for _, entry := range in {
				e.Release(entry)
			}
		})
	}
	all.Wait()
	if e.Count() != 0 || len(e.byAddress) != 0 || e.largest != 0 {
		t.Errorf("%d are in from %d addresses, %d of one", e.Count(), len(e.byAddress), e.largest)
	}
}
