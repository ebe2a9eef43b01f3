// Syncs: items become puts, which are committed before they are acknowledged.

package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/opencode"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
)

// Writer is somebody who has shown a share's secret, with a place in the line of
// those who write it. Close gives that up.
type Writer struct {
	service  *Service
	held     *server.Held
	share    *capability.PublicShare
	external string // opencode's id of the session
	turn     turn
}

// Writer checks a share's secret. Errors: NotFound if there is no such share,
// UnknownRef if the secret is another (both may take long to hear); Revoked and the
// like if it is over.
func (s *Service) Writer(ctx context.Context, c *server.Caller, id, secret string) (*Writer, error) {
	p, held, sight, err := s.holder(ctx, c, id, secret)
	if err != nil {
		return nil, err
	}
	if why := over(sight, held.Ref()); why != nil {
		return nil, why
	}
	return &Writer{service: s, held: held, share: p, external: sight.Row.External, turn: s.turns.enter(p.ID)}, nil
}

// holder is whoever has a share's secret, dead or alive.
func (s *Service) holder(ctx context.Context, c *server.Caller, id, secret string) (*capability.PublicShare, *server.Held, *session.Sight, error) {
	p, err := s.find(ctx, c, id)
	if err != nil {
		return nil, nil, nil, err
	}
	wrong := fault.UnknownRef.With("the secret is not one of this share")
	ref, ok := parseWriter(p.Session, secret)
	if !ok {
		return nil, nil, nil, s.stranger(c, wrong)
	}
	held, err := c.Restore(ref, redemption)
	if errors.Is(err, fault.UnknownRef) {
		return nil, nil, nil, wrong
	}
	if err != nil {
		return nil, nil, nil, err
	}
	sight, err := s.cfg.Store.Look(ctx, p.Session, []string{ref.ID})
	if err != nil {
		return nil, nil, nil, s.fault(err, "look at the share")
	}
	if g := sight.Grants[ref.ID]; g == nil || g.Parent != p.Share || sight.Row == nil { // of another share of the session
		return nil, nil, nil, s.stranger(c, wrong)
	}
	return p, held, sight, nil
}

// over says why a ref of a session allows nothing any more, nil if it does.
func over(sight *session.Sight, ref string) error {
	if why := capability.Check(sight.Grants[ref], sight.Row.Epoch, sight.Now, 0, ""); why != nil {
		return why
	}
	if sight.Row.Life == session.Deleted {
		return fault.SessionDeleted.With("the session was deleted")
	}
	return nil
}

// Close ends the writing.
func (w *Writer) Close() { w.turn.leave() }

// Sync puts items, in the order of the writers' beginnings. When it returns nil, all
// of them are committed. What cannot be read changes nothing (Malformed); items that
// are too large for the session are left out, all others are committed, and the
// error is TooLarge. A database that is away or busy is waited for, within
// Config.SyncTimeout.
func (w *Writer) Sync(ctx context.Context, items []json.RawMessage) error {
	r := opencode.Reader{Session: w.external}
	if err := r.Items(items); err != nil {
		return err
	}
	puts := opencode.Last(r.Puts)
	pieces, tooLarge := opencode.Cut(puts, w.service.cfg.Pieces)
	if err := w.wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.service.cfg.SyncTimeout)
	defer cancel()
	for _, piece := range pieces {
		if err := w.commit(ctx, piece); err != nil {
			return err
		}
	}
	if len(tooLarge) > 0 {
		return fault.TooLarge.With("%d of %d items are larger than %d bytes and were left out; all others are stored", len(tooLarge), len(puts), w.service.cfg.Pieces.Payload)
	}
	return nil
}

// maxItems bounds a sync's items: small ones cost a server many times their bytes.
const maxItems = 1 << 17

func tooMany() error {
	return fault.TooLarge.With("a sync has at most %d items: send them in pieces", maxItems)
}

// itemsOf takes a sync's array apart, which is JSON text.
func itemsOf(data json.RawMessage) (items []json.RawMessage, err error) {
	in := json.NewDecoder(bytes.NewReader(data))
	if open, err := in.Token(); err != nil || open != json.Delim('[') {
		return nil, fault.Malformed.With("the body has no data: an array of {type, data}")
	}
	for in.More() {
		if len(items) == maxItems {
			return nil, tooMany()
		}
		var item json.RawMessage
		if err := in.Decode(&item); err != nil {
			return nil, fault.Malformed.Because(err, "the body's data cannot be read")
		}
		items = append(items, item)
	}
	return items, nil
}

// wait is for those who were there before, one of whom may be sending its body still.
func (w *Writer) wait(ctx context.Context) error {
	limit := time.NewTimer(w.service.cfg.BodyTimeout + w.service.cfg.SyncTimeout)
	defer limit.Stop()
	select {
	case <-w.turn.before:
		return nil
	case <-ctx.Done():
		return fault.GivenUp(context.Cause(ctx), nil)
	case <-limit.C:
		return fault.Overloaded.With("earlier syncs of this share are not done yet: wait a little")
	}
}

// commit puts one piece. Putting it again does no harm, so it is tried until there
// is no time left: the client would not.
func (w *Writer) commit(ctx context.Context, piece []opencode.Put) error {
	batch := ulid.Make().String()
	ops := make([]ledger.Intent, len(piece))
	for i, p := range piece {
		ops[i] = ledger.Intent{OpID: ulid.Make().String(), BatchID: batch, Session: w.share.Session, Method: session.MethodPut,
			Args: []ledger.Arg{{Name: "key", JSON: jsonText(p.Key)}, {Name: "payload", JSON: p.Payload}}}
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := w.held.Do(ctx, ops...)
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

// Delete ends a share: nothing under it is read or written after. A share that is
// over already may be deleted again by who has its secret. Errors as for Writer.
func (s *Service) Delete(ctx context.Context, c *server.Caller, id, secret string) error {
	p, _, sight, err := s.holder(ctx, c, id, secret)
	switch {
	case err != nil:
		return err
	case sight.Row.Life == session.Deleted:
		return nil
	}
	// A secret that was ended because there were too many is none any more.
	look, err := s.cfg.Store.Look(ctx, p.Session, []string{p.Share})
	if err != nil {
		return s.fault(err, "look at the share")
	}
	ref, _ := parseWriter(p.Session, secret)
	shareOver, mineOver := over(look, p.Share), over(sight, ref.ID)
	switch {
	case shareOver != nil:
		return nil
	case mineOver != nil:
		return mineOver
	}
	if _, err := c.Acting(p.Share).Revoke(ctx, p.Share); err != nil && !ended(err) {
		return err
	}
	return nil
}
