package client

// Events read by hand, held to the generated code.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/capnpfasttest"
	"github.com/mooring-rpc/mooring/rpc"
)

// writeEvents writes random events.
func writeEvents(rnd *rand.Rand, s capnp.Struct, n int) error {
	list, err := wire.EventSink_events_Params(s).NewEvents(int32(n))
	for i := 0; err == nil && i < n; i++ {
		e := list.At(i)
		e.SetCursor(rnd.Uint64())
		e.SetSchema(rnd.Uint32())
		e.SetAt(rnd.Int64())
		e.SetHidden(rnd.IntN(4) == 0)
		e.SetPurged(rnd.IntN(4) == 0)
		for _, set := range []func(string) error{e.SetMethod, e.SetKey, e.SetPayload, e.SetRef, e.SetActor, e.SetOp, e.SetBatch, e.SetOutbox} {
			if rnd.IntN(4) > 0 && err == nil {
				err = set([]string{"put", "owner", capnpfasttest.Text(rnd, 40)}[rnd.IntN(3)])
			}
		}
		for _, set := range []func([]byte) error{e.SetHash, e.SetSum} {
			if rnd.IntN(4) > 0 && err == nil {
				err = set([]byte(capnpfasttest.Text(rnd, 40)))
			}
		}
	}
	return err
}

// checkEvents reads events both ways, with so many bytes to be read.
func checkEvents(t *testing.T, raw []byte, limit uint64, before Event) (plain bool) {
	t.Helper()
	seg := bytes.Clone(raw[:len(raw)&^7])
	if len(seg) == 0 {
		return false
	}
	root, ok := byhand.Segment(seg).Follow(0)
	if !ok || root.Cost() > limit {
		return false
	}
	used := []Event{{Key: "of the delivery before", Hidden: true, Payload: []byte("1")}}
	got, ok := decodeEventsFast(testSession, byhand.NewMessage(seg, root, limit-root.Cost()), before, used)
	if !ok {
		return false
	}
	for i := range seg { // nothing refers to it any more
		seg[i] = 0xa7
	}
	msg := &capnp.Message{Arena: capnp.SingleSegment(bytes.Clone(raw[:len(seg)]))}
	msg.ResetReadLimit(limit)
	ptr, err := msg.Root()
	var list wire.Event_List
	if err == nil {
		list, err = wire.EventSink_events_Params(ptr.Struct()).Events()
	}
	if err != nil {
		t.Fatalf("read by hand, but %v", err)
	}
	want, err := decodeEvents(testSession, list, before)
	if err != nil {
		t.Fatalf("read by hand, but %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read by hand\n%+v, by the generated code\n%+v", got, want)
	}
	return true
}

func TestReadEvents(t *testing.T) {
	t.Parallel()
	rnd := capnpfasttest.Rand(t)
	for range 1500 {
		before := []Event{{}, {Method: "put", Actor: "owner", Ref: "put"}}[rnd.IntN(2)]
		raw := capnpfasttest.Segment(t, structSize(0, 1), func(s capnp.Struct) error { return writeEvents(rnd, s, rnd.IntN(6)) })
		if !checkEvents(t, raw, uint64(len(raw)), before) {
			t.Fatalf("not plain: %x", raw)
		}
		for range 20 { // what is not well-formed, or read too often
			spoilt := bytes.Clone(raw)
			capnpfasttest.Corrupt(rnd, spoilt)
			checkEvents(t, spoilt, uint64(rnd.IntN(2*len(raw))), before)
		}
	}
}

// TestEventsAreTheReaders: a program may keep and change what it is given, though the events of a delivery share memory, which
// serves for the next delivery again.
func TestEventsAreTheReaders(t *testing.T) {
	t.Parallel()
	sink, kept := newEventSink(testSession, 0), []Event(nil)
	for n := range 5 {
		seg := capnpfasttest.Segment(t, structSize(0, 1), func(s capnp.Struct) error {
			list, err := wire.EventSink_events_Params(s).NewEvents(100)
			for i := 0; err == nil && i < list.Len(); i++ {
				e := list.At(i)
				err = errors.Join(e.SetKey(fmt.Sprint("k/", n, "/", i)), e.SetOp(fmt.Sprint("op", i)), e.SetPayload(strings.Repeat(fmt.Sprint(n), 10*i)))
			}
			return err
		})
		root, _ := byhand.Segment(seg).Follow(0)
		events, ok := decodeEventsFast(testSession, byhand.NewMessage(seg, root, 1<<40), Event{}, sink.spare)
		if !ok {
			t.Fatal("not plain")
		}
		for _, e := range events {
			e.Payload = append(e.Payload, "and more"...)
			kept = append(kept, e)
		}
		sink.reuse(events)
		if &sink.spare[:1][0] != &events[0] || events[0].Payload != nil {
			t.Error("the memory is not used again, or keeps events")
		}
	}
	for i, e := range kept {
		n, i := i/100, i%100
		if e.Key != fmt.Sprint("k/", n, "/", i) || e.Op != fmt.Sprint("op", i) || string(e.Payload) != strings.Repeat(fmt.Sprint(n), 10*i)+"and more" {
			t.Fatalf("event %d of delivery %d: %q %q %q", i, n, e.Key, e.Op, e.Payload)
		}
	}
	if sink.reuse(make([]Event, maxSpare+1)); sink.spare != nil {
		t.Error("much memory is kept")
	}
}

