//go:build soak

// The soak: wild peers by the hundred thousand. "make fuzz" runs it, or
//
//	go test -tags soak -run HostilePeers -timeout 0 ./rpc -messages 5000000 -connections 200000

package rpc

import (
	"flag"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/seed"
)

var (
	soakMessages    = flag.Uint64("messages", 5_000_000, "how many messages the soak has processed at least")
	soakConnections = flag.Uint64("connections", 200_000, "on how many connections, at least")
	soakTime        = flag.Duration("for", 0, "how long the soak runs; 0 is until all messages are processed")
)

// soakHeap is how much the memory in use may grow over a soak.
const soakHeap = 8 << 20

// soakTotals are counted by two workers.
type soakTotals struct {
	mu                                          sync.Mutex
	next, connections, messages, client, thread uint64
	lies, aborted                               uint64
}

// TestHostilePeers runs connections of wild peers, one in 16 with goroutines and a transport, half of them as servers,
// and fails with the seed of the first that goes wrong.
func TestHostilePeers(t *testing.T) {
	seed := seed.Of(t)
	for i := range uint64(200) { // pools, tables of the runtime
		if _, err := runWild(seed-1-i, i%16 == 15); err != nil {
			t.Fatalf("seed %d: %v", seed-1-i, err)
		}
	}
	before, routines := heap(), runtime.NumGoroutine()
	var s soakTotals
	began, shown := time.Now(), time.Now()
	enough := func() bool {
		if *soakTime > 0 {
			return time.Since(began) > *soakTime
		}
		return s.messages >= *soakMessages && s.connections >= *soakConnections
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for {
				s.mu.Lock()
				if enough() || t.Failed() {
					s.mu.Unlock()
					return
				}
				i := s.next
				s.next++
				s.mu.Unlock()
				threads := i%16 == 15
				w, err := runWild(seed+i, threads)
				if err != nil {
					t.Errorf("%v\nSEED=%d -run WildPeers -peers 1 -threads=%v is the same again", err, seed+i, threads)
					return
				}
				s.mu.Lock()
				s.add(w)
				if time.Since(shown) > 5*time.Second {
					shown = time.Now()
					s.show(t, time.Since(began))
				}
				s.mu.Unlock()
			}
		})
	}
	workers.Wait()
	s.show(t, time.Since(began))
	for end := time.Now().Add(testDeadline); runtime.NumGoroutine() > routines && time.Now().Before(end); {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > routines {
		t.Errorf("%d goroutines, %d before", n, routines)
	}
	grown := int64(heap()) - int64(before)
	t.Logf("memory in use: %+d bytes over %d connections", grown, s.connections)
	if grown > soakHeap {
		t.Errorf("memory in use has grown by %d bytes", grown)
	}
}

func (s *soakTotals) add(w *wild) {
	s.connections++
	s.messages += w.c.Stats().MessagesIn
	if w.client {
		s.client++
	}
	if w.p.threads {
		s.thread++
	}
	if w.lies > 0 {
		s.lies++
	}
	if w.c.loop.Ending().Abort != nil {
		s.aborted++
	}
}

func (s *soakTotals) show(t *testing.T, d time.Duration) {
	t.Logf("%v: %d messages processed (%.0f a second) on %d connections: %d with us as the client, "+
		"%d with goroutines, %d with lies, %d aborted", d.Round(time.Second), s.messages, float64(s.messages)/d.Seconds(), s.connections,
		s.client, s.thread, s.lies, s.aborted)
}
