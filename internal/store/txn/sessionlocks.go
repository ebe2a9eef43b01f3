// Locks for waiting for a session without a connection. A session's row may be locked for long, by
// a server that has stopped responding, until its database ends its transaction. Every transaction
// that waits for the row lock holds one of the store's connections, and if all of them waited for
// one session, no other could be read.

package txn

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// sessionLocks admit one caller at a time for each session. They are safe for concurrent use.
type sessionLocks struct {
	mu   sync.Mutex
	byID map[string]*sessionLock // of sessions with users
}

// sessionLock is the lock of one session.
type sessionLock struct {
	free  chan struct{} // has a value while the lock is free
	users int           // holding it, or waiting
}

// Acquire waits until the session's lock is free and takes it; leave releases it. The error is the
// context's.
func (d *sessionLocks) Acquire(ctx context.Context, id string) (leave func(), err error) {
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
