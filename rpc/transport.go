// Transport: what carries whole Cap'n Proto messages between two vats.

package rpc

import (
	"context"
	"io"
)

// Transport moves Cap'n Proto messages in standard stream framing. One goroutine reads, one writes; Ping and Close may
// be called at any time, and Close unblocks both. The contexts bound nothing but the one operation, and ending one
// may close the transport.
type Transport interface {
	// ReadBatch waits for the next one or more whole messages. The bytes are valid until the next ReadBatch.
	ReadBatch(ctx context.Context) ([]byte, error)
	// WriteBatch sends one or more whole messages, back to back. The bytes may be reused when it returns.
	WriteBatch(ctx context.Context, messages []byte) error
	// Ping asks the peer for a sign of life and waits for it; nil at once where the transport has no such thing.
	Ping(ctx context.Context) error
	// Close closes the transport, saying why where it can. code is a WebSocket status; further calls do nothing.
	Close(code int, reason string) error
	// RemoteAddr names the peer for logs.
	RemoteAddr() string
}

// NewStreamTransport speaks the standard two-party protocol over a byte stream, such as a TCP or Unix socket.
func NewStreamTransport(rwc io.ReadWriteCloser) Transport { panic("rpc: under construction") }

// Pipe gives two transports connected in memory, for tests: unbounded, ordered, closed together.
func Pipe() (a, b Transport) { panic("rpc: under construction") }
