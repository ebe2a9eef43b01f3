// A server as this client uses it: the hosts of a ref, tried in turn, and one connection to
// whichever of them answers. A loop maintains the connection: it redials with jittered backoff
// when the connection is lost, sooner when a caller needs it, and notifies when it is up. The
// loop ends when the server has been idle for idleTimeout.

package client

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
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// server is one address, which may have several hosts.
type server struct {
	address    string   // for messages
	hosts      []string // HOST:PORT each
	urls       []string // of hosts
	key        ed25519.PrivateKey
	dial       func(ctx context.Context, url string) (rpc.Transport, error)
	config     rpc.Config
	agent      string
	logger     *slog.Logger
	newBackoff func() backoff.BackOff
	minWait    time.Duration      // between two rounds through the hosts, however many callers wait
	onConnect  func()             // called when a connection is up
	retire     func(*server) bool // ends an idle server; false if it is in use

	wake     chan struct{}  // receives when a caller needs a connection
	attempts sync.WaitGroup // attempts that lost to a faster one

	mu           sync.Mutex
	current      *peer
	failedRounds uint64        // rounds through all hosts that got no connection
	lastErr      error         // of the last of these rounds
	closed       error         // why the loop has ended
	requested    bool          // peer has been called
	waiting      int           // callers of peer
	lastUsed     time.Time     // when a caller of peer last came or went
	limits       ledger.Limits // the last that hello reported; zero fields: unknown
	changed      chan struct{} // closed and replaced when any of these changes
}

