// Waiting for a session without a connection. A session's row may be locked for
// long: by a server that stands still, until its database gives it up. Whatever
// waits for the lock holds one of the store's connections, and if all of them
// waited for one session, no other could be read.

package store

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// doors let one caller at a time go for a session's lock. They are safe for
// concurrent use.
type doors struct {
	mu sync.Mutex
	of map[string]*door // of sessions that somebody goes for
}

// door is one session's.
type door struct {
	free  chan struct{} // holds something while nobody is in
	users int           // in, or waiting
}

// enter waits until no other caller of enter is in; leave ends that.
func (d *doors) enter(ctx context.Context, id string) (leave func(), err error) {
	d.mu.Lock()
	if d.of == nil {
		d.of = map[string]*door{}
	}
	at := d.of[id]
	if at == nil {
		at = &door{free: make(chan struct{}, 1)}
		at.free <- struct{}{}
		d.of[id] = at
	}
	at.users++
	d.mu.Unlock()
	gone := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(d.of, id)
		}
	}
	select {
	case <-at.free:
		return func() {
			at.free <- struct{}{}
			gone()
		}, nil
	case <-ctx.Done():
		gone()
		return nil, fault.GivenUp(context.Cause(ctx), nil)
	}
}
