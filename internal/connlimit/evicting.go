// EvictingLimiter: a limiter that makes room.

package connlimit

import (
	"container/list"
	"sync"
)

// EvictingLimiter bounds how many there may be at once, in all and from one address, and never turns anybody away: at the bound on
// an address that address's oldest has to go, and at the bound on all the oldest of the address that has most. So who comes
// with many at once takes the room of nobody but itself, however many addresses do so. Those that are busy go last. It is
// safe for concurrent use.
type EvictingLimiter struct {
	mu                sync.Mutex
	limit, perAddress int
	n                 int
	byAddress         map[string]*addressEntries
	bySize            []map[*addressEntries]struct{} // the addresses that have so many
	largest           int                            // the most that one has
}

// addressEntries is all of one address, the oldest first.
type addressEntries struct {
	address    string
	idle, busy list.List // of *Entry
}

func (c *addressEntries) n() int { return c.idle.Len() + c.busy.Len() }

// Entry is one that is in.
type Entry struct {
	peers *addressEntries // nil: it is out
	busy  bool
	at    *list.Element // in one of crowd's lists
	evict func()
}

// NewEvictingLimiter makes an EvictingLimiter for so many at once, and so many of one address; both are at least 1.
func NewEvictingLimiter(limit, perAddress int) *EvictingLimiter {
	return &EvictingLimiter{limit: limit, perAddress: perAddress, byAddress: map[string]*addressEntries{}, bySize: make([]map[*addressEntries]struct{}, perAddress+1)}
}

// SetLimits has others hold for who comes from now on, each of whom takes the place of one at most: where there are more than
// may be, they get no more.
func (e *EvictingLimiter) SetLimits(limit, perAddress int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit, e.perAddress = limit, perAddress
	if more := perAddress + 1 - len(e.bySize); more > 0 {
		e.bySize = append(e.bySize, make([]map[*addressEntries]struct{}, more)...)
	}
}

// Acquire lets one more of an address in. evict is called, without a lock held, when it has to go: it is out then. met is the
// limit for which another had to.
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

// oldest is the one that has to go first.
func (c *addressEntries) oldest() *Entry {
	for _, l := range []*list.List{&c.idle, &c.busy} {
		if at := l.Front(); at != nil {
			return at.Value.(*Entry)
		}
	}
	return nil
}

// resize notes how many an address has, which had was. The lock is held.
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

// remove takes one out. The lock is held.
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

// SetBusy says whether one does what it has come for; who stops is the youngest of those that do not.
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

// Release takes one out, if it is in.
func (e *EvictingLimiter) Release(entry *Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if entry.peers != nil {
		e.remove(entry)
	}
}

// Count is how many are in.
func (e *EvictingLimiter) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}
