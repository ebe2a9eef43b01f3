// The live stream over a WebSocket: browsers open six connections to a server for
// everything else, over all their tabs, and hundreds of these. What is sent is what
// server-sent events are, byte by byte, in messages that end wherever it suits.

package web

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/wsock"
	"github.com/mooring-rpc/mooring/server"
)

// What a page of a ref says first over a WebSocket is its token: so long it may be,
// and so long it may take.
const (
	maxHello     = 1 << 10
	helloTimeout = 10 * time.Second
)

// isSocketUpgrade says whether a request wants to become a WebSocket.
func isSocketUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// serveLiveSocket is live over a WebSocket, for this server's own pages.
func (q *request) serveLiveSocket(held resolver, from server.Position) {
	done, err := q.site.server.Admit(q.r.RemoteAddr)
	if err != nil {
		q.refuse(err)
		return
	}
	defer done()
	conn, err := wsock.Accept(q.w, q.r, wsock.AcceptOptions{})
	if err != nil {
		return // it has been answered
	}
	defer func() { _ = conn.CloseNow() }() // after a Close it is closed
	conn.SetReadLimit(maxHello)
	conn.SetLowMemory(server.MaxUnsentBytes)
	if strings.HasPrefix(q.path, "/s/") {
		hello, cancel := context.WithTimeout(q.r.Context(), helloTimeout)
		_, token, err := conn.Read(hello)
		cancel()
		if err != nil {
			return
		}
		q.token = string(token)
	}
	ctx, cancel := context.WithCancelCause(q.r.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = conn.CloseNow() }()
	defer cancel(nil)
	reading.Go(func() { // pings and the end, mostly: nothing is said any more
		_, _, err := conn.Read(context.WithoutCancel(ctx))
		cancel(err)
	})
	h, about, err := q.describe(held)
	if err == nil || !q.toFault(err).Code.Transient() {
		q.follow(ctx, q.site.newStream(&socketWriter{ctx: ctx, conn: conn}, cancel, from), h, about, err)
	}
	if ctx.Err() == nil || q.r.Context().Err() != nil { // else the page has gone
		_ = conn.Close(int(websocket.StatusNormalClosure), "")
	}
}

// socketWriter sends over a WebSocket.
type socketWriter struct {
	ctx  context.Context
	conn *wsock.Conn
}

// write implements sender.
func (p *socketWriter) write(piece []byte, until time.Time) error {
	ctx, cancel := context.WithDeadline(p.ctx, until)
	defer cancel()
	// A message has to be text by itself, so none ends within a character.
	return p.conn.Write(ctx, websocket.MessageBinary, piece)
}

// flush implements sender: nothing waits.
func (p *socketWriter) flush(time.Time) error { return nil }
