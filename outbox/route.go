package outbox

// How a batch is sent: through which refs, and what a Link needs for that.

import (
	"context"
	"encoding/json"
	"hash/maphash"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// routeFor is routeOf for a batch that is committed now: by one who has the refs
// that it goes through.
func (s shelf) routeFor(ctx context.Context, batch *Batch, bd *body) (route, error) {
	to, err := s.routeOf(ctx, batch.Session, batch.Via, bd)
	if err == nil {
		err = s.holds(ctx, batch.Via, batch.ViaSecret)
	}
	if err == nil && to.with != "" {
		err = s.holds(ctx, to.with, batch.WithSecret)
	}
	return to, err
}

// holds refuses a secret that is not the one of the ref that is stored.
func (s shelf) holds(ctx context.Context, id string, secret capability.Secret) error {
	if secret.IsZero() {
		return nil
	}
	r, err := s.ref(ctx, id)
	if err != nil || r.has(id, secret) {
		return err
	}
	return fault.UnknownRef.With("another secret is kept here for ref %s, and nothing is committed under that one: redeem the ref you have first, and if it is the right one drop the other", clip(id))
}

// has says whether the ref, or the one with that id whose place it has taken, has a secret.
func (r *SavedRef) has(id string, secret capability.Secret) bool {
	if r.ID == id {
		return r.Secret.Equal(secret)
	}
	for _, was := range r.was {
		if was.id == id {
			return was.hash == "" || was.hash == secret.HashText()
		}
	}
	return false
}

// routeOf says how the session's stream is opened for a batch, or why there is
// no ref to send it through.
func (s shelf) routeOf(ctx context.Context, session, via string, bd *body) (route, error) {
	first := &bd.ops[0]
	if !creates(first.method) {
		var r SavedRef
		var err error
		if via != "" && !capability.IsSpace(capability.Target(via)) {
			r, err = s.ref(ctx, via)
		} else {
			r, err = s.refFor(ctx, session, bd.takes())
		}
		if err != nil {
			return route{}, err
		}
		if r.Target() != session {
			return route{}, fault.BadArgument.With("ref %s is not for session %s", r.ID, session)
		}
		return route{ref: r.ID, host: r.Address(), proof: proof(r.Ref), sure: r.trust() == isConfirmed && !r.Confirmed.IsZero(), held: r.next != nil}, nil
	}
	var space SavedRef
	var err error
	if via == "" {
		space, err = s.refFor(ctx, "", capability.Create)
	} else {
		space, err = s.ref(ctx, via)
	}
	if err != nil {
		return route{}, err
	}
	if !capability.IsSpace(space.Target()) {
		return route{}, fault.BadArgument.With("%s goes through a space's ref, which %s is not", first.method, space.ID)
	}
	to := route{ref: bd.owner(), space: space.ID, host: space.Address(), proof: proof(space.Ref), sure: space.trust() == isConfirmed && !space.Confirmed.IsZero(), held: space.next != nil}
	for _, a := range first.args {
		if a.Name == "via" && first.method == methodFork && a.Ref == nil {
			if with := stringOf(a.JSON); capability.Target(with) != "" { // else the server says that it is no ref
				to.with = with
			}
		}
	}
	if capability.Target(to.ref) != session {
		return route{}, fault.BadArgument.With("%s needs an argument ref: the id of the session's owner ref", first.method)
	}
	if to.with != "" {
		with, err := s.ref(ctx, to.with)
		if err != nil {
			return route{}, err
		}
		to.proof ^= proof(with.Ref)
	}
	return to, nil
}

// owner is the id of the ref that a creating batch mints; "" if it is not known.
func (b *body) owner() string {
	for _, a := range b.ops[0].args {
		if a.Name == "ref" && a.Ref == nil {
			return stringOf(a.JSON)
		}
	}
	return ""
}

// takes are the rights that the batch's ops need in their session.
func (b *body) takes() (want capability.Rights) {
	for i := range b.ops {
		switch b.ops[i].method {
		case "share":
			want |= capability.Share
		case "revoke", "bumpEpoch":
			want |= capability.Revoke
		default:
			want |= capability.Append
		}
	}
	return want
}

var proofSeed = maphash.MakeSeed()

// proof tells refs apart within the process, without keeping what is in them.
func proof(r capability.Ref) uint64 { return maphash.String(proofSeed, r.Text()) }

// stringOf is a JSON string's text; "" for anything else.
func stringOf(text []byte) (s string) {
	_ = json.Unmarshal(text, &s)
	return s
}

// request turns a route into what a Link needs.
func (b *Box) request(ctx context.Context, session string, to route, incarnation int64) (StreamRequest, error) {
	secret, err := b.streamSecret(ctx, session)
	if err != nil {
		return StreamRequest{}, err
	}
	req := StreamRequest{Session: session, Outbox: b.id, Secret: secret, Incarnation: uint64(incarnation),
		Redemptions: make(map[string]string)}
	get := func(id string) (capability.Ref, error) {
		r, err := b.shelf().ref(ctx, id)
		if err == nil {
			req.Redemptions[id] = r.Redemption
		}
		return r.Ref, err
	}
	own, err := get(to.ref)
	if to.space == "" {
		req.Ref = own
		return req, err
	}
	space, err2 := get(to.space)
	if err2 != nil {
		return req, err2
	}
	if err != nil {
		own = space.With(to.ref, capability.Secret{}) // it is minted, whoever keeps its secret
	}
	req.Ref, req.SpaceRef, req.OwnerRef = own, &space, to.ref
	if to.with != "" {
		with, err := get(to.with)
		if err != nil {
			return req, err
		}
		req.With = []capability.Ref{with}
	}
	return req, nil
}

// streamSecret is the secret by which the session's server knows the outbox.
func (b *Box) streamSecret(ctx context.Context, session string) (capability.Secret, error) {
	var old bool
	var life string
	err := b.read(ctx, "open the stream", func(ctx context.Context, q querier) (err error) {
		old, life, err = b.t.knownBy(ctx, q, session)
		return err
	})
	switch {
	case old && !b.old.IsZero():
		return b.old, err
	case life != "":
		return b.secret.StreamSecret(session + "\x00" + life), err // no session's id has a zero byte
	}
	return b.secret.StreamSecret(session), err
}
