// The pace at which a snapshot is sent: that of its sink, within a window.

package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// pace sends no faster than a sink takes.
type pace struct {
	window int
	link   *link
	stall  time.Duration
	kick   chan struct{} // something was taken
	waiter waiter        // for room in link
	sends  func(int)     // told what is sent,
	took   func()        // and when the first of it has been taken

	mu       sync.Mutex
	underway int
	failed   error
	ended    bool // what was under way has been given back
}

// send calls out when there is room for bytes more. done is for out's call.
func (p *pace) send(ctx context.Context, bytes int, out func(done func(error))) error {
	for {
		if err := p.wait(ctx, func() bool {
			return (p.underway == 0 || p.underway+bytes <= p.window) && p.link.reserve(bytes, &p.waiter, p.kicked)
		}); err != nil {
			return err
		}
		p.link.pass(&p.waiter)()
		p.mu.Lock()
		p.underway += bytes
		p.mu.Unlock()
		p.sends(bytes)
		busy := make(chan struct{}, 1)
		out(func(err error) {
			p.mu.Lock()
			if p.ended {
				p.mu.Unlock()
				return
			}
			p.took()
			wake := p.link.taken(bytes)
			p.underway -= bytes
			switch {
			case errors.Is(err, errBusy):
				busy <- struct{}{}
			case err != nil && p.failed == nil:
				p.failed = fault.Canceled.Because(err, "the subscriber's sink failed: %v", err)
			}
			p.mu.Unlock()
			p.kicked()
			wake()
		})
		select {
		case <-busy: // it was not sent
			if err := p.pause(ctx); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// finish waits until all is taken.
func (p *pace) finish(ctx context.Context) error {
	return p.wait(ctx, func() bool { return p.underway == 0 })
}

// end gives back what a sink has not answered that is sent no more.
func (p *pace) end() {
	p.mu.Lock()
	left := p.underway
	p.underway, p.ended = 0, true
	p.mu.Unlock()
	p.link.gone(&p.waiter, left)()
}

// wait waits until ready, which is called with mu held, or until nothing was
// taken for too long.
func (p *pace) wait(ctx context.Context, ready func() bool) error {
	for {
		p.mu.Lock()
		ok, err := p.failed == nil && ready(), p.failed
		p.mu.Unlock()
		if ok || err != nil {
			return err
		}
		timer := time.NewTimer(p.stall)
		select {
		case <-p.kick:
			timer.Stop()
		case <-timer.C:
			return errStalled
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func (p *pace) pause(ctx context.Context) error {
	select {
	case <-time.After(busyPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pace) kicked() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}
