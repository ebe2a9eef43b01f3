// What a face within the process is sent: events as they come, and snapshots. It
// takes them at its own pace, within the window of any subscriber.

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// slowReaderTimeout is how long a reader may take over what it is given before what waits behind that
// is let go of. followWindow is what may wait for one who has taken nothing yet, or was
// slow; it doubles with each delivery that is taken, up to Config.WindowBytes.
// maxFollowDelivery bounds a delivery, but for a single event.
const (
	slowReaderTimeout = 500 * time.Millisecond
	followWindow      = 64 << 10
	maxFollowDelivery = 32 << 10
)

// Rewind is what Follow's take returns to be given once more what comes after a position:
// it has let go of it.
type Rewind struct{ After Position }

// Error implements error.
func (a Rewind) Error() string {
	return fmt.Sprintf("what follows cursor %d is wanted again", a.After.Cursor)
}

// errSlowReader says that a reader was slow, and what waited for it was let go of.
var errSlowReader = errors.New("what waited was let go of")

// Follow calls take for every event after a position, once each and in order, a few
// at a time, until ctx ends (its error), take fails (that error, unless it is Rewind) or
// the subscription ends (a fault: Revoked and the like, CursorExpired, Draining).
//
// The log is the buffer: while take runs for longer than a moment nothing waits behind
// it. The subscription ends then, and another one goes on where take is, as for a
// reader who comes back.
func (h *Capability) Follow(ctx context.Context, after Position, take func([]*session.Event) error) error {
	o, refused := h.session()
	if refused != nil {
		return refused
	}
	for first := true; ; first = false {
		err := o.follow(ctx, &after, first, take)
		if again, ok := errors.AsType[Rewind](err); ok {
			after = again.After
		} else if err != errSlowReader {
			return err
		}
	}
}

// follow is Follow until the reader is slow (errSlowReader), or wants something again. at is
// where it is. The first of a reader is counted as a use, or audited as a refusal.
func (o *sess) follow(ctx context.Context, at *Position, first bool, take func([]*session.Event) error) error {
	box := newInbox()
	sub := &subscription{auth: o.auth, conn: o.conn, window: min(initialWindow, o.server.cfg.WindowBytes), windowMax: o.server.cfg.WindowBytes,
		maxDelivery: maxFollowDelivery, sink: box, cursor: at.Cursor, resumeHash: at.Hash}
	if first {
		sub.onStart = func(refused *fault.Error) {
			if refused != nil {
				o.server.auditDenial(o.conn.peer, o.auth.ref, &capability.Grant{Actor: sub.actor}, "subscribe", refused)
				box.ended(refused)
				return
			}
			o.server.recordUse(o.conn.peer, &capability.Grant{ID: o.auth.ref, Actor: sub.actor}, "subscribe", 0)
		}
	}
	if refused := o.server.hub.subscribe(o.auth.session, sub, nil); refused != nil {
		return refused
	}
	defer sub.end(nil)
	slow := time.AfterFunc(slowReaderTimeout, func() {
		if box.abandon() {
			sub.end(nil)
		}
	})
	slow.Stop() // nothing is being taken
	for {
		got, why := box.next(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case got.done == nil:
			return why
		}
		last := got.events[len(got.events)-1]
		to := Position{Cursor: last.Cursor, Hash: last.Hash}
		slow.Reset(slowReaderTimeout)
		err := take(got.events)
		slow.Stop()
		if err != nil {
			return err
		}
		*at = to
		got.done(nil)
	}
}

// Snapshot calls take with the folded state as of a position (cursor 0: now), piece by
// piece, all of one position, which it returns. Who takes too long is given up.
func (h *Capability) Snapshot(ctx context.Context, at Position, take func(*session.StateChunk) error) (of Position, err error) {
	o, refused := h.session()
	if refused != nil {
		return of, refused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	box := newInbox()
	shot := o.newSnapshotSender(&subscription{auth: o.auth, conn: o.conn, windowMax: o.server.cfg.WindowBytes, sink: box})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if why := catchPanic(o.server.log, "send the state", func() { refused = shot.send(ctx, at) }); why != nil {
			refused = why
		}
		box.ended(nil)
	}()
	for {
		got, _ := box.next(context.Background()) // it ends when send does
		if got.done == nil {
			break
		}
		if err == nil {
			err = take(got.piece)
		}
		if err != nil {
			cancel()
		}
		got.done(err)
	}
	<-sent
	switch {
	case err != nil:
		return of, err
	case refused != nil:
		return of, refused
	}
	return shot.position(), nil
}

// inboxItem is one call of a sink that waits to be taken.
type inboxItem struct {
	events []*session.Event
	piece  *session.StateChunk
	done   func(error)
}

// inbox is the sink of who takes what comes in a goroutine of its own. What waits
// in it is bounded by the subscription's window.
type inbox struct {
	wake chan struct{}

	mu     sync.Mutex
	items  []inboxItem
	err    error
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put changes what is in the box, until its end.
func (b *inbox) put(change func()) {
	b.mu.Lock()
	if !b.closed {
		change()
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// events implements sink.
func (b *inbox) events(events []*session.Event, done func(error)) {
	events = slices.Clone(events) // what is beside them is let go of
	b.put(func() { b.items = append(b.items, inboxItem{events: events, done: done}) })
}

// state implements stateSink.
func (b *inbox) state(piece *session.StateChunk, _ bool, done func(error)) {
	b.put(func() { b.items = append(b.items, inboxItem{piece: piece, done: done}) })
}

// ended implements sink. The first reason stays.
func (b *inbox) ended(why *fault.Error) bool {
	b.put(func() { b.err, b.closed = errOrNil(why), true })
	return true
}

// abandon empties the box for good, for who is slow; false if it has ended already.
func (b *inbox) abandon() (did bool) {
	b.put(func() { b.items, b.err, b.closed, did = nil, errSlowReader, true, true })
	return did
}

// next takes the first delivery out of the box, waiting for one; one without done says that
// there is none any more, and why, or that ctx has ended.
func (b *inbox) next(ctx context.Context) (d inboxItem, why error) {
	for {
		b.mu.Lock()
		if len(b.items) > 0 {
			d = b.items[0]
			b.items[0] = inboxItem{}
			b.items = b.items[1:]
		}
		over := b.closed
		why = b.err
		b.mu.Unlock()
		if d.done != nil || over {
			return d, why
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return d, nil
		}
	}
}
