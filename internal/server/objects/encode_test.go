package objects

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TestPlacedEvents: what is copied from memory into each call is what would have been encoded in it.
func TestPlacedEvents(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	for range 200 {
		var events []*session.Event
		for n := range rng.IntN(40) {
			e := &session.Event{Session: "ses_1", Cursor: rng.Uint64(), Method: "put", Schema: uint32(n), At: rng.Int64(), Hash: session.Hash{byte(n)}}
			switch rng.IntN(4) {
			case 0:
				e.Hidden = true
			case 1: // purged
				e.Key, e.Op = "a/b", "op"
			default:
				e.Key, e.Ref, e.Actor, e.Op, e.Batch, e.Outbox = fmt.Sprint("k/", n), "ref", "actor", "op", "batch", "outbox"
				e.Payload = bytes.Repeat([]byte("x"), rng.IntN(5000))
			}
			events = append(events, e)
		}
		params := func(place func(wire.EventSink_events_Params) error) ([]byte, capnp.Ptr) {
			_, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := capnp.NewUInt64List(seg, int32(rng.IntN(20))); err != nil { // as an envelope may be there
				t.Fatal(err)
			}
			p, err := wire.NewEventSink_events_Params(seg)
			if err != nil {
				t.Fatal(err)
			}
			before := len(seg.Data())
			if err := place(p); err != nil {
				t.Fatal(err)
			}
			return seg.Data()[before:], capnp.Struct(p).ToPtr()
		}
		plain, want := params(func(p wire.EventSink_events_Params) error {
			list, err := p.NewEvents(int32(len(events)))
			if err != nil {
				return err
			}
			return encodeEvents(list, events)
		})
		shown := &session.Shown{Events: events}
		for range 3 {
			placed, got := params(func(p wire.EventSink_events_Params) error { return placeEvents(p, shown) })
			if equal, err := capnp.Equal(got, want); err != nil || !equal || !bytes.Equal(placed, plain) {
				t.Fatalf("%d events are placed otherwise than they are encoded: %v", len(events), err)
			}
		}
		if memory, ok := shown.Encoded(nil).([]byte); !ok || len(memory) != len(plain) {
			t.Fatalf("%d events are not encoded to memory", len(events))
		}
	}
}
