// The live stream over a WebSocket: browsers open six connections to a server for all other
// requests, over all tabs, and hundreds of WebSockets. The bytes are those of server-sent events,
// in messages that may end anywhere.

package web

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/fanout"

	"github.com/mooring-rpc/mooring/internal/wsock"
)

// Bounds of a page's first message over a WebSocket, which is its token: its size and its time.
const (
	maxHello     = 1 << 10
	helloTimeout = 10 * time.Second
)

// isSocketUpgrade reports whether a request asks for a WebSocket.
func isSocketUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// serveLiveSocket is serveLive over a WebSocket, for this server's own pages.
func (q *request) serveLiveSocket(from fanout.Position) error {
	done, err := q.site.server.Admit(q.r.RemoteAddr)
	if err != nil {
		return err
	}
	defer done()
	conn, err := wsock.Accept(q.w, q.r, wsock.AcceptOptions{})
	if err != nil {
		return nil // already answered
	}
	defer func() { _ = conn.CloseNow() }() // no effect after a Close
	conn.SetReadLimit(maxHello)
	conn.SetLowMemory(admission.MaxUnsentBytes)
	if !q.isShare() {
		hello, cancel := context.WithTimeout(q.r.Context(), helloTimeout)
		_, token, err := conn.Read(hello)
		cancel()
		if err != nil {
			return nil
		}
		q.token = string(token)
	}
	ctx, cancel := context.WithCancelCause(q.r.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = conn.CloseNow() }()
	defer cancel(nil)
	reading.Go(func() { // handles pings and the close: the page sends nothing more
		_, _, err := conn.Read(context.WithoutCancel(ctx))
		cancel(err)
	})
	h, desc, err := q.describe()
	if err == nil || !q.toFault(err).Code.Transient() {
		q.follow(ctx, q.site.newStream(&socketWriter{ctx: ctx, conn: conn}, cancel, from), h, desc, err)
	}
	if ctx.Err() == nil || q.r.Context().Err() != nil { // else the page has gone
		_ = conn.Close(int(websocket.StatusNormalClosure), "")
	}
	return nil
}

// socketWriter writes to a WebSocket.
type socketWriter struct {
	ctx  context.Context
	conn *wsock.Conn
}

// WriteUntil implements sender.
func (p *socketWriter) WriteUntil(piece []byte, until time.Time) error {
	ctx, cancel := context.WithDeadline(p.ctx, until)
	defer cancel()
	// Binary, since a text message must be valid UTF-8 and a piece may end within a character.
	return p.conn.Write(ctx, websocket.MessageBinary, piece)
}

// FlushUntil implements sender: nothing is buffered.
func (p *socketWriter) FlushUntil(time.Time) error { return nil }
