//go:build soak

// The soak: wild peers by the ten thousand. "make fuzz" runs it, "make fuzz-peers" for some seconds, or
//
//	go test -tags soak -run SoakPeers -timeout 0 ./capnweb -messages 5000000

package capnweb

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/seed"
)

var (
	soakMessages = flag.Int("messages", 5_000_000, "how many messages the soak says at least")
	soakTime     = flag.Duration("for", 0, "how long the soak runs; 0 is until all messages are said")
)

// soakHeap is how much the memory in use may grow over a soak.
const soakHeap = 8 << 20

func heapInUse() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestSoakPeers lets wild peers loose, half of them hostile, on connections of a hundred to a hundred thousand messages,
// and fails with the seed of the first that goes wrong: a panic, a hang, a table that is not empty, an object that is not
// released, a goroutine left or memory that grows.
func TestSoakPeers(t *testing.T) {
	seed := seed.Of(t)
	run := func(n uint64) int {
		messages := 200
		switch {
		case n%512 == 511:
			messages = 100_000
		case n%32 == 31:
			messages = 5000
		}
		hostile := 0
		if n%2 == 0 {
			hostile = 100
		}
		return wildRun(t, randomDice{rand.New(rand.NewPCG(seed, n))}, hostile, messages, wildLimits())
	}
	for n := range uint64(600) {
		run(n)
	}
	before, routines := heapInUse(), runtime.NumGoroutine()
	var mu sync.Mutex
	next, said, connections := uint64(600), 0, 0
	began, shown := time.Now(), time.Now()
	enough := func() bool {
		if *soakTime > 0 {
			return time.Since(began) > *soakTime
		}
		return said >= *soakMessages
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for {
				mu.Lock()
				if enough() || t.Failed() {
					mu.Unlock()
					return
				}
				n := next
				next++
				if time.Since(shown) > 10*time.Second {
					shown = time.Now()
					t.Logf("%d messages on %d connections", said, connections)
				}
				mu.Unlock()
				watch := time.AfterFunc(2*time.Minute, func() { panic("a connection hangs") })
				k := run(n)
				watch.Stop()
				if t.Failed() {
					t.Errorf("seed %d, connection %d", seed, n)
				}
				mu.Lock()
				said += k
				connections++
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	after := heapInUse()
	t.Logf("%d messages on %d connections in %v; heap %d KiB before, %d KiB after; %d goroutines before, %d after", said,
		connections, time.Since(began).Round(time.Second), before>>10, after>>10, routines, runtime.NumGoroutine())
	if after > before+soakHeap {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	if n := runtime.NumGoroutine(); n > routines+2 {
		t.Errorf("%d goroutines became %d", routines, n)
	}
}
