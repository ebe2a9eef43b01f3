// A server: the hosts of a ref, tried in turn, and one connection to whichever of them answers. A loop maintains the connection: it
// redials with jittered backoff when the connection is lost, sooner when a caller needs it, and notifies when it is up. The loop ends
// when the server has been idle for idleTimeout.

package serverconn

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dialerror"
	"github.com/mooring-rpc/mooring/internal/rpctrace"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// Config is what all servers of a client have in common.
type Config struct {
	SealKey    ed25519.PrivateKey                                           // for sealed refs; nil if there is none
	Dial       func(ctx context.Context, url string) (rpc.Transport, error) // opens a transport to a ws:// or wss:// URL; ctx bounds the opening only
	Agent      string                                                       // names the program in servers' logs
	Logger     *slog.Logger
	Trace      rpctrace.Func // sees every message; may be nil
	NewBackOff func() backoff.BackOff
	MinWait    time.Duration      // between two rounds through the hosts, however many callers wait
	OnConnect  func()             // called when a connection is up
	Retire     func(*Server) bool // ends an idle server (Server.Retire); false if it is in use
}

// Server is one address, which may have several hosts.
type Server struct {
	cfg     Config
	address string   // for messages
	hosts   []string // HOST:PORT each
	urls    []string // of hosts

	wake     chan struct{}  // receives when a caller needs a connection
	attempts sync.WaitGroup // attempts that lost to a faster one

	mu           sync.Mutex
	current      *Peer
	failedRounds uint64        // rounds through all hosts that got no connection
	lastErr      error         // of the last of these rounds
	closed       error         // why the loop has ended
	requested    bool          // Peer has been called
	waiting      int           // callers of Peer
	lastUsed     time.Time     // when a caller of Peer last came or went
	limits       ledger.Limits // the last that hello reported; zero fields: unknown
	changed      chan struct{} // closed and replaced when any of these changes
}

// New returns the server of a ref, which can be used while its loop runs (Run).
func New(ref capability.Ref, cfg Config) *Server {
	return &Server{
		cfg:      cfg,
		address:  ref.Address(),
		hosts:    ref.Hosts,
		urls:     ref.URLs(),
		wake:     make(chan struct{}, 1),
		lastUsed: time.Now(),
		changed:  make(chan struct{}),
	}
}

// Address returns the address as messages name it.
func (s *Server) Address() string { return s.address }

// Peer returns the present connection, or waits for one attempt at every host. The error is
// Unavailable, Incompatible, or Canceled when ctx ends first; ErrRetired if the server was
// retired as idle.
func (s *Server) Peer(ctx context.Context) (*Peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	s.lastUsed = time.Now()
	defer func() { s.waiting--; s.lastUsed = time.Now() }()
	before := s.failedRounds
	if !s.requested { // the loop was started for this caller, and may have been faster
		s.requested, before = true, 0
	}
	for {
		p := s.current
		switch {
		case s.closed != nil:
			return nil, s.closed
		case s.failedRounds > before:
			return nil, s.lastErr
		case p != nil && !p.closed(): // else the loop is about to notice
			return p, nil
		}
		if err := s.await(ctx); err != nil {
			return nil, err
		}
	}
}

// await requests a connection and waits for a change. mu is held on entry and return, but not
// while waiting.
func (s *Server) await(ctx context.Context) error {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case s.wake <- struct{}{}:
	default: // requested already
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fault.Canceled.Because(ctx.Err(), "stopped waiting for a connection to %s", s.address)
	}
}

// Timeouts that need no configuration.
const (
	stableAfter  = 5 * time.Second        // how long a connection must last to reset the backoff
	dialTimeout  = 5 * time.Second        // how long a host may take for the handshake
	helloTimeout = 10 * time.Second       // … and then for the answer to hello
	stagger      = 250 * time.Millisecond // how long one host is tried before the next joins (RFC 8305, section 8)
	idleTimeout  = time.Minute            // how long a lost connection may be unused before the server is retired
)

// Run maintains the connection until ctx ends or the server is idle. It returns when everything
// of the last connection is released.
func (s *Server) Run(ctx context.Context) {
	defer s.attempts.Wait()
	wait := s.cfg.NewBackOff()
	for host := 0; ctx.Err() == nil; host++ {
		if s.isIdle() && s.cfg.Retire(s) {
			s.cfg.Logger.Debug("a server is no longer used", "server", s.address)
			return
		}
		p, err := s.connect(ctx, host)
		if err != nil {
			s.setPeer(nil, err)
			s.cfg.Logger.Debug("no connection", "server", s.address, "error", err)
			s.pause(ctx, wait.NextBackOff())
			continue
		}
		began := time.Now()
		s.setPeer(p, nil)
		s.cfg.OnConnect()
		err = <-p.ended
		s.setPeer(nil, p.rejection())
		p.release()
		s.cfg.Logger.Debug("connection ended", "server", s.address, "error", err)
		if time.Since(began) < stableAfter {
			s.pause(ctx, wait.NextBackOff())
		} else {
			wait.Reset()
		}
	}
	s.shutDown(ErrClosed())
}

