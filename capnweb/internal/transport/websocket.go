// The WebSocket transport: one text message per message.

package transport

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/wsock"
)

// Accept answers a WebSocket handshake. On an error the response has been written.
func Accept(w http.ResponseWriter, r *http.Request, opts wsock.AcceptOptions) (*WebSocket, error) {
	c, err := wsock.Accept(w, r, opts)
	if err != nil {
		return nil, err
	}
	return &WebSocket{c}, nil
}

// dialTimeout is how long a handshake may take.
const dialTimeout = 10 * time.Second

// Dial opens a WebSocket to url (ws, wss, http or https), within ctx and 10 seconds. It follows no redirects: secrets
// that will be sent are meant for the host of the URL only.
func Dial(ctx context.Context, url string, client *http.Client, header http.Header) (*WebSocket, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, resp, err := wsock.Dial(ctx, url, wsock.DialOptions{HTTPClient: client, Header: header})
	if err != nil {
		if moved := redirectError(resp); moved != nil {
			return nil, moved
		}
		return nil, err
	}
	return &WebSocket{c}, nil
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
	return fmt.Errorf("the server redirects to %s, which is not followed", Truncate(to.Redacted(), 200))
}

// WebSocket also has what peerconn asks of a transport: the peer's own pings, the pieces of a large message, and partial
// messages are reported.
type WebSocket struct{ *wsock.Conn }

// SetLimits bounds received messages: one that is too large arrives truncated to a byte more than is allowed, so that the peer is
// sent an abort and not just a close. A peer whose system acknowledges nothing for longer than silence is disconnected.
func (t *WebSocket) SetLimits(messageBytes int, silence time.Duration) {
	t.Conn.TruncateAt(messageBytes + 1)
	t.Conn.SetUserTimeout(silence)
}

func (t *WebSocket) Read(ctx context.Context) ([]byte, error) {
	kind, b, err := t.Conn.Read(ctx)
	if err != nil {
		if code, reason, ok := wsock.Closed(err); ok {
			return nil, &ClosedError{code, reason}
		}
		return nil, err
	}
	if kind != websocket.MessageText {
		return nil, ErrBinary
	}
	return b, nil
}

// More implements peerconn.Peeker.
func (t *WebSocket) More() bool { return t.Buffered() }

func (t *WebSocket) Write(ctx context.Context, messages [][]byte) error {
	return t.Conn.Write(ctx, websocket.MessageText, messages...)
}

func (t *WebSocket) Close(code int, reason string) error {
	return t.Conn.Close(code, Truncate(reason, maxCloseReason))
}
