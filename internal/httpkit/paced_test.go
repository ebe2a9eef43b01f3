package httpkit

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// timedWriter is an answer whose reader takes each write after a while, or at the deadline not at all.
type timedWriter struct {
	header   http.Header
	took     time.Duration
	deadline time.Time
	sizes    []int
	flushes  int
}

func (w *timedWriter) Header() http.Header                { return w.header }
func (w *timedWriter) WriteHeader(int)                    {}
func (w *timedWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }
func (w *timedWriter) FlushError() error                  { w.flushes++; return nil }

func (w *timedWriter) Write(b []byte) (int, error) {
	if left := time.Until(w.deadline); left < w.took {
		time.Sleep(left)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(w.took)
	w.sizes = append(w.sizes, len(b))
	return len(b), nil
}

// TestEachPieceHasItsTime writes an answer whose reader just keeps up, and one whose reader does not.
func TestEachPieceHasItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &timedWriter{took: time.Second}
		w := NewPacedWriter(to, Pace{PieceBytes: 10, PieceTime: time.Second})
		if w.Started() {
			t.Error("nothing was written, and the answer is started")
		}
		if w.WriteHeader(200); time.Until(to.deadline) != time.Second || !w.Started() {
			t.Errorf("the head has until %v", to.deadline)
		}
		if n, err := w.Write(make([]byte, 25)); n != 25 || err != nil || !slices.Equal(to.sizes, []int{10, 10, 5}) {
			t.Errorf("%d bytes were written, %v, in %v", n, err, to.sizes)
		}
		if err := w.Flush(); err != nil || to.flushes != 1 || !w.Started() {
			t.Errorf("%d flushes, %v", to.flushes, err)
		}
		to.took += time.Millisecond
		if n, err := w.Write(make([]byte, 25)); n != 0 || !errors.Is(err, fault.Canceled) {
			t.Errorf("a reader who is too slow took %d bytes: %v", n, err)
		}
		if err := w.WriteUntil(make([]byte, 25), time.Now().Add(to.took)); err != nil {
			t.Errorf("a reader with a deadline of its own: %v", err)
		}
	})
}

// TestPieceWithoutSize writes under a pace whose pieces have no size: each has a byte.
func TestPieceWithoutSize(t *testing.T) {
	t.Parallel()
	to := &timedWriter{}
	w := NewPacedWriter(to, Pace{PieceTime: time.Minute})
	if n, err := w.Write(make([]byte, 3)); n != 3 || err != nil || !slices.Equal(to.sizes, []int{1, 1, 1}) {
		t.Errorf("%d bytes were written, %v, in %v", n, err, to.sizes)
	}
}

// TestTheWholeHasItsTime writes pieces that each come in time, to a reader whose rate is too low for the whole.
func TestTheWholeHasItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := NewPacedWriter(&timedWriter{took: 3 * time.Second}, Pace{PieceBytes: 100, PieceTime: 4 * time.Second, MinRate: 100})
		if n, err := w.Write(make([]byte, 10_000)); n != 300 || err == nil || time.Since(began) != 11*time.Second {
			t.Errorf("%d bytes in %v, then %v", n, time.Since(began), err) // two PieceTimes and a second for each 100 bytes
		}
	})
}
