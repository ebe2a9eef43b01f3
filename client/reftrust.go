// The refs used by this client, as the outbox saves them. A ref is saved before its first use,
// because a later process may have to send batches committed under it. Once a server has
// confirmed a saved ref, its secret and address change only when a server has accepted others.

package client

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
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
		if _, err := c.describe(c.ctx, ref); err != nil {
			c.cfg.Logger.Debug("a ref was given with another address, which does not answer", "ref", ref.Ref, "error", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.probing, key)
	})
}

// describe asks the server what a ref is for and what it allows.
func (c *Client) describe(ctx context.Context, ref outbox.SavedRef) (d Description, err error) {
	method, read := methodDescribe, d.readSession
	if capability.IsSpace(ref.Target()) {
		method, read = methodSpaceDescribe, d.readSpace
	}
	err = c.retry(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return live.Call(ctx, method, structSize(0, 0), nil)
	}, read)
	if err == nil {
		c.saveDescription(ctx, ref, &d)
	}
	return d, err
}

// learnRights asks what a saved ref allows, if that is unknown, so that refFor can choose another
// ref where this one lacks the right.
func (c *Client) learnRights(ctx context.Context, ref outbox.SavedRef) {
	if c.box == nil {
		return
	}
	if kept, err := c.box.Ref(ctx, ref.ID); err == nil && kept.ID == ref.ID && kept.Rights == 0 {
		_, _ = c.describe(ctx, ref) // if it fails, the rights stay unknown
	}
}

// usedKey identifies a ref as it was used: its secret, at its address.
func usedKey(ref capability.Ref) string { return liveKey(ref) + ref.Address() }

// noteAccepted records, at the first call that a server has answered, that the server has
// accepted the ref; err is the error of the call.
func (c *Client) noteAccepted(ctx context.Context, ref outbox.SavedRef, err error) {
	code := fault.CodeOf(err)
	switch {
	case c.box == nil:
		return
	case outbox.MeansDeadRef(code), code == fault.UnknownRef:
	case code != fault.None && code != fault.MissingRight && code != fault.NotAnOwner:
		return // says nothing about the secret
	default:
		c.mu.Lock()
		before := c.confirmed[usedKey(ref.Ref)]
		c.mu.Unlock()
		if before {
			return
		}
	}
	ctx = context.WithoutCancel(ctx)
	kept, e := c.box.Ref(ctx, ref.ID)
	if e != nil || kept.ID != ref.ID {
		return // forgotten, or replaced by another ref
	}
	there := kept.Secret.Equal(ref.Secret) && kept.Address() == ref.Address()
	status := outbox.RefStatus{Confirmed: c.cfg.Now()}
	switch {
	case code == fault.UnknownRef && (!there || kept.Confirmed.IsZero()), outbox.MeansDeadRef(code) && !there:
		return // not about the saved ref
	case code != fault.None && kept.Dead == code:
		return // recorded already
	case code == fault.UnknownRef:
		status = outbox.RefStatus{Dead: code}
	case outbox.MeansDeadRef(code):
		status.Dead = code
	case there && !kept.Confirmed.IsZero() && kept.Dead == fault.None:
		c.markConfirmed(ref.Ref)
		return
	}
	c.confirm(ctx, ref.Ref, status, "")
}

// saveDescription saves the status of a ref that a description contains.
func (c *Client) saveDescription(ctx context.Context, ref outbox.SavedRef, d *Description) {
	if c.box == nil {
		return
	}
	status := refStatusOf(d, c.cfg.Now())
	ctx = context.WithoutCancel(ctx)
	if kept, err := c.box.Ref(ctx, ref.ID); err == nil && kept.ID == ref.ID {
		same := kept.Secret.Equal(ref.Secret) && kept.Address() == ref.Address() &&
			(d.Session.External == "" || kept.External == d.Session.External)
		known := kept.RefStatus
		known.Confirmed = status.Confirmed
		if same && !kept.Confirmed.IsZero() && known == status {
			return
		}
	}
	c.confirm(ctx, ref.Ref, status, d.Session.External)
}

// refStatusOf returns the status of the ref in a description.
func refStatusOf(d *Description, now time.Time) outbox.RefStatus {
	g := &d.Grant
	return outbox.RefStatus{Confirmed: now, Rights: g.Rights, Dead: g.Dead, Restricted: len(g.Methods) > 0 || g.Message != "" || g.From > 1}
}

func (c *Client) confirm(ctx context.Context, ref capability.Ref, status outbox.RefStatus, external string) {
	err := c.box.ConfirmRef(ctx, ref, status, external)
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("what a server told of a ref is not kept", "ref", ref, "error", err)
	}
	if err == nil && status.Dead == fault.None {
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
	if err := c.box.DropRef(ctx, refID); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.confirmed)
	return nil
}
