package client

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// malformed has the first pointer of parameters, which have nothing behind them yet, lead out of the message.
func malformed(s capnp.Struct, _ *rpc.CapTable) error {
	b := s.Segment().Data()
	pointers := b[len(b)-8*int(s.Size().PointerCount):]
	binary.LittleEndian.PutUint64(pointers, 1<<35|1<<20|1) // a list far behind
	return nil
}

func TestASinkThatWasDroppedAnswersAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sink := newEventSink(testSession, 0)
	ref := rpc.NewLocal(sink)
	defer ref.Release()
	deliver := func(method uint16) *rpc.Promise {
		return ref.Call(ctx, rpc.Method{Interface: wire.EventSink_TypeID, ID: method}, structSize(0, 1), nil)
	}
	calls := []*rpc.Promise{deliver(sinkEvents), deliver(sinkEnded), ref.Call(ctx, rpc.Method{Interface: wire.EventSink_TypeID, ID: sinkEvents}, structSize(0, 1), malformed), deliver(sinkEvents)}
	d, err := sink.next(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.done()
	if d, err := sink.next(ctx, nil, nil); err != nil || !errors.Is(d.ended, fault.Draining) {
		t.Errorf("an end without a reason: %v, %v", d.ended, err)
	}
	if _, err := sink.next(ctx, nil, nil); !errors.Is(err, fault.Incompatible) {
		t.Errorf("events that cannot be read: %v", err)
	}
	sink.drop()
	calls = append(calls, deliver(sinkEvents), deliver(sinkEnded))
	for i, call := range calls {
		select {
		case <-call.Done():
		case <-ctx.Done():
			t.Errorf("call %d is not answered", i+1)
		}
		call.Release()
	}
}

// TestASnapshotIsWhole: its last piece has come, is of the cursor that was answered, and
// all of it could be read.
func TestASnapshotIsWhole(t *testing.T) {
	t.Parallel()
	type piece struct {
		cursor    uint64
		last, bad bool
	}
	for name, tc := range map[string]struct {
		pieces []piece
		want   error
	}{
		"whole":               {[]piece{{7, false, false}, {7, true, false}}, nil},
		"pieces out of order": {[]piece{{7, true, false}, {7, false, false}}, nil},
		"nothing":             {nil, fault.Disconnected},
		"without the last":    {[]piece{{7, false, false}}, fault.Disconnected},
		"of another cursor":   {[]piece{{8, true, false}}, fault.Disconnected},
		"one cannot be read":  {[]piece{{7, false, true}, {7, true, false}}, fault.Incompatible},
	} {
		sink := &snapshotSink{session: testSession}
		ref := rpc.NewLocal(sink)
		for _, piece := range tc.pieces {
			p := ref.Call(t.Context(), rpc.Method{Interface: wire.EventSink_TypeID, ID: sinkState}, structSize(2, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
				state := wire.EventSink_state_Params(s)
				state.SetCursor(piece.cursor)
				state.SetLast(piece.last)
				if piece.bad {
					return malformed(s, nil)
				}
				return nil
			})
			if _, _, err := p.Wait(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			p.Release()
		}
		ref.Release()
		if err := asFault(sink.finish(7)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoEventIsLeftOut: neither before the first one that comes nor after it; but a
// ref that shows the log from a later cursor on begins there.
func TestNoEventIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after, from uint64
		cursors     []uint64
		whole       bool
	}{
		"from the start":               {0, 0, []uint64{1, 2, 3}, true},
		"after a cursor":               {4, 0, []uint64{5, 6}, true},
		"the first one missing":        {0, 0, []uint64{2, 3}, false},
		"one after the cursor missing": {4, 0, []uint64{6, 7}, false},
		"one in the middle missing":    {0, 0, []uint64{1, 3}, false},
		"from where the ref shows":     {0, 7, []uint64{7, 8}, true},
		"after that":                   {9, 7, []uint64{10, 11}, true},
		"from later than that":         {0, 7, []uint64{8}, false},
		"seen before":                  {4, 0, []uint64{3, 4, 5}, true},
	} {
		sub := &subscription{session: &Session{client: linkClient(t, Config{})}, position: Position{Cursor: tc.after}}
		var got []uint64
		sub.handle = func(e Event) error { got = append(got, e.Cursor); return nil }
		var events []Event
		for _, c := range tc.cursors {
			events = append(events, Event{Cursor: c})
		}
		err := sub.handleEvents(t.Context(), events, func(context.Context) (uint64, error) { return tc.from, nil })
		if (err == nil) != tc.whole || err != nil && fault.CodeOf(err) != fault.Disconnected {
			t.Errorf("%s: %v", name, err)
		}
		for i, c := range got {
			if i > 0 && c != got[i-1]+1 {
				t.Errorf("%s: handled %v", name, got)
			}
		}
	}
	sub := &subscription{session: &Session{client: linkClient(t, Config{})}}
	sub.handle = func(Event) error { return nil }
	if err := sub.handleEvents(t.Context(), []Event{{Session: testSession, Cursor: 9, Hidden: true}, {Cursor: 10}}, nil); err != nil {
		t.Errorf("a mark stands for what is not shown: %v", err)
	}
}

// TestNothingIsHandledAfterTheEnd: neither what has come already, when ctx ends, nor
// after Close.
func TestNothingIsHandledAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{false, true} {
		c := linkClient(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		sub := &subscription{session: &Session{client: c}}
		n := 0
		sub.handle = func(e Event) error {
			if n++; e.Cursor == 2 && closing {
				c.stop() // ctx hears of it a moment later
			} else if e.Cursor == 2 {
				cancel()
			}
			return nil
		}
		err := sub.handleEvents(ctx, []Event{{Cursor: 1}, {Cursor: 2}, {Cursor: 3}}, nil)
		if n != 2 || !errors.Is(err, fault.Canceled) {
			t.Errorf("handled %d events, %v", n, err)
		}
		cancel()
	}
	sink := newEventSink(testSession, 0)
	ref := rpc.NewLocal(sink)
	defer ref.Release()
	call := ref.Call(t.Context(), rpc.Method{Interface: wire.EventSink_TypeID, ID: sinkEvents}, structSize(0, 1), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sink.next(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a delivery that was there: %v", err)
	}
	sink.drop()
	<-call.Done()
	call.Release()
}

// TestAcksWaitForOneAnother while the window has room for more, and no longer.
func TestAcksWaitForOneAnother(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		window uint32
		bytes  int
		waits  []bool
	}{
		{0, maxUnacked/2 + 1, []bool{true, false, true, false}},
		{0, maxUnacked, []bool{false, false}},
		{1 << 20, maxUnacked / 4, []bool{true, true, true, false, true}},
		{4 << 10, 1000, []bool{true, false, true, false}},
		{1, 1, []bool{false, false}},
	} {
		k := newEventSink(testSession, tc.window)
		for i, want := range tc.waits {
			if got := k.mayWait(tc.bytes); got != want {
				t.Errorf("a window of %d, ack %d of %d bytes may wait: %v", tc.window, i+1, tc.bytes, got)
			}
		}
	}
}
