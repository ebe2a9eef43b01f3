// Transport: the carrier of whole Cap'n Proto messages between two vats. Also the in-memory one.

package rpc

import (
	"context"
	"io"
	"sync"
)

// Transport moves Cap'n Proto messages in standard stream framing. One goroutine reads at a time, one writes; Ping and
// Close may be called at any time, and Close unblocks all others. Ending the context of one operation may close the
// transport. An error of ReadBatch or WriteBatch is the end of the connection: io.EOF an orderly one by the peer; an
// *Exception is reported as it is.
//
// A Transport may also have these methods, which are described in internal/peerconn/transport.go:
//
//	SetOnActivity(heard func())
//	SetOnProgress(wrote func())
//	SetAdmitRead(reading func(bytes int, have []byte) error)
//	TryWriteBatch(messages []byte) (tried, done bool, err error)
//	More() bool
//
// One that wraps another has to pass them on. Without them the peer's own pings and the pieces of a large write are not noticed,
// a partial message is not charged, and each write waits for the goroutine that writes.
type Transport interface {
	// ReadBatch waits for one or more whole messages. The bytes are valid until the next ReadBatch.
	ReadBatch(ctx context.Context) ([]byte, error)
	// WriteBatch sends one or more whole messages, back to back. The bytes may be reused when it returns.
	WriteBatch(ctx context.Context, messages []byte) error
	// Ping asks the peer for a sign of life and waits for it; nil at once if the transport has no pings. A goroutine must
	// be reading meanwhile.
	Ping(ctx context.Context) error
	// Close closes the transport, with the reason where it can send one. code is a WebSocket status; further calls do nothing.
	Close(code int, reason string) error
	// RemoteAddr returns the peer's name for logs.
	RemoteAddr() string
}

// limitSetter is implemented by transports that check limits before they allocate. NewConn sets them.
type limitSetter interface{ setLimits(lim Limits) }

// Pipe returns two transports connected in memory, for tests: unbounded, in order, closed together.
func Pipe() (a, b Transport) {
	x, y := newPipeEnd("pipe a"), newPipeEnd("pipe b")
	x.peer, y.peer = y, x
	return x, y
}

// pipeEnd is one side of a Pipe and the messages that the other side has written to it.
type pipeEnd struct {
	name string
	peer *pipeEnd

	mu      sync.Mutex
	arrived sync.Cond
	queue   []byte
	reading []byte
	closed  bool
}

func newPipeEnd(name string) *pipeEnd {
	p := &pipeEnd{name: name}
	p.arrived.L = &p.mu
	return p
}

func (p *pipeEnd) ReadBatch(context.Context) ([]byte, error) {
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

func (p *pipeEnd) WriteBatch(_ context.Context, messages []byte) error {
	to := p.peer
	to.mu.Lock()
	defer to.mu.Unlock()
	if !to.closed { // else it is lost, as on a socket; reading returns the error, after the messages the peer sent before
		to.queue = append(to.queue, messages...)
		to.arrived.Signal()
	}
	return nil
}

func (p *pipeEnd) Ping(context.Context) error { return nil }

func (p *pipeEnd) Close(int, string) error {
	for _, e := range []*pipeEnd{p, p.peer} {
		e.mu.Lock()
		e.closed = true
		e.arrived.Broadcast()
		e.mu.Unlock()
	}
	return nil
}

func (p *pipeEnd) RemoteAddr() string { return p.peer.name }
