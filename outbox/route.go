package outbox

// How a batch is sent: through which refs, and what a Link needs for that.

import (
	"context"
	"encoding/json"
	"hash/maphash"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

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
		return route{ref: r.ID, host: r.Address(), proof: proof(r.Ref), held: r.next != nil}, nil
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
	to := route{space: space.ID, host: space.Address(), proof: proof(space.Ref), held: space.next != nil}
	for _, a := range first.args {
		switch {
		case a.Name == "ref" && a.Ref == nil:
			to.ref = stringOf(a.JSON)
		case a.Name == "via" && first.method == methodFork && a.Ref == nil:
			to.with = stringOf(a.JSON)
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
	req := StreamRequest{Session: session, Outbox: b.id, Secret: b.secret, Incarnation: uint64(incarnation),
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
