// Transport: the carrier of messages between two peers. Also the in-memory one.

package capnweb

import (
	"context"
	"io"
	"slices"
	"sync"
)

// Transport moves whole messages. One goroutine reads at a time, one writes; Ping and Close may be called at any time,
// and Close unblocks all others. Ending the context of one operation may close the transport. An error of Read or Write is
// the end of the connection: io.EOF an orderly one by the peer; a *BrokenError is reported as it is.
//
// A Transport may also have these methods, which are described in internal/peerconn/transport.go:
//
//	SetOnActivity(heard func())
//	SetOnProgress(wrote func())
//	SetAdmitRead(reading func(bytes int, have []byte) error)
//	More() bool
//
// One that wraps another has to pass them on. Without them the peer's own pings and the pieces of a large write are not noticed,
// and a partial message is not charged.
type Transport interface {
	// Read waits for the next message. The bytes are valid until the next Read.
	Read(ctx context.Context) ([]byte, error)
	// Write sends messages, in order. The bytes may be reused when it returns.
	Write(ctx context.Context, messages [][]byte) error
	// Ping asks the peer for a sign of life and waits for it; nil at once if the transport has no pings.
	Ping(ctx context.Context) error
	// Close closes the transport, with the reason where it can send one. Further calls do nothing.
	Close(code int, reason string) error
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
	queue   [][]byte
	at      int
	closed  bool
	code    int
	reason  string
}

func newPipeEnd(name string) *pipeEnd {
	p := &pipeEnd{name: name}
	p.arrived.L = &p.mu
	return p
}

func (p *pipeEnd) Read(context.Context) ([]byte, error) {
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

func (p *pipeEnd) Write(_ context.Context, messages [][]byte) error {
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

func (p *pipeEnd) Ping(context.Context) error { return nil }

func (p *pipeEnd) Close(code int, reason string) error {
	for _, e := range []*pipeEnd{p, p.peer} {
		e.mu.Lock()
		if !e.closed {
			e.closed, e.code, e.reason = true, code, reason
		}
		e.arrived.Broadcast()
		e.mu.Unlock()
	}
	return nil
}

func (p *pipeEnd) RemoteAddr() string { return p.peer.name }
