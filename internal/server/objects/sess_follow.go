// Session.snapshot, Session.subscribe: the state and the events, sent to the peer's EventSink. A sink
// sends events and pieces of state as calls, and their returns are the acks.

package objects

import (
	"context"
	"errors"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// subscribe answers when the first read of the log has shown that the ref may read. The reason
// of a later end goes to the sink.
func (o *sess) subscribe(c *rpc.Call) {
	s, caps := c.Params()
	p := wire.Session_subscribe_Params(s)
	options, err := p.Options()
	if err != nil {
		fail(c, fault.Malformed.Because(err, "the call cannot be decoded"))
		return
	}
	sink, refused := sinkOf(s, caps, 1)
	if refused != nil {
		fail(c, refused)
		return
	}
	after := fanout.Position{Cursor: options.From()}
	as, hash, keys, refused := o.reading(options)
	if after.Hash = hash; refused != nil {
		sink.Ended(nil)
		fail(c, refused)
		return
	}
	window := o.clampWindow(int(options.WindowBytes()))
	object := &subscriptionObject{}
	handle := rpc.NewLocal(object)
	object.sub = fanout.NewSubscription(fanout.SubscriptionConfig{Authority: as, Conn: o.conn.flow, Sink: sink, Window: window, After: after, Keys: keys,
		OnStart: func(actor string, refused *fault.Error) {
			o.recordSubscribe(actor, refused)
			answer(c, refused, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, handle) })
			handle.Release()
		}})
	var first func(context.Context)
	if options.Snapshot() {
		first = func(ctx context.Context) {
			o.service.cfg.Snapshots.SendInitial(ctx, object.sub, o.snapshotTo(as, sink, window, keys, options.Compacted()))
		}
	}
	if refused := o.service.cfg.Hub.Subscribe(o.auth.Session, object.sub, first); refused != nil {
		sink.Ended(nil)
		fail(c, refused)
		handle.Release()
	}
}

// recordSubscribe counts a use, or audits the refusal of a subscription.
func (o *sess) recordSubscribe(actor string, refused *fault.Error) {
	if refused != nil {
		o.service.cfg.Audit.Deny(o.conn.peer, o.auth.Ref, &capability.Grant{Actor: actor}, "subscribe", refused)
		return
	}
	o.service.cfg.Usage.Record(o.conn.peer, &capability.Grant{ID: o.auth.Ref, Actor: actor}, "subscribe", 0)
}

// sinkOf returns the sink in a call's parameters; its ended releases it.
func sinkOf(s capnp.Struct, caps *rpc.CapTable, pointer uint16) (*peerSink, *fault.Error) {
	ptr, err := s.Ptr(pointer)
	if err != nil {
		return nil, fault.Malformed.Because(err, "the call cannot be decoded")
	}
	ref := caps.Get(ptr)
	if ref == nil {
		return nil, fault.BadArgument.With("a sink is needed: the events have nowhere to go")
	}
	return &peerSink{ref: ref}, nil
}

// clampWindow returns the window of a subscriber that asks for one; 0 asks for none.
func (o *sess) clampWindow(window int) int {
	if window == 0 {
		window = o.service.cfg.WindowBytes
	}
	return min(max(window, fanout.MinWindow), o.service.cfg.MaxWindowBytes)
}

// snapshotTo returns the request of a reader for a snapshot.
func (o *sess) snapshotTo(as authority.Reader, sink fanout.StateSink, window int, keys *session.Selection, compacted bool) fanout.SnapshotRequest {
	return fanout.SnapshotRequest{Session: o.auth.Session, Ref: o.auth.Ref, Refs: o.auth.Refs(), Conn: o.conn.flow, Sink: sink, Window: window, Keys: keys, Compacted: compacted,
		Check: func(at *session.Access) (*capability.Grant, *fault.Error) {
			return o.checkAs(as, at, capability.Read, "snapshot")
		},
		OnStart: func(grant *capability.Grant, cursor uint64) {
			o.service.cfg.Usage.Record(o.conn.peer, grant, "snapshot", cursor)
		}}
}

// snapshot answers when the sink has acked all pieces.
func (o *sess) snapshot(c *rpc.Call) {
	s, caps := c.Params()
	p := wire.Session_snapshot_Params(s)
	sink, refused := sinkOf(s, caps, 0)
	if refused != nil {
		fail(c, refused)
		return
	}
	at := fanout.Position{Cursor: p.At()}
	as, hash, keys, refused := o.reading(p)
	if at.Hash = hash; refused != nil {
		sink.Ended(nil)
		fail(c, refused)
		return
	}
	c.Go(func(ctx context.Context) {
		defer sink.Ended(nil)
		row, _, refused := o.service.cfg.Snapshots.Send(ctx, o.snapshotTo(as, sink, o.clampWindow(0), keys, p.Compacted()), at)
		answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Session_snapshot_Results(s).SetCursor(row.Cursor)
			return nil
		})
	})
}

