// A server as this client knows it: the hosts of a ref, tried in turn, and the
// one connection to whichever of them answers. A loop keeps the connection: it
// dials again with jittered backoff when it is lost, at once when someone asks
// for it, and says so when it is back.

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
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// server is one address, which may have several hosts.
type server struct {
	address string   // for messages
	hosts   []string // HOST:PORT each
	urls    []string // of the same
	key     ed25519.PrivateKey
	dial    func(ctx context.Context, url string) (rpc.Transport, error)
	config  rpc.Config
	agent   string
	logger  *slog.Logger
	newWait func() backoff.BackOff
	back    func() // called when a connection is there

	ask chan struct{} // someone wants a connection now

	mu      sync.Mutex
	current *peer
	failed  uint64        // rounds through all hosts that got no connection
	lastErr error         // of the last of them
	closed  error         // the loop has ended
	limits  ledger.Limits // the last that hello told; zero fields: not known
	changed chan struct{} // closed when one of these changes
}

// peer gives the present connection, or waits for one attempt at every host.
// The error is Unavailable, Incompatible, or Canceled when ctx ends first.
func (s *server) peer(ctx context.Context) (*peer, error) {
	s.mu.Lock()
	before := s.failed
	for {
		var err error
		p := s.current
		switch {
		case s.closed != nil:
			p, err = nil, s.closed
		case s.failed > before:
			p, err = nil, s.lastErr
		case p != nil && p.over():
			p = nil // the loop is about to find out
		}
		if p != nil || err != nil {
			s.mu.Unlock()
			return p, err
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case s.ask <- struct{}{}:
		default: // it has been asked already
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fault.Canceled.Because(ctx.Err(), "stopped waiting for a connection to %s", s.address)
		}
		s.mu.Lock()
	}
}

// lasting is how long a connection must have held for the next wait to be short again.
const lasting = 5 * time.Second

// run keeps the connection until ctx ends. It returns when everything that
// belongs to the last one is released.
func (s *server) run(ctx context.Context) {
	wait := s.newWait()
	for host := 0; ctx.Err() == nil; host++ {
		p, end, err := s.connect(ctx, host)
		if err != nil {
			s.note(nil, err)
			s.logger.Debug("no connection", "server", s.address, "error", err)
			s.pause(ctx, wait.NextBackOff())
			continue
		}
		began := time.Now()
		s.note(p, nil)
		s.back()
		err = <-end
		s.note(nil, nil)
		p.release()
		s.logger.Debug("connection ended", "server", s.address, "error", err)
		if time.Since(began) < lasting {
			s.pause(ctx, wait.NextBackOff())
		} else {
			wait.Reset()
		}
	}
	s.mu.Lock()
	s.closed = errClosed()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// pause waits, unless someone asks for a connection.
func (s *server) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ask:
	case <-ctx.Done():
	}
}

func errClosed() error { return fault.Canceled.With("the client was closed") }

// connect tries every host once, beginning with the one after the last.
func (s *server) connect(ctx context.Context, first int) (*peer, <-chan error, error) {
	var errs []error
	for i := range s.urls {
		host := (first + i) % len(s.urls)
		transport, err := s.dial(ctx, s.urls[host])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		conn := rpc.NewConn(transport, s.config)
		end := make(chan error, 1)
		go func() { end <- conn.Run(ctx) }()
		p := newPeer(conn, conn.Bootstrap(ctx), s.hosts[host], s.key)
		p.greet(ctx, s.agent, s.learn)
		return p, end, nil
	}
	err := errors.Join(errs...)
	return nil, nil, fault.Unavailable.Because(err, "no server answers at %s (%s): is it running?", s.address, brief(errs[0]))
}

// note makes a change known to all who wait in peer.
func (s *server) note(p *peer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = p
	if err != nil {
		s.failed++
		s.lastErr = err
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// learn notes what the server takes.
func (s *server) learn(l ledger.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// limitsFor is what the server of a ref takes, as far as it has told; a server
// that was not heard of in this client's time takes the default.
func (c *Client) limitsFor(ref capability.Ref) session.Limits {
	lim := session.DefaultLimits()
	c.mu.Lock()
	s := c.servers[ref.Address()]
	c.mu.Unlock()
	if s == nil {
		return lim
	}
	s.mu.Lock()
	told := s.limits
	s.mu.Unlock()
	for _, f := range []struct {
		have *int
		told int
	}{
		{&lim.BatchOps, told.BatchOps}, {&lim.BatchBytes, told.BatchBytes},
		{&lim.PayloadBytes, told.PayloadBytes}, {&lim.TextBytes, told.PayloadBytes},
	} {
		if f.told > 0 {
			*f.have = f.told
		}
	}
	return lim
}

// trouble is why there is no connection; nil if there is one, or none was tried.
func (s *server) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return nil
	}
	return s.lastErr
}

// Trouble says why one of the servers in use cannot be reached at present; nil
// if all can, as far as is known.
func (c *Client) Trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if err := s.trouble(); err != nil {
			return err
		}
	}
	return nil
}

// serverFor gives the server of a ref, and starts its loop with the first use.
// It refuses a ref without hosts, and one whose secret would travel in clear.
func (c *Client) serverFor(ref capability.Ref) (*server, error) {
	if err := c.mayUse(ref); err != nil {
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
		address: address,
		hosts:   ref.Hosts,
		urls:    ref.URLs(),
		key:     c.cfg.SealKey,
		dial:    c.cfg.Dial,
		config:  rpc.Config{Limits: c.cfg.limits(), Logger: c.cfg.Logger, Trace: c.cfg.Trace},
		agent:   c.cfg.Agent,
		logger:  c.cfg.Logger,
		newWait: c.cfg.newBackOff,
		back:    c.wake,
		ask:     make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
	c.servers[address] = s
	c.running.Go(func() { s.run(c.ctx) })
	return s, nil
}

// brief is the innermost part of an error: what people need of a failed dial.
func brief(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
