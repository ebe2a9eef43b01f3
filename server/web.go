// Cap'n Web: the same objects over the other wire. A connection has a gateway of
// its own, as one of the vat has, behind a bridge that turns calls in JavaScript
// values into calls in the schema's structs; web_schema.go says what it is told
// besides the schema, web_http.go how connections come in.

package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/bridge"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/rpc"
)

// webPeer is a connection's part of the server: a WebSocket, or one batch.
type webPeer struct {
	server *Server
	remote string
	side   *bridge.Side
	main   *bridge.Object
	in     *intake.Peer
	conn   atomic.Pointer[capnweb.Conn] // nil before there is one, or nothing has been called over it
}

// newWebPeer makes the objects of a connection from remote.
func (s *Server) newWebPeer(remote string) *webPeer {
	p := &webPeer{server: s, remote: remote, side: webBridge().Side(s.cfg.RPC.MessageBytes)}
	l := s.newLink(remote)
	l.from, l.in = p, s.intake.Open(l.address)
	p.in = l.in
	p.main = p.side.Object(rpc.NewLocal(&gateway{server: s, link: l}), wire.Gateway_TypeID)
	return p
}

// Serve implements capnweb.Object: it is the connection's main object.
func (p *webPeer) Serve(c *capnweb.Call) {
	p.conn.CompareAndSwap(nil, c.Conn())
	p.main.Serve(c)
}

// RemoteAddr implements origin.
func (p *webPeer) RemoteAddr() string { return p.remote }

// Done implements origin.
func (p *webPeer) Done() <-chan struct{} {
	if conn := p.conn.Load(); conn != nil {
		return conn.Done()
	}
	return nil
}

// Abort implements origin.
func (p *webPeer) Abort(why error) {
	if conn := p.conn.Load(); conn != nil {
		conn.Abort(p.server.redacted(why))
	}
}

// ended waits for what the connection, which has ended, has under way in the
// vat, and counts what it has cost.
func (p *webPeer) ended() {
	for _, give := range p.server.tries.leave(p) {
		give()
	}
	p.main.Release()
	p.side.Wait()
	p.in.Close()
	p.server.web.ended(p.conn.Load())
}

// drain answers what runs and closes the connection, when those who follow over
// it have been told that it ends, or told is over.
func (p *webPeer) drain(ctx, told context.Context) {
	p.side.Quiet(told)
	_ = p.conn.Load().Drain(ctx, "the server is stopping")
}

// config is what the connection is served with.
func (p *webPeer) config() capnweb.Config {
	s := p.server
	return capnweb.Config{Main: p, Limits: s.webLimits(), Logger: s.connLog, Hits: &s.web.hits, Intake: p.in, Redact: s.redacted}
}

// webLimits are the vat's limits of a connection in Cap'n Web's terms. JSON takes
// more room than what it stands for: the quotes of a payload's text are escaped.
func (s *Server) webLimits() capnweb.Limits {
	l := s.limits.Load().RPC
	return capnweb.Limits{
		MessageBytes: 2 * l.MessageBytes, Calls: l.Answers, CallBytes: l.AnswerBytes, Exports: l.Exports, Imports: l.Imports,
		QueuedBytes: l.QueuedBytes, WriteTimeout: l.WriteTimeout, PingInterval: l.PingInterval, PingTimeout: l.PingTimeout,
		CloseTimeout: l.CloseTimeout, HandshakeTimeout: l.HandshakeTimeout, IdleTimeout: l.IdleTimeout,
	}
}

// webConns are the connections over Cap'n Web, for draining and for metrics.
type webConns struct {
	hits capnweb.Hits

	mu      sync.Mutex
	open    map[*capnweb.Conn]*webPeer // WebSockets
	batches uint64                     // that were served
	past    traffic                    // of connections that have ended
}

func (w *webConns) add(c *capnweb.Conn, p *webPeer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = p
}

// ended counts what a connection has moved; nil for a batch without a call.
func (w *webConns) ended(c *capnweb.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	if c != nil {
		w.past.addWeb(c.Stats())
	}
}

// served counts a batch.
func (w *webConns) served() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches++
}

func (w *webConns) list() []*webPeer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.open))
}

// stats sums up the open connections' tables, and all connections' counters.
func (w *webConns) stats() (open int, sum capnweb.Stats, total traffic, batches uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	total = w.past
	for c := range w.open {
		one := c.Stats()
		total.addWeb(one)
		sum.Exports += one.Exports
		sum.Imports += one.Imports
		sum.Calls += one.Calls
		sum.QueueBytes += one.QueueBytes
	}
	return len(w.open), sum, total, w.batches
}

func (t *traffic) addWeb(s capnweb.Stats) {
	t.messagesIn += s.MessagesIn
	t.messagesOut += s.MessagesOut
	t.bytesIn += s.BytesIn
	t.bytesOut += s.BytesOut
}
