// The peer's EventSink as a sink of the hub: events and pieces of state are sent as calls, and
// their returns are the acks.

package objects

import (
	"context"
	"errors"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

var (
	sinkEvents = rpc.Method{Interface: wire.EventSink_TypeID, ID: 0, Name: "EventSink.events"}
	sinkState  = rpc.Method{Interface: wire.EventSink_TypeID, ID: 1, Name: "EventSink.state"}
	sinkEnded  = rpc.Method{Interface: wire.EventSink_TypeID, ID: 2, Name: "EventSink.ended"}
)

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
func (p *peerSink) Events(events []*session.Event, done func(error)) {
	call := p.ref.Call(noWait, sinkEvents, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
		list, err := wire.EventSink_events_Params(s).NewEvents(int32(len(events)))
		if err != nil {
			return err
		}
		return encodeEvents(list, events)
	})
	notifyDone(call, done)
}

// State implements StateSink.
func (p *peerSink) State(piece *session.StateChunk, last bool, done func(error)) {
	call := p.ref.Call(noWait, sinkState, structSize(2, 3), func(s capnp.Struct, _ *rpc.CapTable) error {
		to := wire.EventSink_state_Params(s)
		to.SetCursor(piece.Row.Cursor)
		to.SetLast(last)
		if last {
			if err := to.SetHash(piece.Hash[:]); err != nil {
				return err
			}
		}
		entries, err := to.NewEntries(int32(len(piece.Entries)))
		if err != nil {
			return err
		}
		for i, e := range piece.Entries {
			if err := encodeEntry(entries.At(i), e); err != nil {
				return err
			}
		}
		turns, err := to.NewTurns(int32(len(piece.Turns)))
		if err != nil {
			return err
		}
		for i, t := range piece.Turns {
			if err := encodeTurn(turns.At(i), t); err != nil {
				return err
			}
		}
		return nil
	})
	notifyDone(call, done)
}

// Ended implements sink.
func (p *peerSink) Ended(why *fault.Error) bool {
	if why != nil {
		call := p.ref.Call(noWait, sinkEnded, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			r, err := wire.EventSink_ended_Params(s).NewRefusal()
			if err != nil {
				return err
			}
			return encodeRefusal(r, why)
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
