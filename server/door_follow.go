// What a face within the process is sent: events as they come, and snapshots. It
// takes them at its own pace, within the window of any subscriber.

package server

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// Follow calls take for every event after a position, once each and in order, a few
// at a time, until ctx ends (its error), take fails (that error) or the
// subscription ends (a fault: Revoked and the like, CursorExpired, Draining).
func (h *Held) Follow(ctx context.Context, after Position, take func([]*session.Event) error) error {
	o, refused := h.session()
	if refused != nil {
		return refused
	}
	box := newInbox()
	sub := &subscription{auth: o.auth, link: o.link, window: o.server.cfg.WindowBytes, sink: box, cursor: after.Cursor, resume: after.Hash}
	sub.started = func(refused *fault.Error) {
		if refused != nil {
			o.server.denied(o.link.peer, o.auth.ref, &capability.Grant{Actor: sub.actor}, "subscribe", refused)
			box.ended(refused)
			return
		}
		o.server.used(o.link.peer, &capability.Grant{ID: o.auth.ref, Actor: sub.actor}, "subscribe", 0)
	}
	if refused := o.server.hub.subscribe(o.auth.session, sub, nil); refused != nil {
		return refused
	}
	defer sub.over(nil)
	for {
		got, why, over := box.wait(ctx)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		for _, g := range got {
			if err := take(g.events); err != nil {
				return err
			}
			g.done(nil)
		}
		if over {
			return failed(why)
		}
	}
}

// Snapshot calls take with the folded state as of a position (cursor 0: now), piece by
// piece, all of one position, which it returns. Who takes too long is given up.
func (h *Held) Snapshot(ctx context.Context, at Position, take func(*session.StatePiece) error) (of Position, err error) {
	o, refused := h.session()
	if refused != nil {
		return of, refused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	box := newInbox()
	shot := o.newShot(&subscription{auth: o.auth, link: o.link, window: o.server.cfg.WindowBytes, sink: box})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if why := guarded(o.server.log, "send the state", func() { refused = shot.send(ctx, at) }); why != nil {
			refused = why
		}
		box.ended(nil)
	}()
	for over := false; !over; {
		var got []delivered
		got, _, over = box.wait(context.Background()) // it ends when send does
		for _, g := range got {
			if err == nil {
				err = take(g.piece)
			}
			if err != nil {
				cancel()
			}
			g.done(err)
		}
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

// delivered is one call of a sink that waits to be taken.
type delivered struct {
	events []*session.Event
	piece  *session.StatePiece
	done   func(error)
}

// inbox is the sink of who takes what comes in a goroutine of its own. What waits
// in it is bounded by the subscription's window.
type inbox struct {
	kick chan struct{}

	mu   sync.Mutex
	got  []delivered
	why  *fault.Error
	over bool
}

func newInbox() *inbox { return &inbox{kick: make(chan struct{}, 1)} }

// put changes what is in the box, until its end.
func (b *inbox) put(change func()) {
	b.mu.Lock()
	if !b.over {
		change()
	}
	b.mu.Unlock()
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// events implements sink.
func (b *inbox) events(events []*session.Event, done func(error)) {
	b.put(func() { b.got = append(b.got, delivered{events: events, done: done}) })
}

// state implements stateSink.
func (b *inbox) state(piece *session.StatePiece, _ bool, done func(error)) {
	b.put(func() { b.got = append(b.got, delivered{piece: piece, done: done}) })
}

// ended implements sink. The first reason stays.
func (b *inbox) ended(why *fault.Error) bool {
	b.put(func() { b.why, b.over = why, true })
	return true
}

// wait gives what has come, waiting for something; over says that nothing more
// will.
func (b *inbox) wait(ctx context.Context) (got []delivered, why *fault.Error, over bool) {
	for {
		b.mu.Lock()
		got, b.got = b.got, nil
		why, over = b.why, b.over
		b.mu.Unlock()
		if len(got) > 0 || over {
			return got, why, over
		}
		select {
		case <-b.kick:
		case <-ctx.Done():
			return nil, nil, false
		}
	}
}
