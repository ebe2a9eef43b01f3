// Bounds: how often an address may create, how much it may do at once, and how many
// bytes of bodies are held in all.

package share

import (
	"context"
	"io"
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
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex
	full map[string]time.Time // when an address's bucket is full again
}

func newRates(burst, perHour int) *rates {
	return &rates{burst: burst, every: time.Hour / time.Duration(perHour), now: time.Now, full: map[string]time.Time{}}
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

// room is what requests take up: places for each address, and bytes of all. Who
// finds none waits a while. Safe for concurrent use.
type room struct {
	places int
	wait   time.Duration
	known  *semaphore.Weighted // bytes of those who have shown a secret
	others *semaphore.Weighted // bytes of those who have not yet

	mu   sync.Mutex
	from map[string]*place
}

// place is one address's.
type place struct {
	sem *semaphore.Weighted
	n   int // how many have or want one
}

func newRoom(places, bytes, one int, wait time.Duration) *room {
	return &room{places: places, wait: wait, known: semaphore.NewWeighted(int64(bytes)),
		others: semaphore.NewWeighted(int64(max(bytes/4, one))), from: map[string]*place{}}
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
	r.mu.Unlock()
	gone := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.n--; p.n == 0 {
			delete(r.from, address)
		}
	}
	if err := r.take(ctx, p.sem, 1); err != nil {
		gone()
		return nil, err
	}
	return func() {
		p.sem.Release(1)
		gone()
	}, nil
}

// body is a request's body, for whose bytes room is taken as they come and held until
// it is freed: bytes that are only announced take none. known says that whose it is
// was proven. Reading it fails with Overloaded where there is no room.
func (r *room) body(ctx context.Context, from io.Reader, known bool) *body {
	b := &body{ctx: ctx, from: from, room: r, sem: r.others}
	if known {
		b.sem = r.known
	}
	return b
}

type body struct {
	ctx  context.Context
	from io.Reader
	room *room
	sem  *semaphore.Weighted
	held int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if n > 0 {
		if refused := b.room.take(b.ctx, b.sem, int64(n)); refused != nil {
			return 0, refused
		}
		b.held += int64(n)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error { return nil }

func (b *body) free() {
	b.sem.Release(b.held)
	b.held = 0
}

// own says that it was proven by now whose the body is.
func (b *body) own() error {
	if err := b.room.take(b.ctx, b.room.known, b.held); err != nil {
		return err
	}
	b.sem.Release(b.held)
	b.sem = b.room.known
	return nil
}

func (r *room) take(ctx context.Context, sem *semaphore.Weighted, n int64) error {
	if sem.TryAcquire(n) {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	if sem.Acquire(limit, n) != nil {
		if ctx.Err() != nil {
			return fault.GivenUp(context.Cause(ctx), nil)
		}
		return fault.Overloaded.With("too many requests at once: wait a little")
	}
	return nil
}
