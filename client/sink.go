// The callbacks that a server calls on this side (EventSink): one sink collects a snapshot, one
// queues a subscription's events.

package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// EventSink's methods.
const (
	sinkEvents = 0
	sinkState  = 1
	sinkEnded  = 2
)

// snapshotSink collects the pieces of one snapshot.
type snapshotSink struct {
	session string

	mu    sync.Mutex
	state State
	last  bool
	err   error
}

// Serve implements rpc.Object.
func (k *snapshotSink) Serve(call *rpc.Call) {
	if m := call.Method(); m.Interface != wire.EventSink_TypeID || m.ID != sinkState {
		call.Fail(rpc.Unimplementedf("a snapshot's sink takes state only"))
		return
	}
	params, _ := call.Params()
	p := wire.EventSink_state_Params(params)
	entries, turns, err := decodeState(p)
	compacted, left, noView := decodeView(p)
	hash, noHash := p.Hash()
	err = errors.Join(err, noView, noHash)
	k.mu.Lock()
	k.state.Entries = append(k.state.Entries, entries...)
	k.state.Turns = append(k.state.Turns, turns...)
	k.state.Compacted, k.state.LeftOut = compacted, append(k.state.LeftOut, left...)
	k.state.Cursor, k.state.Hash = p.Cursor(), hashFrom(hash) // the last piece has them
	k.last = k.last || p.Last()
	if k.err == nil {
		k.err = err
	}
	k.mu.Unlock()
	call.Return(capnp.ObjectSize{}, nil)
}

// read reads the answer of the snapshot call.
func (k *snapshotSink) read(results capnp.Struct) error {
	return k.finish(wire.Session_snapshot_Results(results).Cursor())
}

// finish checks that the snapshot is complete.
func (k *snapshotSink) finish(cursor uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	if !k.last || k.state.Cursor != cursor {
		return fault.Disconnected.With("the snapshot is incomplete")
	}
	slices.SortFunc(k.state.Entries, compareEntries)
	return nil
}

// eventSink queues deliveries until the subscriber takes them. It is bounded by the server's
// window, and behind that by the connection's limit on unanswered calls.
type eventSink struct {
	session  string
	ackEvery int     // bytes of events after which an ack is sent at once
	unacked  int     // of them since then; of the goroutine that takes deliveries, as
	before   Event   // the last event, without its payload
	fastPath int     // deliveries read by decodeEventsFast
	spare    []Event // memory for those of the next delivery

	mu      sync.Mutex
	queue   []*rpc.Call
	dropped bool          // the subscriber has ended
	wake    chan struct{} // receives when queue is not empty
}

// maxSpare is how many events the memory for a delivery's is kept for.
const maxSpare = 256

// maxUnacked bounds how many bytes of events are acked lazily, so that many acks leave together and yet
// the server, which begins with a window of 64 KiB, waits for none.
const maxUnacked = 8 << 10

// newEventSink returns the sink of a subscription with a window of so many bytes; 0 is the server's default.
func newEventSink(sessionID string, window uint32) *eventSink {
	k := &eventSink{session: sessionID, ackEvery: maxUnacked, wake: make(chan struct{}, 1)}
	if window > 0 {
		k.ackEvery = min(maxUnacked, int(window/4))
	}
	return k
}

// ack returns the bytes of a delivery to the window.
func (k *eventSink) ack(call *rpc.Call, bytes int) {
	if k.mayWait(bytes) {
		call.ReturnLazily()
	} else {
		call.Return(capnp.ObjectSize{}, nil)
	}
}

// reuse keeps the memory of a delivery's events for the next.
func (k *eventSink) reuse(events []Event) {
	clear(events)
	if k.spare = events; cap(events) > maxSpare {
		k.spare = nil
	}
}

// mayWait reports whether the ack of so many bytes may wait for others to leave with.
func (k *eventSink) mayWait(bytes int) bool {
	if k.unacked += bytes; k.unacked < k.ackEvery {
		return true
	}
	k.unacked = 0
	return false
}

// Serve implements rpc.Object.
func (k *eventSink) Serve(call *rpc.Call) {
	if m := call.Method(); m.Interface != wire.EventSink_TypeID || m.ID != sinkEvents && m.ID != sinkEnded {
		call.Fail(rpc.Unimplementedf("a subscription's sink takes events and ended only"))
		return
	}
	k.mu.Lock()
	dropped := k.dropped
	if !dropped {
		k.queue = append(k.queue, call)
	}
	k.mu.Unlock()
	if dropped {
		call.Fail(errGone)
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// delivery is one call of the sink: events, or the end with its reason. done returns its bytes to
// the window.
type delivery struct {
	events []Event
	ended  *fault.Error
	done   func()
}

// next waits for a delivery. Deliveries that arrived before the connection was lost are still
// returned. The error is Disconnected after lost or refused, or Canceled.
func (k *eventSink) next(ctx context.Context, lost, refused <-chan struct{}) (delivery, error) {
	for {
		if ctx.Err() != nil {
			return delivery{}, fault.Canceled.Because(ctx.Err(), "the subscription was given up")
		}
		k.mu.Lock()
		var call *rpc.Call
		if len(k.queue) > 0 {
			call = k.queue[0]
			k.queue[0] = nil
			k.queue = k.queue[1:]
		}
		k.mu.Unlock()
		if call != nil {
			return k.decode(call)
		}
		select {
		case <-k.wake:
		case <-refused:
			return delivery{}, fault.Disconnected.With("the subscription was refused")
		case <-lost:
			return delivery{}, fault.Disconnected.With("the connection was lost")
		case <-ctx.Done():
			return delivery{}, fault.Canceled.Because(ctx.Err(), "the subscription was given up")
		}
	}
}

func (k *eventSink) decode(call *rpc.Call) (delivery, error) {
	params, _ := call.Params()
	var d delivery
	if call.Method().ID == sinkEnded {
		defer call.Return(capnp.ObjectSize{}, nil)
		w, err := wire.EventSink_ended_Params(params).Refusal()
		if err == nil {
			d.ended, err = calls.RefusalOf(w)
		}
		if err != nil {
			return delivery{}, err
		}
		if d.ended == nil {
			d.ended = fault.Draining.With("the server ended the subscription")
		}
		return d, nil
	}
	var err error
	plain, read := call.PlainParams()
	if read {
		d.events, read = decodeEventsFast(k.session, plain, k.before, k.spare)
	}
	if read {
		k.fastPath++
	} else {
		var list wire.Event_List
		if list, err = wire.EventSink_events_Params(params).Events(); err == nil {
			d.events, err = decodeEvents(k.session, list, k.before)
		}
	}
	if err != nil {
		call.Fail(rpc.Failedf("the events cannot be read"))
		return delivery{}, fault.Incompatible.Because(err, "the server's events cannot be read: %v", err)
	}
	if n := len(d.events); n > 0 {
		k.before = d.events[n-1]
		k.before.Payload = nil
	}
	bytes := len(params.Segment().Data())
	events := d.events
	d.done = func() {
		k.ack(call, bytes)
		k.reuse(events)
	}
	return d, nil
}

// errGone answers deliveries after the subscriber has ended.
var errGone = rpc.Failedf("the subscriber is gone")

// drop answers the queued deliveries, and makes Serve answer later ones at once until the server
// stops: unanswered calls count against all subscriptions of the connection.
func (k *eventSink) drop() {
	k.mu.Lock()
	queue := k.queue
	k.queue, k.dropped = nil, true
	k.mu.Unlock()
	for _, call := range queue {
		call.Fail(errGone)
	}
}
