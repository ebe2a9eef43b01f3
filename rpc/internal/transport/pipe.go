// The transport in memory.

package transport

import (
	"context"
	"io"
	"sync"
)

// Pipe returns two transports connected in memory: unbounded, in order, closed together.
func Pipe() (a, b *End) {
	x, y := newEnd("pipe a"), newEnd("pipe b")
	x.peer, y.peer = y, x
	return x, y
}

// End is one side of a pipe in memory, and the messages that the other side has written to it.
type End struct {
	name string
	peer *End

	mu      sync.Mutex
	arrived sync.Cond
	queue   []byte
	reading []byte
	closed  bool
}

func newEnd(name string) *End {
	p := &End{name: name}
	p.arrived.L = &p.mu
	return p
}

func (p *End) ReadBatch(context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 {
		if p.closed {
			return nil, io.EOF
		}
		p.arrived.Wait()
	}
	p.reading, p.queue = p.queue, p.reading[:0]
	return p.reading, nil
}

func (p *End) WriteBatch(_ context.Context, messages []byte) error {
	to := p.peer
	to.mu.Lock()
	defer to.mu.Unlock()
	if !to.closed { // else it is lost, as on a socket; reading returns the error, after the messages the peer sent before
		to.queue = append(to.queue, messages...)
		to.arrived.Signal()
	}
	return nil
}

func (p *End) Ping(context.Context) error { return nil }

func (p *End) Close(int, string) error {
	for _, e := range []*End{p, p.peer} {
		e.mu.Lock()
		e.closed = true
		e.arrived.Broadcast()
		e.mu.Unlock()
	}
	return nil
}

func (p *End) RemoteAddr() string { return p.peer.name }
