//go:build unix

package admission

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/rpc"
)

// answerLog notes which answers were given, and when.
type answerLog struct {
	began time.Time
	mu    sync.Mutex
	said  []string
}

func (k *answerLog) answer(name string) func() {
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.said = append(k.said, fmt.Sprintf("%s %v", name, time.Since(k.began)))
	}
}

// try is AuthThrottle.answer without a connection to end.
func (k *answerLog) try(w *AuthThrottle, address string, conn PeerConn, name string) (over bool) {
	give := k.answer(name)
	wait, left := w.reserve(address, conn, give)
	if !wait && left == 0 {
		give()
	}
	return left > 0
}

func (k *answerLog) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.said, want) {
		t.Errorf("said %q, want %q", k.said, want)
	}
	k.said = nil
}

// kept is how many addresses are remembered.
func (w *AuthThrottle) kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.buckets)
}

func TestWrongRefsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hit LimitHits
		w := NewAuthThrottle(2, time.Second, &hit)
		k := &answerLog{began: time.Now()}
		for i := range 5 {
			k.try(w, "a", nil, fmt.Sprint("a", i))
		}
		k.try(w, "b", nil, "b") // another address has a bucket of its own
		k.want(t, "a0 0s", "a1 0s", "b 0s")
		time.Sleep(2500 * time.Millisecond)
		k.try(w, "a", nil, "a5")
		time.Sleep(2 * time.Second)
		k.want(t, "a2 1s", "a3 2s", "a4 3s", "a5 4s")
		if n := hit.Count(limitWrongTries); n != 4 {
			t.Errorf("%d were counted", n)
		}
		// Both are forgotten when their buckets are full, and not before.
		if n := w.kept(); n != 1 {
			t.Errorf("%d addresses are kept", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := w.kept(); n != 0 {
			t.Errorf("%d addresses are kept", n)
		}
	})
}

// What waits is bounded, and what is owed stays owed when the connection that
// owes it has ended.
func TestWrongRefsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewAuthThrottle(1, time.Second, new(LimitHits))
		k := &answerLog{began: time.Now()}
		gone, stays := rpc.NewConn(pipeEnd(), rpc.Config{}), rpc.NewConn(pipeEnd(), rpc.Config{})
		address := AddressOf(gone.RemoteAddr())
		for i := range 1 + maxDelayedReplies {
			if k.try(w, address, gone, fmt.Sprint(i)) {
				t.Fatalf("try %d is too many", i)
			}
		}
		if !k.try(w, address, gone, "too many") || w.Waiting(address) != maxDelayedReplies {
			t.Error("there is no bound")
		}
		w.DropConn(gone)
		if n := w.Waiting(address); n != 0 || !k.try(w, address, stays, "too many") {
			t.Errorf("%d answers wait for a connection that has ended, or what it owed is forgotten", n)
		}
		time.Sleep(2 * time.Second)
		if k.try(w, address, stays, "late") {
			t.Error("nothing was paid")
		}
		time.Sleep(maxDelayedReplies * time.Second)
		k.want(t, "0 0s", "late 1m5s")
		// However many addresses there are, so many are kept.
		w.maxAddresses = 100
		for i := range 2 * w.maxAddresses {
			w.reserve(fmt.Sprint(i), nil, func() {})
		}
		if n := w.kept(); n != w.maxAddresses+1 {
			t.Errorf("%d addresses are kept", n)
		}
		time.Sleep(5 * time.Minute) // what is shared is owed longer
		synctest.Wait()
		if n := w.kept(); n != 0 {
			t.Errorf("%d addresses are kept", n)
		}
	})
}

// Other limits hold for tries from then on.
func TestWrongRefsUnderOtherLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewAuthThrottle(1, time.Second, new(LimitHits))
		k := &answerLog{began: time.Now()}
		k.try(w, "a", nil, "0")
		k.try(w, "a", nil, "1")
		w.SetLimits(4, time.Minute)
		k.try(w, "a", nil, "2")
		for i := range 5 {
			k.try(w, "b", nil, fmt.Sprint("b", i))
		}
		time.Sleep(time.Hour)
		k.want(t, "0 0s", "b0 0s", "b1 0s", "b2 0s", "b3 0s", "1 1s", "b4 1m0s", "2 2m0s")
		w.Close()
	})
}

// A server that stops keeps nobody waiting.
func TestWrongRefsAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewAuthThrottle(1, time.Hour, new(LimitHits))
		k := &answerLog{began: time.Now()}
		k.try(w, "a", nil, "0")
		k.try(w, "a", nil, "1")
		k.try(w, "a", nil, "2")
		w.Close()
		k.try(w, "a", nil, "3")
		k.want(t, "0 0s", "1 0s", "2 0s", "3 0s")
	})
}

func pipeEnd() rpc.Transport {
	a, _ := rpc.Pipe()
	return a
}
