package gctune

import (
	"runtime"
	"sync"
	"testing"
)

// Memory is given back when a busy time is over, not in the middle of it, and not over and over. Nothing else may run.
func TestMemoryIsGivenBackAtRest(t *testing.T) {
	r := idle{before: read(allocs)}
	r.collectIfIdle() // what other tests have left
	var keep []byte
	for _, step := range []struct {
		what     string
		allocate int
		collects bool
	}{
		{"busy", 2 * maxIdleBytes, false},
		{"at rest", 0, true},
		{"at rest still", 0, false},
		{"a little garbage", minGarbageBytes / 2, false},
		{"more of it", minGarbageBytes, true},
	} {
		keep = make([]byte, step.allocate)
		before := forced()
		r.collectIfIdle()
		if got := forced() > before; got != step.collects {
			t.Errorf("%s: collected is %v", step.what, got)
		}
	}
	runtime.KeepAlive(keep)
}

// Stacks that were large are small in the end, though one collection only halves them.
func TestStacksAreGivenBackAtRest(t *testing.T) {
	const goroutines = 1000
	r := idle{before: read(allocs)}
	r.collectIfIdle()
	before := read(stacksInUse)
	stop, deep, ended := make(chan struct{}), sync.WaitGroup{}, sync.WaitGroup{}
	for range goroutines {
		deep.Add(1)
		ended.Go(func() {
			deepen(60)
			deep.Done()
			<-stop
		})
	}
	deep.Wait()
	if grown := (read(stacksInUse) - before) / goroutines; grown < 16<<10 {
		t.Errorf("they have %d bytes each", grown)
	}
	keep := make([]byte, minGarbageBytes)
	runtime.KeepAlive(keep)
	for range 5 {
		r.collectIfIdle()
	}
	if left := (read(stacksInUse) - before) / goroutines; left > 5<<10 {
		t.Errorf("they keep %d bytes each", left)
	}
	close(stop)
	ended.Wait()
}

// deepen uses n times 256 bytes of the stack, and more.
//
//go:noinline
func deepen(n int) byte {
	var b [256]byte
	if n > 0 {
		b[n] = deepen(n - 1)
	}
	return b[n]
}
