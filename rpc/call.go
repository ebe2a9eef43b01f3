// Object and Call: a call as its callee sees it.

package rpc

import (
	"context"

	"capnproto.org/go/capnp/v3"
)

// Object serves calls. The calls that come over one connection to one object are delivered one by one, in the order in
// which they arrived, on that connection's delivery goroutine; calls of different connections may be delivered at the
// same time. Serve must not block: it answers, or keeps the Call and answers later from anywhere (Call.Go is there for
// that). A panic in Serve fails the call and nothing else.
type Object interface{ Serve(call *Call) }

// Releaser is implemented by objects that want to know when no reference to them is left. Release must not block.
type Releaser interface{ Release() }

// Call is a call in the hands of its callee, until Return or Fail. Its methods may be called from any goroutine.
type Call struct{}

// Method says what is called. Name is empty.
func (c *Call) Method() Method { panic("rpc: under construction") }

// Context is cancelled when the caller gives the call up (finish), when the connection ends, and after the answer.
func (c *Call) Context() context.Context { panic("rpc: under construction") }

// Params gives the parameters and their capabilities. The struct is valid for as long as it is kept; the table's
// capabilities are released with the answer, so take what outlives it with CapTable.Get before.
func (c *Call) Params() (capnp.Struct, *CapTable) { panic("rpc: under construction") }

// Return answers with results: place fills in a struct of size sz, valid only until place returns. An error of place
// fails the call. A nil place returns the empty struct. Of all Returns and Fails the first counts.
func (c *Call) Return(sz capnp.ObjectSize, place func(results capnp.Struct, caps *CapTable) error) {
	panic("rpc: under construction")
}

// Fail answers with an error. An *Exception or Excepter keeps its type and reason; any other error is sent as failed
// with a text that gives nothing away, and logged.
func (c *Call) Fail(err error) { panic("rpc: under construction") }

// Go runs f in a goroutine that the connection waits for before Run returns. If f panics or ends without an answer
// given or promised elsewhere, nothing is done for it but to fail the call after a panic. ctx is Context().
func (c *Call) Go(f func(ctx context.Context)) { panic("rpc: under construction") }

// Peer is the connection the call came over; nil for a call made within the vat.
func (c *Call) Peer() *Conn { panic("rpc: under construction") }
