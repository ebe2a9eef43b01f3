// Wrong tries: who shows a ref that there is not, or not with that secret, is
// told so at once a few times, and then once in a while. The check itself always
// runs, so that whoever has the right secret gets in whatever others of the same
// address try; only the answer to a wrong one waits.

package server

import (
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds of what is kept: of one address's answers that wait, and of addresses.
// More addresses than that share one account.
const (
	triesWithheld  = 64
	triesAddresses = 1 << 16
)

// wrongTries is a bucket of tries for each address, which fills up by one an
// interval. What is taken from an empty one is owed, also by connections that
// have ended: coming back is no way around it. Safe for concurrent use.
type wrongTries struct {
	most int // addresses
	met  *boundHits

	mu     sync.Mutex
	burst  int
	every  time.Duration
	closed bool                // nothing waits any more
	from   map[string]*account // addresses whose bucket is not full
}

// account is one address's bucket, with the answers that wait for it.
type account struct {
	full    time.Time // when the bucket is full again
	waiting []withheld
	timer   *time.Timer
	ticking bool // tick runs, and will look at what is here
}

// origin is the connection that a call came over, of whichever wire.
type origin interface {
	RemoteAddr() string
	Abort(why error)
	Done() <-chan struct{} // closed when it has ended
}

// withheld is an answer that waits.
type withheld struct {
	due  time.Time
	from origin
	give func()
}

func newWrongTries(burst int, every time.Duration, met *boundHits) *wrongTries {
	return &wrongTries{burst: burst, every: every, most: triesAddresses, met: met, from: map[string]*account{}}
}

// setLimits has others hold for tries from now on; answers that wait are due when they were.
func (w *wrongTries) setLimits(burst int, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.burst, w.every = burst, every
}

// answer has give called when the address that a call came from may be told that
// it was wrong: now, or later in the order of its tries. An address that has too
// many answers to wait for loses the connection before.
func (w *wrongTries) answer(from origin, give func()) {
	wait, over := w.withhold(addressOf(from.RemoteAddr()), from, give)
	if over > 0 {
		from.Abort(exception{fault.Overloaded.With("too many refs from this address were wrong: wait %v before the next one", over)})
	}
	if !wait {
		give()
	}
}

// ended says that a connection has ended, so that leave was called or will be.
func ended(from origin) bool {
	if from == nil {
		return false
	}
	select {
	case <-from.Done():
		return true
	default:
		return false
	}
}

// withhold takes a try from an address's bucket. wait says that the answer is
// kept until it is due, over, where it is not 0, that it was not even counted, and how
// long it takes until all are given that are kept.
func (w *wrongTries) withhold(address string, from origin, give func()) (wait bool, over time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || ended(from) {
		return false, 0
	}
	now := time.Now()
	a := w.from[address]
	if a == nil && len(w.from) >= w.most {
		address = ""
		a = w.from[address]
	}
	if a == nil {
		a = &account{full: now}
		a.timer = time.AfterFunc(time.Duration(w.burst)*w.every, func() { w.tick(address, a) })
		w.from[address] = a
	}
	if a.full.Before(now) {
		a.full = now
	}
	due := a.full.Add(w.every - time.Duration(w.burst)*w.every)
	if due.Sub(now) > triesWithheld*w.every {
		w.met.add(boundWrongTries)
		return false, w.every * triesWithheld
	}
	a.full = a.full.Add(w.every)
	if !due.After(now) {
		return false, 0
	}
	w.met.add(boundWrongTries)
	a.waiting = append(a.waiting, withheld{due, from, give})
	if len(a.waiting) == 1 && !a.ticking {
		a.timer.Reset(due.Sub(now))
	}
	return true, 0
}

// tick gives the answers that are due, and forgets the address when its bucket
// is full. One at a time runs for an address: so answers keep their order.
func (w *wrongTries) tick(address string, a *account) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.ticking {
		return
	}
	a.ticking = true
	defer func() { a.ticking = false }()
	for w.from[address] == a {
		now := time.Now()
		switch {
		case len(a.waiting) > 0 && !a.waiting[0].due.After(now):
			next := a.waiting[0]
			a.waiting = slices.Delete(a.waiting, 0, 1)
			w.mu.Unlock()
			next.give()
			w.mu.Lock()
			continue
		case len(a.waiting) > 0:
			a.timer.Reset(a.waiting[0].due.Sub(now))
		case a.full.After(now):
			a.timer.Reset(a.full.Sub(now))
		default:
			delete(w.from, address)
		}
		return
	}
}

// leave drops what waits for a connection that has ended: its calls are over. What
// is dropped is given back, for calls that somebody waits for still.
func (w *wrongTries) leave(from origin) (dropped []func()) {
	address := addressOf(from.RemoteAddr())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range []*account{w.from[address], w.from[""]} {
		if a != nil {
			a.waiting = slices.DeleteFunc(a.waiting, func(h withheld) bool {
				if h.from == from {
					dropped = append(dropped, h.give)
				}
				return h.from == from
			})
		}
	}
	return dropped
}

// close gives every answer that waits, and from then on all at once: nobody can
// wait for a server that is stopping.
func (w *wrongTries) close() {
	w.mu.Lock()
	all := w.from
	w.closed, w.from = true, nil
	w.mu.Unlock()
	for _, a := range all {
		a.timer.Stop()
		for _, h := range a.waiting {
			h.give()
		}
	}
}
