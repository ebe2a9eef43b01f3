// State: what a connection holds, for tests of packages that use it.

package serverconn

import "github.com/mooring-rpc/mooring/rpc"

// State is what a connection holds.
type State struct {
	Tables       rpc.Stats
	FastPathAcks uint64 // acks that were decoded without the generated code
}

// State returns the state of the present connection; false if there is none.
func (s *Server) State() (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return State{}, false
	}
	return State{s.current.conn.Stats(), s.current.fastPathAcks.Load()}, true
}

// ReleaseCached has the present connection release the capabilities that it keeps to be used again, but for the bootstrap object.
func (s *Server) ReleaseCached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.current
	if p == nil {
		return
	}
	gateway := p.gateway.AddRef()
	p.release()
	p.gateway, p.live, p.released = gateway, map[string]*restoredRef{}, false
}
