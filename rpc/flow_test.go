package rpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A callee that does not answer stops its flow at the window, and nothing else on the connection.
func TestFlowStopsAtItsWindow(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		const window, payload, calls = 10_000, 1000, 50
		f := NewFlow(boot, window)
		var sent atomic.Int64
		streamed := make(chan error, 1)
		go func() {
			for i := range uint64(calls) {
				if err := f.Call(ctx, mHold, testSize, fill(i, strings.Repeat("x", payload), nil)); err != nil {
					streamed <- err
					return
				}
				sent.Add(1)
			}
			streamed <- f.Wait(ctx)
		}()
		var held []*Call
		hold := func() {
			select {
			case c := <-v.bObj.holding:
				held = append(held, c)
			case <-ctx.Done():
				t.Fatalf("%d calls came", len(held))
			}
		}
		for range window / (payload + 300) {
			hold()
		}
		for range 10 { // others are served meanwhile
			if _, p, err := ask(t, boot, mEcho, 1000, "", nil); err != nil {
				t.Fatal(err)
			} else {
				p.Release()
			}
		}
		if n := sent.Load(); n > window/payload+1 {
			t.Errorf("%d calls of %d bytes are under way in a window of %d", n, payload, window)
		}
		for answered := 0; answered < calls; answered++ {
			if len(held) == 0 {
				hold()
			}
			held[0].Return(testSize, nil)
			held = held[1:]
		}
		if err := <-streamed; err != nil {
			t.Error(err)
		}
		var want []uint64
		for i := range uint64(calls) {
			want = append(want, i)
		}
		got := v.bObj.order()
		streamedCalls := got[:0]
		for _, n := range got {
			if n != 1000 {
				streamedCalls = append(streamedCalls, n)
			}
		}
		if len(streamedCalls) != len(want) {
			t.Fatalf("%d calls arrived", len(streamedCalls))
		}
		for i := range want {
			if streamedCalls[i] != want[i] {
				t.Fatalf("call %d arrived as number %d", streamedCalls[i], i)
			}
		}
	})
}

// A caller that gives up waiting at a limit of the connection has made no call, and the flow goes on.
func TestFlowWaitsForTheConnection(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{Questions: 1})
	ctx := testContext(t)
	hold := boot.Call(ctx, mHold, testSize, nil) // when the bootstrap interface has come
	call := <-v.bObj.holding
	f := NewFlow(boot, 0)
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Call(over, mEcho, testSize, fill(1, "", nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("with another call in its way and no time to wait: %v", err)
	}
	call.Return(testSize, nil)
	hold.Release()
	if err := errors.Join(f.Call(ctx, mEcho, testSize, fill(2, "", nil)), f.Wait(ctx)); err != nil {
		t.Error(err)
	}
	if got := v.bObj.order(); !slices.Equal(got, []uint64{0, 2}) {
		t.Errorf("the calls that came: %v", got)
	}
}

// The first call that fails ends the flow with its error; who waits hears of it.
func TestFlowEndsWithAnError(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		f := NewFlow(boot, 1)
		if err := f.Call(ctx, mHold, testSize, nil); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() { waiting <- f.Call(ctx, mEcho, testSize, nil) }()
		select {
		case err := <-waiting:
			t.Fatalf("the window of one call let a second through: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if err := f.Call(short, mEcho, testSize, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		(<-v.bObj.holding).Fail(Failedf("the disk is full"))
		for what, err := range map[string]error{"the call that waited": <-waiting, "a later call": f.Call(ctx, mEcho, testSize, nil),
			"Wait": f.Wait(ctx)} {
			if !IsFailed(err) || !strings.Contains(err.Error(), "the disk is full") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := len(v.bObj.order()); n != 1 {
			t.Errorf("%d calls were made", n)
		}
		// A lost connection is such an error too.
		g := NewFlow(boot, 1)
		if err := g.Call(ctx, mHold, testSize, nil); err != nil {
			t.Fatal(err)
		}
		v.a.Close("gone")
		if err := g.Wait(ctx); !IsDisconnected(err) {
			t.Errorf("after the end of the connection: %v", err)
		}
	})
}
