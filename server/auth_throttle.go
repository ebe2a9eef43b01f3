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
	maxDelayedReplies     = 64
	maxThrottledAddresses = 1 << 16
)

// authThrottle is a bucket of tries for each address, which fills up by one an
// interval. What is taken from an empty one is owed, also by connections that
// have ended: coming back is no way around it. Safe for concurrent use.
type authThrottle struct {
	maxAddresses int // addresses
	limitHits    *limitHits

	mu       sync.Mutex
	burst    int
	interval time.Duration
	closed   bool                       // nothing waits any more
	buckets  map[string]*throttleBucket // addresses whose bucket is not full
}

// throttleBucket is one address's bucket, with the answers that wait for it.
type throttleBucket struct {
	fullAt  time.Time // when the bucket is full again
	waiting []delayedReply
	timer   *time.Timer
	ticking bool // tick runs, and will look at what is here
}

// peerConn is the connection that a call came over, of whichever wire.
type peerConn interface {
	RemoteAddr() string
	Abort(why error)
	Done() <-chan struct{} // closed when it has ended
}

// delayedReply is an answer that waits.
type delayedReply struct {
	due  time.Time
	conn peerConn
	send func()
}

func newAuthThrottle(burst int, every time.Duration, met *limitHits) *authThrottle {
	return &authThrottle{burst: burst, interval: every, maxAddresses: maxThrottledAddresses, limitHits: met, buckets: map[string]*throttleBucket{}}
}

// setLimits has others hold for tries from now on; answers that wait are due when they were.
func (w *authThrottle) setLimits(burst int, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.burst, w.interval = burst, every
}

// respond has give called when the address that a call came from may be told that
// it was wrong: now, or later in the order of its tries. An address that has too
// many answers to wait for loses the connection before.
func (w *authThrottle) respond(from peerConn, give func()) {
	wait, over := w.reserve(addressOf(from.RemoteAddr()), from, give)
	if over > 0 {
		from.Abort(exception{fault.Overloaded.With("too many refs from this address were wrong: wait %v before the next one", over)})
	}
	if !wait {
		give()
	}
}

// connEnded says that a connection has ended, so that leave was called or will be.
func connEnded(from peerConn) bool {
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

// reserve takes a try from an address's bucket. wait says that the answer is
// kept until it is due, over, where it is not 0, that it was not even counted, and how
// long it takes until all are given that are kept.
func (w *authThrottle) reserve(address string, from peerConn, give func()) (wait bool, over time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || connEnded(from) {
		return false, 0
	}
	now := time.Now()
	a := w.buckets[address]
	if a == nil && len(w.buckets) >= w.maxAddresses {
		address = ""
		a = w.buckets[address]
	}
	if a == nil {
		a = &throttleBucket{fullAt: now}
		a.timer = time.AfterFunc(time.Duration(w.burst)*w.interval, func() { w.tick(address, a) })
		w.buckets[address] = a
	}
	if a.fullAt.Before(now) {
		a.fullAt = now
	}
	due := a.fullAt.Add(w.interval - time.Duration(w.burst)*w.interval)
	if due.Sub(now) > maxDelayedReplies*w.interval {
		w.limitHits.add(limitWrongTries)
		return false, w.interval * maxDelayedReplies
	}
	a.fullAt = a.fullAt.Add(w.interval)
	if !due.After(now) {
		return false, 0
	}
	w.limitHits.add(limitWrongTries)
	a.waiting = append(a.waiting, delayedReply{due, from, give})
	if len(a.waiting) == 1 && !a.ticking {
		a.timer.Reset(due.Sub(now))
	}
	return true, 0
}

// tick gives the answers that are due, and forgets the address when its bucket
// is full. One at a time runs for an address: so answers keep their order.
func (w *authThrottle) tick(address string, a *throttleBucket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.ticking {
		return
	}
	a.ticking = true
	defer func() { a.ticking = false }()
	for w.buckets[address] == a {
		now := time.Now()
		switch {
		case len(a.waiting) > 0 && !a.waiting[0].due.After(now):
			next := a.waiting[0]
			a.waiting = slices.Delete(a.waiting, 0, 1)
			w.mu.Unlock()
			next.send()
			w.mu.Lock()
			continue
		case len(a.waiting) > 0:
			a.timer.Reset(a.waiting[0].due.Sub(now))
		case a.fullAt.After(now):
			a.timer.Reset(a.fullAt.Sub(now))
		default:
			delete(w.buckets, address)
		}
		return
	}
}

// dropConn drops what waits for a connection that has ended: its calls are over. What
// is dropped is given back, for calls that somebody waits for still.
func (w *authThrottle) dropConn(from peerConn) (dropped []func()) {
	address := addressOf(from.RemoteAddr())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range []*throttleBucket{w.buckets[address], w.buckets[""]} {
		if a != nil {
			a.waiting = slices.DeleteFunc(a.waiting, func(h delayedReply) bool {
				if h.conn == from {
					dropped = append(dropped, h.send)
				}
				return h.conn == from
			})
		}
	}
	return dropped
}

// close gives every answer that waits, and from then on all at once: nobody can
// wait for a server that is stopping.
func (w *authThrottle) close() {
	w.mu.Lock()
	all := w.buckets
	w.closed, w.buckets = true, nil
	w.mu.Unlock()
	for _, a := range all {
		a.timer.Stop()
		for _, h := range a.waiting {
			h.send()
		}
	}
}
