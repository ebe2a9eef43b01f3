// Package server binds the domain to the wire: it serves the objects of
// capnp/mooring.capnp over connections of the vat, gathers what they are asked
// to do into transactions, and tells subscribers what came of it.
//
// An op's way through it, a step a file: stream.go decodes a batch and queues
// it; group.go gathers what waits on all connections into one transaction of
// the store, in which session.Commit decides everything, and answers; hub.go,
// topic.go and subscription.go hand what was committed to subscribers, here and,
// through notifications and polling, on the other replicas. gateway.go, space.go
// and sess.go are the objects around it, persist.go is save, authority.go the
// check of what a reader may see, sweeper.go the lapsing of leases, owner.go the
// first start, http.go the endpoint.
//
// A server holds no state that a transaction does not check again, so any number
// of them may share a database.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// Server serves one database's sessions. All methods are safe for concurrent
// use; Run is called once.
type Server struct {
	cfg    Config
	log    *slog.Logger
	hub    *hub
	commit *committer
	audit  *auditor
	shots  chan struct{} // bounds the snapshots that are being sent

	base   context.Context // of every connection; ended when draining takes too long
	cutOff context.CancelFunc

	mu       sync.Mutex
	stopping bool
	count    int // connections, those in a handshake among them
	conns    map[*rpc.Conn]struct{}
	open     sync.WaitGroup
}

// New makes a server; Run starts it. It never closes the store.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Log, conns: map[*rpc.Conn]struct{}{}, shots: make(chan struct{}, cfg.Snapshots)}
	s.base, s.cutOff = context.WithCancel(context.Background())
	s.hub = newHub(cfg.Store, cfg.ReadTimeout, cfg.Log)
	s.commit = newCommitter(cfg, s.hub)
	s.audit = &auditor{store: cfg.Store, log: cfg.Log}
	return s
}

// Run serves connections from ln (nil for none but ServeConn's) until ctx ends,
// then drains: new calls and connections are refused, what runs is finished and
// answered within Config.DrainTimeout, subscribers are told. It returns nil
// after that, or what ended the listener. ln is closed in any case.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){s.listen, s.poll, s.expire, s.sweep, s.trim} {
		loops.Go(func() { loop(work) })
	}
	s.commit.start()

	served := make(chan error, 1)
	web := s.newHTTP()
	if ln != nil {
		go func() { served <- web.Serve(ln) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		ln = nil
	}
	s.drain(ctx, web)
	if ln != nil {
		if err = <-served; errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
	}
	stop()
	s.commit.close()
	s.hub.close()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ReadTimeout)
	defer cancel()
	s.audit.flush(last)
	loops.Wait()
	return err
}

// drain stops taking work and waits for what runs.
func (s *Server) drain(ctx context.Context, web *http.Server) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	s.mu.Lock()
	s.stopping = true
	conns := make([]*rpc.Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.log.Info("draining", "connections", len(conns))
	s.hub.end(fault.Draining.With("the server is stopping: go to another, or come back"))
	s.hub.quiet(limit)
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() { _ = c.Drain(limit, "the server is stopping") })
	}
	all.Wait()
	_ = web.Shutdown(limit)
	ended := make(chan struct{})
	go func() {
		s.open.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-limit.Done():
		s.log.Warn("draining took too long: connections are cut")
	}
	s.cutOff()
	_ = web.Close()
	<-ended
}

func (s *Server) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// admit counts a connection in; ok is false when there may be no more.
func (s *Server) admit() (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || s.count >= s.cfg.Connections {
		return nil, false
	}
	s.count++
	s.open.Add(1)
	return func() {
		s.mu.Lock()
		s.count--
		s.mu.Unlock()
		s.open.Done()
	}, true
}

// ServeConn serves one connection over t, which it owns from now on, until it
// ends. The error is Overloaded at the limit of connections, Draining when the
// server is stopping; nil in all other cases.
func (s *Server) ServeConn(t rpc.Transport) error {
	done, ok := s.admit()
	if !ok {
		_ = t.Close(1013, "try again later")
		if s.draining() {
			return fault.Draining.With("the server is stopping")
		}
		return fault.Overloaded.With("no more connections now: try again later")
	}
	defer done()
	s.serve(t)
	return nil
}

func (s *Server) serve(t rpc.Transport) {
	l := &link{limit: s.cfg.RPC.QueuedBytes / 2, max: s.cfg.Subscriptions}
	conn := rpc.NewConn(t, rpc.Config{Bootstrap: &gateway{server: s, link: l}, Limits: s.cfg.RPC, Logger: slog.New(demoted{s.log.Handler()})})
	s.mu.Lock()
	late := s.stopping // drain has not seen it
	s.conns[conn] = struct{}{}
	s.mu.Unlock()
	if late {
		conn.Close("the server is stopping")
	}
	err := conn.Run(s.base)
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	if err != nil {
		s.log.Debug("connection ended", "peer", conn.RemoteAddr(), "error", err)
	}
}

// denied audits a call under ref that was refused for want of authority; its
// grant may be nil, if it was not read.
func (s *Server) denied(ref string, grant *capability.Grant, what string, f *fault.Error) {
	if f.Code < fault.UnknownRef || f.Code >= fault.Malformed {
		return
	}
	row := capability.AuditRow{Target: capability.Target(ref), Act: capability.AuditDenial, Ref: ref, Subject: what, Reason: f.Code}
	if grant != nil {
		row.Actor = grant.Actor
	}
	s.audit.denied(row)
}

func (s *Server) now() time.Time { return s.cfg.Now() }
