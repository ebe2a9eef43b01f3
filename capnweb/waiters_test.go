package capnweb

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"weak"
)

// Who does not want to be called any more takes no place for long, and the others are called in order.
func TestWaitersAreSwept(t *testing.T) {
	t.Parallel()
	var w waiters[int]
	var over, not atomic.Bool
	over.Store(true)
	for i := range 10_000 {
		switch {
		case i%1000 == 0:
			w.add(i, nil)
		case i%1000 == 1:
			w.add(i, &not)
		default:
			w.add(i, &over)
		}
		if n := len(w.list); n > 2*minSweep+2*20 {
			t.Fatalf("%d wait", n)
		}
	}
	want := 0
	for _, one := range w.drain() {
		if one.canceled == &over {
			continue
		}
		if one.f != want {
			t.Errorf("%d in the place of %d", one.f, want)
		}
		if want++; want%1000 == 2 {
			want += 998
		}
	}
	if want != 10_000 {
		t.Errorf("the last is before %d", want)
	}
}

// A value that failed for one of its promises is not kept by the others, however long they take.
func TestFailedValueIsNotKept(t *testing.T) {
	t.Parallel()
	pending := newFuture()
	value := func() weak.Pointer[Blob] {
		blob := &Blob{Data: make([]byte, 1<<16)}
		p := &payload{}
		pending.ref()
		p.value = []any{addPromise(p, pending), addPromise(p, newError(errors.New("no"))), blob}
		notified := false
		p.whenSettled(func(_ any, err error) {
			notified = err != nil
			p.release()
		}, nil)
		if !notified {
			t.Error("nobody was told")
		}
		return weak.Make(blob)
	}()
	runtime.GC()
	if value.Value() != nil {
		t.Error("it is kept")
	}
	if n := pending.refs.Load(); n != 1 {
		t.Errorf("%d references to the promise that is left", n)
	}
	pending.unref()
}
