package trickle

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// events are 1, 2, 3 … with payloads of these sizes.
func events(sizes ...int) (all []*session.Event) {
	for i, size := range sizes {
		all = append(all, &session.Event{Cursor: uint64(i + 1), Payload: bytes.Repeat([]byte{byte('a' + i)}, size)})
	}
	return all
}

// fakeReader is a reader who takes the pieces at these times of its own, and in the end at once.
type fakeReader struct {
	Sender
	got   strings.Builder
	waits []time.Duration
	held  func() // called while a piece is not taken
}

func newFakeReader(waits ...time.Duration) *fakeReader {
	r := &fakeReader{waits: waits, held: func() {}}
	r.Render = func(e *session.Event) ([]byte, error) { return fmt.Appendf(nil, "<%d:%s>", e.Cursor, e.Payload), nil }
	r.Write = func(piece []byte, until time.Time) error {
		if len(r.waits) > 0 {
			wait := r.waits[0]
			r.waits = r.waits[1:]
			if wait > time.Until(until) {
				return errTooSlow
			}
			time.Sleep(wait)
			synctest.Wait()
			r.held()
		}
		r.got.Write(piece)
		return nil
	}
	r.Flush = func(time.Time) error { return nil }
	r.MinRateTime, r.MinRateBytes = time.Minute, 3*ChunkBytes
	return r
}

var errTooSlow = errors.New("too slow")

// follow sends what there is after where the reader is, as often as it is wanted again.
func (r *fakeReader) follow(all []*session.Event) (again int, err error) {
	for {
		err = r.Send(all[r.Sent.Cursor:], []byte("."))
		var a objects.Rewind
		if !errors.As(err, &a) {
			return again, err
		}
		if a.After != r.Sent {
			return again, fmt.Errorf("wanted again after %v, and is at %v", a.After, r.Sent)
		}
		again++
	}
}

// However the reader takes it, it gets all, once and in order, and nothing is held for it while it takes nothing.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	const long = 2 * dropAfter
	all := events(10, 3*ChunkBytes, 0, ChunkBytes-4, 7, 5*ChunkBytes, 20)
	want := newFakeReader()
	if _, err := want.follow(all); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		waits []time.Duration
		again int
	}{
		"at once":               {nil, 0},
		"not quite at once":     {[]time.Duration{dropAfter / 2, dropAfter / 2, dropAfter / 2}, 0},
		"the first piece late":  {[]time.Duration{long}, 1},
		"the middle late":       {[]time.Duration{0, 0, long, 0, 0, long}, 2},
		"every piece late":      {[]time.Duration{long, long, long, long, long, long, long, long, long, long, long}, 9},
		"the last piece late":   {[]time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, long}, 0},
		"one piece again, late": {[]time.Duration{0, long, long}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFakeReader(c.waits...)
			r.held = func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.dropped && (r.events != nil || r.rendered != nil) {
					t.Errorf("%s: something is held", what)
				}
			}
			again, err := r.follow(all)
			if err != nil || r.got.String() != want.got.String() || r.Sent.Cursor != 7 || r.Partial() {
				t.Errorf("%s: %v, at %d, %d bytes of %d", what, err, r.Sent.Cursor, r.got.Len(), want.got.Len())
			}
			if again != c.again {
				t.Errorf("%s: wanted again %d times, not %d", what, again, c.again)
			}
		})
	}
}

// An event that was sent in part and has changed since is not gone on with, and nothing else is said meanwhile.
func TestChangedEvent(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func([]byte) []byte{
		"its head":    func(b []byte) []byte { b[0] = 'x'; return b },
		"it is short": func(b []byte) []byte { return b[:10] },
	} {
		synctest.Test(t, func(t *testing.T) {
			r, all := newFakeReader(2*dropAfter), events(3*ChunkBytes)
			if err := r.Send(all, nil); !errors.As(err, new(objects.Rewind)) || !r.Partial() {
				t.Fatalf("%v", err)
			}
			all[0].Payload = change(all[0].Payload)
			if err := r.Send(all, nil); err != errChanged {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// Who is behind has to take so much in a time, however often something is wanted again.
func TestLeastRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := newFakeReader()
		for range 20 {
			slow.waits = append(slow.waits, slow.MinRateTime/2)
		}
		if _, err := slow.follow(events(20 * ChunkBytes)); err != errTooSlow {
			t.Errorf("who takes a piece in half the time of three: %v", err)
		}
		enough := newFakeReader()
		for range 20 {
			enough.waits = append(enough.waits, enough.MinRateTime/4)
		}
		if _, err := enough.follow(events(20 * ChunkBytes)); err != nil {
			t.Errorf("who takes a piece in a quarter of the time of three: %v", err)
		}
	})
}

// What the server needs to read and render is not the reader's time.
func TestOwnTimeIsNotTheReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReader(0, 2*dropAfter)
		render := r.Render
		r.Render = func(e *session.Event) ([]byte, error) {
			time.Sleep(2 * r.MinRateTime)
			return render(e)
		}
		flushed := false
		r.Flush = func(until time.Time) error {
			flushed = time.Until(until) > 0
			return nil
		}
		if _, err := r.follow(events(ChunkBytes/2, ChunkBytes/2, 3*ChunkBytes)); err != nil || !flushed {
			t.Errorf("a reader who takes it at once, of a server that is slow: %v, flushed in time: %t", err, flushed)
		}
	})
}