// shutDown notifies the callers waiting in Peer that the loop has ended.
func (s *Server) shutDown(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = why
	s.broadcast()
}

// isIdle reports whether the server has been unused for idleTimeout.
func (s *Server) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting == 0 && time.Since(s.lastUsed) >= idleTimeout
}

// Retire ends a server that is idle, and reports whether it was: its callers get ErrRetired then, and it must be found no more.
func (s *Server) Retire() bool {
	if !s.isIdle() {
		return false
	}
	s.shutDown(ErrRetired)
	return true
}

// pause waits for d. A caller that needs a connection shortens the pause, but not below least:
// however many callers there are, a server that is down is dialled at most at that rate.
func (s *Server) pause(ctx context.Context, d time.Duration) {
	least := min(s.cfg.MinWait, d)
	timer := time.NewTimer(least)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	timer.Reset(d - least)
	select {
	case <-timer.C:
	case <-s.wake:
	case <-ctx.Done():
	}
}

// ErrClosed returns the error of what ends because the client was closed.
func ErrClosed() error { return fault.Canceled.With("the client was closed") }

// ErrRetired is the error of a server that was retired as idle: the caller may start another.
var ErrRetired = errors.New("client: the server was unused and has ended")

// connect tries every host once, beginning with the one after the last. A single host's
// connection is returned when the handshake is done, so that calls are sent at once; of several
// hosts, the first that answers hello is used: the next one is tried when one has failed, or has
// not answered within stagger.
func (s *Server) connect(ctx context.Context, first int) (*Peer, error) {
	if len(s.urls) == 1 {
		p, err := s.attempt(ctx, ctx, 0)
		if err != nil {
			return nil, s.roundErr([]error{err})
		}
		return p, nil
	}
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		p   *Peer
		err error
	}
	results := make(chan result)
	begun, pending := 0, 0
	next := time.NewTimer(0)
	defer next.Stop()
	var errs []error
	for begun < len(s.urls) || pending > 0 {
		select {
		case <-next.C:
			if begun == len(s.urls) {
				continue
			}
			host := (first + begun) % len(s.urls)
			begun, pending = begun+1, pending+1
			next.Reset(stagger)
			s.attempts.Go(func() {
				p, err := s.attempt(ctx, trying, host)
				if err == nil {
					err = p.awaitHello(trying)
				}
				select {
				case results <- result{p, err}:
				case <-trying.Done():
					p.discard()
				}
			})
		case <-ctx.Done():
			return nil, ErrClosed()
		case r := <-results:
			if pending--; r.err == nil {
				return r.p, nil
			}
			r.p.discard()
			errs = append(errs, r.err)
			next.Reset(0)
		}
	}
	return nil, s.roundErr(errs)
}

// attempt dials a host, bounded by trying, for a connection that lasts as long as ctx.
func (s *Server) attempt(ctx, trying context.Context, host int) (*Peer, error) {
	dialing, cancel := context.WithTimeout(trying, dialTimeout)
	defer cancel()
	transport, err := s.cfg.Dial(dialing, s.urls[host])
	if err != nil {
		return nil, err
	}
	conn := rpc.NewConn(transport, rpc.Config{Limits: limits(), Logger: s.cfg.Logger, Trace: s.cfg.Trace})
	p := newPeer(conn, conn.Bootstrap(ctx), s.hosts[host], s.cfg.SealKey)
	go func() { p.ended <- conn.Run(ctx) }()
	p.hello(ctx, s.cfg.Agent, s.setLimits)
	return p, nil
}

// roundErr returns the error of a round through all hosts: Incompatible if each of them is.
func (s *Server) roundErr(errs []error) error {
	for _, err := range errs {
		if fault.CodeOf(err) != fault.Incompatible {
			return fault.Unavailable.Because(errors.Join(errs...), "%s", dialerror.Explain(s.address, err))
		}
	}
	return errs[0]
}

// setPeer sets the connection or the error, and wakes the callers waiting in Peer.
func (s *Server) setPeer(p *Peer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = p
	if err != nil {
		s.failedRounds++
		s.lastErr = err
	}
	s.broadcast()
}

// broadcast wakes all goroutines waiting for a change. mu is held.
func (s *Server) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Limits returns the limits that hello reported last; zero fields are unknown.
func (s *Server) Limits() ledger.Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// setLimits records the server's limits.
func (s *Server) setLimits(l ledger.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// Err returns why there is no connection; nil if there is one, or none was tried.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return nil
	}
	return s.lastErr
}
