package outbox

// A new ref in the place of one that the outbox sends through. It is durable here
// before a server hears of it, so that nobody can end up with a server that knows
// only a ref that nobody has. Until it is known to be in place, nothing new is sent
// under the old one; then whatever names the old one, queued or yet to come, goes
// out under the new one.

import (
	"context"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// BeginRotation stores ref, which is new, as what is to take the place of the
// stored ref old, and holds what would be sent under that one. If one was stored
// for it before, that one it stays, and is given: a rotation that was interrupted
// goes on with it. NotFound if old is not stored.
func (b *Box) BeginRotation(ctx context.Context, old string, ref capability.Ref) (capability.Ref, error) {
	if ref.Target() != capability.Target(old) || ref.Secret.IsZero() {
		return ref, fault.BadRefText.With("rotate: the new ref is not one for what the old one is for")
	}
	row, err := b.newRef(ref, RefMeta{Role: roleRotating, Label: old})
	if err != nil {
		return ref, fmt.Errorf("rotate: %w", err)
	}
	err = b.changeRefs(ctx, "begin the rotation", func(ctx context.Context, q querier) error {
		was, err := b.t.ref(ctx, q, old, b.db.lockRows())
		if err != nil {
			return err
		}
		if !was.exists() || was.role == roleRotated || was.role == roleRotating {
			return fault.NotFound.With("ref %s is not stored here", clip(old))
		}
		pending, err := b.t.pendingRotation(ctx, q, old)
		if err != nil {
			return err
		}
		if pending != nil {
			ref = *pending
			return nil
		}
		_, err = b.t.insertRef(ctx, q, &row)
		return err
	})
	return ref, err
}

// FinishRotation puts the ref that BeginRotation stored in the place of old. It
// does nothing if there is none.
func (b *Box) FinishRotation(ctx context.Context, old string) error {
	return b.changeRefs(ctx, "finish the rotation", func(ctx context.Context, q querier) error {
		pending, err := b.t.pendingRotation(ctx, q, old)
		if err != nil || pending == nil {
			return err
		}
		was, err := b.t.ref(ctx, q, old, b.db.lockRows())
		if err != nil {
			return err
		}
		now, err := b.t.ref(ctx, q, pending.ID, b.db.lockRows())
		if err != nil {
			return err
		}
		if now.role, now.external, now.label = was.role, was.external, was.label; !was.exists() { // forgotten meanwhile
			now.role = Shared
		}
		now.rights, now.restricted, now.confirmed = was.rights, was.restricted, b.cfg.Now().UnixMilli() // a server has put it in place
		b.t.updateRef(q, &now)
		// Those whose place the old one had taken go along.
		q.enqueue(b.db.refs().repoint, []any{b.t.box, old, pending.ID, pending.Text()}, nil)
		hash := ""
		if ref, err := was.ref(); err == nil {
			hash = ref.Secret.HashText()
		}
		was.id, was.role, was.external, was.label, was.text = old, roleRotated, hash, pending.ID, pending.Text()
		b.t.updateRef(q, &was)
		return nil
	})
}

// AbandonRotation forgets the ref that BeginRotation stored: it was refused, and
// what was held goes out under old again.
func (b *Box) AbandonRotation(ctx context.Context, old string) error {
	return b.changeRefs(ctx, "abandon the rotation", func(ctx context.Context, q querier) error {
		pending, err := b.t.pendingRotation(ctx, q, old)
		if err == nil && pending != nil {
			b.t.dropRef(q, pending.ID, b.cfg.Now().UnixMilli())
		}
		return err
	})
}

// Rotations are those that were begun and not finished: what is to take the place
// of each stored ref, by that one's id.
func (b *Box) Rotations(ctx context.Context) (map[string]capability.Ref, error) {
	refs, err := b.Refs(ctx)
	pending := map[string]capability.Ref{}
	for _, r := range refs {
		if r.successor != nil {
			pending[r.ID] = *r.successor
		}
	}
	return pending, err
}

// Replaces says whether the ref was made here by a rotation: nobody else need have it.
func (r *SavedRef) Replaces() bool { return len(r.replaced) > 0 }

// drainRefTimeout bounds how long a rotation waits for what is on its way.
const drainRefTimeout = 5 * time.Second

// sqlInFlightVia counts what the outbox's sender, whichever process that is, has
// given seqs under a ref and has no outcomes of yet.
const sqlInFlightVia = `SELECT count(*) FROM mooring_outbox_batch
	WHERE box = $1 AND num >= (SELECT low FROM mooring_outbox WHERE box = $1) AND state = 1 AND first_seq > 0 AND via = $2`

// DrainRef waits until nothing is on its way under ref, for which a rotation was
// begun: what a server gets after the rotation it records as denied. It gives up
// after a while, as where there is no link.
func (b *Box) DrainRef(ctx context.Context, ref string) {
	ctx, cancel := context.WithTimeout(ctx, drainRefTimeout)
	defer cancel()
	ctx, stop := b.withClose(ctx)
	defer stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left, known := make(chan int, 1), false
		b.withLoop(func(l *loop) {
			known = true
			l.postAsync(func(time.Time) { left <- l.m.inFlightVia(ref) })
		})
		if !known { // another process sends, or none does
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

// inFlightVia is sqlInFlightVia; 0 if nobody knows.
func (b *Box) inFlightVia(ctx context.Context, ref string) (n int) {
	_ = b.read(ctx, "rotate", func(ctx context.Context, q querier) error {
		return q.query(ctx, sqlInFlightVia, []any{b.t.box, ref}, func(scan scanner) error { return scan(&n) })
	})
	return n
}

// deferRoute holds an entry until it was looked at again how it is sent, in an event
// of its own.
func (l *loop) deferRoute(e *entry) {
	e.route.rotating = true
	l.postAsync(func(now time.Time) {
		l.setRoute(e)
		if s := l.m.streams[e.session]; s != nil {
			l.m.step(s, now)
		}
	})
}

// rerouteAll looks again how everything is sent that is not on its way. What is sent
// already keeps its way until it is answered, or sent again.
func (l *loop) rerouteAll(now time.Time) {
	for _, s := range l.m.streams {
		l.rerouteStream(s, now)
	}
}

func (l *loop) rerouteStream(s *streamState, now time.Time) {
	for _, e := range s.queue {
		l.setRoute(e)
	}
	if s.unsequenced != nil {
		l.setRoute(s.unsequenced)
	}
	l.m.step(s, now)
}
