package client

// Reconciling: committing again the ops that a session's log has lost.

import (
	"context"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// ReconcileOptions are the options of Reconcile.
type ReconcileOptions struct {
	outbox.ReconcileOptions
	// DryRun reports what would be done, and changes nothing.
	DryRun bool
}

const (
	logPage         = 1000             // events requested at once
	inFlightTimeout = 10 * time.Second // how long ops in flight are waited for
	reconcileTries  = 5
)

// Reconcile compares a session's log with the ops committed to it here, and commits again those
// that applied once and are no longer in the log: under new ids, in order, in a new stream, which
// also takes the pending ops (outbox.Box.Reconcile). It is the way on from a stopped stream
// (*outbox.StreamStoppedError), and finds what a server restored from a backup has lost, stopped
// or not. It needs a ref that shows the whole log. Interrupting or repeating it is harmless. A
// session that the server does not know any more is created again, if it was created from here.
func (c *Client) Reconcile(ctx context.Context, session string, o ReconcileOptions) (r outbox.Reconciliation, err error) {
	s, err := c.SessionByID(ctx, session)
	if err != nil {
		return r, err
	}
	for range reconcileTries { // other clients may be sending
		var log *outbox.Log
		if log, err = s.readLog(ctx, false); err != nil {
			return r, err
		}
		if r, err = c.box.PlanReconcile(ctx, s.id, log, o.ReconcileOptions); err != nil || o.DryRun || !r.Needed() {
			return r, err
		}
		// Ops in flight must not arrive after the log was read: the stream is fenced first.
		if log, err = s.readLog(ctx, true); err != nil {
			return r, err
		}
		if r, err = c.box.Reconcile(ctx, s.id, log, o.ReconcileOptions); fault.CodeOf(err) != fault.InUse {
			return r, err
		}
	}
	return r, err
}

// readLog reads which ops the session's log contains, once none is in flight; if fenced, also
// once none of the session's stream can arrive any more.
func (s *Session) readLog(ctx context.Context, fenced bool) (*outbox.Log, error) {
	gone, err := s.notKnownToServer(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.client.awaitInFlight(ctx, s.id); err != nil {
		return nil, err
	}
	log, err := s.client.box.NewLog(ctx, s.id)
	if err != nil {
		return nil, err
	}
	if log.Gone = gone; fenced {
		if err := s.client.box.Fence(ctx, link{s.client}, log, s.id, gone); err != nil {
			return nil, err
		}
	}
	if gone {
		return log, nil
	}
	d, err := s.Describe(ctx)
	switch {
	case err != nil:
		return nil, err
	case d.Grant.Dead != fault.None:
		return nil, d.Grant.Dead.With("the ref to session %s allows nothing any more: redeem another one, or give up what waits for the session (mooring outbox abandon)", s.id)
	case !d.Grant.Rights.Has(capability.Read):
		return nil, fault.MissingRight.With("no ref kept here may read session %s, so nobody can tell from here what it lacks: redeem one that may, or give up what waits for the session (mooring outbox abandon)", s.id)
	case d.Grant.From > 1 || d.Grant.Message != "":
		return nil, fault.MissingRight.With("the ref to session %s shows only a part of its log, so nobody can tell from here what it lacks: redeem one that shows all of it", s.id)
	}
	log.Base = d.Session.Base
	for after, more := log.Base, true; more; {
		page, err := s.Events(ctx, after, logPage)
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Op != "" {
				log.Ops[e.Op] = e.Cursor
			}
			after = e.Cursor
		}
		more = len(page.Events) > 0 && after < page.Cursor
	}
	return log, nil
}

// notKnownTries is how often a server has to answer that it does not know a session: a server
// started while another's last commit ran may see that commit late.
const notKnownTries = 3

// notKnownToServer reports whether the server does not know the session. Client.call would retry
// that answer, as for a share in flight.
func (s *Session) notKnownToServer(ctx context.Context) (bool, error) {
	wait := s.client.cfg.newBackOff()
	for range notKnownTries {
		err := s.client.try(ctx, s.refFor(ctx, capability.Read), func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
			return call(ctx, live, methods.SessionDescribe, nil)
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

// awaitInFlight waits until no op of a session is in flight. Else an op in flight could be taken
// for missing.
func (c *Client) awaitInFlight(ctx context.Context, session string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(inFlightTimeout); ; {
		still, err := c.box.Stopped(ctx, session)
		if err != nil || still != nil {
			return err
		}
		st, err := c.box.Queue(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, s := range st.Streams {
			if s.Session == session {
				left = s.Unfinished
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fault.InUse.With("%d ops of session %s are on their way and its stream has not stopped: wait for their answers first", left, session)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fault.Canceled.Because(ctx.Err(), "stopped waiting for what is on its way to session %s", session)
		}
	}
}
