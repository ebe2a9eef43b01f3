package outbox

// The sturdy refs that the outbox sends through: the only place where secrets
// are kept.

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// PutRef stores a ref to send through, or changes what is remembered of it. A
// stream that stood still for want of it, or because another was refused, goes
// on, whoever sends. One whose place another has taken (FinishRotation) stays
// what it is. A server's word about the ref (RefStatus) is kept too, unless meta has another
// or the secret is another one. BadRefText for a ref without target, secret or hosts, or
// whose text could not be read again; AlreadyExists if a server has confirmed the stored
// secret and this one is another (ConfirmRef may replace it).
func (b *Box) PutRef(ctx context.Context, ref capability.Ref, meta RefMeta) error {
	row, err := b.newRef(ref, meta)
	if err != nil {
		return fmt.Errorf("put ref: %w", err)
	}
	return b.changeRef(ctx, "put ref", ref.ID, func(old refRow) (refRow, error) { return mergePut(old, row) })
}

// newRef is the row of a ref that is stored now.
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

// mergePut is what becomes of a row when a ref is put.
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

// sameSecret says whether two rows of one ref have the same secret; a row that
// cannot be read has none.
func sameSecret(a, b refRow) bool {
	x, errX := a.ref()
	y, errY := b.ref()
	return errX == nil && errY == nil && x.Secret.Equal(y.Secret)
}

// ConfirmRef keeps a server's word about a stored ref. A time in RefStatus.Confirmed says
// that the server has accepted ref's secret at ref's address; both are kept then, in the
// place of others. Rights and external, if they are empty, stay as they were. ConfirmRef
// does nothing if the ref is not stored, or stands for another one.
//
// If the stored secret was confirmed and ref's is another one, it replaces the stored
// one only if it was accepted at the same address: any other server may accept whatever
// it is shown. Otherwise the error is AlreadyExists.
func (b *Box) ConfirmRef(ctx context.Context, ref capability.Ref, told RefStatus, external string) error {
	row, err := b.newRef(ref, RefMeta{External: external, RefStatus: told})
	if err != nil {
		return fmt.Errorf("confirm ref: %w", err)
	}
	return b.changeRef(ctx, "confirm ref", ref.ID, func(old refRow) (refRow, error) { return mergeConfirmed(old, row, ref.Address()) })
}

// mergeConfirmed is what becomes of a row when a server has told of its ref.
func mergeConfirmed(old, told refRow, address string) (refRow, error) {
	if !old.exists() || old.role == roleRotated || old.role == roleRotating {
		return old, nil
	}
	now := old
	same := sameSecret(old, told)
	switch {
	case told.confirmed == 0 && !same:
		return old, nil // it is about another secret
	case told.confirmed == 0:
		now.dead = told.dead
		return now, nil
	case !same && old.confirmed != 0:
		if was, err := old.ref(); err != nil || was.Address() != address {
			return old, fault.AlreadyExists.With("another secret is stored for ref %s, and its server has taken that one: drop it first, if it is the wrong one", clip(old.id))
		}
	}
	now.text, now.confirmed, now.dead = told.text, told.confirmed, told.dead
	if told.rights != 0 || !same {
		now.rights, now.restricted = told.rights, told.restricted
	}
	if told.external != "" {
		now.external = told.external
	}
	return now, nil
}

// DropRef forgets a ref; no error if it is not there. InUse if another is about to
// take its place, which may be the only one a server knows: AbandonRotation gives
// that up.
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

// changeRef changes one ref, which the sender hears of, whatever process that is.
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

// changeRefs changes several refs, which the sender hears of, whatever process that is.
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
	if _, err := b.resolver().refresh(ctx); err != nil { // another reading will tell
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

// Ref gives a stored ref by its id, or the one that has taken its place since;
// NotFound.
func (b *Box) Ref(ctx context.Context, id string) (SavedRef, error) {
	if _, err := b.resolver().refresh(ctx); err != nil {
		return SavedRef{}, err
	}
	return b.resolver().ref(ctx, id)
}

// RefFor gives the ref to use for a session's or space's id, or for an external id;
// "" stands for the one space there is a ref to. want is the right that it should
// have, 0 for none in particular. NotFound, Ambiguous.
//
// A ref that was confirmed goes before one that was not, and one that a server said
// is dead comes last. Among those it is one with the right, if there is any; then
// the owner's of a session that was made here; then the one confirmed last.
func (b *Box) RefFor(ctx context.Context, target string, want capability.Rights) (SavedRef, error) {
	if _, err := b.resolver().refresh(ctx); err != nil {
		return SavedRef{}, err
	}
	return b.resolver().refFor(ctx, target, want)
}

// pendingRotation is the ref that is to take the place of old; nil if there is none.
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
