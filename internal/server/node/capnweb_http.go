// The Cap'n Web endpoint: WebSockets, and batches of calls by POST.

package node

import (
	"context"
	"net/http"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// serveCapnweb answers at /rpc: GET opens a WebSocket, POST is a batch, OPTIONS is a browser's
// preflight of one.
func (s *Server) serveCapnweb(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.serveCapnwebSocket(w, r)
	default: // it answers other methods too
		s.serveBatch(w, r)
	}
}

func (s *Server) capnwebAccept(r *http.Request) capnweb.AcceptOptions {
	return capnweb.AcceptOptions{OriginPatterns: s.cfg.OriginPatterns, RemoteAddr: r.RemoteAddr}
}

// unavailable answers a request that is not admitted.
func (s *Server) unavailable(w http.ResponseWriter, refused *fault.Error) {
	s.Refused(w, refused)
	w.Header().Set("Retry-After", "1")
	httpkit.WriteText(w, http.StatusServiceUnavailable, refused.Message+"\n")
}

// serveCapnwebSocket is serveCapnpSocket for Cap'n Web.
func (s *Server) serveCapnwebSocket(w http.ResponseWriter, r *http.Request) {
	s.serveUpgrade(w, r, func() (serve func(), err error) {
		t, err := capnweb.Accept(w, r, s.capnwebAccept(r))
		return func() { s.serveCapnwebConn(t) }, err
	})
}

// ServeCapnweb serves one connection of Cap'n Web over t, which it owns from now on, until it
// ends. The errors are those of ServeConn.
func (s *Server) ServeCapnweb(t capnweb.Transport) error {
	done, refused := s.connections.Admit(t.RemoteAddr())
	if refused != nil {
		_ = t.Close(closeTryAgain, refused.Error()) // fails only if the peer is gone
		return refused
	}
	defer done()
	s.serveCapnwebConn(t)
	return nil
}

// closeTryAgain is the WebSocket status of a server that accepts no connections now.
const closeTryAgain = 1013

// serveCapnwebConn serves one connection until it ends, with as little on the stack as serve.
func (s *Server) serveCapnwebConn(t capnweb.Transport) {
	conn, p := s.connectCapnweb(t)
	_ = conn.Run(s.connCtx) // it has logged its error
	p.close()
}

func (s *Server) connectCapnweb(t capnweb.Transport) (*capnweb.Conn, *capnwebPeer) {
	p := s.newCapnwebPeer(t.RemoteAddr())
	conn := capnweb.NewConn(t, p.config())
	p.conn.Store(conn)
	s.capnweb.add(conn, p)
	if s.connections.IsDraining() { // drain may have missed the connection
		conn.Close("the server is stopping")
	}
	return conn, p
}

// serveBatch answers one batch. It has a time limit of its own: the HTTP server's is for requests
// that are answered at once.
func (s *Server) serveBatch(w http.ResponseWriter, r *http.Request) {
	done, refused := s.connections.Admit(r.RemoteAddr)
	if refused != nil {
		s.unavailable(w, refused)
		return
	}
	defer done()
	limit := s.cfg.BatchTimeout
	httpkit.SetDeadlines(w, limit, s.cfg.RPC.WriteTimeout)
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	p, answer := s.newCapnwebPeer(r.RemoteAddr), &statusWriter{ResponseWriter: w}
	capnweb.ServeBatch(answer, r.WithContext(ctx), p.config(), s.capnwebAccept(r))
	if ctx.Err() != nil && answer.status == 0 {
		httpkit.WriteText(w, http.StatusServiceUnavailable, "the batch was not answered in time\n")
	}
	p.close()
	s.capnweb.countBatch()
}
