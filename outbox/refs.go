package outbox

// The stored refs: PutRef, RefFor and the others, and the reading of rows that others have written.

import (
	"context"
	"fmt"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// PutRef stores a ref to send through, or changes its metadata. A stream that stopped for lack
// of it, or because another was refused, resumes, whichever process sends. A ref that another
// has replaced (Rotate) is left as it is. The stored RefStatus stays, unless meta has
// another or the secret differs. BadRefText for a ref without target, secret or hosts, or whose
// text could not be parsed again; AlreadyExists if a server has confirmed the stored secret and
// this one differs (a server may still confirm it).
func (b *Box) PutRef(ctx context.Context, ref capability.Ref, meta RefMeta) error {
	row, err := refs.NewRow(ref, meta, b.cfg.Now())
	if err != nil {
		return fmt.Errorf("put ref: %w", err)
	}
	return b.changeRef(ctx, "put ref", ref.ID, func(old refs.Row) (refs.Row, error) { return refs.MergePut(old, row) })
}

// RefAnswered stores what a server's answer to a call with ref tells of the ref, if that is
// stored here: that the server accepts the secret at that address, what it allows, or why it is
// dead. Which answer counts for what is a table in package refs: any server may accept any
// secret. settled reports that later answers which accept the ref need not be given.
// AlreadyExists if a server has confirmed another secret, elsewhere.
func (b *Box) RefAnswered(ctx context.Context, ref capability.Ref, answer RefAnswer) (settled bool, err error) {
	if !refs.Tells(&answer) {
		return false, nil
	}
	stored, err := b.Ref(ctx, ref.ID)
	if err != nil || stored.ID != ref.ID { // forgotten, or replaced by another ref
		return false, nil
	}
	status, news, settled := refs.StatusFrom(&answer, &stored, ref, b.cfg.Now())
	if news {
		err = b.confirmRef(ctx, ref, status, answer.External)
	}
	return settled && err == nil, err
}

// confirmRef stores a ref's status from a server's answer (refs.MergeConfirmed).
func (b *Box) confirmRef(ctx context.Context, ref capability.Ref, update RefStatus, external string) error {
	row, err := refs.NewRow(ref, RefMeta{External: external, RefStatus: update}, b.cfg.Now())
	if err != nil {
		return fmt.Errorf("confirm ref: %w", err)
	}
	return b.changeRef(ctx, "confirm ref", ref.ID, func(old refs.Row) (refs.Row, error) { return refs.MergeConfirmed(old, row, ref.Address()) })
}

// DropRef deletes a ref; no error if it is not there. InUse if another is about to replace it,
// which may be the only one a server knows; withSuccessor drops both.
func (b *Box) DropRef(ctx context.Context, id string, withSuccessor bool) error {
	at := b.cfg.Now().UnixMilli()
	return b.changeRefs(ctx, "drop ref", func(ctx context.Context, q sqlstore.Querier) error {
		if withSuccessor {
			if err := b.dropSuccessor(ctx, q, id); err != nil {
				return err
			}
		} else if pending, err := b.t.PendingRotation(ctx, q, id); err != nil {
			return err
		} else if pending != nil {
			return fault.InUse.With("ref %s is being rotated: another is about to replace it", clip(id))
		}
		b.t.DropRef(q, id, at)
		return nil
	})
}

// changeRef changes one ref and notifies the sender, in whatever process.
func (b *Box) changeRef(ctx context.Context, what, id string, change func(old refs.Row) (refs.Row, error)) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	var row refs.Row
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) (err error) {
		row, err = b.t.ChangeRef(ctx, q, id, change)
		if err == nil {
			b.db.Notify(q, b.id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if row.ID != "" {
		b.refs.Put(row)
	}
	b.sender.RefStored(capability.Target(id))
	return nil
}

// changeRefs changes several refs and notifies the sender, in whatever process.
func (b *Box) changeRefs(ctx context.Context, what string, change func(ctx context.Context, q sqlstore.Querier) error) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		if err := change(ctx, q); err != nil {
			return err
		}
		b.db.Notify(q, b.id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if _, err := b.refs.Refresh(ctx); err != nil { // the next reading will find it
		b.cfg.Logger.Warn("the stored refs could not be read again", "outbox", b.id, "error", err)
	}
	b.sender.RefsChanged()
	return nil
}

// Refs lists the stored refs, oldest first.
func (b *Box) Refs(ctx context.Context) ([]SavedRef, error) {
	if _, err := b.refs.Refresh(ctx); err != nil {
		return nil, err
	}
	return b.refs.All(), nil
}

// Ref returns a stored ref by its id, or the one that has replaced it; NotFound.
func (b *Box) Ref(ctx context.Context, id string) (SavedRef, error) {
	if _, err := b.refs.Refresh(ctx); err != nil {
		return SavedRef{}, err
	}
	return b.refs.Resolver().Ref(ctx, id)
}

// RefFor returns the ref to use for a session's or space's id, or for an external id; "" is the
// only space that has a ref. want is the right that it should have, 0 for any. NotFound,
// Ambiguous.
//
// A confirmed ref is preferred to an unconfirmed one, and a dead one comes last. Of equal ones,
// a ref with the right is preferred; then the owner's of a session that was created here; then
// the one confirmed last.
func (b *Box) RefFor(ctx context.Context, target string, want capability.Rights) (SavedRef, error) {
	if _, err := b.refs.Refresh(ctx); err != nil {
		return SavedRef{}, err
	}
	return b.refs.Resolver().RefFor(ctx, target, want)
}