// peer returns the present connection, or waits for one attempt at every host. The error is
// Unavailable, Incompatible, or Canceled when ctx ends first; errRetired if the server was
// retired as idle.
func (s *server) peer(ctx context.Context) (*peer, error) {
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
func (s *server) await(ctx context.Context) error {
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

// run maintains the connection until ctx ends or the server is idle. It returns when everything
// of the last connection is released.
func (s *server) run(ctx context.Context) {
	defer s.attempts.Wait()
	wait := s.newBackoff()
	for host := 0; ctx.Err() == nil; host++ {
		if s.isIdle() && s.retire(s) {
			s.logger.Debug("a server is no longer used", "server", s.address)
			return
		}
		p, err := s.connect(ctx, host)
		if err != nil {
			s.setPeer(nil, err)
			s.logger.Debug("no connection", "server", s.address, "error", err)
			s.pause(ctx, wait.NextBackOff())
			continue
		}
		began := time.Now()
		s.setPeer(p, nil)
		s.onConnect()
		err = <-p.ended
		s.setPeer(nil, p.rejection())
		p.release()
		s.logger.Debug("connection ended", "server", s.address, "error", err)
		if time.Since(began) < stableAfter {
			s.pause(ctx, wait.NextBackOff())
		} else {
			wait.Reset()
		}
	}
	s.shutDown(errClosed())
}

// shutDown notifies the callers waiting in peer that the loop has ended.
func (s *server) shutDown(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = why
	s.broadcast()
}

// isIdle reports whether the server has been unused for idleTimeout.
func (s *server) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting == 0 && time.Since(s.lastUsed) >= idleTimeout
}

// pause waits for d. A caller that needs a connection shortens the pause, but not below least:
// however many callers there are, a server that is down is dialled at most at that rate.
func (s *server) pause(ctx context.Context, d time.Duration) {
	least := min(s.minWait, d)
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

func errClosed() error { return fault.Canceled.With("the client was closed") }

// errRetired is the error of a server that was retired as idle; the client may start another.
var errRetired = errors.New("client: the server was unused and has ended")

// connect tries every host once, beginning with the one after the last. A single host's
// connection is returned when the handshake is done, so that calls are sent at once; of several
// hosts, the first that answers hello is used: the next one is tried when one has failed, or has
// not answered within stagger.
func (s *server) connect(ctx context.Context, first int) (*peer, error) {
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
		p   *peer
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
			return nil, errClosed()
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
func (s *server) attempt(ctx, trying context.Context, host int) (*peer, error) {
	dialing, cancel := context.WithTimeout(trying, dialTimeout)
	defer cancel()
	transport, err := s.dial(dialing, s.urls[host])
	if err != nil {
		return nil, err
	}
	conn := rpc.NewConn(transport, s.config)
	p := newPeer(conn, conn.Bootstrap(ctx), s.hosts[host], s.key)
	go func() { p.ended <- conn.Run(ctx) }()
	p.hello(ctx, s.agent, s.setLimits)
	return p, nil
}

// roundErr returns the error of a round through all hosts: Incompatible if each of them is.
func (s *server) roundErr(errs []error) error {
	for _, err := range errs {
		if fault.CodeOf(err) != fault.Incompatible {
			return fault.Unavailable.Because(errors.Join(errs...), "%s", dialerror.Explain(s.address, err))
		}
	}
	return errs[0]
}

// setPeer sets the connection or the error, and wakes the callers waiting in peer.
func (s *server) setPeer(p *peer, err error) {
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
func (s *server) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// setLimits records the server's limits.
func (s *server) setLimits(l ledger.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// limitsFor returns the limits of a ref's server, as far as it has reported them; defaults for a
// server not in use here.
func (c *Client) limitsFor(ref capability.Ref) session.Limits {
	lim := session.DefaultLimits()
	c.mu.Lock()
	s := c.servers[ref.Address()]
	c.mu.Unlock()
	if s == nil {
		return lim
	}
	s.mu.Lock()
	offered := s.limits
	s.mu.Unlock()
	for _, f := range []struct {
		have    *int
		offered int
	}{
		{&lim.BatchOps, offered.BatchOps}, {&lim.BatchBytes, offered.BatchBytes},
		{&lim.PayloadBytes, offered.PayloadBytes}, {&lim.TextBytes, offered.PayloadBytes},
	} {
		if f.offered > 0 {
			*f.have = f.offered
		}
	}
	return lim
}

// connErr returns why there is no connection; nil if there is one, or none was tried.
func (s *server) connErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return nil
	}
	return s.lastErr
}

// peer returns a connection to the server of a ref.
func (c *Client) peer(ctx context.Context, ref capability.Ref) (*peer, error) {
	for {
		srv, err := c.serverFor(ref)
		if err != nil {
			return nil, err
		}
		if p, err := srv.peer(ctx); !errors.Is(err, errRetired) {
			return p, err
		}
	}
}

// retire ends a server that is idle, and reports whether it was.
func (c *Client) retire(s *server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.isIdle() {
		return false
	}
	delete(c.servers, s.address)
	s.shutDown(errRetired)
	return true
}

// ConnErr returns why one of the servers in use cannot be reached at present; nil if all can, as
// far as is known. A server unused for a minute is not dialled any more, and is not reported.
func (c *Client) ConnErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if err := s.connErr(); err != nil {
			return err
		}
	}
	return nil
}

// serverFor returns the server of a ref, and starts its loop at the first use. It refuses a ref
// without hosts, and one whose secret would be sent unencrypted.
func (c *Client) serverFor(ref capability.Ref) (*server, error) {
	if err := c.checkUsable(ref); err != nil {
		return nil, err
	}
	address := ref.Address()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed()
	}
	if s := c.servers[address]; s != nil {
		return s, nil
	}
	s := &server{
		address:    address,
		hosts:      ref.Hosts,
		urls:       ref.URLs(),
		key:        c.cfg.SealKey,
		dial:       c.cfg.dial,
		config:     rpc.Config{Limits: c.cfg.limits(), Logger: c.cfg.Logger, Trace: c.cfg.trace},
		agent:      c.cfg.Agent,
		logger:     c.cfg.Logger,
		newBackoff: c.cfg.newBackOff,
		minWait:    c.cfg.Reconnect.Initial,
		onConnect:  c.wake,
		retire:     c.retire,
		wake:       make(chan struct{}, 1),
		lastUsed:   time.Now(),
		changed:    make(chan struct{}),
	}
	c.servers[address] = s
	c.tasks.Go(func() { s.run(c.ctx) })
	return s, nil
}
