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

// sessionLocks let one caller at a time go for a session's lock. They are safe for
// concurrent use.
type sessionLocks struct {
	mu   sync.Mutex
	byID map[string]*sessionLock // of sessions that somebody goes for
}

// sessionLock is one session's.
type sessionLock struct {
	free  chan struct{} // holds something while nobody is in
	users int           // in, or waiting
}

// acquire waits until no other caller of acquire is in; leave ends that.
func (d *sessionLocks) acquire(ctx context.Context, id string) (leave func(), err error) {
	d.mu.Lock()
	if d.byID == nil {
		d.byID = map[string]*sessionLock{}
	}
	at := d.byID[id]
	if at == nil {
		at = &sessionLock{free: make(chan struct{}, 1)}
		at.free <- struct{}{}
		d.byID[id] = at
	}
	at.users++
	d.mu.Unlock()
	gone := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(d.byID, id)
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
		return nil, fault.ContextError(context.Cause(ctx), nil)
	}
}
