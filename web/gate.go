// How many pages may be on their way at once.

package web

import (
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// gate counts who is in, by address. It is safe for concurrent use.
type gate struct {
	limit, perAddress int

	mu   sync.Mutex
	n    int
	from map[string]int
}

func newGate(limit, perAddress int) *gate {
	return &gate{limit: limit, perAddress: perAddress, from: map[string]int{}}
}

// enter lets one more of an address in, who calls leave; or it is Overloaded.
func (g *gate) enter(address string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.n >= g.limit:
		return nil, fault.Overloaded.With("too many pages are being loaded here now: try again in a moment")
	case g.from[address] >= g.perAddress:
		return nil, fault.Overloaded.With("too many pages are being loaded from this address now: try again in a moment")
	}
	g.n++
	g.from[address]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.n--
		if g.from[address]--; g.from[address] == 0 {
			delete(g.from, address)
		}
	}, nil
}
