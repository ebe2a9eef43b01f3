// Rotation: replacing an owner's ref, or a space's root ref, by a new one.

package client

import (
	"context"
	"errors"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// Rotate replaces this ref, which must be an owner's, by a new one: the new ref takes over its
// rights and everything shared from it, and the old one is dead from the cut on. It returns the
// session under the new ref; the receiver still holds the old one, but batches queued under that,
// or committed from now on, are sent under the new one.
//
// The new ref is in the outbox before the server is asked. If the answer is lost, this client
// retries in the background, as does any later one of the outbox; until then nothing new is sent
// under the old ref. Batches in flight are waited for, but not without limit: those left by a
// broken connection may be recorded as denied. Repeated on a value whose ref was rotated here
// before, it returns the replacement, with its cut.
func (s *Session) Rotate(ctx context.Context) (*Session, Cut, error) {
	if s.opened {
		return nil, Cut{}, fault.NotAnOwner.With("the session was opened through another ref: of one that was opened through its space TakeOver replaces the ref of its owner, who loses it then")
	}
	saved, cut, err := s.client.rotate(ctx, s.refFor(ctx, capability.SessionRights).SavedRef)
	if err != nil {
		return nil, cut, err
	}
	return &Session{client: s.client, id: s.id, saved: saved}, cut, nil
}

// TakeOver replaces the owner's ref of a session that was opened through its space (Space.Open) by a new
// one, which is saved in the outbox before the server is asked: it takes over everything shared from the old
// one, and whoever has the old one loses the session. It returns the session under the new ref. If the
// answer is lost, it may be repeated. The error is NotAnOwner for any other session.
func (s *Session) TakeOver(ctx context.Context) (*Session, Cut, error) {
	if !s.opened || !capability.IsSpace(s.saved.Target()) {
		return nil, Cut{}, fault.NotAnOwner.With("a session that was opened through its space is taken over: Rotate replaces the ref that it is reached by here")
	}
	made := s.saved.Ref.New(s.id)
	if err := s.client.box.PutRef(ctx, made, outbox.RefMeta{Role: outbox.Shared}); err != nil {
		return nil, Cut{}, err
	}
	cut, err := s.client.callRotate(ctx, s.access(s.saved), made)
	if err != nil {
		if isRotationRefused(err) {
			_ = s.client.box.DropRef(context.WithoutCancel(ctx), made.ID, false)
		}
		return nil, cut, err
	}
	owned, err := s.client.Session(ctx, made)
	return owned, cut, err
}

// Rotate is Session.Rotate for a space's root ref, which has no cut.
func (sp *Space) Rotate(ctx context.Context) (*Space, error) {
	saved, _, err := sp.client.rotate(ctx, sp.saved)
	if err != nil {
		return nil, err
	}
	return &Space{client: sp.client, id: sp.id, saved: saved}, nil
}

func (c *Client) rotate(ctx context.Context, old outbox.SavedRef) (saved outbox.SavedRef, cut Cut, err error) {
	made := old.Ref.New(old.Target())
	if capability.Sealed(old.ID) {
		made = old.Ref.NewSealed(old.Target())
	}
	pending, err := c.box.Rotate(ctx, old.ID, made, func(ctx context.Context, fresh capability.Ref) (refused bool, err error) {
		cut, err = c.requestRotation(ctx, old, fresh)
		return isRotationRefused(err), err
	})
	switch {
	case pending:
		c.finishInBackground(old.ID)
		return saved, cut, err
	case fault.CodeOf(err) == fault.NotFound:
		return c.rotatedBefore(ctx, old, err)
	case err != nil:
		return saved, cut, err
	}
	saved, err = c.box.Ref(ctx, old.ID)
	return saved, cut, err
}

// rotatedBefore returns the ref that replaced old here, if a server reports that old is dead;
// else the error is notFound.
func (c *Client) rotatedBefore(ctx context.Context, old outbox.SavedRef, notFound error) (saved outbox.SavedRef, cut Cut, err error) {
	saved, err = c.box.Ref(ctx, old.ID)
	if err != nil || saved.ID == old.ID {
		return saved, cut, notFound
	}
	d, err := c.describe(ctx, access{SavedRef: old})
	if err == nil && d.Grant.Dead == fault.None {
		err = notFound
	}
	cut.Cursor = d.Grant.Cut
	return saved, cut, err
}

func (c *Client) requestRotation(ctx context.Context, old outbox.SavedRef, made capability.Ref) (cut Cut, err error) {
	return c.callRotate(ctx, access{SavedRef: old}, made)
}

// callRotate asks for a rotation, or for that of the owner's ref of a managed session.
func (c *Client) callRotate(ctx context.Context, old access, made capability.Ref) (cut Cut, err error) {
	space := old.opens == "" && capability.IsSpace(old.Target())
	method := methods.SessionRotate
	if space {
		method = methods.SpaceRotate
	}
	err = c.call(ctx, old, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, method, func(s capnp.Struct, _ *rpc.CapTable) error {
			p := wire.Session_rotate_Params(s) // Space.rotate's are laid out alike
			if !space {
				p.SetTakeOver(old.opens != "")
			}
			hash := made.Secret.Hash()
			if err := p.SetHash(hash[:]); err != nil {
				return err
			}
			return p.SetRef(made.ID)
		})
	}, func(results capnp.Struct) error {
		if space {
			r := wire.Space_rotate_Results(results)
			return calls.RefusalErr(r.Refusal())
		}
		r := wire.Session_rotate_Results(results)
		cut.Cursor = r.Cut()
		return calls.RefusalErr(r.Refusal())
	})
	return cut, err
}

