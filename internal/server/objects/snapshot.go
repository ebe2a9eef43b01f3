// Snapshots: the folded state, sent to a sink in pieces and at the rate of its acks, either by
// itself (Session.snapshot) or before a subscription's events.
//
// The pieces are read inside one snapshot of the database, so only few snapshots are sent at
// once (snapshot_slots.go), and one whose subscriber stalls, or is slow without end, is ended.

package objects

import (
	"context"
	"errors"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// stateSink is a sink that receives the folded state as well. state does not block; done is
// called once, possibly before state returns.
type stateSink interface {
	sink
	state(piece *session.StateChunk, last bool, done func(error))
}

// maxSnapshotStalls is the number of stall timeouts that a whole snapshot may take.
const maxSnapshotStalls = 4

// snapshot serves Session.snapshot: it answers when the sink has acked all pieces.
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
		shot := o.newSnapshotSender(sub)
		if refused := shot.send(ctx, at); refused != nil {
			fail(c, refused)
			return
		}
		c.Return(structSize(1, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Session_snapshot_Results(s).SetCursor(shot.access.Row.Cursor)
			return nil
		})
	})
}

// sendInitialState sends the state to a subscription that asked for it, and then starts its
// events.
func (o *sess) sendInitialState(ctx context.Context, sub *subscription) {
	shot := o.newSnapshotSender(sub)
	shot.onStart = func() {
		if started := sub.takeOnStart(); started != nil {
			sub.actor = shot.grant.Actor
			started(nil)
		}
	}
	refused := shot.send(ctx, Position{})
	if refused == nil {
		sub.beginEvents(shot.access.Row)
		return
	}
	sub.end(refused)
}

// snapshotSender sends one snapshot.
type snapshotSender struct {
	sess       *sess
	sink       stateSink
	onStart    func() // called once, when the ref was found to allow reading
	access     session.Access
	grant      *capability.Grant // the grant under which the state is shown
	verifiedAt time.Time         // when that was last found alive
	window     sendWindow
}

func (o *sess) newSnapshotSender(sub *subscription) *snapshotSender {
	return &snapshotSender{sess: o, sink: sub.sink.(stateSink), onStart: func() {},
		window: sendWindow{window: sub.windowMax, conn: sub.conn, stallTimeout: o.server.cfg.StallTimeout, wake: make(chan struct{}, 1)}}
}

// position returns the position of the state, with the hash as the ref is shown it.
func (h *snapshotSender) position() Position {
	return Position{h.access.Row.Cursor, h.access.Key.Mask(h.grant, h.access.Row.Head)}
}

