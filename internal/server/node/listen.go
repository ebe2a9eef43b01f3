// Admission of connections, before they are served. WebSockets arrive through http.go, byte
// streams through here.

package node

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/rpc"
)

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
		done, refused := s.connections.Admit(t.RemoteAddr())
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
		if err := rpc.Refuse(t, admission.NewException(why)); err != nil {
			s.log.Debug("the refusal could not be sent", "peer", t.RemoteAddr(), "error", err)
		}
	})
}

// maxRefusing bounds the goroutines of refuseStream.
const maxRefusing = 64

// ServeConn serves one connection over t, which it owns from now on, until it ends. It returns
// Overloaded at a limit of connections, Draining when the server is stopping, and nil in all
// other cases.
func (s *Server) ServeConn(t rpc.Transport) error {
	done, refused := s.connections.Admit(t.RemoteAddr())
	if refused != nil {
		_ = rpc.Refuse(t, admission.NewException(refused)) // fails only if the peer is gone
		return refused
	}
	defer done()
	s.serve(t)
	return nil
}

// serve serves one connection until it ends. What it does before and after is in functions of their own: their variables would
// take room on the stack of each connection that waits.
func (s *Server) serve(t rpc.Transport) {
	conn, in := s.connect(t)
	defer in.Close()
	_ = conn.Run(s.connCtx) // it has logged its error
	s.disconnected(conn)
}

func (s *Server) connect(t rpc.Transport) (*rpc.Conn, *intake.Peer) {
	in := s.intake.Open(admission.AddressOf(t.RemoteAddr()))
	l := s.objects.NewConnState(t.RemoteAddr(), in)
	conn := rpc.NewConn(t, rpc.Config{Bootstrap: s.objects.Gateway(l), Limits: s.liveConfig.Load().RPC,
		Logger: s.connLog, LimitHits: &s.rpcLimitHits, Intake: in})
	l.SetPeer(conn)
	s.mu.Lock()
	s.conns[conn] = l
	s.mu.Unlock()
	if s.connections.IsDraining() { // drain may have missed the connection
		conn.Close("the server is stopping")
	}
	return conn, in
}

func (s *Server) disconnected(conn *rpc.Conn) {
	s.authThrottle.DropConn(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	s.closedTraffic.add(conn.Stats())
}

// MemoryBudgets returns the budgets for what peers send, for HTTP handlers that read bodies: messages of
// strangers are charged to the first by address, and those of peers that have shown a ref to the
// second by the ref's id (membudget.Account.Move).
func (s *Server) MemoryBudgets() (strangers, known *membudget.Budget) {
	return s.intake.Strangers, s.intake.Known
}

// OpenIntake returns the intake of a connection from remote that a mounted HTTP handler serves, and whose messages
// contain secrets themselves. show returns the ref shown by a message of which have was read so
// far; Trust is for a ref shown in another way. The caller closes the intake.
func (s *Server) OpenIntake(remote string, show func(have []byte) (ref string, err error)) *intake.Peer {
	return s.intake.OpenFindingRefs(admission.AddressOf(remote), show)
}
