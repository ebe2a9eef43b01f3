// Listening: connections let in, and refused, before they are served. WebSockets
// come through http.go, byte streams through here.

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/gate"
	"github.com/mooring-rpc/mooring/rpc"
)

// refusal is what a connection that is not let in is told.
func refusal(met bound) *fault.Error {
	if met == boundPerAddress {
		return fault.Overloaded.With("no more connections from this address now: close some, or try again later")
	}
	return fault.Overloaded.With("no more connections now: try again later")
}

// admit counts a connection from remote in. Who gets no refusal calls done.
func (s *Server) admit(remote string) (done func(), refused *fault.Error) {
	address := addressOf(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, fault.Draining.With("the server is stopping")
	}
	if met := boundOf(s.connections.Enter(address), boundConnections); met != boundNone {
		s.met.add(met)
		s.log.Debug("connection refused", "peer", remote, "limit", met.String())
		return nil, refusal(met)
	}
	s.open.Add(1)
	return func() {
		s.connections.Leave(address)
		s.open.Done()
	}, nil
}

// handshakes bounds what is connected over HTTP and is no WebSocket, and no answer
// that lasts (door_lasting.go), yet. Where they are scarce the address with most of
// them loses its oldest: who sends half of many requests shuts nobody out.
type handshakes struct {
	server *Server
	gate   *gate.Evicting

	mu   sync.Mutex
	open map[net.Conn]*httpConn
}

// httpConn is a connection over HTTP. Over HTTP/2 it may have several answers that
// last at once, and others after them.
type httpConn struct {
	entry   *gate.Entry // nil while something lasts
	lasting int
}

// track is the http.Server's ConnState.
func (h *handshakes) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		entry := h.enter(c)
		h.mu.Lock()
		h.open[c] = &httpConn{entry: entry}
		h.mu.Unlock()
	case http.StateIdle:
		h.busy(c, false)
	case http.StateHijacked, http.StateClosed:
		h.forget(c)
	}
}

// enter counts a connection in, in the place of an older one if it has to be.
func (h *handshakes) enter(c net.Conn) *gate.Entry {
	entry, met := h.gate.Enter(addressOf(c.RemoteAddr().String()), func() { h.cut(c) })
	if bound := boundOf(met, boundHandshakes); bound != boundNone {
		h.server.met.add(bound)
		h.server.log.Debug("a connection took the place of an older one", "peer", c.RemoteAddr(), "limit", bound.String())
	}
	return entry
}

// cut closes a connection that has to go, without a word that it might have to be
// waited for to take.
func (h *handshakes) cut(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// asks notes that a request of a connection has come as a whole, and is answered:
// others go before it.
func (h *handshakes) asks(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok {
		h.busy(c, true)
	}
}

func (h *handshakes) busy(c net.Conn, busy bool) {
	h.mu.Lock()
	var entry *gate.Entry
	if is := h.open[c]; is != nil {
		entry = is.entry
	}
	h.mu.Unlock()
	if entry != nil {
		h.gate.Busy(entry, busy)
	}
}

// forget counts a connection out for good; one that is not counted changes nothing.
func (h *handshakes) forget(c net.Conn) {
	h.mu.Lock()
	is := h.open[c]
	delete(h.open, c)
	h.mu.Unlock()
	if is != nil && is.entry != nil {
		h.gate.Leave(is.entry)
	}
}

// lasts counts a connection out for as long as an answer of it lasts: until done.
func (h *handshakes) lasts(c net.Conn) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := h.open[c]
	if is == nil {
		return func() {}
	}
	if is.lasting++; is.entry != nil {
		h.gate.Leave(is.entry)
		is.entry = nil
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if is.lasting--; is.lasting == 0 && h.open[c] == is {
			is.entry = h.enter(c)
		}
	}
}

// acceptStreams serves byte streams from ln until it is closed.
func (s *Server) acceptStreams(ln net.Listener) error {
	var pause time.Duration
	var told sync.WaitGroup
	defer told.Wait()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // too many open files, say, or a peer that has gone again
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept failed", "listener", ln.Addr(), "error", err)
			select {
			case <-time.After(pause):
				continue
			case <-s.base.Done():
				return nil
			}
		}
		pause = 0
		t := rpc.NewStreamTransport(c)
		done, refused := s.admit(t.RemoteAddr())
		if refused != nil {
			s.turnAway(&told, c, t, refused)
			continue
		}
		go func() {
			defer done()
			s.serve(t)
		}()
	}
}

// turnAway tells a byte stream why it is not served, unless many are being told.
func (s *Server) turnAway(told *sync.WaitGroup, c net.Conn, t rpc.Transport, why *fault.Error) {
	select {
	case s.telling <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	told.Go(func() {
		defer func() { <-s.telling }()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		if err := rpc.Refuse(t, exception{why}); err != nil {
			s.log.Debug("refusal not told", "peer", t.RemoteAddr(), "error", err)
		}
	})
}

// tellingAtOnce bounds the goroutines of turnAway.
const tellingAtOnce = 64

// ServeConn serves one connection over t, which it owns from now on, until it
// ends. The error is Overloaded at a limit of connections, Draining when the
// server is stopping; nil in all other cases.
func (s *Server) ServeConn(t rpc.Transport) error {
	done, refused := s.admit(t.RemoteAddr())
	if refused != nil {
		_ = rpc.Refuse(t, exception{refused}) // to a peer that has gone there is nothing to say
		return refused
	}
	defer done()
	s.serve(t)
	return nil
}

// newLink is what a connection's objects share; who makes it says where from.
func (s *Server) newLink(remote string) *link {
	now := s.limits.Load()
	return &link{log: s.log, peer: peerName(remote), address: addressOf(remote), met: &s.met, saved: newSavedRefs(),
		limit: now.RPC.QueuedBytes / 2, max: now.Subscriptions, batches: now.BatchesInFlight,
		shot: make(chan struct{}, max(s.cfg.Snapshots/2, 1))}
}

func (s *Server) serve(t rpc.Transport) {
	l := s.newLink(t.RemoteAddr())
	l.in = s.intake.Open(l.address)
	defer l.in.Close()
	conn := rpc.NewConn(t, rpc.Config{Bootstrap: &gateway{server: s, link: l}, Limits: s.limits.Load().RPC,
		Logger: s.connLog, Hits: &s.hits, Intake: l.in})
	l.from = conn
	s.mu.Lock()
	late := s.stopping // drain has not seen it
	s.conns[conn] = l
	s.mu.Unlock()
	if late {
		conn.Close("the server is stopping")
	}
	_ = conn.Run(s.base) // it has logged why it ended
	s.tries.leave(conn)
	s.mu.Lock()
	delete(s.conns, conn)
	s.past.add(conn.Stats())
	s.mu.Unlock()
}
