package outbox

// The sturdy refs that the outbox sends through: the only place where secrets are stored.

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// PutRef stores a ref to send through, or changes its metadata. A stream that stopped for lack
// of it, or because another was refused, resumes, whichever process sends. A ref that another
// has replaced (FinishRotation) is left as it is. The stored RefStatus stays, unless meta has
// another or the secret differs. BadRefText for a ref without target, secret or hosts, or whose
// text could not be parsed again; AlreadyExists if a server has confirmed the stored secret and
// this one differs (ConfirmRef may replace it).
func (b *Box) PutRef(ctx context.Context, ref capability.Ref, meta RefMeta) error {
	row, err := b.newRef(ref, meta)
	if err != nil {
		return fmt.Errorf("put ref: %w", err)
	}
	return b.changeRef(ctx, "put ref", ref.ID, func(old refRow) (refRow, error) { return mergePut(old, row) })
}

// newRef returns the row of a ref that is stored now.
func (b *Box) newRef(ref capability.Ref, meta RefMeta) (refRow, error) {
	switch {
	case ref.Target() == "" || ref.Secret.IsZero():
		return refRow{}, fault.BadRefText.With("an address alone, or a ref without a secret, cannot be sent through")
	case len(ref.Hosts) == 0:
		return refRow{}, fault.BadRefText.With("the ref names no host, so there is nowhere to send to")
	case meta.Role == "" && capability.IsSpace(ref.Target()):
		meta.Role = SpaceOwner
	case meta.Role == "":
		meta.Role = Shared
	}
	text := ref.Text()
	if again, err := capability.ParseRef(text); err != nil || again.Text() != text {
		return refRow{}, fault.BadRefText.Because(err, "the ref's address cannot be read again, so it cannot be kept: make refs with ParseRef or ParseAddress")
	}
	row := refRow{id: ref.ID, text: text, role: meta.Role, external: meta.External, label: meta.Label,
		redemption: ulid.Make().String(), saved: b.cfg.Now().UnixMilli()}
	row.setStatus(meta.RefStatus)
	return row, nil
}

// mergePut returns the row after a PutRef.
func mergePut(old, put refRow) (refRow, error) {
	if !old.exists() {
		return put, nil
	}
	if old.role == roleRotated || old.role == roleRotating {
		return old, nil
	}
	put.redemption, put.saved = old.redemption, old.saved
	if sameSecret(old, put) {
		if put.status() == (RefStatus{}) {
			put.setStatus(old.status())
		}
	} else if old.confirmed != 0 {
		return old, fault.AlreadyExists.With("another secret is stored for ref %s, and a server has taken that one: drop it first", clip(put.id))
	}
	return put, nil
}

// sameSecret reports whether two rows of one ref have the same secret; an unreadable row has
// none.
func sameSecret(a, b refRow) bool {
	x, errX := a.ref()
	y, errY := b.ref()
	return errX == nil && errY == nil && x.Secret.Equal(y.Secret)
}

// ConfirmRef stores a server's answer about a stored ref. A time in RefStatus.Confirmed says
// that the server has accepted ref's secret at ref's address; both are stored then, replacing
// others. Rights and external, if they are empty, stay as they were. ConfirmRef does nothing if
// the ref is not stored, or stands for another one.
//
// If the stored secret was confirmed and ref's is another one, it replaces the stored one only
// if it was accepted at the same address: any other server may accept any secret. Otherwise the
// error is AlreadyExists.
func (b *Box) ConfirmRef(ctx context.Context, ref capability.Ref, update RefStatus, external string) error {
	row, err := b.newRef(ref, RefMeta{External: external, RefStatus: update})
	if err != nil {
		return fmt.Errorf("confirm ref: %w", err)
	}
	return b.changeRef(ctx, "confirm ref", ref.ID, func(old refRow) (refRow, error) { return mergeConfirmed(old, row, ref.Address()) })
}

