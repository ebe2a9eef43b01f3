// Transports: what carries messages between two vats. Those of this package are made here, and are in internal/transport.

package rpc

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/internal/wsock"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
	"github.com/mooring-rpc/mooring/rpc/internal/transport"
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

// limited is a transport that checks limits before it allocates. NewConn sets them.
type limited interface {
	Transport
	SetLimits(lim framing.Limits, interval, timeout time.Duration)
}

// withLimits gives a transport its limits.
func withLimits(t limited, lim Limits) Transport {
	t.SetLimits(lim.frame(), lim.PingInterval, lim.PingTimeout)
	return t
}

// Pipe returns two transports connected in memory, for tests: unbounded, in order, closed together.
func Pipe() (a, b Transport) { return transport.Pipe() }

// NewStreamTransport speaks the standard two-party protocol over a byte stream. There is no ping in it. On TCP, TLS over it
// included, the system finds a dead peer in Limits.PingInterval and PingTimeout, which are 9 seconds by default: by
// keep-alives while no data is in flight to the peer, and else, on Linux, macOS and Windows, by unacknowledged data.
// (Other systems retransmit for minutes, unless a write has to wait for it.) Streams that are not TCP end with the peer's
// process.
func NewStreamTransport(rwc io.ReadWriteCloser) Transport {
	return withLimits(transport.NewStream(rwc), DefaultLimits())
}

const (
	// SubprotocolMerged lets several Cap'n Proto messages travel in one binary WebSocket message.
	SubprotocolMerged = transport.SubprotocolMerged
	// SubprotocolPlain has one Cap'n Proto message in each binary WebSocket message when sending. Several are accepted
	// always.
	SubprotocolPlain = transport.SubprotocolPlain
)

// AcceptOptions are the server's side of a handshake.
type AcceptOptions struct {
	OriginPatterns []string // browser origins accepted besides the server's own host
	RemoteAddr     string   // name of the peer for logs; empty is the request's address
}

// Accept answers a WebSocket handshake, preferring the merged subprotocol; a client that offers none gets plain
// messages. On an error the response has been written. Pass the transport to NewConn, which sets its limits.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (Transport, error) {
	t, err := transport.Accept(w, r, opts.OriginPatterns, opts.RemoteAddr)
	if err != nil {
		return nil, err
	}
	return withLimits(t, DefaultLimits()), nil
}

// DialOptions are the client's side of a handshake.
type DialOptions struct {
	TLS          *tls.Config  // for wss
	HTTPClient   *http.Client // used unchanged, except for redirects; TLS and DialContext are ignored then
	DialContext  func(ctx context.Context, network, addr string) (net.Conn, error)
	Header       http.Header
	Timeout      time.Duration // for the handshake; 0 is 10 s
	Subprotocols []string      // offered; nil is merged, then plain
}

// Dial opens a WebSocket to a ws:// or wss:// (http, https) URL. It follows no redirects: secrets that will be sent
// are meant for the host of the URL only, and over TLS if it says so.
func Dial(ctx context.Context, url string, opts DialOptions) (Transport, error) {
	timeout := opts.Timeout
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := opts.HTTPClient
	if client == nil {
		client = &http.Client{Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			DialContext:       opts.DialContext,
			TLSClientConfig:   opts.TLS,
			DisableKeepAlives: true, // a connection that does not become a WebSocket is not reused
		}}
	}
	t, err := transport.Dial(ctx, url, wsock.DialOptions{HTTPClient: client, Header: opts.Header, Subprotocols: opts.Subprotocols})
	if err != nil {
		return nil, err
	}
	return withLimits(t, DefaultLimits()), nil
}
