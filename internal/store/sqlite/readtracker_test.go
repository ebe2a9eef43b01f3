package sqlite

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// TestDrain: reads that come wait for those that run, for each of them once and for so long at most.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, never := newReadTracker(), make(chan struct{})
		begin := func() *generation {
			g, err := r.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		drain := func(stop <-chan struct{}) (ok bool, took time.Duration) {
			began := time.Now()
			ok = r.drain(time.Second, stop)
			return ok, time.Since(began)
		}
		if ok, took := drain(never); !ok || took != 0 {
			t.Errorf("without reads: %v after %v", ok, took)
		}
		late, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		if _, err := r.begin(late); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a read that waits for too long: %v", err)
		}
		began := make(chan time.Time)
		wait := func() {
			go func() {
				r.end(begin())
				began <- time.Now()
			}()
			synctest.Wait()
		}
		wait()
		time.Sleep(time.Millisecond)
		at := time.Now()
		r.resume()
		if got := <-began; got != at {
			t.Errorf("a read began at %v, not with resume at %v", got, at)
		}

		short := begin()
		time.AfterFunc(300*time.Millisecond, func() { r.end(short) })
		if ok, took := drain(never); !ok || took != 300*time.Millisecond {
			t.Errorf("a short read: %v after %v", ok, took)
		}
		r.resume()

		first, last := begin(), begin()
		time.AfterFunc(100*time.Millisecond, func() { r.end(first) })
		time.AfterFunc(200*time.Millisecond, func() { r.end(last) })
		if ok, took := drain(never); !ok || took != 200*time.Millisecond {
			t.Errorf("two reads: %v after %v", ok, took)
		}
		r.resume()

		long := begin()
		time.AfterFunc(500*time.Millisecond, wait)
		at = time.Now()
		if ok, took := drain(never); ok || took != time.Second {
			t.Errorf("a long read: %v after %v", ok, took)
		}
		if got := (<-began).Sub(at); got != time.Second {
			t.Errorf("another began after %v", got)
		}
		if ok, took := drain(never); ok || took != 0 {
			t.Errorf("the long read again: %v after %v", ok, took)
		}
		other := begin()
		r.end(long)
		time.AfterFunc(time.Millisecond, func() { r.end(other) })
		if ok, took := drain(never); !ok || took != time.Millisecond {
			t.Errorf("after the long read: %v after %v", ok, took)
		}
		r.resume()

		defer r.end(begin())
		stop := make(chan struct{})
		time.AfterFunc(time.Millisecond, func() { close(stop) })
		if ok, took := drain(stop); ok || took != time.Millisecond {
			t.Errorf("stopped: %v after %v", ok, took)
		}
		r.end(begin())
	})
}
