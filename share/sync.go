// Syncs: items become puts, which are committed before they are acknowledged.

package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	service    *Service
	capability *server.Capability
	share      *capability.PublicShare
	external   string // opencode's id of the session
	createdAt  int64  // Unix ms: when the secret was made
	ticket     ticket
}

// Writer checks a share's secret. Errors: NotFound if there is no such share,
// UnknownRef if the secret is another (both may take long to hear); Revoked and the
// like if it is over.
func (s *Service) Writer(ctx context.Context, c *server.Caller, id, secret string) (*Writer, error) {
	p, held, sight, err := s.verifySecret(ctx, c, id, secret)
	if err != nil {
		return nil, err
	}
	if why := refDead(sight, held.Ref()); why != nil {
		return nil, why
	}
	return &Writer{service: s, capability: held, share: p, external: sight.Row.External,
		createdAt: sight.Grants[held.Ref()].Created, ticket: s.writeQueue.join(p.ID)}, nil
}

// verifySecret is whoever has a share's secret, dead or alive.
func (s *Service) verifySecret(ctx context.Context, c *server.Caller, id, secret string) (*capability.PublicShare, *server.Capability, *session.Access, error) {
	p, err := s.findShare(ctx, c, id)
	if err != nil {
		return nil, nil, nil, err
	}
	wrong := fault.UnknownRef.With("the secret is not one of this share")
	ref, ok := parseWriterSecret(p.Session, secret)
	if !ok {
		return nil, nil, nil, s.throttled(c, wrong)
	}
	held, err := c.Restore(ref, redemptionID)
	if errors.Is(err, fault.UnknownRef) {
		return nil, nil, nil, wrong
	}
	if err != nil {
		return nil, nil, nil, err
	}
	sight, err := s.cfg.Store.ReadAccess(ctx, p.Session, []string{ref.ID})
	if err != nil {
		return nil, nil, nil, s.toFault(ctx, err, "look at the share")
	}
	g := sight.Grants[ref.ID]
	gone := g == nil && sight.Row != nil && sight.Row.Forgotten         // and with it which share it was of
	if !gone && (g == nil || g.Parent != p.Share || sight.Row == nil) { // of another share of the session
		return nil, nil, nil, s.throttled(c, wrong)
	}
	return p, held, sight, nil
}

// refDead says why a ref of a session allows nothing any more, nil if it does.
func refDead(sight *session.Access, ref string) error {
	if sight.Row.Life == session.Deleted {
		return fault.SessionDeleted.With("the session was deleted")
	}
	if why := capability.Check(sight.Grants[ref], sight.Row.Epoch, sight.Now, 0, ""); why != nil {
		return why
	}
	return nil
}

// Close ends the writing.
func (w *Writer) Close() { w.ticket.leave() }

// Sync puts items, in the order of the writers' beginnings. When it returns nil, all
// of them are committed. Items that are too large for the session are left out, all
// others are committed, and the error is TooLarge. What cannot be read ends the sync
// (Malformed), and a piece that it is in changes nothing. A database that is away or
// busy is waited for, within Config.SyncTimeout.
func (w *Writer) Sync(ctx context.Context, items []json.RawMessage) error {
	s := w.newSync()
	for _, item := range items {
		if s.add(item) {
			if err := s.flush(ctx); err != nil {
				return s.finish(err)
			}
		}
	}
	return s.finish(s.flush(ctx))
}

// maxItems bounds a sync's items over Cap'n Web, which come as one message: small ones
// cost a server many times their bytes.
const maxItems = 1 << 17

func tooManyFault() error {
	return fault.TooLarge.With("a sync has at most %d items: send them in pieces", maxItems)
}

// syncRun is a sync on its way. A piece of it is gathered, and committed when it is as
// large as the session takes at once: pieces are applied in order, each whole or not at
// all, and putting one again changes nothing.
type syncRun struct {
	writer   *Writer
	reader   opencode.Reader
	items    []json.RawMessage // of the piece that is being gathered
	bytes    int
	stored   []string  // keys that were put
	leftOut  []Refusal // what was left out
	maxValue int       // bytes of one value
	admitted bool      // it has come
}

