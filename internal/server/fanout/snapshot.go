// Snapshots: the folded state, sent to a sink in pieces and at the rate of its acks, either by
// itself (Session.snapshot) or before a subscription's events.
//
// The pieces are read inside one snapshot of the database, so only few snapshots are sent at
// once (snapshot_slots.go), and one whose subscriber stalls, or is slow without end, is ended.

package fanout

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
)

// maxSnapshotStalls is the number of stall timeouts that a whole snapshot may take.
const maxSnapshotStalls = 4

// SnapshotsConfig configures the sending of snapshots.
type SnapshotsConfig struct {
	Log          *slog.Logger
	Now          func() time.Time
	Store        SnapshotStore
	AtOnce       int           // sent at once; further ones wait for StallTimeout
	StallTimeout time.Duration // a snapshot whose subscriber acks nothing for this long is ended
	FoldBytes    int           // held in memory to fold the log for an earlier cursor
	LimitHits    *admission.LimitHits
}

// SnapshotStore is the store of snapshots. A method returns authority and rows of one snapshot.
type SnapshotStore interface {
	// ReadAccess returns a session's row and the grants of the refs that exist.
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)
	// ReadState calls piece with the portion of the folded state that portion returns, in pieces
	// (both run inside the snapshot, so they must not wait without bound).
	ReadState(ctx context.Context, session string, refs []string, pieceBytes int, portion func(*session.Access) session.Portion,
		piece func(*session.Unscoped[*session.StateChunk]) error) error
	// ReadLog returns events after a cursor.
	ReadLog(ctx context.Context, session string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error)
}

// Snapshots sends snapshots. It is safe for concurrent use.
type Snapshots struct {
	cfg   SnapshotsConfig
	slots *snapshotSlots
}

// NewSnapshots returns the sender of a server's snapshots.
func NewSnapshots(cfg SnapshotsConfig) *Snapshots {
	return &Snapshots{cfg: cfg, slots: newSnapshotSlots(cfg.AtOnce, cfg.StallTimeout, cfg.LimitHits)}
}

// SnapshotRequest says whose state is sent, under what authority, and where.
type SnapshotRequest struct {
	Session string
	Ref     string   // whose slot it takes
	Refs    []string // of the grants that Check needs
	Conn    *Flow
	Sink    StateSink
	Window  int                // bytes in flight
	Keys    *session.Selection // sent instead of all that the ref shows

	Compacted bool // the compacted view is sent, if the session is compacted

	// Check returns the grant under which the state is shown, or why it may not be. It is called
	// in the snapshot, and again while a long one is sent.
	Check func(at *session.Access) (*capability.Grant, *fault.Error)
	// OnStart is called once, when Check has allowed the state at a cursor.
	OnStart func(grant *capability.Grant, cursor uint64)
}

// SendInitial sends the state to a subscription that asked for it, and then starts its events.
func (p *Snapshots) SendInitial(ctx context.Context, sub *Subscription, req SnapshotRequest) {
	allowed := req.OnStart
	req.OnStart = func(grant *capability.Grant, cursor uint64) {
		allowed(grant, cursor)
		if started := sub.takeOnStart(); started != nil {
			sub.actor = grant.Actor
			started(nil)
		}
	}
	row, _, refused := p.Send(ctx, req, Position{})
	if refused == nil {
		sub.beginEvents(row)
		return
	}
	sub.End(refused)
}

// Send sends the state as of a position (cursor 0: now) and waits until the sink has acked all of
// it. It returns the session's row of that state, and the position as the ref is shown it.
func (p *Snapshots) Send(ctx context.Context, req SnapshotRequest, at Position) (*session.Row, Position, *fault.Error) {
	h := &snapshotSender{Snapshots: p, req: req,
		window: sendWindow{window: req.Window, conn: req.Conn, stallTimeout: p.cfg.StallTimeout, wake: make(chan struct{}, 1)}}
	if refused := h.send(ctx, at); refused != nil {
		return nil, Position{}, refused
	}
	return h.access.Row, h.position(), nil
}

// snapshotSender sends one snapshot.
type snapshotSender struct {
	*Snapshots
	req        SnapshotRequest
	access     session.Access
	grant      *capability.Grant // the grant under which the state is shown
	verifiedAt time.Time         // when that was last found alive
	window     sendWindow
}

// position returns the position of the state, with the hash as the ref is shown it.
func (h *snapshotSender) position() Position {
	return Position{h.access.Row.Cursor, h.access.Key.Mask(h.grant, h.access.Row.Head)}
}

