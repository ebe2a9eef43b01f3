// Events and snapshots for a handler within the process. It receives them at its own pace, within
// the window that any subscriber has.

package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
)

// slowReaderTimeout is how long take may run before the events queued behind it are dropped.
// maxFollowDelivery bounds the bytes of a delivery, unless it is a single event.
const (
	slowReaderTimeout = 500 * time.Millisecond
	maxFollowDelivery = 32 << 10
)

// Rewind is the error that Follow's take returns to receive the events after a position again,
// for a reader that has dropped them.
type Rewind struct{ After fanout.Position }

// Error implements error.
func (a Rewind) Error() string {
	return fmt.Sprintf("what follows cursor %d is wanted again", a.After.Cursor)
}

// errSlowReader reports that a reader was slow, and that its queued events were dropped.
var errSlowReader = errors.New("the data that waited was released")

// Follow calls take for every event about keys after a position, once each and in order, a few at a time,
// until ctx ends (its error), take fails (that error, unless it is Rewind) or the subscription
// ends (a fault: Revoked and the like, CursorExpired, Draining).
//
// The log is the buffer: while take runs for longer than slowReaderTimeout, no events are queued
// behind it. The subscription ends then, and another one continues after take's last event, as
// for a reader that reconnects.
func (h *Capability) Follow(ctx context.Context, after fanout.Position, keys *session.Selection, take func([]*session.Event) error) error {
	o, refused := h.session()
	if refused != nil {
		return refused
	}
	for first := true; ; first = false {
		err := o.follow(ctx, &after, keys, first, take)
		if again, ok := errors.AsType[Rewind](err); ok {
			after = again.After
		} else if err != errSlowReader {
			return err
		}
	}
}

// follow is Follow until the reader is slow (errSlowReader) or rewinds. at is the reader's
// position. The first call of a reader counts a use, or audits a refusal.
func (o *sess) follow(ctx context.Context, at *fanout.Position, keys *session.Selection, first bool, take func([]*session.Event) error) error {
	box := newInbox()
	cfg := fanout.SubscriptionConfig{Authority: o.auth.InProcess(), Conn: o.conn.flow, Sink: box, Window: o.service.cfg.WindowBytes, MaxDelivery: maxFollowDelivery, After: *at, Keys: keys}
	if first {
		cfg.OnStart = func(actor string, refused *fault.Error) {
			if o.recordSubscribe(actor, refused); refused != nil {
				box.Ended(refused)
			}
		}
	}
	sub := fanout.NewSubscription(cfg)
	if refused := o.service.cfg.Hub.Subscribe(o.auth.Session, sub, nil); refused != nil {
		return refused
	}
	defer sub.End(nil)
	slow := time.AfterFunc(slowReaderTimeout, func() {
		if box.abandon() {
			sub.End(nil)
		}
	})
	slow.Stop() // take is not running
	for {
		got, why := box.next(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case got.done == nil:
			return why
		}
		last := got.events[len(got.events)-1]
		to := fanout.Position{Cursor: last.Cursor, Hash: last.Hash}
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

// Snapshot calls take with the folded state of keys as of a position (cursor 0: now), or the compacted view of it,
// piece by piece, and returns the position of all pieces. A reader that stalls gets SlowConsumer.
func (h *Capability) Snapshot(ctx context.Context, at fanout.Position, keys *session.Selection, compacted bool, take func(*session.StateChunk) error) (of fanout.Position, err error) {
	o, refused := h.session()
	if refused != nil {
		return of, refused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	box := newInbox()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if why := admission.CatchPanic(o.service.cfg.Log, "send the state", func() {
			_, of, refused = o.service.cfg.Snapshots.Send(ctx, o.snapshotTo(o.auth.InProcess(), box, o.service.cfg.WindowBytes, keys, compacted), at)
		}); why != nil {
			refused = why
		}
		box.Ended(nil)
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
		return fanout.Position{}, err
	case refused != nil:
		return fanout.Position{}, refused
	}
	return of, nil
}

// inboxItem is one queued call of a sink.
type inboxItem struct {
	events []*session.Event
	piece  *session.StateChunk
	done   func(error)
}

// inbox is the sink of a reader that takes items in a goroutine of its own. The subscription's
// window bounds the items in it.
type inbox struct {
	wake chan struct{}

	mu     sync.Mutex
	items  []inboxItem
	err    error
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put runs change on the inbox unless it is closed, and wakes the reader.
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

// Events implements sink.
func (b *inbox) Events(shown *session.Shown, done func(error)) {
	b.put(func() { b.items = append(b.items, inboxItem{events: shown.Events, done: done}) })
}

// State implements StateSink.
func (b *inbox) State(piece *session.StateChunk, _ bool, done func(error)) {
	b.put(func() { b.items = append(b.items, inboxItem{piece: piece, done: done}) })
}

// Ended implements sink. The first reason counts.
func (b *inbox) Ended(why *fault.Error) bool {
	b.put(func() { b.err, b.closed = errOrNil(why), true })
	return true
}

// abandon drops all items and closes the inbox, for a slow reader; it returns false if it was closed.
func (b *inbox) abandon() (did bool) {
	b.put(func() { b.items, b.err, b.closed, did = nil, errSlowReader, true, true })
	return did
}

// next removes and returns the first item, waiting for one. An item without done means that the
// inbox was closed, with the reason why, or that ctx has ended.
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
