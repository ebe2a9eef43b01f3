package outbox

// Routes: the refs through which a batch is sent, and the request for a Link.

import (
	"context"
	"hash/maphash"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// routeForCommit is routeOf for a batch that is committed now, with a check of the caller's
// secrets.
func (s refResolver) routeForCommit(ctx context.Context, batch *Batch, bd *intent.Batch) (machine.Route, error) {
	to, err := s.routeOf(ctx, batch.Session, batch.Via, bd)
	if err == nil {
		err = s.checkSecret(ctx, batch.Via, batch.ViaSecret)
	}
	if err == nil && to.ForkVia != "" {
		err = s.checkSecret(ctx, to.ForkVia, batch.ForkViaSecret)
	}
	return to, err
}

// checkSecret refuses a secret that differs from the stored ref's.
func (s refResolver) checkSecret(ctx context.Context, id string, secret capability.Secret) error {
	if secret.IsZero() {
		return nil
	}
	r, err := s.ref(ctx, id)
	if err != nil || r.hasSecret(id, secret) {
		return err
	}
	return fault.UnknownRef.With("another secret is kept here for ref %s, and nothing is committed under that one: redeem the ref you have first, and if it is the right one drop the other", clip(id))
}

// hasSecret reports whether secret is the ref's, or that of the ref with that id which it has
// replaced.
func (r *SavedRef) hasSecret(id string, secret capability.Secret) bool {
	if r.ID == id {
		return r.Secret.Equal(secret)
	}
	for _, was := range r.replaced {
		if was.id == id {
			return was.hash == "" || was.hash == secret.HashText()
		}
	}
	return false
}

// routeOf returns how the session's stream is opened for a batch, or the error if there is no
// ref to send it through.
func (s refResolver) routeOf(ctx context.Context, session, via string, bd *intent.Batch) (machine.Route, error) {
	first := &bd.Ops[0]
	if !intent.CreatesSession(first.Method) {
		var r SavedRef
		var err error
		if via != "" && !capability.IsSpace(capability.Target(via)) {
			r, err = s.ref(ctx, via)
		} else {
			r, err = s.refFor(ctx, session, bd.RightsNeeded())
		}
		if err != nil {
			return machine.Route{}, err
		}
		if r.Target() != session {
			return machine.Route{}, fault.BadArgument.With("ref %s is not for session %s", r.ID, session)
		}
		return machine.Route{Ref: r.ID, Host: r.Address(), Fingerprint: fingerprint(r.Ref), Confirmed: r.trust() == trustConfirmed && !r.Confirmed.IsZero(), Rotating: r.successor != nil}, nil
	}
	var space SavedRef
	var err error
	if via == "" {
		space, err = s.refFor(ctx, "", capability.Create)
	} else {
		space, err = s.ref(ctx, via)
	}
	if err != nil {
		return machine.Route{}, err
	}
	if !capability.IsSpace(space.Target()) {
		return machine.Route{}, fault.BadArgument.With("%s goes through a space's ref, which %s is not", first.Method, space.ID)
	}
	to := machine.Route{Ref: bd.OwnerRef(), Space: space.ID, Host: space.Address(), Fingerprint: fingerprint(space.Ref), Confirmed: space.trust() == trustConfirmed && !space.Confirmed.IsZero(), Rotating: space.successor != nil}
	for _, a := range first.Args {
		if a.Name == "via" && first.Method == intent.MethodFork && a.Ref == nil {
			if with := intent.JSONString(a.JSON); capability.Target(with) != "" { // else the server refuses it as no ref
				to.ForkVia = with
			}
		}
	}
	if capability.Target(to.Ref) != session {
		return machine.Route{}, fault.BadArgument.With("%s needs an argument ref: the id of the session's owner ref", first.Method)
	}
	if to.ForkVia != "" {
		with, err := s.ref(ctx, to.ForkVia)
		if err != nil {
			return machine.Route{}, err
		}
		to.Fingerprint ^= fingerprint(with.Ref)
	}
	return to, nil
}

var fingerprintSeed = maphash.MakeSeed()

// fingerprint distinguishes refs within the process, without retaining their text.
func fingerprint(r capability.Ref) uint64 { return maphash.String(fingerprintSeed, r.Text()) }

// streamRequest turns a route into a StreamRequest.
func (b *Box) streamRequest(ctx context.Context, session string, to machine.Route, incarnation int64) (StreamRequest, error) {
	secret, err := b.streamSecret(ctx, session)
	if err != nil {
		return StreamRequest{}, err
	}
	req := StreamRequest{Session: session, Outbox: b.id, Secret: secret, Incarnation: uint64(incarnation),
		Redemptions: make(map[string]string)}
	get := func(id string) (capability.Ref, error) {
		r, err := b.resolver().ref(ctx, id)
		if err == nil {
			req.Redemptions[id] = r.Redemption
		}
		return r.Ref, err
	}
	own, err := get(to.Ref)
	if to.Space == "" {
		req.Ref = own
		return req, err
	}
	space, err2 := get(to.Space)
	if err2 != nil {
		return req, err2
	}
	if err != nil {
		own = space.With(to.Ref, capability.Secret{}) // the batch mints it, wherever its secret is stored
	}
	req.Ref, req.SpaceRef, req.OwnerRef = own, &space, to.Ref
	if to.ForkVia != "" {
		with, err := get(to.ForkVia)
		if err != nil {
			return req, err
		}
		req.LiveRefs = []capability.Ref{with}
	}
	return req, nil
}

// streamSecret returns the secret by which the session's server knows the outbox.
func (b *Box) streamSecret(ctx context.Context, session string) (capability.Secret, error) {
	var old bool
	var life string
	err := b.read(ctx, "open the stream", func(ctx context.Context, q querier) (err error) {
		old, life, err = b.t.streamSecretOf(ctx, q, session)
		return err
	})
	switch {
	case old && !b.oldSecret.IsZero():
		return b.oldSecret, err
	case life != "":
		return b.secret.StreamSecret(session + "\x00" + life), err // no session id has a zero byte
	}
	return b.secret.StreamSecret(session), err
}
