// Subscriptions: every event after a cursor, once and in order, over any number of connections and hosts.

package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/client/internal/serverconn"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// SubscribeOptions are the options of Subscribe.
type SubscribeOptions struct {
	// After is the last cursor the subscriber has; 0 is the start. To follow a state, pass Snapshot's cursor.
	After uint64
	// Hash is the hash of the event at After (Event.Hash, State.Hash). The server compares it, so that events written after a
	// restore from a backup are not taken for the continuation. Zero compares nothing; the hashes of handled events are always
	// compared.
	Hash Hash
	// StartOver, if not nil, is called instead of ending with ServerBehind or CursorExpired, with the session's present state: it
	// replaces everything handled so far, and later events follow it. It may be called again. Its error ends the subscription.
	StartOver func(*State) error
	// Keys, if not nil, are what the subscriber is sent: cursor marks stand for events about other keys, and StartOver is called with
	// the state of these. A text that ends in "/" is all that is below it.
	Keys []string
	// Compacted has StartOver called with the compacted view (SnapshotOptions). Events are sent as they are.
	Compacted bool
	// WindowBytes is how many bytes the server sends ahead of the handler; 0 is the server's default.
	WindowBytes uint32
	// Trouble, if not nil, is called with each error that is retried: a lost connection, a busy server, a ref that is not known
	// yet.
	Trouble func(error)
}

// Subscribe calls handle with every event after a cursor, once and in order, on the calling goroutine. Events that the ref does
// not show are replaced by cursor marks (Event.Hidden), which carry the log's cursor. While handle runs, the server sends at most
// the window ahead.
//
// It goes on over lost connections and servers that are away or busy, and waits without limit for a ref that is not known yet;
// SubscribeOptions.Trouble is called with each error. It returns when ctx ends or the client is closed (Canceled), when handle
// returns an error (that error), or when it cannot go on: the ref is unusable (UnknownRef, Revoked, StaleEpoch, Expired,
// Exhausted, Sealed, MissingRight), the session was deleted (SessionDeleted, after its last event), the log no longer reaches
// back to the cursor (CursorExpired: take a snapshot and go on from there, or have StartOver do that), the log ends before the
// cursor or is another than the one followed (ServerBehind), or client and server speak no common version (Incompatible). A ref
// without hosts is BadRefText, one whose secret would be sent unencrypted Plaintext, and a nil handle Usage. Nothing is handled
// after any of these.
func (s *Session) Subscribe(ctx context.Context, o SubscribeOptions, handle func(Event) error) error {
	if handle == nil {
		return fault.Usage.With("subscribe: there is no handler for the events")
	}
	if err := checkKeys("keys", o.Keys); err != nil {
		return err
	}
	ref := s.refFor(ctx, capability.Read)
	if err := s.client.checkUsable(ref.Ref); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.client.ctx, cancel)()
	sub := &subscription{session: s, ref: ref, handle: handle, position: Position{o.After, o.Hash}, keys: o.Keys, compacted: o.Compacted, window: o.WindowBytes}
	wait := s.client.cfg.newBackOff()
	for {
		before := sub.position.Cursor
		err := sub.follow(ctx)
		code := fault.CodeOf(err)
		if sub.handleErr == nil && o.StartOver != nil && (code == fault.ServerBehind || code == fault.CursorExpired) {
			if o.Trouble != nil {
				o.Trouble(err)
			}
			err = sub.startOver(ctx, o.StartOver)
			code = fault.CodeOf(err)
		}
		if sub.handleErr != nil {
			return err
		}
		if over := sub.closedErr(ctx); over != nil {
			return over
		}
		if err != nil && !code.Transient() && code != fault.SlowConsumer {
			s.client.noteAccepted(ctx, ref, err)
			return s.explainRef(err, ref)
		}
		if err != nil && o.Trouble != nil {
			o.Trouble(err)
		}
		if sub.position.Cursor > before {
			wait.Reset()
		}
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// Follow is Subscribe as an iterator: it ends after the one error it yields.
func (s *Session) Follow(ctx context.Context, o SubscribeOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		stopped := false
		err := s.Subscribe(ctx, o, func(e Event) error {
			if !yield(e, nil) {
				stopped = true
				return fault.Canceled
			}
			return nil
		})
		if !stopped {
			yield(Event{}, err)
		}
	}
}

// subscription is one subscriber over all its connections.
type subscription struct {
	session    *Session
	ref        access
	handle     func(Event) error
	keys       []string
	compacted  bool
	window     uint32
	position   Position // the last event handled
	handledAny bool     // an event was handled
	handleErr  error    // the error of handle
}

