// The WebSocket transport, over coder/websocket.

package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/dialerror"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/wsock"
)

const (
	// SubprotocolMerged lets several Cap'n Proto messages travel in one binary WebSocket message.
	SubprotocolMerged = "mooring.capnp.v1"
	// SubprotocolPlain has one Cap'n Proto message in each binary WebSocket message when sending. Several are accepted
	// always.
	SubprotocolPlain = "capnp"
)

// AcceptOptions are the server's side of a handshake.
type AcceptOptions struct {
	OriginPatterns []string // browser origins accepted besides the server's own host
	RemoteAddr     string   // name of the peer for logs; empty is the request's address
}

// Accept answers a WebSocket handshake, preferring the merged subprotocol; a client that offers none gets plain
// messages. On an error the response has been written. Pass the transport to NewConn, which sets its limits.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (Transport, error) {
	c, err := wsock.Accept(w, r, wsock.AcceptOptions{
		Subprotocols:   []string{SubprotocolMerged, SubprotocolPlain},
		OriginPatterns: opts.OriginPatterns,
		RemoteAddr:     opts.RemoteAddr,
	})
	if err != nil {
		return nil, err
	}
	return newWSTransport(c), nil
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
	protocols := opts.Subprotocols
	if protocols == nil {
		protocols = []string{SubprotocolMerged, SubprotocolPlain}
	}
	c, resp, err := wsock.Dial(ctx, url, wsock.DialOptions{
		HTTPClient:   client,
		Header:       opts.Header,
		Subprotocols: protocols,
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, handshakeError(resp)
		}
		return nil, err
	}
	return newWSTransport(c), nil
}

// handshakeError is the error of a response that opens no WebSocket.
func handshakeError(resp *http.Response) error {
	s := &dialerror.HTTPStatus{Code: resp.StatusCode}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		s.Location = clip(to.Redacted(), 200)
	}
	if resp.Body != nil {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // no more of it is there
		s.Body = string(body)
	}
	return fmt.Errorf("open a WebSocket: %w", s)
}

// wsTransport also has what peerconn asks of a transport: the peer's own pings, the pieces of a large message, and partial
// messages are reported.
type wsTransport struct {
	*wsock.Conn
	merged bool
}

func newWSTransport(c *wsock.Conn) *wsTransport {
	t := &wsTransport{c, c.Subprotocol() == SubprotocolMerged}
	t.setLimits(DefaultLimits())
	return t
}

// setLimits bounds a WebSocket message by one Cap'n Proto message, or by the size of a merged chunk.
func (t *wsTransport) setLimits(lim Limits) {
	t.Conn.SetReadLimit(int64(max(lim.MessageBytes, peerconn.ChunkBytes)))
	t.Conn.SetUserTimeout(lim.PingInterval + lim.PingTimeout)
}

func (t *wsTransport) ReadBatch(ctx context.Context) ([]byte, error) {
	kind, b, err := t.Conn.Read(ctx)
	if err != nil {
		if code, reason, ok := wsock.Closed(err); ok && (code == peerconn.CloseNormal || code == peerconn.CloseGoingAway) {
			return nil, closedError(reason)
		}
		if wsock.TooBig(err) {
			return nil, limitError{LimitMessageBytes, err}
		}
		return nil, err
	}
	if kind != websocket.MessageBinary {
		return nil, frameError("a text message; Cap'n Proto travels in binary ones")
	}
	return b, nil
}

func (t *wsTransport) WriteBatch(ctx context.Context, messages []byte) error {
	if t.merged && len(messages) > 0 {
		return t.Conn.Write(ctx, websocket.MessageBinary, messages)
	}
	var each [][]byte
	for len(messages) > 0 {
		n := trustedFrameSize(messages)
		each, messages = append(each, messages[:n]), messages[n:]
	}
	return t.Conn.Write(ctx, websocket.MessageBinary, each...)
}

// TryWriteBatch implements peerconn.TryWriter. It does not try several messages without merging: request-response traffic has one.
func (t *wsTransport) TryWriteBatch(messages []byte) (tried, done bool, err error) {
	if !t.merged && trustedFrameSize(messages) < len(messages) {
		return false, false, nil
	}
	return t.Conn.TryWrite(websocket.MessageBinary, messages)
}

func (t *wsTransport) Close(code int, reason string) error {
	return t.Conn.Close(code, clip(reason, 120))
}
