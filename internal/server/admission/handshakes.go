// Handshakes: connections over HTTP before they are a WebSocket or a long answer.

package admission

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/internal/socket"
)

// Handshakes bounds the HTTP connections that are neither a WebSocket nor a long answer
// yet. At the bound, the address with most of them loses its oldest, so that a
// peer that sends half of many requests shuts out no others. It is safe for concurrent use.
type Handshakes struct {
	limiter   *connlimit.EvictingLimiter
	limitHits *LimitHits
	log       *slog.Logger

	mu   sync.Mutex
	open map[net.Conn]*httpConn
}

// httpConn is a connection over HTTP. Over HTTP/2 it may have several long answers at once, and
// other requests after them.
type httpConn struct {
	entry   *connlimit.Entry // nil during long answers
	streams int
}

// NewHandshakes returns a bound on handshakes, in all and from one address.
func NewHandshakes(total, perAddress int, hit *LimitHits, log *slog.Logger) *Handshakes {
	return &Handshakes{limiter: connlimit.NewEvictingLimiter(total, perAddress), limitHits: hit, log: log, open: map[net.Conn]*httpConn{}}
}

// SetLimits changes the limits for further connections.
func (h *Handshakes) SetLimits(total, perAddress int) { h.limiter.SetLimits(total, perAddress) }

// Count returns the number of connections that are counted.
func (h *Handshakes) Count() int { return h.limiter.Count() }

// Track is the http.Server's ConnState.
func (h *Handshakes) Track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		entry := h.enter(c)
		h.mu.Lock()
		h.open[c] = &httpConn{entry: entry}
		h.mu.Unlock()
	case http.StateIdle:
		h.setBusy(c, false)
	case http.StateHijacked, http.StateClosed:
		h.remove(c)
	}
}

// enter counts a connection, evicting an older one at the bound.
func (h *Handshakes) enter(c net.Conn) *connlimit.Entry {
	entry, hit := h.limiter.Acquire(AddressOf(c.RemoteAddr().String()), func() { h.closeConn(c) })
	if bound := limitOf(hit, limitHandshakes); bound != limitNone {
		h.limitHits.Add(bound)
		h.log.Debug("a connection replaced an older one", "peer", c.RemoteAddr(), "limit", bound.String())
	}
	return entry
}

// closeConn closes an evicted connection, below TLS: a close_notify might block.
func (h *Handshakes) closeConn(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// connKey is the context key of a request's net.Conn.
type connKey struct{}

// WithConn is the http.Server's ConnContext.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// RequestReceived marks the connection of a request busy, since a whole request has arrived:
// connections that are not busy are evicted first. It returns false for a request of another
// http.Server, whose connections are not counted here.
func (h *Handshakes) RequestReceived(ctx context.Context) (counted bool) {
	c, counted := ctx.Value(connKey{}).(net.Conn)
	if counted {
		h.setBusy(c, true)
	}
	return counted
}

func (h *Handshakes) setBusy(c net.Conn, busy bool) {
	h.mu.Lock()
	var entry *connlimit.Entry
	if is := h.open[c]; is != nil {
		entry = is.entry
	}
	h.mu.Unlock()
	if entry != nil {
		h.limiter.SetBusy(entry, busy)
	}
}

// remove stops counting a connection; it ignores one that is not counted.
func (h *Handshakes) remove(c net.Conn) {
	h.mu.Lock()
	is := h.open[c]
	delete(h.open, c)
	h.mu.Unlock()
	if is != nil && is.entry != nil {
		h.limiter.Release(is.entry)
	}
}

// MaxUnsentBytes is how much of a long answer the operating system buffers beyond what it can
// send: the reader may be very slow, and there may be thousands.
const MaxUnsentBytes = 32 << 10

// BeginStream stops counting the connection of a request while its long answer lasts: until done
// is called. Over HTTP/1.1 the connection serves no request after it.
func (h *Handshakes) BeginStream(w http.ResponseWriter, r *http.Request) (done func()) {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		h.remove(c)
		socket.LimitUnsent(c, MaxUnsentBytes)
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	is := h.open[c]
	if is == nil {
		return func() {}
	}
	if is.streams++; is.entry != nil {
		h.limiter.Release(is.entry)
		is.entry = nil
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if is.streams--; is.streams == 0 && h.open[c] == is {
			is.entry = h.enter(c)
		}
	}
}
