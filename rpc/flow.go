// Flow: streaming calls, in a window of bytes.

package rpc

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3"
)

// DefaultFlowWindow is the window that the C++ implementation gives to streaming calls.
const DefaultFlowWindow = 64 << 10

// Flow makes streaming calls on one reference (methods that a schema declares "-> stream"): so many at once that their
// parameters fill a window, and no more before some are answered. So a callee that is slow holds up this caller, and
// nothing else on the connection. The first call that fails ends the flow; what came of the others nobody hears. Its
// methods may be called from any goroutine; the order of calls is that in which Call is entered by one.
type Flow struct {
	ref    *Ref
	window int

	mu       sync.Mutex
	inFlight int           // of calls unanswered
	err      error         // the first that failed
	acked    chan struct{} // if not nil, somebody waits for it to be closed at the next answer
}

// NewFlow makes a flow over r, which stays the caller's and must outlive it. window is in bytes of parameters; 0 takes
// DefaultFlowWindow. One call is always let through, however large.
func NewFlow(r *Ref, window int) *Flow {
	if window <= 0 {
		window = DefaultFlowWindow
	}
	return &Flow{ref: r, window: window}
}

// Call makes one streaming call as soon as there is room for it in the window and on the connection. It returns once the
// call is made; an error is ctx's, with no call made, or that of an earlier call, in which case there is no use in further
// ones.
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
		size = messageSize(s.Message())
		f.add(size, nil)
		return err
	})
	if gaveUp != nil {
		f.add(-size, nil)
		p.Release()
		return gaveUp
	}
	p.Notify(func() {
		_, _, err := p.Wait(context.Background()) // it is there
		f.add(-size, err)
		p.Release()
	})
	return nil
}

// Wait waits until every call is answered, and gives the error that ended the flow, or ctx's.
func (f *Flow) Wait(ctx context.Context) error { return f.waitInFlight(ctx, 0) }

// waitInFlight waits until no more than so many bytes are unanswered.
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
