// The WebSocket transport: one text message per message.

package capnweb

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/wsock"
)

// AcceptOptions are the server's side of a WebSocket handshake, and of an HTTP batch.
type AcceptOptions struct {
	// OriginPatterns are the browser origins accepted besides the server's own host: hosts ("app.example", "*.example"), or
	// with a scheme before them ("https://app.example"), in the syntax of path.Match. Requests without an origin come
	// from no browser's page and are accepted.
	OriginPatterns []string
	RemoteAddr     string // name of the peer for logs; empty is the request's address
}

// Accept answers a WebSocket handshake. On an error the response has been written. Pass the transport to NewConn, which
// sets its limits.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (Transport, error) {
	c, err := wsock.Accept(w, r, wsock.AcceptOptions{OriginPatterns: opts.OriginPatterns, RemoteAddr: opts.RemoteAddr})
	if err != nil {
		return nil, err
	}
	return newWSTransport(c), nil
}

// DialOptions are the client's side of a WebSocket handshake, and of an HTTP batch.
type DialOptions struct {
	HTTPClient *http.Client // used unchanged, except for redirects; nil: one without cookies or kept connections
	Header     http.Header
}

func (o DialOptions) client() *http.Client {
	if o.HTTPClient != nil {
		return o.HTTPClient
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
}

// dialTimeout is how long a handshake may take.
const dialTimeout = 10 * time.Second

// Dial opens a WebSocket to url (ws, wss, http or https), within ctx and 10 seconds. It follows no redirects: secrets
// that will be sent are meant for the host of the URL only.
func Dial(ctx context.Context, url string, opts DialOptions) (Transport, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, resp, err := wsock.Dial(ctx, url, wsock.DialOptions{HTTPClient: opts.client(), Header: opts.Header})
	if err != nil {
		if moved := redirectError(resp); moved != nil {
			return nil, moved
		}
		return nil, err
	}
	return newWSTransport(c), nil
}

// redirectError returns an error with the redirect's target, if the response is one.
func redirectError(resp *http.Response) error {
	if resp == nil || resp.StatusCode/100 != 3 {
		return nil
	}
	to, err := resp.Location()
	if err != nil {
		return nil
	}
	return fmt.Errorf("the server redirects to %s, which is not followed", truncateText(to.Redacted(), 200))
}

// wsTransport also has what peerconn asks of a transport: the peer's own pings, the pieces of a large message, and partial
// messages are reported.
type wsTransport struct{ *wsock.Conn }

func newWSTransport(c *wsock.Conn) *wsTransport {
	t := &wsTransport{c}
	t.setLimits(DefaultLimits())
	return t
}

// setLimits bounds received messages: one that is too large arrives truncated to a byte more than is allowed, so that the
// peer is sent an abort and not just a close.
func (t *wsTransport) setLimits(lim Limits) {
	t.Conn.TruncateAt(lim.MessageBytes + 1)
	t.Conn.SetUserTimeout(lim.PingInterval + lim.PingTimeout)
}

func (t *wsTransport) Read(ctx context.Context) ([]byte, error) {
	kind, b, err := t.Conn.Read(ctx)
	if err != nil {
		if code, reason, ok := wsock.Closed(err); ok {
			return nil, &closedError{code, reason}
		}
		return nil, err
	}
	if kind != websocket.MessageText {
		return nil, violation("a binary message: Cap'n Web travels in text")
	}
	return b, nil
}

// More implements peerconn.Peeker.
func (t *wsTransport) More() bool { return t.Buffered() }

func (t *wsTransport) Write(ctx context.Context, messages [][]byte) error {
	return t.Conn.Write(ctx, websocket.MessageText, messages...)
}

func (t *wsTransport) Close(code int, reason string) error {
	return t.Conn.Close(code, truncateText(reason, maxCloseReason))
}