// send sends the state as of a position (cursor 0: now) and waits until the sink has acked all
// of it. It returns SlowConsumer if the sink stalls.
func (h *snapshotSender) send(ctx context.Context, at Position) *fault.Error {
	waiting := ctx
	ctx, slow := context.WithCancelCause(ctx)
	defer slow(nil)
	place, refused := h.slots.acquire(waiting, h.window.conn, h.req.Ref, func() { slow(errStalled) })
	if refused != nil {
		return refused
	}
	defer h.slots.release(place)
	defer h.window.close()
	h.window.onSend = func(bytes int) { h.slots.sent(place, bytes) }
	h.window.onAck = func() { h.slots.acked(place) }
	ctx, cancel := context.WithTimeoutCause(ctx, maxSnapshotStalls*h.cfg.StallTimeout, errStalled)
	defer cancel()
	err := h.cfg.Store.ReadState(ctx, h.req.Session, h.req.Refs, h.pieceBytes(), h.portion, func(p *session.Unscoped[*session.StateChunk]) error {
		if h.access.Row == nil {
			if err := h.admit(p.Access(), at); err != nil {
				return err
			}
		}
		if at.Cursor != 0 && at.Cursor != h.access.Row.Cursor {
			return errEarlier
		}
		return h.sendChunk(ctx, p)
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
	return fault.From(h.cfg.Log, err, "read the state")
}

var (
	errStalled = errors.New("the sink takes nothing")
	errEarlier = errors.New("an earlier state is wanted")
)

// pieceBytes is small enough that the rate of acks can be measured.
func (h *snapshotSender) pieceBytes() int {
	return max(min(h.window.window/4, partialAckBytes), MinWindow)
}

// portion returns what to read; nothing if the ref is refused, which admit says.
func (h *snapshotSender) portion(access *session.Access) session.Portion {
	grant, refused := h.req.Check(access)
	if refused != nil {
		return session.Portion{}
	}
	return session.Portion{Ranges: h.req.Keys.Ranges(grant), Compacted: h.compacted(access, grant)}
}

// compacted returns what the view that is sent is compacted to.
func (h *snapshotSender) compacted(access *session.Access, grant *capability.Grant) session.Compaction {
	if !h.req.Compacted || access.Row == nil {
		return session.Compaction{}
	}
	return access.Row.CompactedTo(grant)
}

// admit checks the ref in the snapshot of the first piece.
func (h *snapshotSender) admit(access *session.Access, at Position) error {
	grant, refused := h.req.Check(access)
	if refused != nil {
		return refused
	}
	h.grant, h.verifiedAt = grant, h.cfg.Now()
	if at.Cursor != 0 {
		row := access.Row
		if refused := CheckCursor(row, at.Cursor); refused != nil {
			return refused
		}
		if at.Cursor == row.Cursor && !h.matchesHash(access, at.Hash) {
			return LogDiverged(at.Cursor)
		}
		if row.Base > 0 && at.Cursor != row.Cursor {
			return fault.CursorExpired.With("the log starts after cursor %d, so earlier states are gone: ask for the present one", row.Base).Pos(row.Base + 1)
		}
	}
	h.access = *access
	h.req.OnStart(grant, access.Row.Cursor)
	return nil
}

// matchesHash reports whether hash, if one was named, is what the ref is shown of the log's end.
func (h *snapshotSender) matchesHash(access *session.Access, hash session.Hash) bool {
	return hash == (session.Hash{}) || hash == access.Key.Mask(h.grant, access.Row.Head)
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
	if h.cfg.Now().Sub(h.verifiedAt) < recheckInterval {
		return nil
	}
	// This runs inside a read of the database: if all connections send snapshots, it times out.
	look, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	access, err := h.cfg.Store.ReadAccess(look, h.req.Session, h.req.Refs)
	if err != nil {
		return err
	}
	if _, refused := h.req.Check(access); refused != nil {
		return refused
	}
	if access.Row.AuthGen != h.access.Row.AuthGen {
		return fault.Overloaded.With("something was revoked or purged while the snapshot was sent: ask again")
	}
	h.verifiedAt = h.cfg.Now()
	return nil
}

// sendChunk sends the rows of a chunk that the ref may see: none put before its first visible
// cursor, and none out of its scope.
func (h *snapshotSender) sendChunk(ctx context.Context, c *session.Unscoped[*session.StateChunk]) error {
	if err := h.recheck(ctx); err != nil {
		return err
	}
	shown, bytes := h.req.Keys.Chunk(c.Shown(h.grant)), 256
	for _, e := range shown.Entries {
		bytes += e.Bytes()
	}
	for _, t := range shown.Turns {
		bytes += t.Bytes()
	}
	for _, message := range shown.LeftOut {
		bytes += len(message) + 16
	}
	return h.window.send(ctx, bytes, func(done func(error)) { h.req.Sink.State(shown, shown.Last, done) })
}

// sendEarlier folds the log up to a position and sends that state. Its memory is bounded by
// FoldBytes: by the bytes read or, beyond that, by the bytes of the folded state, so that a
// long log with a small state can be folded.
func (h *snapshotSender) sendEarlier(ctx context.Context, pos Position) error {
	fold, at := session.NewUnscopedFold(h.req.Session), pos.Cursor
	for fold.Cursor() < at {
		page, err := h.cfg.Store.ReadLog(ctx, h.req.Session, fold.Cursor(), hubPageBytes, hubPageEvents, h.req.Refs)
		if err != nil {
			return err
		}
		if _, refused := h.req.Check(page.Access()); refused != nil {
			return refused
		}
		if refused := CheckCursor(page.Access().Row, fold.Cursor()); refused != nil { // trimmed meanwhile
			return refused
		}
		if session.EventsOf(page).Len() == 0 {
			return fault.Internal.With("the log ends before cursor %d", at)
		}
		if err := fold.Add(page, at); err != nil {
			return err
		}
		if !fold.Fits(h.cfg.FoldBytes) {
			return fault.TooLarge.With("the state at cursor %d is too large to be folded here: ask for the present one, or read the events", at)
		}
	}
	h.access = fold.AccessAt(&h.access)
	if !h.matchesHash(&h.access, pos.Hash) {
		return LogDiverged(at)
	}
	return fold.Chunks(&h.access, h.compacted(&h.access, h.grant), h.pieceBytes(), func(c *session.Unscoped[*session.StateChunk]) error { return h.sendChunk(ctx, c) })
}
