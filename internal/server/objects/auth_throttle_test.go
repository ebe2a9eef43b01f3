//go:build unix

package objects

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
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

// try is authThrottle.answer without a connection to end.
func (k *answerLog) try(w *authThrottle, address string, conn peerConn, name string) (over bool) {
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
func (w *authThrottle) kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.buckets)
}

// waitingFor is how many answers wait for an address.
func (w *authThrottle) waitingFor(address string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.buckets[address].waiting)
}

func TestWrongTriesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var met limitHits
		w := newAuthThrottle(2, time.Second, &met)
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
		if n := met.count(limitWrongTries); n != 4 {
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
func TestWrongTriesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAuthThrottle(1, time.Second, new(limitHits))
		k := &answerLog{began: time.Now()}
		gone, stays := rpc.NewConn(pipeEnd(), rpc.Config{}), rpc.NewConn(pipeEnd(), rpc.Config{})
		address := addressOf(gone.RemoteAddr())
		for i := range 1 + maxDelayedReplies {
			if k.try(w, address, gone, fmt.Sprint(i)) {
				t.Fatalf("try %d is too many", i)
			}
		}
		if !k.try(w, address, gone, "too many") || w.waitingFor(address) != maxDelayedReplies {
			t.Error("there is no bound")
		}
		w.dropConn(gone)
		if n := w.waitingFor(address); n != 0 || !k.try(w, address, stays, "too many") {
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
func TestWrongTriesUnderOtherLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAuthThrottle(1, time.Second, new(limitHits))
		k := &answerLog{began: time.Now()}
		k.try(w, "a", nil, "0")
		k.try(w, "a", nil, "1")
		w.setLimits(4, time.Minute)
		k.try(w, "a", nil, "2")
		for i := range 5 {
			k.try(w, "b", nil, fmt.Sprint("b", i))
		}
		time.Sleep(time.Hour)
		k.want(t, "0 0s", "2 0s", "b0 0s", "b1 0s", "b2 0s", "b3 0s", "1 1s", "b4 1m0s")
		w.close()
	})
}

// A server that stops keeps nobody waiting.
func TestWrongTriesAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newAuthThrottle(1, time.Hour, new(limitHits))
		k := &answerLog{began: time.Now()}
		k.try(w, "a", nil, "0")
		k.try(w, "a", nil, "1")
		k.try(w, "a", nil, "2")
		w.close()
		k.try(w, "a", nil, "3")
		k.want(t, "0 0s", "1 0s", "2 0s", "3 0s")
	})
}

func pipeEnd() rpc.Transport {
	a, _ := rpc.Pipe()
	return a
}

// From outside, over sockets: who guesses is slow, and then cut off; who has the
// right secret, at the same address and in the same moment, is not held up.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := startOn(t, sqliteStore(t), func(c *Config) { c.WrongTries, c.WrongTryInterval = 10, time.Hour }, ln)
	dial := func() *peer {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return newPeer(t, rpc.NewStreamTransport(c))
	}
	guesser, other := dial(), dial()
	forged := r.owner.With(r.owner.ID, capability.NewSecret())
	for range 10 {
		wantCode(t, "one of the first", guesser.restoreErr(forged, ""), fault.UnknownRef)
	}
	var guesses []*rpc.Promise
	for range 10 {
		guesses = append(guesses, guesser.restoring(forged, ""))
	}
	// The guesser's own calls that are right are answered too, behind guesses that wait.
	for _, p := range []*peer{guesser, other} {
		if err := p.restoreErr(r.owner, "x"); err != nil {
			t.Errorf("the right secret: %v", err)
		}
	}
	// Restores are answered in no order: the last guesses may still be looked up.
	until.True(t, "ten answers wait", func() bool { return r.server.limitHits.count(limitWrongTries) == 10 })
	for i, p := range guesses {
		select {
		case <-p.Done():
			t.Errorf("guess %d is answered", i)
		default:
		}
	}
	for range 100 {
		guesses = append(guesses, guesser.restoring(forged, ""))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, p := range guesses {
		if _, _, err := p.Wait(ctx); !rpc.IsDisconnected(err) {
			t.Fatalf("a guess ends with %v", err)
		}
	}
	if err := other.restoreErr(r.owner, "y"); err != nil {
		t.Errorf("the right secret, after it: %v", err)
	}
}
