// Promise: the answer to a call, as its caller sees it.

package rpc

import (
	"context"

	"capnproto.org/go/capnp/v3"
)

// Promise is the answer to a call, perhaps not there yet. All methods may be called from any goroutine.
type Promise struct{}

// Done is closed when the answer, a result or an error, is there.
func (p *Promise) Done() <-chan struct{} { panic("rpc: under construction") }

// Wait gives the answer as soon as it is there, or ctx's error. Giving up waiting does not cancel the call; Release
// does. The results may be read from any goroutine and are valid until Release. Errors of the call are *Exception.
func (p *Promise) Wait(ctx context.Context) (capnp.Struct, *CapTable, error) {
	panic("rpc: under construction")
}

// Notify has f called once when the answer is there: on a delivery goroutine, where it must not block, in the order of
// arrival among calls and answers of the connection; or at once, on this goroutine, if the answer is there already.
func (p *Promise) Notify(f func()) { panic("rpc: under construction") }

// Cap gives a new reference to the capability at a path of pointer fields of the result: p.Cap(0) is the first pointer
// field. Before the answer is there, calls on it are pipelined. It may be called any number of times, before and after
// resolution; the references of one path keep their calls in order. A path that leads nowhere gives a broken reference,
// a null pointer gives one that says so.
func (p *Promise) Cap(path ...uint16) *Ref { panic("rpc: under construction") }

// Release gives the answer up. An unanswered call is cancelled, unless pipelined references to its result are held
// still, in which case it is cancelled when the last of those is released. Results and their capabilities are released.
func (p *Promise) Release() { panic("rpc: under construction") }