// send sends the state as of a position (cursor 0: now) and waits until the sink has acked all
// of it. It returns SlowConsumer if the sink stalls.
func (h *snapshotSender) send(ctx context.Context, at Position) *fault.Error {
	s := h.sess.server
	waiting := ctx
	ctx, slow := context.WithCancelCause(ctx)
	defer slow(nil)
	place, refused := s.snapshotSlots.acquire(waiting, h.window.conn, h.sess.auth.ref, func() { slow(errStalled) })
	if refused != nil {
		return refused
	}
	defer s.snapshotSlots.release(place)
	defer h.window.close()
	h.window.onSend = func(bytes int) { s.snapshotSlots.sent(place, bytes) }
	h.window.onAck = func() { s.snapshotSlots.acked(place) }
	ctx, cancel := context.WithTimeoutCause(ctx, maxSnapshotStalls*s.cfg.StallTimeout, errStalled)
	defer cancel()
	err := s.cfg.Store.ReadState(ctx, h.sess.auth.session, h.sess.auth.refs(), h.pieceBytes(), func(p *session.StateChunk) error {
		if h.access.Row == nil {
			if err := h.admit(p, at); err != nil {
				return err
			}
		}
		if at.Cursor != 0 && at.Cursor != p.Row.Cursor {
			return errEarlier
		}
		return h.sendPiece(ctx, p, p.Last)
	})
	if errors.Is(err, errEarlier) {
		err = h.sendEarlier(ctx, at)
	}
	if err == nil {
		err = h.window.drain(ctx)
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

// pieceBytes is small enough that the rate of acks can be measured.
func (h *snapshotSender) pieceBytes() int {
	return max(min(h.window.window/4, partialAckBytes), minWindow)
}

// admit checks the ref in the snapshot of the first piece.
func (h *snapshotSender) admit(p *session.StateChunk, at Position) error {
	grant, refused := h.sess.check(&p.Access, capability.Read, "snapshot")
	if refused != nil {
		return refused
	}
	h.grant, h.verifiedAt = grant, h.sess.server.now()
	if at.Cursor != 0 {
		if refused := checkCursor(p.Row, at.Cursor); refused != nil {
			return refused
		}
		if at.Cursor == p.Row.Cursor && !h.matchesHash(p.Key, p.Row.Head, at.Hash) {
			return logDiverged(at.Cursor)
		}
		if p.Row.Base > 0 && at.Cursor != p.Row.Cursor {
			return fault.CursorExpired.With("the log starts after cursor %d, so earlier states are gone: ask for the present one", p.Row.Base).Pos(p.Row.Base + 1)
		}
	}
	h.access = p.Access
	h.sess.server.recordUse(h.sess.conn.peer, grant, "snapshot", p.Row.Cursor)
	h.onStart()
	return nil
}

// matchesHash reports whether hash, if one was named, is what the ref is shown of an event's.
func (h *snapshotSender) matchesHash(key session.HashKey, event, hash session.Hash) bool {
	return hash == (session.Hash{}) || hash == key.Mask(h.grant, event)
}

// recheckInterval is how long a ref that was found alive is not checked again while a
// snapshot is sent.
const recheckInterval = time.Second

// recheckTimeout bounds that check.
const recheckTimeout = 5 * time.Second

// recheck ends a long snapshot when its ref is dead: the rest was committed before the
// revocation, but its holder may not see it any more. It also ends it when something was
// purged, which may be in the rest.
func (h *snapshotSender) recheck(ctx context.Context) error {
	s := h.sess.server
	if s.now().Sub(h.verifiedAt) < recheckInterval {
		return nil
	}
	// This runs inside a read of the database: if all connections send snapshots, it times out.
	look, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	sight, err := s.cfg.Store.ReadAccess(look, h.sess.auth.session, h.sess.auth.refs())
	if err != nil {
		return err
	}
	if _, refused := h.sess.check(sight, capability.Read, "snapshot"); refused != nil {
		return refused
	}
	if sight.Row.AuthGen != h.access.Row.AuthGen {
		return fault.Overloaded.With("something was revoked or purged while the snapshot was sent: ask again")
	}
	h.verifiedAt = s.now()
	return nil
}

// sendPiece sends the rows of p that the ref may see: none put before its first visible cursor,
// and none out of its scope.
func (h *snapshotSender) sendPiece(ctx context.Context, p *session.StateChunk, last bool) error {
	if err := h.recheck(ctx); err != nil {
		return err
	}
	out, bytes := session.StateChunk{Access: h.access, Hash: h.position().Hash}, 256
	for _, e := range p.Entries {
		if session.ShowsEntry(h.grant, e) {
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
	return h.window.send(ctx, bytes, func(done func(error)) { h.sink.state(&out, last, done) })
}

// sendEarlier folds the log up to a position and sends that state. Its memory is bounded by
// FoldBytes: by the bytes read or, beyond that, by the bytes of the folded state, so that a
// long log with a small state can be folded.
func (h *snapshotSender) sendEarlier(ctx context.Context, pos Position) error {
	fold, at := session.NewFold(h.sess.auth.session), pos.Cursor
	var head session.Hash // of the event at fold.Cursor
	held, limit := 0, h.sess.server.cfg.FoldBytes
	for fold.Cursor < at {
		page, err := h.sess.server.cfg.Store.ReadLog(ctx, h.sess.auth.session, fold.Cursor, hubPageBytes, hubPageEvents, h.sess.auth.refs())
		if err != nil {
			return err
		}
		if _, refused := h.sess.check(&page.Access, capability.Read, "snapshot"); refused != nil {
			return refused
		}
		if refused := checkCursor(page.Row, fold.Cursor); refused != nil { // trimmed meanwhile
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
		// Half of it, so that much is read before it is summed again.
		if held = stateBytes(fold); held > limit/2 {
			return fault.TooLarge.With("the state at cursor %d is too large to be folded here: ask for the present one, or read the events", at)
		}
	}
	if !h.matchesHash(h.access.Key, head, pos.Hash) {
		return logDiverged(at)
	}
	row := *h.access.Row
	row.Cursor, row.Head = at, head
	h.access.Row = &row
	piece, size := &session.StateChunk{}, 0
	room := func(bytes int) error { // for a row in piece
		if size > 0 && size+bytes > h.pieceBytes() {
			if err := h.sendPiece(ctx, piece, false); err != nil {
				return err
			}
			piece, size = &session.StateChunk{}, 0
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
	return h.sendPiece(ctx, piece, true)
}

// stateBytes is the approximate size of the state of a fold.
func stateBytes(fold *session.Fold) (bytes int) {
	for _, t := range fold.Turns() {
		bytes += t.Bytes()
	}
	for _, e := range fold.Entries() {
		bytes += e.Bytes()
	}
	return bytes
}
