// The refs used by this client, as the outbox saves them. A ref is saved before its first use,
// because a later process may have to send batches committed under it. Once a server has
// confirmed a saved ref, its secret and address change only when a server has accepted others.

package client

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// saveRef saves a ref unless it is saved already, and returns it as it is to be used. A secret
// that does not belong to the ref's id is refused (UnknownRef). If the ref differs from a saved
// one that was confirmed, it is used for this caller alone until a server has accepted it.
func (c *Client) saveRef(ctx context.Context, ref capability.Ref, role outbox.Role) (outbox.SavedRef, error) {
	if err := c.checkUsable(ref); err != nil {
		return outbox.SavedRef{}, err
	}
	if capability.ClientMade(ref.ID) && !capability.DerivedFrom(ref.ID, ref.Secret) {
		return outbox.SavedRef{}, fault.UnknownRef.With("the ref's secret does not belong to its id: was it mistyped or cut off?")
	}
	saved, err := c.box.Ref(ctx, ref.ID)
	same := err == nil && saved.Secret.Equal(ref.Secret)
	switch {
	case err == nil && saved.ID != ref.ID: // rotated here: the old ref's text stands for the new ref
		return outbox.SavedRef{Ref: ref, RefMeta: outbox.RefMeta{Role: role}}, nil
	case same && saved.Address() == ref.Address():
		return saved, nil
	case err == nil && saved.Confirmed.IsZero():
		err = c.box.PutRef(ctx, ref, saved.RefMeta)
	case same:
		saved.Ref = ref
		c.probeAddress(saved)
		return saved, nil
	case err == nil:
		return outbox.SavedRef{Ref: ref, RefMeta: outbox.RefMeta{Role: role}, Redemption: ulid.Make().String()}, nil
	case fault.CodeOf(err) == fault.NotFound:
		err = c.box.PutRef(ctx, ref, outbox.RefMeta{Role: role})
	}
	if err == nil {
		saved, err = c.box.Ref(ctx, ref.ID)
	}
	return saved, err
}

// checkUsable refuses a ref without hosts, or whose secret would be sent unencrypted.
func (c *Client) checkUsable(ref capability.Ref) error {
	if len(ref.Hosts) == 0 {
		return fault.BadRefText.With("the ref names no host: give it the address of a server (capability.ParseAddress)")
	}
	return ref.CheckPlaintext(c.cfg.AllowPlaintext)
}

// probeAddress asks in the background whether the server of a saved ref is at another address
// now. If it is, that address is saved, and queued batches are sent there.
func (c *Client) probeAddress(ref outbox.SavedRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := usedKey(ref.Ref)
	if c.closed || c.cfg.Offline || c.probing[key] {
		return
	}
	if c.probing == nil {
		c.probing = map[string]bool{}
	}
	c.probing[key] = true
	c.tasks.Go(func() {
		if _, err := c.describe(c.ctx, access{SavedRef: ref}); err != nil {
			c.cfg.Logger.Debug("a ref has another address, which does not answer", "ref", ref.Ref, "error", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.probing, key)
	})
}

// describe asks the server what a ref is for and what it allows.
func (c *Client) describe(ctx context.Context, ref access) (d Description, err error) {
	method, read := methods.SessionDescribe, d.readSession
	if ref.opens == "" && capability.IsSpace(ref.Target()) {
		method, read = methods.SpaceDescribe, d.readSpace
	}
	err = c.retry(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, method, nil)
	}, read)
	if err == nil && ref.opens == "" {
		c.saveAnswer(ctx, ref.Ref, d.refAnswer())
	}
	return d, err
}

// learnRights asks what a saved ref allows, if that is unknown, so that refFor can choose another
// ref where this one lacks the right.
func (c *Client) learnRights(ctx context.Context, ref access) {
	if c.box == nil || ref.opens != "" {
		return
	}
	if kept, err := c.box.Ref(ctx, ref.ID); err == nil && kept.ID == ref.ID && kept.Rights == 0 {
		_, _ = c.describe(ctx, ref) // if it fails, the rights stay unknown
	}
}

// usedKey identifies a ref as it was used: its secret, at its address.
func usedKey(ref capability.Ref) string {
	hash := ref.Secret.Hash()
	return ref.ID + "#" + string(hash[:]) + ref.Address()
}

// noteAccepted records what the answer to a call tells of its ref, until a server has accepted the
// ref; err is the error of the call.
func (c *Client) noteAccepted(ctx context.Context, ref access, err error) {
	if err != nil && ref.opens != "" {
		return // which may be about the session
	}
	c.mu.Lock()
	before := c.confirmed[usedKey(ref.Ref)]
	c.mu.Unlock()
	if err != nil || !before {
		c.saveAnswer(ctx, ref.Ref, outbox.RefAnswer{Code: fault.CodeOf(err)})
	}
}

// refAnswer is a description as an answer about the ref it was asked with.
func (d *Description) refAnswer() outbox.RefAnswer {
	g := &d.Grant
	return outbox.RefAnswer{Described: true, Rights: g.Rights, Dead: g.Dead, External: d.Session.External,
		Restricted: len(g.Methods) > 0 || g.Message != "" || g.ReadKeys != nil || g.WriteKeys != nil || g.From > 1}
}

// saveAnswer saves what a server's answer tells of a ref.
func (c *Client) saveAnswer(ctx context.Context, ref capability.Ref, answer outbox.RefAnswer) {
	if c.box == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	settled, err := c.box.RefAnswered(ctx, ref, answer)
	if err != nil {
		c.cfg.Logger.Warn("a server's answer about a ref could not be stored", "ref", ref, "error", err)
	}
	if settled {
		c.markConfirmed(ref)
	}
}

// markConfirmed makes noteAccepted skip a ref from now on: its status is saved already.
func (c *Client) markConfirmed(ref capability.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.confirmed == nil || len(c.confirmed) > maxConfirmed {
		c.confirmed = map[string]bool{}
	}
	c.confirmed[usedKey(ref)] = true
}

// maxConfirmed bounds Client.confirmed.
const maxConfirmed = 10_000

// Refs lists the refs saved in the outbox, oldest first, with their secrets and their status as
// servers reported it.
func (c *Client) Refs(ctx context.Context) ([]outbox.SavedRef, error) { return c.box.Refs(ctx) }

// Forget drops a ref from the outbox, and its secret with it; no error if it is not there.
// Batches queued under it are not sent until the ref is saved again. The ref itself stays valid:
// Revoke ends it for everyone. The error is InUse while the ref is being rotated.
func (c *Client) Forget(ctx context.Context, refID string) error {
	if err := c.box.DropRef(ctx, refID, false); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.confirmed)
	return nil
}