// mergeConfirmed returns the row after a ConfirmRef.
func mergeConfirmed(old, update refRow, address string) (refRow, error) {
	if !old.exists() || old.role == roleRotated || old.role == roleRotating {
		return old, nil
	}
	now := old
	same := sameSecret(old, update)
	switch {
	case update.confirmed == 0 && !same:
		return old, nil // it is about another secret
	case update.confirmed == 0:
		now.dead = update.dead
		return now, nil
	case !same && old.confirmed != 0:
		if was, err := old.ref(); err != nil || was.Address() != address {
			return old, fault.AlreadyExists.With("another secret is stored for ref %s, and its server has taken that one: drop it first, if it is the wrong one", clip(old.id))
		}
	}
	now.text, now.confirmed, now.dead = update.text, update.confirmed, update.dead
	if update.rights != 0 || !same {
		now.rights, now.restricted = update.rights, update.restricted
	}
	if update.external != "" {
		now.external = update.external
	}
	return now, nil
}

// DropRef deletes a ref; no error if it is not there. InUse if another is about to replace it,
// which may be the only one a server knows: AbandonRotation gives that up.
func (b *Box) DropRef(ctx context.Context, id string) error {
	at := b.cfg.Now().UnixMilli()
	return b.changeRefs(ctx, "drop ref", func(ctx context.Context, q querier) error {
		pending, err := b.t.pendingRotation(ctx, q, id)
		if err != nil {
			return err
		}
		if pending != nil {
			return fault.InUse.With("ref %s is being rotated: another is about to take its place", clip(id))
		}
		b.t.dropRef(q, id, at)
		return nil
	})
}

// changeRef changes one ref and notifies the sender, in whatever process.
func (b *Box) changeRef(ctx context.Context, what, id string, change func(old refRow) (refRow, error)) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	var row refRow
	err = b.w.do(ctx, func(ctx context.Context, q querier) (err error) {
		row, err = b.t.changeRef(ctx, q, id, change)
		if err == nil {
			b.db.notify(q, b.id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if row.id != "" {
		b.refs.put(row)
	}
	b.refStored(capability.Target(id))
	return nil
}

// changeRefs changes several refs and notifies the sender, in whatever process.
func (b *Box) changeRefs(ctx context.Context, what string, change func(ctx context.Context, q querier) error) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		if err := change(ctx, q); err != nil {
			return err
		}
		b.db.notify(q, b.id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, err := b.resolver().refresh(ctx); err != nil { // the next reading will find it
		b.cfg.Logger.Warn("the stored refs could not be read again", "outbox", b.id, "error", err)
	}
	b.withLoop(func(l *loop) { l.postAsync(l.rerouteAll) })
	return nil
}

// Refs lists the stored refs, oldest first.
func (b *Box) Refs(ctx context.Context) ([]SavedRef, error) {
	if _, err := b.resolver().refresh(ctx); err != nil {
		return nil, err
	}
	return b.refs.all(), nil
}

// Ref returns a stored ref by its id, or the one that has replaced it; NotFound.
func (b *Box) Ref(ctx context.Context, id string) (SavedRef, error) {
	if _, err := b.resolver().refresh(ctx); err != nil {
		return SavedRef{}, err
	}
	return b.resolver().ref(ctx, id)
}

// RefFor returns the ref to use for a session's or space's id, or for an external id; "" is the
// only space that has a ref. want is the right that it should have, 0 for any. NotFound,
// Ambiguous.
//
// A confirmed ref is preferred to an unconfirmed one, and a dead one comes last. Of equal ones,
// a ref with the right is preferred; then the owner's of a session that was created here; then
// the one confirmed last.
func (b *Box) RefFor(ctx context.Context, target string, want capability.Rights) (SavedRef, error) {
	if _, err := b.resolver().refresh(ctx); err != nil {
		return SavedRef{}, err
	}
	return b.resolver().refFor(ctx, target, want)
}

// pendingRotation returns the ref that is to replace old; nil if there is none.
func (t *tables) pendingRotation(ctx context.Context, q querier, old string) (ref *capability.Ref, err error) {
	err = q.query(ctx, sqlRotating, []any{t.box, old}, func(scan scanner) error {
		row, err := scanRef(scan)
		if err != nil {
			return err
		}
		r, err := row.ref()
		if err != nil {
			return fault.OutboxDamaged.Because(err, "a stored ref is damaged")
		}
		ref = &r
		return nil
	})
	return ref, err
}
