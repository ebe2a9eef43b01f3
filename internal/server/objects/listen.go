// Admission of connections, before they are served. WebSockets arrive through http.go, byte
// streams through here.

package objects

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/rpc"
)

// admissionRefusal is the fault for a connection that is not admitted.
func admissionRefusal(met limitKind) *fault.Error {
	if met == limitPerAddress {
		return fault.Overloaded.With("no more connections from this address now: close some, or try again later")
	}
	return fault.Overloaded.With("no more connections now: try again later")
}

// admit counts a connection from remote. If refused is nil, the caller calls done at its end.
func (s *Server) admit(remote string) (done func(), refused *fault.Error) {
	address := addressOf(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, fault.Draining.With("the server is stopping")
	}
	if met := limitOf(s.connections.Acquire(address), limitConnections); met != limitNone {
		s.limitHits.add(met)
		s.log.Debug("connection refused", "peer", remote, "limit", met.String())
		return nil, admissionRefusal(met)
	}
	s.connWG.Add(1)
	return func() {
		s.connections.Release(address)
		s.connWG.Done()
	}, nil
}

// handshakes bounds the HTTP connections that are neither a WebSocket nor a long answer
// (inproc_sse.go) yet. At the bound, the address with most of them loses its oldest, so that a
// peer that sends half of many requests shuts out no others. It is safe for concurrent use.
type handshakes struct {
	server  *Server
	limiter *connlimit.EvictingLimiter

	mu   sync.Mutex
	open map[net.Conn]*httpConn
}

// httpConn is a connection over HTTP. Over HTTP/2 it may have several long answers at once, and
// other requests after them.
type httpConn struct {
	entry   *connlimit.Entry // nil during long answers
	streams int
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
		h.setBusy(c, false)
	case http.StateHijacked, http.StateClosed:
		h.remove(c)
	}
}

// enter counts a connection, evicting an older one at the bound.
func (h *handshakes) enter(c net.Conn) *connlimit.Entry {
	entry, met := h.limiter.Acquire(addressOf(c.RemoteAddr().String()), func() { h.closeConn(c) })
	if bound := limitOf(met, limitHandshakes); bound != limitNone {
		h.server.limitHits.add(bound)
		h.server.log.Debug("a connection took the place of an older one", "peer", c.RemoteAddr(), "limit", bound.String())
	}
	return entry
}

// closeConn closes an evicted connection, below TLS: a close_notify might block.
func (h *handshakes) closeConn(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

func (h *handshakes) setBusy(c net.Conn, busy bool) {
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
func (h *handshakes) remove(c net.Conn) {
	h.mu.Lock()
	is := h.open[c]
	delete(h.open, c)
	h.mu.Unlock()
	if is != nil && is.entry != nil {
		h.limiter.Release(is.entry)
	}
}

// beginStream stops counting a connection while a long answer lasts: until done is called.
func (h *handshakes) beginStream(c net.Conn) (done func()) {
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

// acceptStreams serves byte streams from ln until it is closed.
func (s *Server) acceptStreams(ln net.Listener) error {
	var pause time.Duration
	var refusals sync.WaitGroup
	defer refusals.Wait()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // such as too many open files, or a peer that has gone
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept failed", "listener", ln.Addr(), "error", err)
			select {
			case <-time.After(pause):
				continue
			case <-s.connCtx.Done():
				return nil
			}
		}
		pause = 0
		t := rpc.NewStreamTransport(c)
		done, refused := s.admit(t.RemoteAddr())
		if refused != nil {
			s.refuseStream(&refusals, c, t, refused)
			continue
		}
		go func() {
			defer done()
			s.serve(t)
		}()
	}
}

// refuseStream sends a byte stream the reason of its refusal, or only closes it while maxRefusing
// others are being sent theirs.
func (s *Server) refuseStream(refusals *sync.WaitGroup, c net.Conn, t rpc.Transport, why *fault.Error) {
	select {
	case s.refusing <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	refusals.Go(func() {
		defer func() { <-s.refusing }()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		if err := rpc.Refuse(t, exception{why}); err != nil {
			s.log.Debug("refusal not told", "peer", t.RemoteAddr(), "error", err)
		}
	})
}

// maxRefusing bounds the goroutines of refuseStream.
const maxRefusing = 64

// ServeConn serves one connection over t, which it owns from now on, until it ends. It returns
// Overloaded at a limit of connections, Draining when the server is stopping, and nil in all
// other cases.
func (s *Server) ServeConn(t rpc.Transport) error {
	done, refused := s.admit(t.RemoteAddr())
	if refused != nil {
		_ = rpc.Refuse(t, exception{refused}) // fails only if the peer is gone
		return refused
	}
	defer done()
	s.serve(t)
	return nil
}

// newConnState returns the state of a connection from remote; the caller sets peerConn and intake.
func (s *Server) newConnState(remote string) *connState {
	now := s.liveConfig.Load()
	return &connState{log: s.log, peer: peerName(remote), address: addressOf(remote), limitHits: &s.limitHits, saved: newSavedRefs(),
		maxInFlight: now.RPC.QueuedBytes / 2, maxSubs: now.Subscriptions, maxBatches: now.BatchesInFlight,
		snapshotSem: make(chan struct{}, max(s.cfg.Snapshots/2, 1))}
}

func (s *Server) serve(t rpc.Transport) {
	l := s.newConnState(t.RemoteAddr())
	l.intake = s.intake.Open(l.address)
	defer l.intake.Close()
	conn := rpc.NewConn(t, rpc.Config{Bootstrap: &gateway{server: s, conn: l}, Limits: s.liveConfig.Load().RPC,
		Logger: s.connLog, LimitHits: &s.rpcLimitHits, Intake: l.intake})
	l.peerConn = conn
	s.mu.Lock()
	late := s.stopping // drain has missed the connection
	s.conns[conn] = l
	s.mu.Unlock()
	if late {
		conn.Close("the server is stopping")
	}
	_ = conn.Run(s.connCtx) // it has logged its error
	s.authThrottle.dropConn(conn)
	s.mu.Lock()
	delete(s.conns, conn)
	s.closedTraffic.add(conn.Stats())
	s.mu.Unlock()
}
