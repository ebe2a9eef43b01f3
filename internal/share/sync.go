// Syncs: items become puts, which are committed before they are acknowledged.

package share

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/writequeue"
	"github.com/mooring-rpc/mooring/ledger"
)

// writer is a caller that has presented a share's secret, with a place in the queue of the
// share's writers. close gives its place up.
type writer struct {
	service    *Service
	capability *objects.Capability
	share      *capability.PublicShare
	external   string // opencode's id of the session
	createdAt  int64  // Unix ms: when the secret was minted
	ticket     writequeue.Ticket
}

// openWriter checks a share's secret and joins the queue of the share's writers. The error is
// NotFound if there is no such share, UnknownRef if the secret is wrong (both may be delayed by
// the throttle); Revoked, for instance, if the share has ended.
func (s *Service) openWriter(ctx context.Context, c *objects.Caller, id, secret string) (*writer, error) {
	p, live, access, err := s.verifySecret(ctx, c, id, secret)
	if err != nil {
		return nil, err
	}
	if why := refDead(access, live.Ref()); why != nil {
		return nil, why
	}
	return &writer{service: s, capability: live, share: p, external: access.Row.External,
		createdAt: access.Grants[live.Ref()].Created, ticket: s.writeQueue.Join(p.ID)}, nil
}

// verifySecret returns the share and the capability of a secret, whether the ref is living or
// dead.
func (s *Service) verifySecret(ctx context.Context, c *objects.Caller, id, secret string) (*capability.PublicShare, *objects.Capability, *session.Access, error) {
	p, err := s.findShare(ctx, c, id)
	if err != nil {
		return nil, nil, nil, err
	}
	wrong := fault.UnknownRef.With("the secret is not one of this share")
	ref, ok := parseWriterSecret(p.Session, secret)
	if !ok {
		return nil, nil, nil, s.throttled(c, wrong)
	}
	live, err := c.Restore(ref, redemptionID)
	if errors.Is(err, fault.UnknownRef) {
		return nil, nil, nil, wrong
	}
	if err != nil {
		return nil, nil, nil, err
	}
	access, err := s.cfg.Store.ReadAccess(ctx, p.Session, []string{ref.ID})
	if err != nil {
		return nil, nil, nil, s.toFault(ctx, err, "look at the share")
	}
	g := access.Grants[ref.ID]
	gone := g == nil && access.Row != nil && access.Row.Forgotten        // its ref's row is gone, and with it the record of its share
	if !gone && (g == nil || g.Parent != p.Share || access.Row == nil) { // of another share of the session
		return nil, nil, nil, s.throttled(c, wrong)
	}
	return p, live, access, nil
}

// refDead returns why a ref of a session allows nothing any more, nil if it does.
func refDead(access *session.Access, ref string) error {
	if access.Row.Life == session.Deleted {
		return fault.SessionDeleted.With("the session was deleted")
	}
	if why := capability.Check(access.Grants[ref], access.Row.Epoch, access.Now, 0, ""); why != nil {
		return why
	}
	return nil
}

// close leaves the queue.
func (w *writer) close() { w.ticket.Leave() }

// sync puts items, in the order in which the writers joined the queue. When it returns nil, all
// of them are committed. Items too large for the session are left out, all others are committed,
// and the error is TooLarge. An unreadable item ends the sync (Malformed), and nothing of its
// piece is applied. A database that is away or busy is retried within Config.SyncTimeout.
func (w *writer) sync(ctx context.Context, items []json.RawMessage) error {
	s := w.newSync()
	for _, item := range items {
		if s.sync.Add(item) {
			if err := s.flush(ctx); err != nil {
				return s.finish(err)
			}
		}
	}
	return s.finish(s.flush(ctx))
}

// maxItems bounds a sync's items over Cap'n Web, which arrive as one message: small items cost a
// server many times their bytes.
const maxItems = 1 << 17

func tooManyFault() error {
	return fault.TooLarge.With("a sync has at most %d items: send them in pieces", maxItems)
}

