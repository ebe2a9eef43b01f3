// Conn: one connection, as the program sees it.

package rpc

import (
	"context"
	"log/slog"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// Config is what a connection needs to know.
type Config struct {
	// Bootstrap is what the peer gets when it asks for our bootstrap interface; nil if there is none. If it is a
	// Releaser it is released when the connection ends.
	Bootstrap Object
	// Limits bounds the connection; zero fields take DefaultLimits.
	Limits Limits
	// Logger gets one line for what a peer or a handler does wrong; nil discards.
	Logger *slog.Logger
	// Trace, for tests, sees every message before it is handled ("in") or queued for sending ("out"), in order. It
	// runs with the connection locked: it must not call into this package or keep the message.
	Trace func(dir string, msg rpccp.Message)
}

// Conn is one connection to a peer vat. All methods may be called from any goroutine.
type Conn struct{}

// NewConn makes a connection over a transport, which it owns from now on. Calls may be made at once; nothing is sent
// or received until Run.
func NewConn(t Transport, cfg Config) *Conn { panic("rpc: under construction") }

// Run serves the connection until it ends and says why: nil after Close or Drain on this side, ctx's error, or what
// went wrong (*Exception of type Disconnected for a lost or silent or closing peer, of type Failed for a broken
// protocol). When it returns, everything is released: promises are broken with Disconnected, no queued call runs any
// more, the contexts of running calls are cancelled and the goroutines of Call.Go have ended. Call it once.
func (c *Conn) Run(ctx context.Context) error { panic("rpc: under construction") }

// Bootstrap gives a reference to the peer's bootstrap interface; calls on it are pipelined at once. ctx bounds waiting
// at a limit only. Errors come out of calls on the reference.
func (c *Conn) Bootstrap(ctx context.Context) *Ref { panic("rpc: under construction") }

// Done is closed when the connection has ended and its promises are broken, before the last goroutines are gone.
func (c *Conn) Done() <-chan struct{} { panic("rpc: under construction") }

// Err says why the connection has ended, after Done; nil before and after a Close of ours.
func (c *Conn) Err() error { panic("rpc: under construction") }

// Close ends the connection in an orderly way: what waits is sent (within Limits.CloseTimeout), then the transport is
// closed with the reason. It returns at once; Run returns when it is done.
func (c *Conn) Close(reason string) { panic("rpc: under construction") }

// Drain answers new calls of the peer with Disconnected, waits until the running ones are answered and the answers
// sent, or ctx ends, and closes with the reason. The error is ctx's.
func (c *Conn) Drain(ctx context.Context, reason string) error { panic("rpc: under construction") }

// RemoteAddr names the peer for logs.
func (c *Conn) RemoteAddr() string { panic("rpc: under construction") }

// Stats are the sizes of a connection's tables; all zero after Run but for counters.
type Stats struct {
	Questions, Answers, Exports, Imports, Embargoes int
	QueuedCalls                                     int // waiting on unresolved promises
	QueuedBytes                                     int // waiting to be written
	MessagesIn, MessagesOut                         uint64
	BytesIn, BytesOut                               uint64
}

// Stats gives the present sizes.
func (c *Conn) Stats() Stats { panic("rpc: under construction") }
