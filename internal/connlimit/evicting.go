// EvictingLimiter: a limiter that makes room.

package connlimit

import (
	"container/list"
	"sync"
)

// EvictingLimiter bounds how many there may be at once, in total and from one address, and never refuses one: at the bound of
// an address that address's oldest is evicted, and at the total bound the oldest of the address that has the most. So an
// address with many connections evicts only its own, however many addresses do so. Busy ones are evicted last. It is
// safe for concurrent use.
type EvictingLimiter struct {
	mu                sync.Mutex
	limit, perAddress int
	n                 int
	byAddress         map[string]*addressEntries
	bySize            []map[*addressEntries]struct{} // the addresses by how many connections they have
	largest           int                            // how many the largest has
}

// addressEntries holds the entries of one address, the oldest first.
type addressEntries struct {
	address    string
	idle, busy list.List // of *Entry
}

func (c *addressEntries) n() int { return c.idle.Len() + c.busy.Len() }

// Entry is one admitted connection.
type Entry struct {
	peers *addressEntries // nil: released or evicted
	busy  bool
	at    *list.Element // in one of the lists of peers
	evict func()
}

// NewEvictingLimiter returns an EvictingLimiter for at most limit at once, and perAddress from one address; both are at
// least 1.
func NewEvictingLimiter(limit, perAddress int) *EvictingLimiter {
	return &EvictingLimiter{limit: limit, perAddress: perAddress, byAddress: map[string]*addressEntries{}, bySize: make([]map[*addressEntries]struct{}, perAddress+1)}
}

// SetLimits changes the limits for further connections. Each of those evicts at most one: where there are more than the new
// limits allow, their number grows no further.
func (e *EvictingLimiter) SetLimits(limit, perAddress int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit, e.perAddress = limit, perAddress
	if more := perAddress + 1 - len(e.bySize); more > 0 {
		e.bySize = append(e.bySize, make([]map[*addressEntries]struct{}, more)...)
	}
}

// Acquire admits one more connection from an address. evict is called, without a lock held, when it is evicted. met is the
// limit for which another one was evicted.
func (e *EvictingLimiter) Acquire(address string, evict func()) (entry *Entry, met Bound) {
	e.mu.Lock()
	c := e.byAddress[address]
	if c == nil {
		c = &addressEntries{address: address}
		e.byAddress[address] = c
	}
	var gone *Entry
	switch {
	case c.n() >= e.perAddress:
		gone, met = c.oldest(), PerAddress
	case e.n >= e.limit:
		gone, met = c.oldest(), Total
		if c.n() < e.largest {
			for crowd := range e.bySize[e.largest] {
				gone = crowd.oldest()
				break
			}
		}
	}
	if gone != nil {
		e.remove(gone)
		e.byAddress[address] = c // it may have been the last of its address
	}
	entry = &Entry{peers: c, evict: evict}
	entry.at = c.idle.PushBack(entry)
	e.n++
	e.resize(c, c.n()-1)
	e.mu.Unlock()
	if gone != nil {
		gone.evict()
	}
	return entry, met
}

// oldest returns the one to be evicted first.
func (c *addressEntries) oldest() *Entry {
	for _, l := range []*list.List{&c.idle, &c.busy} {
		if at := l.Front(); at != nil {
			return at.Value.(*Entry)
		}
	}
	return nil
}

// resize updates bySize for an address, which had was entries. The lock is held.
func (e *EvictingLimiter) resize(c *addressEntries, was int) {
	n := c.n()
	delete(e.bySize[was], c)
	if n > 0 {
		if e.bySize[n] == nil {
			e.bySize[n] = map[*addressEntries]struct{}{}
		}
		e.bySize[n][c] = struct{}{}
	} else {
		delete(e.byAddress, c.address)
	}
	e.largest = max(e.largest, n)
	for e.largest > 0 && len(e.bySize[e.largest]) == 0 {
		e.largest--
	}
}

// remove removes an entry. The lock is held.
func (e *EvictingLimiter) remove(entry *Entry) {
	c := entry.peers
	entry.peers = nil
	if entry.busy {
		c.busy.Remove(entry.at)
	} else {
		c.idle.Remove(entry.at)
	}
	e.n--
	e.resize(c, c.n()+1)
}

// SetBusy marks a connection as busy or idle; one that becomes idle is the youngest of the idle ones.
func (e *EvictingLimiter) SetBusy(entry *Entry, busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := entry.peers
	if c == nil || entry.busy == busy {
		return
	}
	from, to := &c.idle, &c.busy
	if entry.busy {
		from, to = to, from
	}
	from.Remove(entry.at)
	entry.at, entry.busy = to.PushBack(entry), busy
}

// Release removes a connection, if it was not evicted.
func (e *EvictingLimiter) Release(entry *Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if entry.peers != nil {
		e.remove(entry)
	}
}

// Count returns how many are admitted.
func (e *EvictingLimiter) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}
