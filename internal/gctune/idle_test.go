package gctune

import (
	"runtime"
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
