package refs

// Routes: the refs through which a batch is sent.

import (
	"context"
	"hash/maphash"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// RouteForCommit is RouteOf for a batch that is committed now, with a check of the caller's
// secrets: that for via, and that for the ref which a fork or a
// create names as its own via.
func (s Resolver) RouteForCommit(ctx context.Context, session, via string, secret, forkSecret capability.Secret, bd *intent.Batch) (machine.Route, error) {
	to, err := s.RouteOf(ctx, session, via, bd)
	if err == nil {
		err = s.checkSecret(ctx, via, secret)
	}
	if err == nil && to.ForkVia != "" {
		err = s.checkSecret(ctx, to.ForkVia, forkSecret)
	}
	return to, err
}

// checkSecret refuses a secret that differs from the stored ref's.
func (s Resolver) checkSecret(ctx context.Context, id string, secret capability.Secret) error {
	if secret.IsZero() {
		return nil
	}
	r, err := s.Ref(ctx, id)
	if err != nil || r.hasSecret(id, secret) {
		return err
	}
	return fault.UnknownRef.With("another secret is stored here for ref %s, and nothing is committed under that one: redeem the ref you have first, and if it is the right one drop the other", fault.Clip(id))
}

// RouteOf returns how the session's stream is opened for a batch, or the error if there is no
// ref to send it through. A batch via a space's ref that does not create the session goes to the
// session by that ref's right manage, and one via the ref of another session by that ref's reach.
func (s Resolver) RouteOf(ctx context.Context, session, via string, bd *intent.Batch) (machine.Route, error) {
	first := &bd.Ops[0]
	if !intent.CreatesSession(first.Method) {
		var r SavedRef
		var err error
		inSpace := capability.IsSpace(capability.Target(via))
		manages := inSpace && first.Method != ledger.MethodVoid // else what is left of a batch that created the session
		if via != "" && !inSpace {
			r, err = s.Ref(ctx, via)
		} else if !manages {
			r, err = s.RefFor(ctx, session, bd.RightsNeeded())
			if manages = inSpace && fault.CodeOf(err) == fault.NotFound; manages {
				err = nil
			}
		}
		if manages && err == nil {
			r, err = s.Ref(ctx, via)
		}
		if err != nil {
			return machine.Route{}, err
		}
		if r.Target() != session && !manages && via == "" {
			return machine.Route{}, fault.BadArgument.With("ref %s is not for session %s", r.ID, session)
		}
		return machine.Route{Ref: r.ID, Host: r.Address(), Fingerprint: Fingerprint(r.Ref), Confirmed: r.trust() == trustConfirmed && !r.Confirmed.IsZero(), Rotating: r.Successor != nil}, nil
	}
	var space SavedRef
	var err error
	if via == "" {
		space, err = s.RefFor(ctx, "", capability.Create)
	} else {
		space, err = s.Ref(ctx, via)
	}
	if err != nil {
		return machine.Route{}, err
	}
	if !capability.IsSpace(space.Target()) {
		return machine.Route{}, fault.BadArgument.With("%s goes through a space's ref, which %s is not", first.Method, space.ID)
	}
	to := machine.Route{Ref: bd.OwnerRef(), Space: space.ID, Host: space.Address(), Fingerprint: Fingerprint(space.Ref), Confirmed: space.trust() == trustConfirmed && !space.Confirmed.IsZero(), Rotating: space.Successor != nil}
	for _, a := range first.Args {
		if a.Name == "via" && a.Ref == nil {
			if with := intent.JSONString(a.JSON); capability.Target(with) != "" { // else the server refuses it as no ref
				to.ForkVia = with
			}
		}
	}
	if capability.Target(to.Ref) != session {
		return machine.Route{}, fault.BadArgument.With("%s needs an argument ref: the id of the session's owner ref", first.Method)
	}
	if to.ForkVia != "" {
		with, err := s.Ref(ctx, to.ForkVia)
		if err != nil {
			return machine.Route{}, err
		}
		to.Fingerprint ^= Fingerprint(with.Ref)
	}
	return to, nil
}

var fingerprintSeed = maphash.MakeSeed()

// Fingerprint distinguishes refs within the process, without retaining their text.
func Fingerprint(r capability.Ref) uint64 { return maphash.String(fingerprintSeed, r.Text()) }