// syncRun is a sync in progress. Items are collected into a piece, which is committed when it is
// as large as the session's commit limits: pieces are applied in order, each whole or not at all,
// and putting one again changes nothing.
type syncRun struct {
	writer   *writer
	sync     *opencode.Sync
	stored   []string  // keys that were put
	leftOut  []refusal // refusals of items left out
	maxValue int       // bytes of one value
	admitted bool      // it has had its turn in the queue
}

func (w *writer) newSync() *syncRun {
	return &syncRun{writer: w, sync: opencode.NewSync(w.external, w.service.cfg.CommitLimits), maxValue: w.service.cfg.CommitLimits.Payload}
}

// leaveOut records that an item is not stored, under its key, or "" if that is unknown.
func (s *syncRun) leaveOut(key, why string) {
	s.leftOut = append(s.leftOut, refusal{Key: key, Why: why})
}

// flush commits the collected piece.
func (s *syncRun) flush(ctx context.Context) error {
	pieces, tooLarge, err := s.sync.Take()
	if err != nil {
		return err
	}
	for _, p := range tooLarge {
		s.leaveOut(p.Key, s.writer.service.cfg.CommitLimits.TooLarge(len(p.Payload)))
	}
	lim := s.writer.service.liveConfig.Load()
	if !s.admitted {
		if err := s.writer.ticket.Wait(ctx, lim.BodyTimeout+lim.SyncTimeout); err != nil {
			return err
		}
		s.admitted = true
	}
	ctx, cancel := context.WithTimeout(ctx, lim.SyncTimeout)
	defer cancel()
	for _, piece := range pieces {
		if err := s.writer.commitPiece(ctx, piece); err != nil {
			return err
		}
		for _, p := range piece {
			s.stored = append(s.stored, p.Key)
		}
	}
	return nil
}

// finish records the refusals of a sync that err has ended (nil: it is complete), and returns its
// error.
func (s *syncRun) finish(err error) error {
	whole := err == nil
	if whole && len(s.leftOut) > 0 {
		err = fault.TooLarge.With("left out of the sync, because a value has at most %d bytes: %d; the rest is stored", s.maxValue, len(s.leftOut))
	}
	s.writer.service.recordRefusals(s, whole, err)
	return err
}

// commitPiece puts one piece. Putting it again is harmless, so it is retried until ctx ends: the
// client would not retry.
func (w *writer) commitPiece(ctx context.Context, piece []opencode.Put) error {
	batch := ulid.Make().String()
	ops := make([]ledger.Intent, len(piece))
	for i, p := range piece {
		ops[i] = ledger.Intent{OpID: ulid.Make().String(), BatchID: batch, Session: w.share.Session, Method: session.MethodPut,
			Args: []ledger.Arg{{Name: "key", JSON: jsonText(p.Key)}, {Name: "payload", JSON: p.Payload}}}
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := w.capability.ApplyDirect(ctx, ops...)
		if err == nil || !errors.Is(err, fault.Overloaded) && !errors.Is(err, fault.Unavailable) {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return err
		}
	}
}

// deleteShare ends a share: afterwards nothing under it can be read or written. Deleting an ended
// share again with one of its secrets succeeds. Errors as for Writer.
func (s *Service) deleteShare(ctx context.Context, c *objects.Caller, id, secret string) error {
	p, _, access, err := s.verifySecret(ctx, c, id, secret)
	switch {
	case err != nil:
		return err
	case access.Row.Life == session.Deleted:
		return nil
	}
	// A secret that was ended because of Config.Writers is no longer valid.
	look, err := s.cfg.Store.ReadAccess(ctx, p.Session, []string{p.Share})
	if err != nil {
		return s.toFault(ctx, err, "look at the share")
	}
	ref, _ := parseWriterSecret(p.Session, secret)
	shareOver, mineOver := refDead(look, p.Share), refDead(access, ref.ID)
	switch {
	case shareOver != nil:
		return nil
	case mineOver != nil:
		return mineOver
	}
	if _, err := c.Assume(p.Share).Revoke(ctx, p.Share, false); err != nil && !refEnded(err) {
		return err
	}
	return nil
}