// isRotationRefused reports whether the server has refused a rotation: after any other error it may
// or may not have replaced the ref.
func isRotationRefused(err error) bool {
	if ex, ok := errors.AsType[*rpc.Exception](err); ok && ex.Type == rpc.Unimplemented { // an older server
		return true
	}
	switch code := fault.CodeOf(err); code {
	case fault.None, fault.Canceled, fault.Internal, fault.Incompatible:
		return false
	case fault.Plaintext: // not sent now, but may have been before
		return false
	default:
		return !code.Transient() || code == fault.NotYetKnown
	}
}

// finishInBackground starts finishRotation in the background.
func (c *Client) finishInBackground(old string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && !c.cfg.Offline {
		c.tasks.Go(func() { c.finishRotation(old) })
	}
}

// resumeRotations finishes the rotations that earlier processes of the outbox have begun.
func (c *Client) resumeRotations() {
	pending, err := c.box.Rotations(c.ctx)
	if err != nil && c.ctx.Err() == nil {
		c.cfg.Logger.Warn("the refs that are being rotated could not be read", "error", err)
	}
	for old := range pending {
		c.finishInBackground(old)
	}
}

// finishRotation retries one rotation until it is answered or the client closes.
func (c *Client) finishRotation(old string) {
	wait := c.cfg.newBackOff()
	for c.ctx.Err() == nil {
		pending, err := c.resumeRotation(c.ctx, old)
		if !pending { // perhaps another client has finished it
			return
		}
		if fault.CodeOf(err) == fault.Plaintext {
			c.cfg.Logger.Warn("a rotation waits for a client that may send secrets in clear", "ref", old)
			return
		}
		c.cfg.Logger.Debug("a rotation waits", "ref", old, "error", err)
		select {
		case <-time.After(wait.NextBackOff()):
		case <-c.ctx.Done():
		}
	}
}

// resumeRotation asks the server once for a rotation that was begun, if it is not over.
func (c *Client) resumeRotation(ctx context.Context, old string) (pending bool, err error) {
	return c.box.Rotate(ctx, old, capability.Ref{}, func(ctx context.Context, fresh capability.Ref) (refused bool, err error) {
		saved, err := c.box.Ref(ctx, old)
		if err != nil {
			return false, err
		}
		_, err = c.requestRotation(ctx, saved, fresh)
		return isRotationRefused(err), err
	})
}