// FuzzPlainEvents holds events that are read by hand to the generated code.
func FuzzPlainEvents(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 4 {
		f.Add(capnpfasttest.Segment(f, structSize(0, 1), func(s capnp.Struct) error { return writeEvents(rnd, s, n) }), uint16(2000))
	}
	f.Fuzz(func(t *testing.T, raw []byte, limit uint16) { checkEvents(t, raw, uint64(limit), Event{Method: "put"}) })
}

// TestEventsOfAPeerAreReadByHand, and as they were written.
func TestEventsOfAPeerAreReadByHand(t *testing.T) {
	t.Parallel()
	near, far := rpc.Pipe()
	sink := newEventSink(testSession, 0)
	server, peer := rpc.NewConn(near, rpc.Config{}), rpc.NewConn(far, rpc.Config{Bootstrap: sink})
	ran := make(chan error, 2)
	go func() { ran <- server.Run(context.Background()) }()
	go func() { ran <- peer.Run(context.Background()) }()
	defer func() {
		server.Close("test over")
		<-ran
		<-ran
	}()
	ref := server.Bootstrap(t.Context())
	defer ref.Release()
	const deliveries = 5
	for n := range deliveries {
		call := ref.Call(t.Context(), rpc.Method{Interface: wire.EventSink_TypeID, ID: sinkEvents}, structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			list, err := wire.EventSink_events_Params(s).NewEvents(1)
			if err != nil {
				return err
			}
			list.At(0).SetCursor(uint64(n))
			return list.At(0).SetKey(fmt.Sprint("key/", n))
		})
		d, err := sink.next(t.Context(), peer.Done(), nil)
		if err != nil || len(d.events) != 1 || d.events[0].Cursor != uint64(n) || d.events[0].Key != fmt.Sprint("key/", n) {
			t.Fatalf("delivery %d: %+v, %v", n, d.events, err)
		}
		d.done()
		if _, _, err := call.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		call.Release()
	}
	if sink.fastPath != deliveries-1 { // the first one names the sink as the answer to a call
		t.Errorf("%d of %d deliveries were read by hand", sink.fastPath, deliveries-1)
	}
}

// tap is a transport that counts writes.
type tap struct {
	rpc.Transport
	writes atomic.Int64
}

func (t *tap) WriteBatch(ctx context.Context, messages []byte) error {
	t.writes.Add(1)
	return t.Transport.WriteBatch(ctx, messages)
}

// TestAcksLeaveTogether: those of a few small events, a moment after the first of them.
func TestAcksLeaveTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := rpc.Pipe()
		counted, sink := &tap{Transport: far}, newEventSink(testSession, 0)
		server, peer := rpc.NewConn(near, rpc.Config{}), rpc.NewConn(counted, rpc.Config{Bootstrap: sink})
		go func() { _ = server.Run(context.Background()) }()
		go func() { _ = peer.Run(context.Background()) }()
		defer func() {
			server.Close("test over")
			synctest.Wait()
		}()
		ref := server.Bootstrap(t.Context())
		defer ref.Release()
		synctest.Wait()
		before := counted.writes.Load()
		var calls []*rpc.Promise
		for range 5 {
			calls = append(calls, ref.Call(t.Context(), rpc.Method{Interface: wire.EventSink_TypeID, ID: sinkEvents}, structSize(0, 1), nil))
			d, err := sink.next(t.Context(), peer.Done(), nil)
			if err != nil {
				t.Fatal(err)
			}
			d.done()
			synctest.Wait()
		}
		if n := counted.writes.Load() - before; n != 0 {
			t.Errorf("%d writes before anything was waited for", n)
		}
		for _, call := range calls {
			if _, _, err := call.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			call.Release()
		}
		if n := counted.writes.Load() - before; n != 1 {
			t.Errorf("%d writes for %d acks", n, len(calls))
		}
	})
}

func BenchmarkReadEvents(b *testing.B) {
	seg := capnpfasttest.Segment(b, structSize(0, 1), func(s capnp.Struct) error {
		list, err := wire.EventSink_events_Params(s).NewEvents(20)
		for i := 0; err == nil && i < list.Len(); i++ {
			e := list.At(i)
			e.SetCursor(uint64(i))
			id := fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5F%02d", i)
			for _, set := range []error{e.SetMethod("put"), e.SetKey("bench/" + id), e.SetRef("ses_01ARZ3NDEKTSV4RRFFQ69G5FAV.o6u774x7mwlofqen3kks6q4fqve"), e.SetActor("owner"),
				e.SetOp(id), e.SetBatch(id), e.SetOutbox("01ARZ3NDEKTSV4RRFFQ69G5FAV"), e.SetHash(make([]byte, 32)), e.SetPayload(strings.Repeat("x", 300))} {
				if err == nil {
					err = set
				}
			}
		}
		return err
	})
	root, _ := byhand.Segment(seg).Follow(0)
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		var events []Event
		for b.Loop() {
			var ok bool
			if events, ok = decodeEventsFast(testSession, byhand.NewMessage(seg, root, 1<<40), Event{}, events); !ok {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		msg := &capnp.Message{Arena: capnp.SingleSegment(seg), TraverseLimit: 1 << 60}
		for b.Loop() {
			p, err := wire.ReadRootEventSink_events_Params(msg)
			if err != nil {
				b.Fatal(err)
			}
			list, err := p.Events()
			if err == nil {
				_, err = decodeEvents(testSession, list, Event{})
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
