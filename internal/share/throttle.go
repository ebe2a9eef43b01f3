// Bounds of addresses: how often one may create, and how many requests it may have at once.
// Memory is in memory.go.

package share

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mooring-rpc/mooring/fault"
)

// maxAddresses is how many addresses are counted separately; any more share one bucket.
const maxAddresses = 1 << 16

// createThrottle is a token bucket of creates for each address. It is safe for concurrent use.
type createThrottle struct {
	burst int
	now   func() time.Time

	mu       sync.Mutex
	interval time.Duration
	fullAt   map[string]time.Time // when an address's bucket will be full
}

func newCreateThrottle(burst, perHour int) *createThrottle {
	r := &createThrottle{burst: burst, now: time.Now, fullAt: map[string]time.Time{}}
	r.setRate(perHour)
	return r
}

// setRate changes the rate at which buckets refill.
func (r *createThrottle) setRate(perHour int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interval = time.Hour / time.Duration(perHour)
}

// allow takes a token from an address's bucket, if there is one.
func (r *createThrottle) allow(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if _, there := r.fullAt[address]; !there && len(r.fullAt) >= maxAddresses {
		for a, full := range r.fullAt {
			if !full.After(now) {
				delete(r.fullAt, a)
			}
		}
		if len(r.fullAt) >= maxAddresses {
			address = ""
		}
	}
	full := r.fullAt[address]
	if full.Before(now) {
		full = now
	}
	if full.Add(r.interval).Sub(now) > time.Duration(r.burst)*r.interval {
		return false
	}
	r.fullAt[address] = full.Add(r.interval)
	return true
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

func newAddressSlots(places int, wait time.Duration) *addressSlots {
	return &addressSlots{perAddress: places, maxWait: wait, byAddress: map[string]*slot{}}
}

// setLimits changes the limits of later requests. Requests in progress do not count against a
// changed number of slots.
func (r *addressSlots) setLimits(places int, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxWait = wait; r.perAddress != places {
		r.perAddress, r.byAddress = places, map[string]*slot{}
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
func acquireSem(ctx context.Context, places *semaphore.Weighted, wait time.Duration) error {
	if places.TryAcquire(1) {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if places.Acquire(limit, 1) != nil {
		if ctx.Err() != nil {
			return fault.ContextError(context.Cause(ctx), nil)
		}
		return fault.Overloaded.With("too many requests at once: wait a little")
	}
	return nil
}
