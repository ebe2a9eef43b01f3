package outbox

// Rotation: replacing a ref that the outbox sends through. The new ref is durable here before a
// server knows it, so that the only ref a server accepts is never lost. Until it is known to be
// in place, nothing new is sent under the old one; then every batch that names the old one,
// queued or future, goes out under the new one.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// Rotate replaces the stored ref old by fresh, which ask has a server put in its place. fresh is
// durable here before ask is called, with nothing new sent under old from then on; batches in
// flight are waited for, but not for long. If a rotation of old was begun before, also by another
// process, it goes on with the ref that was stored then; with a zero fresh, Rotate does nothing
// but go on with one.
//
// If ask returns nil, every batch that names old is sent under the new ref, and Ref returns that for
// old's id. If ask returns refused, with the server's error, old stays. After any other error the
// server may or may not have replaced it: the rotation stays pending (Rotations) until a Rotate has
// an answer, and batches under old wait. pending is reported with every error after which that may be
// so. BadRefText for a fresh ref to something else; NotFound if old is not stored, or was replaced.
func (b *Box) Rotate(ctx context.Context, old string, fresh capability.Ref, ask func(ctx context.Context, fresh capability.Ref) (refused bool, err error)) (pending bool, err error) {
	if fresh.Secret.IsZero() {
		begun, err := b.Rotations(ctx)
		if fresh = begun[old]; err != nil || fresh.Secret.IsZero() {
			return err != nil, err
		}
	} else {
		if fresh, err = b.beginRotation(ctx, old, fresh); err != nil {
			return errors.Is(err, writer.ErrAmbiguous), err
		}
		b.drainRef(ctx, old)
	}
	refused, err := ask(ctx, fresh)
	steady := context.WithoutCancel(ctx) // the server's answer is stored in any case
	if err == nil {
		err = b.finishRotation(steady, old)
		return err != nil, err
	}
	if refused {
		if failed := b.abandonRotation(steady, old); failed != nil {
			b.cfg.Logger.Warn("a refused rotation could not be dropped", "outbox", b.id, "ref", old, "error", failed)
			refused = false
		}
	}
	return !refused, err
}

// beginRotation stores ref, which is new, as the replacement of the stored ref old, and holds
// back batches under old. If a replacement was stored before, it stays and is returned: an
// interrupted rotation goes on with it. NotFound if old is not stored.
func (b *Box) beginRotation(ctx context.Context, old string, ref capability.Ref) (capability.Ref, error) {
	if ref.Target() != capability.Target(old) || ref.Secret.IsZero() {
		return ref, fault.BadRefText.With("rotate: the new ref is not for the same object as the old one")
	}
	row, err := refs.NewRow(ref, RefMeta{Role: refs.RoleRotating, Label: old}, b.cfg.Now())
	if err != nil {
		return ref, fmt.Errorf("rotate: %w", err)
	}
	err = b.changeRefs(ctx, "begin the rotation", func(ctx context.Context, q sqlstore.Querier) error {
		was, err := b.t.Ref(ctx, q, old, b.db.LockRows())
		if err != nil {
			return err
		}
		if !was.Exists() || was.Role == refs.RoleRotated || was.Role == refs.RoleRotating {
			return fault.NotFound.With("ref %s is not stored here", clip(old))
		}
		pending, err := b.t.PendingRotation(ctx, q, old)
		if err != nil {
			return err
		}
		if pending != nil {
			ref = *pending
			return nil
		}
		_, err = b.t.InsertRef(ctx, q, &row)
		return err
	})
	return ref, err
}

// finishRotation replaces old by the ref that beginRotation stored. It does nothing if there is
// none.
func (b *Box) finishRotation(ctx context.Context, old string) error {
	return b.changeRefs(ctx, "finish the rotation", func(ctx context.Context, q sqlstore.Querier) error {
		pending, err := b.t.PendingRotation(ctx, q, old)
		if err != nil || pending == nil {
			return err
		}
		was, err := b.t.Ref(ctx, q, old, b.db.LockRows())
		if err != nil {
			return err
		}
		now, err := b.t.Ref(ctx, q, pending.ID, b.db.LockRows())
		if err != nil {
			return err
		}
		if now.Role, now.External, now.Label = was.Role, was.External, was.Label; !was.Exists() { // dropped meanwhile
			now.Role = Shared
		}
		now.Rights, now.Restricted, now.Confirmed = was.Rights, was.Restricted, b.cfg.Now().UnixMilli() // a server has put it in place
		b.t.UpdateRef(q, &now)
		b.t.RepointRefs(q, old, *pending)
		hash := ""
		if ref, err := was.Ref(); err == nil {
			hash = ref.Secret.HashText()
		}
		was.ID, was.Role, was.External, was.Label, was.Text = old, refs.RoleRotated, hash, pending.ID, pending.Text()
		b.t.UpdateRef(q, &was)
		return nil
	})
}

// abandonRotation drops the ref that beginRotation stored: it was refused, and the held batches
// go out under old again.
func (b *Box) abandonRotation(ctx context.Context, old string) error {
	return b.changeRefs(ctx, "abandon the rotation", func(ctx context.Context, q sqlstore.Querier) error {
		return b.dropSuccessor(ctx, q, old)
	})
}

// dropSuccessor drops the ref that is about to replace old, if there is one.
func (b *Box) dropSuccessor(ctx context.Context, q sqlstore.Querier, old string) error {
	pending, err := b.t.PendingRotation(ctx, q, old)
	if err == nil && pending != nil {
		b.t.DropRef(q, pending.ID, b.cfg.Now().UnixMilli())
	}
	return err
}

// Rotations returns the pending rotations: the replacement of each stored ref, by that ref's
// id.
func (b *Box) Rotations(ctx context.Context) (map[string]capability.Ref, error) {
	refs, err := b.Refs(ctx)
	pending := map[string]capability.Ref{}
	for _, r := range refs {
		if r.Successor != nil {
			pending[r.ID] = *r.Successor
		}
	}
	return pending, err
}

// drainRefTimeout bounds how long a rotation waits for batches in flight.
const drainRefTimeout = 5 * time.Second

// drainRef waits until nothing is in flight under ref, for which a rotation was begun: a server
// records as denied any batch that arrives after the rotation. It gives up after
// drainRefTimeout, also where there is no link.
func (b *Box) drainRef(ctx context.Context, ref string) {
	ctx, cancel := context.WithTimeout(ctx, drainRefTimeout)
	defer cancel()
	ctx, stop := b.withClose(ctx)
	defer stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left := make(chan int, 1)
		if !b.sender.Post(func(m *machine.Machine, _ time.Time) { left <- m.InFlightVia(ref) }) { // another process sends, or none does
			left <- b.inFlightVia(ctx, ref)
		}
		select {
		case n := <-left:
			if n == 0 {
				return
			}
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// inFlightVia counts the rows in flight under a ref; 0 if the number is unknown.
func (b *Box) inFlightVia(ctx context.Context, ref string) (n int) {
	_ = b.read(ctx, "rotate", func(ctx context.Context, q sqlstore.Querier) (err error) {
		n, err = b.t.InFlightVia(ctx, q, ref)
		return err
	})
	return n
}