func (w *Writer) newSync() *syncRun {
	return &syncRun{writer: w, reader: opencode.Reader{Session: w.external}, maxValue: w.service.cfg.CommitLimits.Payload}
}

// add takes an item in, and says whether there is a whole piece by now.
func (s *syncRun) add(item json.RawMessage) (full bool) {
	s.items, s.bytes = append(s.items, item), s.bytes+len(item)
	limits := s.writer.service.cfg.CommitLimits
	return len(s.items) >= limits.Ops || s.bytes >= limits.Bytes
}

// leaveOut notes that something is not stored, under its key, "" where that is not known.
func (s *syncRun) leaveOut(key, why string) {
	s.leftOut = append(s.leftOut, Refusal{Key: key, Why: why})
}

// flush commits what was gathered.
func (s *syncRun) flush(ctx context.Context) error {
	if err := s.reader.Items(s.items); err != nil {
		return err
	}
	puts := opencode.Last(s.reader.Puts)
	s.items, s.bytes, s.reader.Puts = nil, 0, nil
	pieces, tooLarge := opencode.Cut(puts, s.writer.service.cfg.CommitLimits)
	for _, p := range tooLarge {
		s.leaveOut(p.Key, fmt.Sprintf("it has %d bytes, the limit is %d", len(p.Payload), s.maxValue))
	}
	if !s.admitted {
		if err := s.writer.waitTurn(ctx); err != nil {
			return err
		}
		s.admitted = true
	}
	ctx, cancel := context.WithTimeout(ctx, s.writer.service.liveConfig.Load().SyncTimeout)
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

// finish is what becomes of a sync that err has ended, nil if it has come to its end.
func (s *syncRun) finish(err error) error {
	whole := err == nil
	if whole && len(s.leftOut) > 0 {
		err = fault.TooLarge.With("left out of the sync, for a value has at most %d bytes: %d; all else is stored", s.maxValue, len(s.leftOut))
	}
	s.writer.service.recordRefusals(s, whole, err)
	return err
}

// waitTurn is for those who were there before, one of whom may be sending its body still.
func (w *Writer) waitTurn(ctx context.Context) error {
	lim := w.service.liveConfig.Load()
	limit := time.NewTimer(lim.BodyTimeout + lim.SyncTimeout)
	defer limit.Stop()
	select {
	case <-w.ticket.ready:
		return nil
	case <-ctx.Done():
		return fault.ContextError(context.Cause(ctx), nil)
	case <-limit.C:
		return fault.Overloaded.With("earlier syncs of this share are not done yet: wait a little")
	}
}

// commitPiece puts one piece. Putting it again does no harm, so it is tried until there
// is no time left: the client would not.
func (w *Writer) commitPiece(ctx context.Context, piece []opencode.Put) error {
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

// Delete ends a share: nothing under it is read or written after. A share that is
// over already may be deleted again by who has its secret. Errors as for Writer.
func (s *Service) Delete(ctx context.Context, c *server.Caller, id, secret string) error {
	p, _, sight, err := s.verifySecret(ctx, c, id, secret)
	switch {
	case err != nil:
		return err
	case sight.Row.Life == session.Deleted:
		return nil
	}
	// A secret that was ended because there were too many is none any more.
	look, err := s.cfg.Store.ReadAccess(ctx, p.Session, []string{p.Share})
	if err != nil {
		return s.toFault(ctx, err, "look at the share")
	}
	ref, _ := parseWriterSecret(p.Session, secret)
	shareOver, mineOver := refDead(look, p.Share), refDead(sight, ref.ID)
	switch {
	case shareOver != nil:
		return nil
	case mineOver != nil:
		return mineOver
	}
	if _, err := c.Assume(p.Share).Revoke(ctx, p.Share); err != nil && !refEnded(err) {
		return err
	}
	return nil
}