// startOver goes on from the present state.
func (sub *subscription) startOver(ctx context.Context, handle func(*State) error) error {
	state, err := sub.session.SnapshotWith(ctx, SnapshotOptions{Keys: sub.keys, Compacted: sub.compacted})
	if err != nil {
		return err
	}
	if over := sub.closedErr(ctx); over != nil {
		return over
	}
	if sub.handleErr = handle(state); sub.handleErr != nil {
		return sub.handleErr
	}
	sub.position, sub.handledAny = state.Position(), false
	return nil
}

// closedErr returns why nothing more is to be handled; nil while the subscription goes on.
func (sub *subscription) closedErr(ctx context.Context) error {
	switch {
	case sub.session.client.ctx.Err() != nil: // ctx is canceled a moment later
		return serverconn.ErrClosed()
	case ctx.Err() != nil:
		return fault.Canceled.Because(ctx.Err(), "the subscription was given up")
	}
	return nil
}

// follow subscribes over one connection until it ends.
func (sub *subscription) follow(ctx context.Context) error {
	s := sub.session
	p, err := s.client.peer(ctx, sub.ref.Ref)
	if err != nil {
		return err
	}
	live, err := p.Reach(ctx, sub.ref.Ref, sub.ref.Redemption, sub.ref.opens)
	if err != nil {
		return err
	}
	defer live.Release()
	sink := newEventSink(s.id, sub.window)
	local := rpc.NewLocal(sink)
	answer := callSubscribe(ctx, live, sub.position, sub.keys, sub.window, local)
	local.Release()
	// Releasing the answer releases the subscription, which ends it at the server: before the sink's calls fail, so that the
	// server does not report that failure as the reason.
	defer sink.drop()
	defer answer.Release()
	refused := make(chan struct{})
	answer.Notify(func() {
		if _, _, err := answer.Wait(ctx); err != nil {
			close(refused)
		}
	})
	for {
		d, err := sink.next(ctx, p.Done(), refused)
		if err != nil {
			select {
			case <-refused:
				_, _, err = answer.Wait(ctx)
				return p.Fail(err)
			default:
				return err
			}
		}
		if d.ended != nil {
			return d.ended
		}
		if !sub.handledAny {
			s.client.noteAccepted(ctx, sub.ref, nil)
		}
		if err = checkSelected(sub.keys, d.events); err == nil {
			err = sub.handleEvents(ctx, d.events, sub.firstVisible)
		}
		d.done()
		if err != nil {
			return err
		}
	}
}

func callSubscribe(ctx context.Context, session *rpc.Ref, from Position, keys []string, window uint32, sink *rpc.Ref) *rpc.Promise {
	return calls.Make(ctx, session, methods.SessionSubscribe, func(s capnp.Struct, caps *rpc.CapTable) error {
		opts, err := wire.Session_subscribe_Params(s).NewOptions()
		if err != nil {
			return err
		}
		opts.SetFrom(from.Cursor)
		opts.SetWindowBytes(window)
		if err := errors.Join(from.encode(opts.SetHash), calls.SetTexts(opts.NewUnderstands, understands), calls.SetTexts(opts.NewKeys, keys)); err != nil {
			return err
		}
		return caps.Set(s, 1, sink)
	})
}

// firstVisible returns the first cursor that the ref shows.
func (sub *subscription) firstVisible(ctx context.Context) (uint64, error) {
	d, err := sub.session.client.describe(ctx, sub.ref)
	return d.Grant.From, err
}

// handleEvents calls handle with events, each once and in order.
func (sub *subscription) handleEvents(ctx context.Context, events []Event, shownFrom func(context.Context) (uint64, error)) error {
	for i := range events {
		e := &events[i]
		if e.Cursor <= sub.position.Cursor {
			continue // handled over an earlier connection
		}
		// A mark stands for all hidden events up to its cursor.
		if e.Cursor != sub.position.Cursor+1 && !e.Hidden {
			first := uint64(0)
			if !sub.handledAny { // a ref that shows the log from a later cursor on starts there
				var err error
				if first, err = shownFrom(ctx); err != nil {
					return err
				}
			}
			if e.Cursor != first {
				return fault.Disconnected.With("the server left out events %d to %d", sub.position.Cursor+1, e.Cursor-1)
			}
		}
		if over := sub.closedErr(ctx); over != nil {
			return over
		}
		if err := sub.handle(*e); err != nil {
			sub.handleErr = err
			return err
		}
		sub.position, sub.handledAny = Position{e.Cursor, e.Hash}, true
	}
	return nil
}
