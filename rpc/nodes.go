// The kinds of node that live in this vat: objects, and references broken from the start. Imports are remoteCap, promises
// of this vat promiseCap.

package rpc

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/serialqueue"
)

// localCap is an object of this vat and the count of its references.
type localCap struct {
	object     Object
	refs       atomic.Int64
	deliveries serialqueue.Queue // delivers calls made within the vat
}

func newLocalCap(o Object) *localCap {
	l := &localCap{object: o}
	l.refs.Store(1)
	return l
}

func (l *localCap) tryRef() bool { return tryInc(&l.refs) }

func (*localCap) resolution() node { return nil }

func (l *localCap) unref(c *Conn) {
	if l.refs.Add(-1) != 0 {
		return
	}
	r, ok := l.object.(Releaser)
	if !ok {
		return
	}
	if c != nil && c.post(peerconn.Func(func() { releaseObject(r) })) {
		return
	}
	releaseObject(r)
}

func releaseObject(r Releaser) {
	defer func() {
		if p := recover(); p != nil {
			logPanic(nil, "an object's Release panicked", p)
		}
	}()
	r.Release()
}

// brokenCap fails every call.
type brokenCap struct{ err *Exception }

func (*brokenCap) tryRef() bool     { return true }
func (*brokenCap) unref(*Conn)      {}
func (*brokenCap) resolution() node { return nil }
