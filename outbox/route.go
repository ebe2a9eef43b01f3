package outbox

// Routes: the refs through which a batch is sent, and the request for a Link.

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// streamRequest turns a route into a StreamRequest.
func (b *Box) streamRequest(ctx context.Context, session string, to machine.Route, incarnation int64) (StreamRequest, error) {
	secret, err := b.streamSecret(ctx, session)
	if err != nil {
		return StreamRequest{}, err
	}
	req := StreamRequest{Session: session, Outbox: b.id, Secret: secret, Incarnation: uint64(incarnation),
		Redemptions: make(map[string]string)}
	get := func(id string) (capability.Ref, error) {
		r, err := b.resolver().Ref(ctx, id)
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
	err := b.read(ctx, "open the stream", func(ctx context.Context, q sqlstore.Querier) (err error) {
		old, life, err = b.t.StreamSecretOf(ctx, q, session)
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
