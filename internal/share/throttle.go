// Bounds of addresses: how often one may create, and how many requests it may have at once.
// Memory is in memory.go.

package share

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/mooring-rpc/mooring/fault"
)

// maxAddresses is how many addresses are counted separately; any more share one bucket.
const maxAddresses = 1 << 16

// createThrottle is a token bucket of creates for each address. It is safe for concurrent use.
type createThrottle struct {
	burst int
	now   func() time.Time

	mu      sync.Mutex
	refill  rate.Limit
	buckets map[string]*rate.Limiter // by address; full ones are dropped when there are too many
}

func newCreateThrottle(burst, perHour int) *createThrottle {
	r := &createThrottle{burst: burst, now: time.Now, buckets: map[string]*rate.Limiter{}}
	r.setRate(perHour)
	return r
}

// setRate changes the rate at which buckets refill.
func (r *createThrottle) setRate(perHour int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill = rate.Every(time.Hour / time.Duration(perHour))
	for _, bucket := range r.buckets {
		bucket.SetLimitAt(r.now(), r.refill)
	}
}

// allow takes a token from an address's bucket, if there is one.
func (r *createThrottle) allow(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.buckets[address] == nil && len(r.buckets) >= maxAddresses {
		maps.DeleteFunc(r.buckets, func(_ string, bucket *rate.Limiter) bool { return bucket.TokensAt(now) >= float64(r.burst) })
		if len(r.buckets) >= maxAddresses {
			address = ""
		}
	}
	if r.buckets[address] == nil {
		r.buckets[address] = rate.NewLimiter(r.refill, r.burst)
	}
	return r.buckets[address].AllowN(now, 1)
}

// addressSlots bounds the requests of each address. A request without a slot waits. It is safe
// for concurrent use.
type addressSlots struct {
	mu         sync.Mutex
	perAddress int
	maxWait    time.Duration
	byAddress  map[string]*slot
}

// slot is one address's semaphore.
type slot struct {
	sem   *semaphore.Weighted
	users int // requests that have or want a slot
}

func newAddressSlots(slots int, wait time.Duration) *addressSlots {
	return &addressSlots{perAddress: slots, maxWait: wait, byAddress: map[string]*slot{}}
}

// setLimits changes the limits of later requests. Requests in progress do not count against a
// changed number of slots.
func (r *addressSlots) setLimits(slots int, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxWait = wait; r.perAddress != slots {
		r.perAddress, r.byAddress = slots, map[string]*slot{}
	}
}

// acquire takes a slot of an address. On success the caller must call leave.
func (r *addressSlots) acquire(ctx context.Context, address string) (leave func(), err error) {
	r.mu.Lock()
	p := r.byAddress[address]
	if p == nil {
		p = &slot{sem: semaphore.NewWeighted(int64(r.perAddress))}
		r.byAddress[address] = p
	}
	p.users++
	wait := r.maxWait
	r.mu.Unlock()
	gone := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.users--; p.users == 0 && r.byAddress[address] == p {
			delete(r.byAddress, address)
		}
	}
	if err := acquireSem(ctx, p.sem, wait); err != nil {
		gone()
		return nil, err
	}
	return func() {
		p.sem.Release(1)
		gone()
	}, nil
}

// acquireSem acquires the semaphore, waiting at most wait; Overloaded if it is full.
func acquireSem(ctx context.Context, slots *semaphore.Weighted, wait time.Duration) error {
	if slots.TryAcquire(1) {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if slots.Acquire(limit, 1) != nil {
		if ctx.Err() != nil {
			return fault.ContextError(context.Cause(ctx), nil)
		}
		return fault.Overloaded.With("too many requests at once: try again later")
	}
	return nil
}
