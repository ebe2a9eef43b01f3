// The throttle of wrong tries: a peer that shows an unknown ref, or a wrong secret, is answered
// at once a few times, and then at a fixed interval. The check itself always runs, so that a
// correct ref is accepted whatever else its address tries; only the refusal is delayed.

package admission

import (
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds: the delayed answers of one address, and the addresses tracked. Further addresses share
// one bucket.
const (
	maxDelayedReplies     = 64
	maxThrottledAddresses = 1 << 16
)

// AuthThrottle is a token bucket of tries for each address, refilled by one an interval. An
// empty bucket goes into debt, and the debt survives the connection, so that reconnecting does
// not help. It is safe for concurrent use.
type AuthThrottle struct {
	maxAddresses int
	limitHits    *LimitHits

	mu       sync.Mutex
	burst    int
	interval time.Duration
	closed   bool                       // answers are no longer delayed
	buckets  map[string]*throttleBucket // addresses whose bucket is not full
}

// throttleBucket is one address's bucket, with its delayed answers.
type throttleBucket struct {
	tries   *rate.Limiter
	waiting []delayedReply
	timer   *time.Timer
	ticking bool // tick runs, and will handle the bucket
}

// PeerConn is the connection that a call came over, on any wire.
type PeerConn interface {
	RemoteAddr() string    // http.Request.RemoteAddr, or what a transport calls its peer
	Abort(why error)       // ends the connection
	Done() <-chan struct{} // closed when the connection has ended
}

// delayedReply is an answer that is due later.
type delayedReply struct {
	due  time.Time
	conn PeerConn
	send func()
}

// NewAuthThrottle returns a throttle that answers so many tries of an address at once, and further
// ones at an interval.
func NewAuthThrottle(burst int, every time.Duration, hit *LimitHits) *AuthThrottle {
	return &AuthThrottle{burst: burst, interval: every, maxAddresses: maxThrottledAddresses, limitHits: hit, buckets: map[string]*throttleBucket{}}
}

// SetLimits changes the limits for further tries; delayed answers are due when they were. An
// address keeps the tries that it has, or owes, up to the new burst.
func (w *AuthThrottle) SetLimits(burst int, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.burst, w.interval = burst, every
	now := time.Now()
	for _, a := range w.buckets {
		a.tries.SetLimitAt(now, rate.Every(every))
		a.tries.SetBurstAt(now, burst)
	}
}

func (w *AuthThrottle) newTries() *rate.Limiter {
	return rate.NewLimiter(rate.Every(w.interval), w.burst)
}

// Respond calls give when a refusal may be sent to the address of from: now, or later in the
// order of its tries. If the address has too many delayed answers, it aborts the connection
// and calls give at once.
func (w *AuthThrottle) Respond(from PeerConn, give func()) {
	wait, over := w.reserve(AddressOf(from.RemoteAddr()), from, give)
	if over > 0 {
		from.Abort(NewException(fault.Overloaded.With("too many refs from this address were wrong: wait %v before the next one", over)))
	}
	if !wait {
		give()
	}
}

// connEnded reports whether a connection has ended, so that DropConn was called or will be.
func connEnded(from PeerConn) bool {
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

// reserve takes a try from an address's bucket. wait reports that give was queued until it is
// due. over, if not 0, reports that the try was refused and not counted, and is the time until
// the last queued answer is sent.
func (w *AuthThrottle) reserve(address string, from PeerConn, give func()) (wait bool, over time.Duration) {
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
		a = &throttleBucket{tries: w.newTries()}
		a.timer = time.AfterFunc(time.Duration(w.burst)*w.interval, func() { w.tick(address, a) })
		w.buckets[address] = a
	}
	try := a.tries.ReserveN(now, 1)
	delay := try.DelayFrom(now)
	if delay == 0 {
		return false, 0
	}
	w.limitHits.Add(limitWrongTries)
	if delay > maxDelayedReplies*w.interval {
		try.CancelAt(now)
		return false, w.interval * maxDelayedReplies
	}
	a.waiting = append(a.waiting, delayedReply{now.Add(delay), from, give})
	if len(a.waiting) == 1 && !a.ticking {
		a.timer.Reset(delay)
	}
	return true, 0
}

// Waiting returns how many answers of an address are delayed now.
func (w *AuthThrottle) Waiting(address string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.buckets[address]; a != nil {
		return len(a.waiting)
	}
	return 0
}

// tick sends the answers that are due, and forgets the address when its bucket is full. One tick
// runs for an address at a time, so its answers keep their order.
func (w *AuthThrottle) tick(address string, a *throttleBucket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.ticking {
		return
	}
	a.ticking = true
	defer func() { a.ticking = false }()
	for w.buckets[address] == a {
		now := time.Now()
		spent := float64(w.burst) - a.tries.TokensAt(now)
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
		case spent > 0:
			a.timer.Reset(time.Duration(math.Ceil(spent * float64(w.interval))))
		default:
			delete(w.buckets, address)
		}
		return
	}
}

// DropConn removes the delayed answers of a connection that has ended, and returns them for
// callers that are still waiting.
func (w *AuthThrottle) DropConn(from PeerConn) (dropped []func()) {
	address := AddressOf(from.RemoteAddr())
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

// Close sends all delayed answers, and disables the delay: no peer can wait for a server that is
// stopping.
func (w *AuthThrottle) Close() {
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
