// Flow: streaming calls, in a window of bytes.

package rpc

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// DefaultFlowWindow is the window that the C++ implementation gives to streaming calls.
const DefaultFlowWindow = 64 << 10

// Flow makes streaming calls on one reference (methods that a schema declares "-> stream"): as many in flight as their
// parameters fit a window. A slow callee thus blocks this caller, and nothing else on the connection. The first call that
// fails ends the flow; errors of later calls are dropped. Its methods may be called from any goroutine; calls are made in
// the order in which one goroutine enters Call.
type Flow struct {
	ref    *Ref
	window int

	mu       sync.Mutex
	inFlight int           // bytes of parameters of unanswered calls
	err      error         // the first that failed
	acked    chan struct{} // if not nil, waiters wait for it to be closed at the next answer
}

// NewFlow makes a flow over r, which the caller continues to own and which must outlive it. window is in bytes of
// parameters; 0 takes DefaultFlowWindow. One call is always let through, however large.
func NewFlow(r *Ref, window int) *Flow {
	if window <= 0 {
		window = DefaultFlowWindow
	}
	return &Flow{ref: r, window: window}
}

// Call makes one streaming call as soon as there is room for it in the window and on the connection. It returns once the
// call is made; an error is ctx's, with no call made, or that of an earlier call, after which all calls fail.
func (f *Flow) Call(ctx context.Context, m Method, sz capnp.ObjectSize, place func(capnp.Struct, *CapTable) error) error {
	if err := f.waitInFlight(ctx, f.window-1); err != nil {
		return err
	}
	size := 0
	p, gaveUp := f.ref.call(ctx, m, sz, func(s capnp.Struct, caps *CapTable) error {
		var err error
		if place != nil {
			err = place(s, caps)
		}
		size = framing.MessageSize(s.Message())
		f.add(size, nil)
		return err
	})
	if gaveUp != nil {
		f.add(-size, nil)
		p.Release()
		return gaveUp
	}
	p.Notify(func() {
		_, _, err := p.Wait(context.Background()) // it has arrived
		f.add(-size, err)
		p.Release()
	})
	return nil
}

// Wait waits until every call is answered, and returns the error that ended the flow, or ctx's.
func (f *Flow) Wait(ctx context.Context) error { return f.waitInFlight(ctx, 0) }

// waitInFlight waits until at most this many bytes are unanswered.
func (f *Flow) waitInFlight(ctx context.Context, bytes int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil && f.inFlight > bytes {
		if f.acked == nil {
			f.acked = make(chan struct{})
		}
		moved := f.acked
		f.mu.Unlock()
		select {
		case <-moved:
			f.mu.Lock()
		case <-ctx.Done():
			f.mu.Lock()
			return ctx.Err()
		}
	}
	return f.err
}

func (f *Flow) add(bytes int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight += bytes
	if f.err == nil {
		f.err = err
	}
	if f.acked != nil {
		close(f.acked)
		f.acked = nil
	}
}