// readerParams are the parameters that each call of a reader has.
type readerParams interface {
	Hash() ([]byte, error)
	Understands() (capnp.TextList, error)
	HasKeys() bool
	Keys() (capnp.TextList, error)
}

// maxFeatures is how many names of features are read: there are few.
const maxFeatures = 64

// reading decodes the parameters of a reader: what it understands, the hash of the event that it has,
// zero if it names none, and the keys that it asks for.
func (o *sess) reading(p readerParams) (as authority.Reader, hash session.Hash, keys *session.Selection, refused *fault.Error) {
	var r codec.FieldReader
	features, err := p.Understands()
	as = authority.Reader{Authority: o.auth, Understands: session.FeaturesNamed(r.Texts(features, err, maxFeatures))}
	asked, refused := r.Keys("keys", p.HasKeys(), p.Keys)
	if broken := r.Fault("the call"); broken != nil {
		refused = broken
	}
	if refused == nil {
		keys, refused = session.SelectKeys(asked)
	}
	if refused == nil {
		hash, refused = hashOf(p.Hash())
	}
	return as, hash, keys, refused
}

// hashOf decodes a hash that a call may name; zero if it names none.
func hashOf(b []byte, err error) (h session.Hash, refused *fault.Error) {
	switch {
	case err != nil:
		return h, fault.Malformed.Because(err, "the call cannot be decoded")
	case len(b) == 0:
		return h, nil
	case len(b) != len(h):
		return h, fault.BadArgument.With("hash is an event's hash: %d bytes", len(h))
	}
	return session.Hash(b), nil
}

// subscriptionObject is the peer's handle of a subscription. Releasing it cancels the
// subscription.
type subscriptionObject struct{ sub *fanout.Subscription }

var subscriptionMethods = newMethodTable("Subscription", map[methods.Method]func(*subscriptionObject, *rpc.Call){
	methods.SubscriptionCancel: (*subscriptionObject).cancel,
})

// Serve implements rpc.Object.
func (o *subscriptionObject) Serve(c *rpc.Call) {
	subscriptionMethods.serve(o, c)
}

func (o *subscriptionObject) cancel(c *rpc.Call) {
	o.sub.End(nil)
	reply(c, nil)
}

// Release implements rpc.Releaser.
func (o *subscriptionObject) Release() { o.sub.End(nil) }

// noWait is the context of calls that must not block. It is canceled, so a call that would block
// fails instead.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// peerSink is a reference to a peer's EventSink, which it owns.
type peerSink struct{ ref *rpc.Ref }

// Events implements sink.
func (p *peerSink) Events(shown *session.Shown, done func(error)) {
	switch params := shown.Encoded(codec.EncodeShown).(type) {
	case *rpc.EncodedParams:
		notifyDone(p.ref.CallEncoded(noWait, methods.EventSinkEvents.Method, params), done)
	case error:
		done(params)
	}
}

// State implements StateSink.
func (p *peerSink) State(piece *session.StateChunk, last bool, done func(error)) {
	call := p.ref.Call(noWait, methods.EventSinkState.Method, methods.EventSinkState.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.EventSink_state_Params(s)
		to.SetCursor(piece.Row.Cursor)
		to.SetLast(last)
		if last {
			if err := to.SetHash(piece.Hash[:]); err != nil {
				return err
			}
		}
		if err := codec.EncodeList(to.NewEntries, piece.Entries, codec.EncodeEntry); err != nil {
			return err
		}
		if err := codec.EncodeList(to.NewTurns, piece.Turns, codec.EncodeTurn); err != nil {
			return err
		}
		var w codec.FieldWriter
		w.Do(codec.EncodeCompacted(to.NewCompacted, &piece.Compacted))
		w.List(to.NewLeftOut, piece.LeftOut)
		return w.Err()
	})
	notifyDone(call, done)
}

// Ended implements sink.
func (p *peerSink) Ended(why *fault.Error) bool {
	if why != nil {
		call := p.ref.Call(noWait, methods.EventSinkEnded.Method, methods.EventSinkEnded.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			r, err := wire.EventSink_ended_Params(s).NewRefusal()
			if err != nil {
				return err
			}
			return codec.EncodeRefusal(r, why)
		})
		select {
		case <-call.Done(): // a call without room has failed at once
			if _, _, err := call.Wait(context.Background()); wouldBlock(err) {
				call.Release()
				return false
			}
		default:
		}
		call.Notify(call.Release)
	}
	p.ref.Release()
	return true
}

// wouldBlock reports whether a call was not sent for lack of room on this side.
func wouldBlock(err error) bool {
	var ex *rpc.Exception
	return errors.As(err, &ex) && !ex.Remote && ex.Type == rpc.Overloaded
}

// notifyDone calls done with the result of a call, and releases the call.
func notifyDone(call *rpc.Promise, done func(error)) {
	call.Notify(func() {
		_, _, err := call.Wait(context.Background()) // it is done
		call.Release()
		if wouldBlock(err) {
			err = fanout.ErrWouldBlock
		}
		done(err)
	})
}
