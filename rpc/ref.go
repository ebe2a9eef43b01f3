// Ref: a counted reference to an object, wherever the object is.

package rpc

import (
	"context"

	"capnproto.org/go/capnp/v3"
)

// Method names a method of an interface. Interface and ID go on the wire; Name is for errors and logs only.
type Method struct {
	Interface uint64
	ID        uint16
	Name      string
}

// Ref is a counted reference to an object: one of this vat, one of a peer, or a promise of one. Two calls made through
// one Ref are delivered in the order in which they were made, also when the promise resolves in between. A nil *Ref is
// the null capability: calls on it fail. All methods may be called from any goroutine.
type Ref struct{}

// NewLocal gives a first reference to an object of this vat. When the last reference goes (local ones and those of all
// peers), o.Release is called if o is a Releaser: on the goroutine that released, or on a connection's delivery
// goroutine. Two references made by NewLocal from one object count apart.
func NewLocal(o Object) *Ref { panic("rpc: under construction") }

// NewPromise gives a reference to an object not yet known, and the function that makes it known: by a reference (a new
// count is taken) or by an error. Calls made before that wait, up to Limits.QueuedCalls. The first resolution counts. A promise
// handed to a peer is announced as one and resolved there too.
func NewPromise() (r *Ref, resolve func(to *Ref, err error)) { panic("rpc: under construction") }

// NewBroken gives a reference on which every call fails with err.
func NewBroken(err error) *Ref { panic("rpc: under construction") }

// AddRef gives another reference to the same object, released on its own. On a nil Ref it gives nil.
func (r *Ref) AddRef() *Ref { panic("rpc: under construction") }

// Release gives the reference up. Further calls of Release do nothing, calls through the Ref fail.
func (r *Ref) Release() { panic("rpc: under construction") }

// Call sends a call and returns its promise at once. place fills in the parameters (a struct of size sz, zero so far,
// valid only until place returns) and their capabilities; it runs before Call returns, without locks held, and may be
// nil. A call on a remote object is queued for sending immediately, one on an unresolved promise is pipelined.
//
// Call waits only when Limits.Questions or Limits.QueuedBytes is reached, for as long as ctx allows; ctx has no other
// effect: release the promise to cancel the call. All errors come out of the promise.
func (r *Ref) Call(ctx context.Context, m Method, sz capnp.ObjectSize, place func(params capnp.Struct, caps *CapTable) error) *Promise {
	panic("rpc: under construction")
}

// Object gives the object behind the reference if it is known to be one of this vat, else nil. So a server recognises
// its own capability when a peer passes it back. The object stays alive while the Ref is held.
func (r *Ref) Object() Object { panic("rpc: under construction") }
