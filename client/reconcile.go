package client

// Reconciling: committing again the ops that a session's log has lost.

import (
	"context"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

const logPage = 1000 // events requested at once

// Reconcile compares a session's log with the ops committed to it here, and commits again those
// that applied once and are no longer in the log: under new ids, in order, in a new stream, which
// also takes the pending ops (outbox.Box.Reconcile). It is the way on from a stopped stream
// (*outbox.StreamStoppedError), and finds what a server restored from a backup has lost, stopped
// or not. It needs a ref that shows the whole log. Interrupting or repeating it is harmless. A
// session that the server does not know any more is created again, if it was created from here.
func (c *Client) Reconcile(ctx context.Context, session string, o outbox.ReconcileOptions) (r outbox.Reconciliation, err error) {
	s, err := c.SessionByID(ctx, session)
	if err != nil {
		return r, err
	}
	return c.box.Reconcile(ctx, link{c}, s.id, logReader{s}, o)
}

// logReader implements outbox.LogReader.
type logReader struct{ *Session }

// Read reads which ops the session's log contains.
func (s logReader) Read(ctx context.Context, add func(op string, cursor uint64)) (base uint64, err error) {
	d, err := s.Describe(ctx)
	switch {
	case err != nil:
		return 0, err
	case d.Grant.Dead != fault.None:
		return 0, d.Grant.Dead.With("the ref to session %s is dead: redeem another one, or give up what is pending for the session (mooring outbox abandon)", s.id)
	case !d.Grant.Rights.Has(capability.Read):
		return 0, fault.MissingRight.With("no ref stored here may read session %s, so what it lacks cannot be determined: redeem one that may, or give up what is pending for the session (mooring outbox abandon)", s.id)
	case d.Grant.From > 1 || d.Grant.Message != "" || d.Grant.ReadKeys != nil:
		return 0, fault.MissingRight.With("the ref to session %s shows only a part of its log, so what it lacks cannot be determined: redeem one that shows all of it", s.id)
	}
	base = d.Session.Base
	for after, more := base, true; more; {
		page, err := s.Events(ctx, after, logPage)
		if err != nil {
			return 0, err
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Op != "" {
				add(e.Op, e.Cursor)
			}
			after = e.Cursor
		}
		more = len(page.Events) > 0 && after < page.Cursor
	}
	return base, nil
}

// notKnownTries is how often a server has to answer that it does not know a session: a server
// started while another's last commit ran may see that commit late.
const notKnownTries = 3

// Gone reports whether the server does not know the session. Client.call would retry that answer, as
// for a share in flight.
func (s logReader) Gone(ctx context.Context) (bool, error) {
	wait := s.client.cfg.newBackOff()
	for range notKnownTries {
		err := s.client.try(ctx, s.refFor(ctx, capability.Read), func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
			return calls.Make(ctx, live, methods.SessionDescribe, nil)
		}, func(capnp.Struct) error { return nil })
		if code := fault.CodeOf(err); code != fault.NotYetKnown && code != fault.UnknownRef {
			return false, nil // the next call reports the error
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return false, fault.Canceled.Because(ctx.Err(), "stopped asking for session %s", s.id)
		}
	}
	return true, nil
}
