// Cap'n Web: the same objects over the other wire. Each connection has a gateway of its own, as
// an rpc connection has, behind a bridge that converts calls in JavaScript values to calls in the
// schema's structs. Package jsschema has the bridge's rules, and capnweb_http.go accepts
// connections.

package node

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
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/jsschema"
	"github.com/mooring-rpc/mooring/rpc"
)

// capnwebPeer is the server's side of one connection: a WebSocket, or one batch.
type capnwebPeer struct {
	server *Server
	remote string
	side   *bridge.Conn
	main   *bridge.Object
	intake *intake.Peer
	conn   atomic.Pointer[capnweb.Conn] // nil for a batch before its first call
}

// newCapnwebPeer returns the objects of a connection from remote.
func (s *Server) newCapnwebPeer(remote string) *capnwebPeer {
	p := &capnwebPeer{server: s, remote: remote, side: jsschema.Bridge().Conn(s.cfg.RPC.MessageBytes)}
	p.intake = s.intake.Open(admission.AddressOf(remote))
	l := s.objects.NewConnState(remote, p.intake)
	l.SetPeer(p)
	p.main = p.side.Object(rpc.NewLocal(s.objects.Gateway(l)), wire.Gateway_TypeID)
	return p
}

// Serve implements capnweb.Object. p is the connection's main object.
func (p *capnwebPeer) Serve(c *capnweb.Call) {
	p.conn.CompareAndSwap(nil, c.Conn())
	p.main.Serve(c)
}

// RemoteAddr implements PeerConn.
func (p *capnwebPeer) RemoteAddr() string { return p.remote }

// Done implements PeerConn.
func (p *capnwebPeer) Done() <-chan struct{} {
	if conn := p.conn.Load(); conn != nil {
		return conn.Done()
	}
	return nil
}

// Abort implements PeerConn.
func (p *capnwebPeer) Abort(why error) {
	if conn := p.conn.Load(); conn != nil {
		conn.Abort(p.server.redact(why))
	}
}

// close releases the objects of the ended connection, waits for its running calls, and counts
// its traffic.
func (p *capnwebPeer) close() {
	for _, give := range p.server.authThrottle.DropConn(p) {
		give()
	}
	p.main.Release()
	p.side.Wait()
	p.intake.Close()
	p.server.capnweb.remove(p.conn.Load())
}

// drain answers running calls and closes the connection, once its subscriptions have been ended
// or told is done.
func (p *capnwebPeer) drain(ctx, notifyCtx context.Context) {
	p.side.WaitIdle(notifyCtx)
	_ = p.conn.Load().Drain(ctx, "the server is stopping")
}

// config returns the configuration of the connection.
func (p *capnwebPeer) config() capnweb.Config {
	s := p.server
	return capnweb.Config{Main: p, Limits: s.capnwebLimits(), Logger: s.connLog, LimitHits: &s.capnweb.limitHits, Intake: p.intake, Redact: s.redact}
}

// redact returns the error that a peer is sent for err.
func (s *Server) redact(err error) *capnweb.Error { return jsschema.Redact(s.cfg.Log, err) }

// capnwebLimits converts the rpc limits of a connection to Cap'n Web's. Messages may be twice as
// large, since JSON escapes the quotes in a payload's text.
func (s *Server) capnwebLimits() capnweb.Limits {
	l := s.liveConfig.Load().RPC
	return capnweb.Limits{
		MessageBytes: 2 * l.MessageBytes, Calls: l.Answers, CallBytes: l.AnswerBytes, Exports: l.Exports, Imports: l.Imports,
		QueuedBytes: l.QueuedBytes, WriteTimeout: l.WriteTimeout, PingInterval: l.PingInterval, PingTimeout: l.PingTimeout,
		CloseTimeout: l.CloseTimeout, HandshakeTimeout: l.HandshakeTimeout, IdleTimeout: l.IdleTimeout,
	}
}

// capnwebConns holds the connections over Cap'n Web, for draining and for metrics.
type capnwebConns struct {
	limitHits capnweb.LimitHits

	mu            sync.Mutex
	open          map[*capnweb.Conn]*capnwebPeer // WebSockets
	batches       uint64                         // served
	closedTraffic traffic                        // of connections that have ended
}

func (w *capnwebConns) add(c *capnweb.Conn, p *capnwebPeer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = p
}

// remove counts the traffic of a connection that ended; c is nil for a batch without a call.
func (w *capnwebConns) remove(c *capnweb.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	if c != nil {
		w.closedTraffic.addCapnweb(c.Stats())
	}
}

func (w *capnwebConns) countBatch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches++
}

func (w *capnwebConns) list() []*capnwebPeer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.open))
}

// stats sums the tables of the open connections, and the counters of all connections.
func (w *capnwebConns) stats() (open int, sum capnweb.Stats, total traffic, batches uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	total = w.closedTraffic
	for c := range w.open {
		one := c.Stats()
		total.addCapnweb(one)
		sum.Exports += one.Exports
		sum.Imports += one.Imports
		sum.Calls += one.Calls
		sum.QueueBytes += one.QueueBytes
	}
	return len(w.open), sum, total, w.batches
}

func (t *traffic) addCapnweb(s capnweb.Stats) {
	t.messagesIn += s.MessagesIn
	t.messagesOut += s.MessagesOut
	t.bytesIn += s.BytesIn
	t.bytesOut += s.BytesOut
}
