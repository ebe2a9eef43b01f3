// Snapshots: the folded state, sent to a sink in pieces and at its pace, either
// by itself (Session.snapshot) or before a subscription's events.
//
// The pieces are read inside one snapshot of the database, so only few are sent
// at once (places.go), and a subscriber that takes nothing for a while, or is slow without
// end, is given up.

package server

import (
	"context"
	"errors"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// stateSink is a sink that takes the folded state as well. state does not
// block; done is called once, perhaps before state returns.
type stateSink interface {
	sink
	state(piece *session.StatePiece, last bool, done func(error))
}

// snapshotStalls is how many times the stall timeout a whole snapshot may take.
const snapshotStalls = 4

// snapshot serves Session.snapshot: it answers when the sink has taken all.
func (o *sess) snapshot(c *rpc.Call) {
	s, caps := c.Params()
	p := wire.Session_snapshot_Params(s)
	sub, refused := o.newSubscription(s, caps, 0, 0)
	if refused != nil {
		fail(c, refused)
		return
	}
	at := Position{Cursor: p.At()}
	if at.Hash, refused = hashOf(p.Hash()); refused != nil {
		sub.sink.ended(nil)
		fail(c, refused)
		return
	}
	c.Go(func(ctx context.Context) {
		defer sub.sink.ended(nil)
		shot := o.newShot(sub)
		if refused := shot.send(ctx, at); refused != nil {
			fail(c, refused)
			return
		}
		c.Return(words(1, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Session_snapshot_Results(s).SetCursor(shot.sight.Row.Cursor)
			return nil
		})
	})
}

// first sends the state to a subscription that asked for it, and then lets its
// events go.
func (o *sess) first(ctx context.Context, sub *subscription) {
	shot := o.newShot(sub)
	shot.begun = func() {
		if started := sub.starts(); started != nil {
			sub.actor = shot.grant.Actor
			started(nil)
		}
	}
	refused := shot.send(ctx, Position{})
	if refused == nil {
		sub.begin(shot.sight.Row)
		return
	}
	sub.over(refused)
}

// shot is one snapshot on its way.
type shot struct {
	o     *sess
	sink  stateSink
	begun func() // called once, when it is clear that the ref may read
	sight session.Sight
	grant *capability.Grant // what it is shown under
	sure  time.Time         // when that was last found alive
	pace  pace
}

func (o *sess) newShot(sub *subscription) *shot {
	return &shot{o: o, sink: sub.sink.(stateSink), begun: func() {},
		pace: pace{window: sub.windowMost, link: sub.link, stall: o.server.cfg.StallTimeout, kick: make(chan struct{}, 1)}}
}

// position is what the state is of, as the ref is shown it.
func (h *shot) position() Position {
	return Position{h.sight.Row.Cursor, h.sight.Key.Shown(h.grant, h.sight.Row.Head)}
}

// send sends the state as of a position (cursor 0: now) and waits until the sink has
// taken all of it.
func (h *shot) send(ctx context.Context, at Position) *fault.Error {
	s := h.o.server
	waiting := ctx
	ctx, slow := context.WithCancelCause(ctx)
	defer slow(nil)
	place, refused := s.shots.take(waiting, h.pace.link, h.o.auth.ref, func() { slow(errStalled) })
	if refused != nil {
		return refused
	}
	defer s.shots.leave(place)
	defer h.pace.end()
	h.pace.sends = func(bytes int) { s.shots.sends(place, bytes) }
	h.pace.took = func() { s.shots.took(place) }
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotStalls*s.cfg.StallTimeout, errStalled)
	defer cancel()
	err := s.cfg.Store.ReadState(ctx, h.o.auth.session, h.o.auth.refs(), h.pieceBytes(), func(p *session.StatePiece) error {
		if h.sight.Row == nil {
			if err := h.admit(p, at); err != nil {
				return err
			}
		}
		if at.Cursor != 0 && at.Cursor != p.Row.Cursor {
			return errEarlier
		}
		return h.piece(ctx, p, p.Last)
	})
	if errors.Is(err, errEarlier) {
		err = h.earlier(ctx, at)
	}
	if err == nil {
		err = h.pace.finish(ctx)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errStalled) || errors.Is(context.Cause(ctx), errStalled):
		return fault.SlowConsumer.With("the snapshot was not taken in time: subscribe from a cursor, or ask again")
	}
	return toFault(s.log, err, "read the state")
}

var (
	errStalled = errors.New("the sink takes nothing")
	errEarlier = errors.New("an earlier state is wanted")
)

// pieceBytes is small enough for the rate at which it is taken to be told.
func (h *shot) pieceBytes() int { return max(min(h.pace.window/4, slowPiece), windowMin) }

// admit checks the ref in the first piece's snapshot.
func (h *shot) admit(p *session.StatePiece, at Position) error {
	grant, refused := h.o.check(&p.Sight, capability.Read, "snapshot")
	if refused != nil {
		return refused
	}
	h.grant, h.sure = grant, h.o.server.now()
	if at.Cursor != 0 {
		if refused := reachable(p.Row, at.Cursor); refused != nil {
			return refused
		}
		if at.Cursor == p.Row.Cursor && !h.same(p.Key, p.Row.Head, at.Hash) {
			return otherLog(at.Cursor)
		}
		if p.Row.Base > 0 && at.Cursor != p.Row.Cursor {
			return fault.CursorExpired.With("the log starts after cursor %d, so earlier states are gone: ask for the present one", p.Row.Base).Pos(p.Row.Base + 1)
		}
	}
	h.sight = p.Sight
	h.o.server.used(h.o.link.peer, grant, "snapshot", p.Row.Cursor)
	h.begun()
	return nil
}

