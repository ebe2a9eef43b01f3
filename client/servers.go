// The servers that a client uses: how each is found and given up, how a call is tried on them, and the connection as the
// outbox's sender uses it (outbox.Link).

package client

import (
	"context"
	"errors"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client/internal/serverconn"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

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
	offered := s.Limits()
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

// peer returns a connection to the server of a ref.
func (c *Client) peer(ctx context.Context, ref capability.Ref) (*serverconn.Peer, error) {
	for {
		srv, err := c.serverFor(ref)
		if err != nil {
			return nil, err
		}
		if p, err := srv.Peer(ctx); !errors.Is(err, serverconn.ErrRetired) {
			return p, err
		}
	}
}

// retire ends a server that is idle, and reports whether it was.
func (c *Client) retire(s *serverconn.Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.Retire() {
		return false
	}
	delete(c.servers, s.Address())
	return true
}

// ConnErr returns why one of the servers in use cannot be reached at present; nil if all can, as
// far as is known. A server unused for a minute is not dialled any more, and is not reported.
func (c *Client) ConnErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// serverFor returns the server of a ref, and starts its loop at the first use. It refuses a ref
// without hosts, and one whose secret would be sent unencrypted.
func (c *Client) serverFor(ref capability.Ref) (*serverconn.Server, error) {
	if err := c.checkUsable(ref); err != nil {
		return nil, err
	}
	address := ref.Address()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, serverconn.ErrClosed()
	}
	if s := c.servers[address]; s != nil {
		return s, nil
	}
	s := serverconn.New(ref, serverconn.Config{
		SealKey:    c.cfg.SealKey,
		Dial:       c.cfg.dial,
		Agent:      c.cfg.Agent,
		Logger:     c.cfg.Logger,
		Trace:      c.cfg.trace,
		NewBackOff: c.cfg.newBackOff,
		MinWait:    c.cfg.Reconnect.Initial,
		OnConnect:  c.wake,
		Retire:     c.retire,
	})
	c.servers[address] = s
	c.tasks.Go(func() { s.Run(c.ctx) })
	return s, nil
}

// call is retry, and learns what a ref allows when it turns out to lack a right.
func (c *Client) call(ctx context.Context, ref access, ask func(context.Context, *rpc.Ref) *rpc.Promise, read func(capnp.Struct) error) error {
	err := c.retry(ctx, ref, ask, read)
	if fault.CodeOf(err) == fault.MissingRight {
		c.learnRights(ctx, ref)
	}
	return err
}

// retry makes one call on a ref's live capability and reads its results, again while the error is
// transient and RetryTimeout lasts.
func (c *Client) retry(ctx context.Context, ref access, ask func(context.Context, *rpc.Ref) *rpc.Promise, read func(capnp.Struct) error) error {
	patience, giveUp := context.WithTimeout(ctx, max(c.cfg.RetryTimeout, 0))
	defer giveUp()
	defer context.AfterFunc(c.ctx, giveUp)()
	wait := c.cfg.newBackOff()
	var last error // the last transient error
	for {
		err := c.try(ctx, ref, ask, read)
		transient := fault.CodeOf(err).Transient()
		if transient && (last == nil || patience.Err() == nil) { // else the attempt was cut off by the timeout
			last = err
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return canceledAfter(ctx, last)
		case !transient:
			return err
		}
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
			continue
		case <-patience.Done():
			timer.Stop()
		}
		switch {
		case ctx.Err() != nil:
			return canceledAfter(ctx, last)
		case c.ctx.Err() != nil:
			return serverconn.ErrClosed()
		}
		return last
	}
}

// canceledAfter returns the error of a call whose context has ended; last is the last transient
// error until then.
func canceledAfter(ctx context.Context, last error) error {
	if last == nil {
		return fault.Canceled.Because(ctx.Err(), "given up before there was an answer (%v)", ctx.Err())
	}
	return fault.Canceled.Because(errors.Join(ctx.Err(), last), "given up (%v) after %v", ctx.Err(), last)
}

// try is one attempt of retry. It ends by itself if no server can be reached, or none answers
// hello in time (serverconn.Server.Peer); the answer of a server that has answered hello is
// waited for without a limit.
func (c *Client) try(ctx context.Context, ref access, ask func(context.Context, *rpc.Ref) *rpc.Promise, read func(capnp.Struct) error) error {
	p, err := c.peer(ctx, ref.Ref)
	if err != nil {
		return err
	}
	live, err := p.Reach(ctx, ref.Ref, ref.Redemption, ref.opens)
	if err != nil {
		return err
	}
	defer live.Release()
	answer := ask(ctx, live)
	defer answer.Release()
	results, _, err := answer.Wait(ctx)
	if err != nil {
		err = p.Fail(err)
	} else {
		err = asFault(read(results))
	}
	c.noteAccepted(ctx, ref, err)
	return err
}

// asFault returns the error of decoding an answer as a fault: Incompatible unless it is one
// already.
func asFault(err error) error {
	var f *fault.Error
	if err != nil && !errors.As(err, &f) {
		return fault.Incompatible.Because(err, "the server's answer cannot be read: %v", err)
	}
	return err
}

// link is a client as its own sender uses it.
type link struct{ *Client }

var _ outbox.Link = link{}

// OpenStream implements outbox.Link.
func (c link) OpenStream(ctx context.Context, req outbox.StreamRequest) (outbox.Stream, error) {
	through := req.Ref
	if req.SpaceRef != nil {
		through = *req.SpaceRef
	}
	p, err := c.peer(ctx, through)
	if err != nil {
		return nil, err
	}
	s, err := p.OpenStream(ctx, c.ctx, through, req)
	if err != nil {
		return nil, err
	}
	c.tasks.Go(s.Run)
	return s, nil
}
