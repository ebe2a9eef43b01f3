// The WebSocket transport, over coder/websocket.

package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/dialerror"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/wsock"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

const (
	// SubprotocolMerged lets several Cap'n Proto messages travel in one binary WebSocket message.
	SubprotocolMerged = "mooring.capnp.v1"
	// SubprotocolPlain has one Cap'n Proto message in each binary WebSocket message when sending. Several are accepted
	// always.
	SubprotocolPlain = "capnp"
)

// Accept answers a WebSocket handshake, preferring the merged subprotocol. On an error the response has been written.
func Accept(w http.ResponseWriter, r *http.Request, originPatterns []string, remoteAddr string) (*WebSocket, error) {
	c, err := wsock.Accept(w, r, wsock.AcceptOptions{
		Subprotocols:   []string{SubprotocolMerged, SubprotocolPlain},
		OriginPatterns: originPatterns,
		RemoteAddr:     remoteAddr,
	})
	if err != nil {
		return nil, err
	}
	return newWebSocket(c), nil
}

// Dial opens a WebSocket. It follows no redirects.
func Dial(ctx context.Context, url string, opts wsock.DialOptions) (*WebSocket, error) {
	if opts.Subprotocols == nil {
		opts.Subprotocols = []string{SubprotocolMerged, SubprotocolPlain}
	}
	c, resp, err := wsock.Dial(ctx, url, opts)
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, handshakeError(resp)
		}
		return nil, err
	}
	return newWebSocket(c), nil
}

// handshakeError is the error of a response that opens no WebSocket.
func handshakeError(resp *http.Response) error {
	s := &dialerror.HTTPStatus{Code: resp.StatusCode}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		s.Location = Clip(to.Redacted(), 200)
	}
	if resp.Body != nil {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // no more of it is there
		s.Body = string(body)
	}
	return fmt.Errorf("open a WebSocket: %w", s)
}

// WebSocket also has what peerconn asks of a transport: the peer's own pings, the pieces of a large message, and partial
// messages are reported.
type WebSocket struct {
	*wsock.Conn
	Merged bool // messages may travel together
}

func newWebSocket(c *wsock.Conn) *WebSocket {
	return &WebSocket{c, c.Subprotocol() == SubprotocolMerged}
}

// SetLimits bounds a WebSocket message by one Cap'n Proto message, or by the size of a merged chunk. A peer whose system
// acknowledges nothing for longer than interval and timeout together is disconnected.
func (t *WebSocket) SetLimits(lim framing.Limits, interval, timeout time.Duration) {
	t.Conn.SetReadLimit(int64(max(lim.MessageBytes, peerconn.ChunkBytes)))
	t.Conn.SetUserTimeout(interval + timeout)
}

func (t *WebSocket) ReadBatch(ctx context.Context) ([]byte, error) {
	kind, b, err := t.Conn.Read(ctx)
	if err != nil {
		if code, reason, ok := wsock.Closed(err); ok && (code == peerconn.CloseNormal || code == peerconn.CloseGoingAway) {
			return nil, ClosedError(reason)
		}
		if wsock.TooBig(err) {
			return nil, peerconn.OverLimit(framing.LimitMessageBytes, err)
		}
		return nil, err
	}
	if kind != websocket.MessageBinary {
		return nil, framing.Error("a text message; Cap'n Proto travels in binary ones")
	}
	return b, nil
}

func (t *WebSocket) WriteBatch(ctx context.Context, messages []byte) error {
	if t.Merged && len(messages) > 0 {
		return t.Conn.Write(ctx, websocket.MessageBinary, messages)
	}
	var each [][]byte
	for len(messages) > 0 {
		n := framing.TrustedSize(messages)
		each, messages = append(each, messages[:n]), messages[n:]
	}
	return t.Conn.Write(ctx, websocket.MessageBinary, each...)
}

// TryWriteBatch implements peerconn.TryWriter. It does not try several messages without merging: request-response traffic has one.
func (t *WebSocket) TryWriteBatch(messages []byte) (tried, done bool, err error) {
	if !t.Merged && framing.TrustedSize(messages) < len(messages) {
		return false, false, nil
	}
	return t.Conn.TryWrite(websocket.MessageBinary, messages)
}

func (t *WebSocket) Close(code int, reason string) error {
	return t.Conn.Close(code, Clip(reason, 120))
}
