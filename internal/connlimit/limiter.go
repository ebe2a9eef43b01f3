// Package connlimit bounds how many of something there may be at once, in all and from one address: a Limiter turns away who is too
// many, an EvictingLimiter makes room for them.
package connlimit

import "sync"

// Limiter counts who is in, by address. It is safe for concurrent use.
type Limiter struct {
	mu                sync.Mutex
	limit, perAddress int
	n                 int
	byAddress         map[string]int
}

// New makes a Limiter for so many at once, and so many of one address. With a limit of 0 nobody gets in.
func New(limit, perAddress int) *Limiter {
	return &Limiter{limit: limit, perAddress: perAddress, byAddress: map[string]int{}}
}

// SetLimits has others hold for who comes from now on. Who is in stays.
func (g *Limiter) SetLimits(limit, perAddress int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.perAddress = limit, perAddress
}

// Bound is a limit that somebody met.
type Bound int

// The limits of a Limiter.
const (
	None Bound = iota
	Total
	PerAddress
)

// Acquire lets one more of an address in, or names the limit that is met. Who was let in (None) has to Release, once.
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

// Release counts one of an address out.
func (g *Limiter) Release(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.byAddress[address]--; g.byAddress[address] == 0 {
		delete(g.byAddress, address)
	}
}

// Count is how many are in.
func (g *Limiter) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
