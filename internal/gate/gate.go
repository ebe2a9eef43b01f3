// Package gate bounds how many of something there may be at once, in all and from one address: a Gate turns away who is too
// many, an Evicting makes room for them.
package gate

import "sync"

// Gate counts who is in, by address. It is safe for concurrent use.
type Gate struct {
	mu                sync.Mutex
	limit, perAddress int
	n                 int
	from              map[string]int
}

// New makes a Gate for so many at once, and so many of one address. With a limit of 0 nobody gets in.
func New(limit, perAddress int) *Gate {
	return &Gate{limit: limit, perAddress: perAddress, from: map[string]int{}}
}

// SetLimits has others hold for who comes from now on. Who is in stays.
func (g *Gate) SetLimits(limit, perAddress int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.perAddress = limit, perAddress
}

// Met is a limit that somebody met.
type Met int

// The limits of a Gate.
const (
	None Met = iota
	Limit
	PerAddress
)

// Enter lets one more of an address in, or names the limit that is met. Who was let in (None) has to Leave, once.
func (g *Gate) Enter(address string) Met {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.n >= g.limit:
		return Limit
	case g.from[address] >= g.perAddress:
		return PerAddress
	}
	g.n++
	g.from[address]++
	return None
}

// Leave counts one of an address out.
func (g *Gate) Leave(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.from[address]--; g.from[address] == 0 {
		delete(g.from, address)
	}
}

// Count is how many are in.
func (g *Gate) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
