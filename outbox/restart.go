package outbox

// Restarting a session's stream that cannot go on: the session gets a new stream, and the
// server is shown a new secret for it, so the old one does not block it. A sender meanwhile,
// here or elsewhere, loses the lease, as by a takeover: its batches of the old stream must not
// be resent.

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sender"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// NeedsNewStream reports whether a stream that stopped with that code does not go on by itself:
// Reconcile or Abandon replaces it, unless the newer data are restored.
func NeedsNewStream(c fault.Code) bool {
	switch c {
	case fault.ServerBehind, fault.OutboxDiverged, fault.WrongOutbox, fault.OutboxDamaged:
		return true
	}
	return false
}

// Stopped returns why nothing more of a session is sent until someone decides; nil if it is
// sent, as far as is known. A new sender tries a stopped stream again: until that has an
// answer, a stream that had stopped for good counts as stopped.
func (b *Box) Stopped(ctx context.Context, session string) (still *StreamStoppedError, err error) {
	err = b.read(ctx, "look at the stream", func(ctx context.Context, q sqlstore.Querier) (err error) {
		still = nil
		s := StreamStoppedError{Session: session}
		if s.Code, s.Reason, err = b.t.Halted(ctx, q, session); err != nil {
			return err
		}
		if NeedsNewStream(s.Code) {
			still = &s
			return nil
		}
		still, err = b.streamStopped(ctx, q, session)
		return err
	})
	return still, err
}

// restartStream runs change in a transaction during which no Box sends, and begins the
// session's next stream in it. The rows that change returns are announced when that is durable.
func (b *Box) restartStream(ctx context.Context, what, session string, change func(ctx context.Context, q sqlstore.Querier) ([]sender.Decided, error)) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	var decided []sender.Decided
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		if err := b.db.TakeLease(ctx, q, b.t.Box); err != nil {
			return err
		}
		b.w.WriteHighWater(q)
		row, err := b.t.ReadBox(ctx, q, b.db.LockRows())
		if err != nil {
			return err
		}
		if decided, err = change(ctx, q); err != nil {
			return err
		}
		b.t.Restart(q, session, row.Incarnation+1)
		b.db.Notify(q, b.id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b.sender.Fence()
	b.sender.AnnounceDecided(decided)
	b.hub.RecheckAll()
	return nil
}

// Abandon gives up the unfinished ops of a session and begins another stream for it: later
// commits go there. The ops end as void, and ops of other sessions that need one of them as
// skipped. Whether the server has applied an op with a seq remains unknown here. It returns the
// ops that ended. Called again, it changes nothing but the stream. NotFound if the outbox has
// nothing of the session.
func (b *Box) Abandon(ctx context.Context, session string) (ops []string, err error) {
	err = b.restartStream(ctx, "abandon", session, func(ctx context.Context, q sqlstore.Querier) (decided []sender.Decided, err error) {
		ops = nil
		known, err := b.t.KnowsSession(ctx, q, session)
		switch {
		case err != nil:
			return nil, err
		case !known:
			return nil, fault.NotFound.With("nothing of session %s is in this outbox", clip(session))
		}
		rows, err := b.t.LockUnfinished(ctx, q, session)
		for _, r := range rows {
			bd, err := r.Decode()
			if errors.Is(err, fault.Incompatible) {
				return nil, err
			}
			if err != nil {
				decided = append(decided, b.sender.Quarantine(q, r, err))
				continue
			}
			ops = append(ops, bd.Abandon(r.Sequenced())...)
			decided = append(decided, b.sender.FinishWithOutcomes(ctx, q, r, bd))
		}
		return decided, err
	})
	return ops, err
}
