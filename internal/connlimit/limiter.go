// Package connlimit bounds how many connections there may be at once, in total and from one address: a Limiter refuses
// further ones, an EvictingLimiter makes room for them.
//
// A limiter has one lock, under which nothing is called.
package connlimit

import "sync"

// Limiter counts connections by address. It is safe for concurrent use.
type Limiter struct {
	mu                sync.Mutex
	limit, perAddress int
	n                 int
	byAddress         map[string]int
}

// New returns a Limiter for at most limit at once, and perAddress from one address. With a limit of 0 none is admitted.
func New(limit, perAddress int) *Limiter {
	return &Limiter{limit: limit, perAddress: perAddress, byAddress: map[string]int{}}
}

// SetLimits changes the limits for further connections. Admitted ones stay.
func (g *Limiter) SetLimits(limit, perAddress int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.perAddress = limit, perAddress
}

// Bound is a limit that was reached.
type Bound int

// The bounds of a limiter.
const (
	None Bound = iota
	Total
	PerAddress
)

// Acquire admits one more connection from an address (None), which must be released once, or returns the bound reached.
func (g *Limiter) Acquire(address string) Bound {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.n >= g.limit:
		return Total
	case g.byAddress[address] >= g.perAddress:
		return PerAddress
	}
	g.n++
	g.byAddress[address]++
	return None
}

// Release counts one connection from an address out.
func (g *Limiter) Release(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.byAddress[address]--; g.byAddress[address] == 0 {
		delete(g.byAddress, address)
	}
}

// Count returns how many are admitted.
func (g *Limiter) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
