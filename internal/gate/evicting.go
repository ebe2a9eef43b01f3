// Evicting: a gate that makes room.

package gate

import (
	"container/list"
	"sync"
)

// Evicting bounds how many there may be at once, in all and from one address, and never turns anybody away: at the bound on
// an address that address's oldest has to go, and at the bound on all the oldest of the address that has most. So who comes
// with many at once takes the room of nobody but itself, however many addresses do so. Those that are busy go last. It is
// safe for concurrent use.
type Evicting struct {
	mu                sync.Mutex
	limit, perAddress int
	n                 int
	from              map[string]*crowd
	size              []map[*crowd]struct{} // the addresses that have so many
	most              int                   // the most that one has
}

// crowd is all of one address, the oldest first.
type crowd struct {
	address    string
	idle, busy list.List // of *Entry
}

func (c *crowd) n() int { return c.idle.Len() + c.busy.Len() }

// Entry is one that is in.
type Entry struct {
	crowd *crowd // nil: it is out
	busy  bool
	at    *list.Element // in one of crowd's lists
	evict func()
}

// NewEvicting makes an Evicting for so many at once, and so many of one address; both are at least 1.
func NewEvicting(limit, perAddress int) *Evicting {
	return &Evicting{limit: limit, perAddress: perAddress, from: map[string]*crowd{}, size: make([]map[*crowd]struct{}, perAddress+1)}
}

// SetLimits has others hold for who comes from now on, each of whom takes the place of one at most: where there are more than
// may be, they get no more.
func (e *Evicting) SetLimits(limit, perAddress int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit, e.perAddress = limit, perAddress
	if more := perAddress + 1 - len(e.size); more > 0 {
		e.size = append(e.size, make([]map[*crowd]struct{}, more)...)
	}
}

// Enter lets one more of an address in. evict is called, without a lock held, when it has to go: it is out then. met is the
// limit for which another had to.
func (e *Evicting) Enter(address string, evict func()) (entry *Entry, met Met) {
	e.mu.Lock()
	c := e.from[address]
	if c == nil {
		c = &crowd{address: address}
		e.from[address] = c
	}
	var gone *Entry
	switch {
	case c.n() >= e.perAddress:
		gone, met = c.oldest(), PerAddress
	case e.n >= e.limit:
		gone, met = c.oldest(), Limit
		if c.n() < e.most {
			for crowd := range e.size[e.most] {
				gone = crowd.oldest()
				break
			}
		}
	}
	if gone != nil {
		e.remove(gone)
		e.from[address] = c // it may have been the last of its address
	}
	entry = &Entry{crowd: c, evict: evict}
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
func (c *crowd) oldest() *Entry {
	for _, l := range []*list.List{&c.idle, &c.busy} {
		if at := l.Front(); at != nil {
			return at.Value.(*Entry)
		}
	}
	return nil
}

// resize notes how many an address has, which had was. The lock is held.
func (e *Evicting) resize(c *crowd, was int) {
	n := c.n()
	delete(e.size[was], c)
	if n > 0 {
		if e.size[n] == nil {
			e.size[n] = map[*crowd]struct{}{}
		}
		e.size[n][c] = struct{}{}
	} else {
		delete(e.from, c.address)
	}
	e.most = max(e.most, n)
	for e.most > 0 && len(e.size[e.most]) == 0 {
		e.most--
	}
}

// remove takes one out. The lock is held.
func (e *Evicting) remove(entry *Entry) {
	c := entry.crowd
	entry.crowd = nil
	if entry.busy {
		c.busy.Remove(entry.at)
	} else {
		c.idle.Remove(entry.at)
	}
	e.n--
	e.resize(c, c.n()+1)
}

// Busy says whether one does what it has come for; who stops is the youngest of those that do not.
func (e *Evicting) Busy(entry *Entry, busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := entry.crowd
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

// Leave takes one out, if it is in.
func (e *Evicting) Leave(entry *Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if entry.crowd != nil {
		e.remove(entry)
	}
}

// Count is how many are in.
func (e *Evicting) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}
