package heap

import (
	"runtime"
	"testing"
)

// Memory is given back when a busy time is over, not in the middle of it, and not over and over. Nothing else may run.
func TestMemoryIsGivenBackAtRest(t *testing.T) {
	r := rest{before: read(allocs)}
	r.look() // what other tests have left
	var keep []byte
	for _, step := range []struct {
		what     string
		allocate int
		collects bool
	}{
		{"busy", 2 * restingBytes, false},
		{"at rest", 0, true},
		{"at rest still", 0, false},
		{"a little garbage", garbageBytes / 2, false},
		{"more of it", garbageBytes, true},
	} {
		keep = make([]byte, step.allocate)
		before := forced()
		r.look()
		if got := forced() > before; got != step.collects {
			t.Errorf("%s: collected is %v", step.what, got)
		}
	}
	runtime.KeepAlive(keep)
}