// same says whether hash, if one was named, is what the ref is shown of an event's.
func (h *shot) same(key session.HashKey, event, hash session.Hash) bool {
	return hash == (session.Hash{}) || hash == key.Shown(h.grant, event)
}

// sureFor is for how long a ref that was found alive is not looked at again while
// a snapshot is sent.
const sureFor = time.Second

// lookWait is for how long that look may wait.
const lookWait = 5 * time.Second

// alive ends a snapshot that takes long when its ref is dead: what is left of it
// was committed before the cut, but is of no business to its holder any more. It
// ends it too when something was purged, which may be in what is left.
func (h *shot) alive(ctx context.Context) error {
	s := h.o.server
	if s.now().Sub(h.sure) < sureFor {
		return nil
	}
	// Inside a read of the database: where all connections send snapshots, this one gives way.
	look, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	sight, err := s.cfg.Store.Look(look, h.o.auth.session, h.o.auth.refs())
	if err != nil {
		return err
	}
	if _, refused := h.o.check(sight, capability.Read, "snapshot"); refused != nil {
		return refused
	}
	if sight.Row.AuthGen != h.sight.Row.AuthGen {
		return fault.Overloaded.With("something was revoked or purged while the snapshot was sent: ask again")
	}
	h.sure = s.now()
	return nil
}

// piece sends what the ref may see of p: not what was put before its first
// visible cursor, nor what it does not cover.
func (h *shot) piece(ctx context.Context, p *session.StatePiece, last bool) error {
	if err := h.alive(ctx); err != nil {
		return err
	}
	out, bytes := session.StatePiece{Sight: h.sight, Hash: h.position().Hash}, 256
	for _, e := range p.Entries {
		if session.Shows(h.grant, e) {
			out.Entries = append(out.Entries, e)
			bytes += e.Bytes()
		}
	}
	for _, t := range p.Turns {
		if session.ShowsTurn(h.grant, t) {
			out.Turns = append(out.Turns, t)
			bytes += t.Bytes()
		}
	}
	return h.pace.send(ctx, bytes, func(done func(error)) { h.sink.state(&out, last, done) })
}

// earlier folds the log up to a position and sends that state. What it holds is
// bounded: by all it has read, or, where that is too much, by what is left of
// it in the state, so that a long log of a small state can be folded.
func (h *shot) earlier(ctx context.Context, pos Position) error {
	fold, at := session.NewFold(h.o.auth.session), pos.Cursor
	var head session.Hash // of the event at fold.Cursor
	held, limit := 0, h.o.server.cfg.FoldBytes
	for fold.Cursor < at {
		page, err := h.o.server.cfg.Store.ReadLog(ctx, h.o.auth.session, fold.Cursor, hubPageBytes, hubPageMax, h.o.auth.refs())
		if err != nil {
			return err
		}
		if _, refused := h.o.check(&page.Sight, capability.Read, "snapshot"); refused != nil {
			return refused
		}
		if refused := reachable(page.Row, fold.Cursor); refused != nil { // trimmed meanwhile
			return refused
		}
		if len(page.Events) == 0 {
			return fault.Internal.With("the log ends before cursor %d", at)
		}
		for _, e := range page.Events {
			if e.Cursor > at {
				break
			}
			if err := fold.Apply(e); err != nil {
				return err
			}
			held, head = held+eventBytes(e), e.Hash
		}
		if held <= limit {
			continue
		}
		// Half of it, so that much is read before it is looked at again.
		if held = stateBytes(fold); held > limit/2 {
			return fault.TooLarge.With("the state at cursor %d is too large to be folded here: ask for the present one, or read the events", at)
		}
	}
	if !h.same(h.sight.Key, head, pos.Hash) {
		return otherLog(at)
	}
	row := *h.sight.Row
	row.Cursor, row.Head = at, head
	h.sight.Row = &row
	piece, size := &session.StatePiece{}, 0
	room := func(bytes int) error { // for a row in piece
		if size > 0 && size+bytes > h.pieceBytes() {
			if err := h.piece(ctx, piece, false); err != nil {
				return err
			}
			piece, size = &session.StatePiece{}, 0
		}
		size += bytes
		return nil
	}
	for _, t := range fold.Turns() {
		if err := room(t.Bytes()); err != nil {
			return err
		}
		piece.Turns = append(piece.Turns, t)
	}
	for _, e := range fold.Entries() {
		if err := room(e.Bytes()); err != nil {
			return err
		}
		piece.Entries = append(piece.Entries, e)
	}
	return h.piece(ctx, piece, true)
}

// stateBytes is what the state of a fold weighs, about.
func stateBytes(fold *session.Fold) (bytes int) {
	for _, t := range fold.Turns() {
		bytes += t.Bytes()
	}
	for _, e := range fold.Entries() {
		bytes += e.Bytes()
	}
	return bytes
}
