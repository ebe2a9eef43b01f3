// The send window of a snapshot: it is sent at the rate of its sink's acks.

package fanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// sendWindow limits the bytes in flight to a sink.
type sendWindow struct {
	window       int
	conn         *Flow
	stallTimeout time.Duration
	wake         chan struct{} // signaled by acks
	waiter       waiter        // for bytes of conn
	onSend       func(int)     // called with the bytes of each piece sent
	onAck        func()        // called when the oldest piece was acked

	mu       sync.Mutex
	inFlight int
	failed   error
	closed   bool // the bytes in flight have been released
}

// send waits for room for bytes and calls out, whose done is called once, with the ack.
func (p *sendWindow) send(ctx context.Context, bytes int, out func(done func(error))) error {
	for {
		if err := p.wait(ctx, func() bool {
			return (p.inFlight == 0 || p.inFlight+bytes <= p.window) && p.conn.reserve(bytes, &p.waiter, p.signal)
		}); err != nil {
			return err
		}
		p.conn.endTurn(&p.waiter)()
		p.mu.Lock()
		p.inFlight += bytes
		p.mu.Unlock()
		p.onSend(bytes)
		busy := make(chan struct{}, 1)
		out(func(err error) {
			p.mu.Lock()
			if p.closed {
				p.mu.Unlock()
				return
			}
			p.onAck()
			wake := p.conn.release(bytes)
			p.inFlight -= bytes
			switch {
			case errors.Is(err, ErrWouldBlock):
				busy <- struct{}{}
			case err != nil && p.failed == nil:
				p.failed = fault.Canceled.Because(err, "the subscriber's sink failed: %v", err)
			}
			p.mu.Unlock()
			p.signal()
			wake()
		})
		select {
		case <-busy: // it was not sent
			if err := p.backOff(ctx); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// drain waits until all bytes are acked.
func (p *sendWindow) drain(ctx context.Context) error {
	return p.wait(ctx, func() bool { return p.inFlight == 0 })
}

// close releases the bytes in flight of a sink that is sent nothing more.
func (p *sendWindow) close() {
	p.mu.Lock()
	left := p.inFlight
	p.inFlight, p.closed = 0, true
	p.mu.Unlock()
	p.conn.releaseAll(&p.waiter, left)()
}

// wait waits until ready, which is called with mu held, returns true. It returns errStalled if
// stallTimeout passes without an ack.
func (p *sendWindow) wait(ctx context.Context, ready func() bool) error {
	for {
		p.mu.Lock()
		ok, err := p.failed == nil && ready(), p.failed
		p.mu.Unlock()
		if ok || err != nil {
			return err
		}
		timer := time.NewTimer(p.stallTimeout)
		select {
		case <-p.wake:
			timer.Stop()
		case <-timer.C:
			return errStalled
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func (p *sendWindow) backOff(ctx context.Context) error {
	select {
	case <-time.After(wouldBlockPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *sendWindow) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
