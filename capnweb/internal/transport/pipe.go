// The transport in memory.

package transport

import (
	"context"
	"io"
	"slices"
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
	queue   [][]byte
	at      int
	closed  bool
}

func newEnd(name string) *End {
	p := &End{name: name}
	p.arrived.L = &p.mu
	return p
}

func (p *End) Read(context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.at == len(p.queue) {
		if p.closed {
			return nil, io.EOF
		}
		p.arrived.Wait()
	}
	m := p.queue[p.at]
	p.queue[p.at] = nil
	if p.at++; p.at == len(p.queue) {
		p.queue, p.at = p.queue[:0], 0
	}
	return m, nil
}

func (p *End) Write(_ context.Context, messages [][]byte) error {
	to := p.peer
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.closed {
		return nil // it is lost, as on a socket; reading returns the error, after the messages the peer sent before
	}
	for _, m := range messages {
		to.queue = append(to.queue, slices.Clone(m))
	}
	to.arrived.Signal()
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

// Pending returns how many messages wait to be read.
func (p *End) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) - p.at
}
