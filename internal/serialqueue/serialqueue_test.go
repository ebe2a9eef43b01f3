package serialqueue

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whoever posts, and however often the goroutine comes and goes, all of it runs, in order and one at a time.
func TestLoop(t *testing.T) {
	var l Queue
	const each, rounds = 100, 50
	next := 0 // guarded by nothing but the loop: the race detector watches
	for range rounds {
		done := make(chan struct{})
		for i := range each {
			want := i
			l.Post(func() {
				if next%each != want {
					t.Errorf("%d ran in the place of %d", want, next%each)
				}
				next++
				if want == each-1 {
					close(done)
				}
			})
		}
		<-done
	}
	if next != each*rounds {
		t.Errorf("%d ran", next)
	}
}
