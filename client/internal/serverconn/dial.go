// Dialling: the WebSocket to a server, and the limits of a connection.

package serverconn

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/mooring-rpc/mooring/internal/loopback"
	"github.com/mooring-rpc/mooring/rpc"
)

// WebSocket returns a Config.Dial that opens a WebSocket over what dial opens; nil is net.Dialer's. A nil tls trusts the
// system's CAs.
func WebSocket(tls *tls.Config, dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, url string) (rpc.Transport, error) {
	opts := rpc.DialOptions{TLS: tls, DialContext: dialLoopback(dial), Timeout: dialTimeout}
	return func(ctx context.Context, url string) (rpc.Transport, error) { return rpc.Dial(ctx, url, opts) }
}

// maxMessageBytes is the largest message a client accepts: a whole state's entry with its event.
const maxMessageBytes = 64 << 20

// dialLoopback makes dial connect to this machine for the name localhost, whatever a resolver
// says: secrets are sent there unencrypted. nil is net.Dialer's.
func dialLoopback(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || !loopback.Is(host) || loopback.IsAddress(host) {
			return dial(ctx, network, addr)
		}
		conn, err := dial(ctx, network, net.JoinHostPort("127.0.0.1", port))
		if err != nil && ctx.Err() == nil {
			var six error
			if conn, six = dial(ctx, network, net.JoinHostPort("::1", port)); six == nil {
				err = nil
			}
		}
		return conn, err
	}
}

// limits returns the limits of a connection.
func limits() rpc.Limits {
	l := rpc.DefaultLimits()
	l.MessageBytes = maxMessageBytes
	l.Traversal = 8 * maxMessageBytes
	l.QueuedBytes = 64 << 20 // the windows of many streams; the outbox bounds them
	l.Questions = 1 << 16
	return l
}
