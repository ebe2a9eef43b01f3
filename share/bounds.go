// Bounds: how often an address may create, and how much it may do at once. What bodies
// hold is memory.go's.

package share

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mooring-rpc/mooring/fault"
)

// mostAddresses is how many are kept apart; those beyond share one account.
const mostAddresses = 1 << 16

// rates is a bucket of creates for each address, which fills up by one an interval.
// Safe for concurrent use.
type rates struct {
	burst int
	now   func() time.Time

	mu    sync.Mutex
	every time.Duration
	full  map[string]time.Time // when an address's bucket is full again
}

func newRates(burst, perHour int) *rates {
	r := &rates{burst: burst, now: time.Now, full: map[string]time.Time{}}
	r.setRate(perHour)
	return r
}

// setRate has buckets fill up at another rate.
func (r *rates) setRate(perHour int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.every = time.Hour / time.Duration(perHour)
}

// take takes one from an address's bucket, if there is one in it.
func (r *rates) take(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if _, there := r.full[address]; !there && len(r.full) >= mostAddresses {
		for a, full := range r.full {
			if !full.After(now) {
				delete(r.full, a)
			}
		}
		if len(r.full) >= mostAddresses {
			address = ""
		}
	}
	full := r.full[address]
	if full.Before(now) {
		full = now
	}
	if full.Add(r.every).Sub(now) > time.Duration(r.burst)*r.every {
		return false
	}
	r.full[address] = full.Add(r.every)
	return true
}

// room is the places for requests of each address. Who finds none waits a while. Safe
// for concurrent use.
type room struct {
	mu     sync.Mutex
	places int
	wait   time.Duration
	from   map[string]*place
}

// place is one address's.
type place struct {
	sem *semaphore.Weighted
	n   int // how many have or want one
}

func newRoom(places int, wait time.Duration) *room {
	return &room{places: places, wait: wait, from: map[string]*place{}}
}

// setLimits has others hold for requests from now on; those that are there count by the old ones.
func (r *room) setLimits(places int, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wait = wait; r.places != places {
		r.places, r.from = places, map[string]*place{}
	}
}

// enter takes one of an address's places. Who gets no error calls leave.
func (r *room) enter(ctx context.Context, address string) (leave func(), err error) {
	r.mu.Lock()
	p := r.from[address]
	if p == nil {
		p = &place{sem: semaphore.NewWeighted(int64(r.places))}
		r.from[address] = p
	}
	p.n++
	wait := r.wait
	r.mu.Unlock()
	gone := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.n--; p.n == 0 && r.from[address] == p {
			delete(r.from, address)
		}
	}
	if err := take(ctx, p.sem, wait); err != nil {
		gone()
		return nil, err
	}
	return func() {
		p.sem.Release(1)
		gone()
	}, nil
}

// take takes one of a line of places.
func take(ctx context.Context, places *semaphore.Weighted, wait time.Duration) error {
	if places.TryAcquire(1) {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if places.Acquire(limit, 1) != nil {
		if ctx.Err() != nil {
			return fault.GivenUp(context.Cause(ctx), nil)
		}
		return fault.Overloaded.With("too many requests at once: wait a little")
	}
	return nil
}
