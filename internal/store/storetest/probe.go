package storetest

import (
	"sync"
	"testing"
)

// testProbe: probes succeed, of any size, again and again, and of several at once.
func testProbe(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for _, bytes := range []int{0, 1 << 20, 1, 0} {
				if err := f.Probe(f.ctx, bytes); err != nil {
					t.Errorf("a probe of %d bytes: %v", bytes, err)
				}
			}
		})
	}
	all.Wait()
}
