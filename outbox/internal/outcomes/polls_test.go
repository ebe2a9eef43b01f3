package outcomes

import (
	"runtime"
	"strconv"
	"testing"
)

// TestOnePollForAllWhoWait: callers that come while a poll is under way share the next one.
func TestOnePollForAllWhoWait(t *testing.T) {
	t.Parallel()
	const askers = 64
	reads := 0
	l := Polls{busy: true, Read: func(batches map[string]struct{}) (map[string]struct{}, error) {
		if reads++; len(batches) != askers {
			t.Errorf("%d batches in a poll", len(batches))
		}
		return map[string]struct{}{"5": {}}, nil
	}}
	answers := make(chan bool, askers)
	for i := range askers {
		go func() {
			waits, err := l.StillWaiting(t.Context(), t.Context(), strconv.Itoa(i))
			if err != nil || waits != (i == 5) {
				t.Errorf("%d waits: %t, %v", i, waits, err)
			}
			answers <- waits
		}()
	}
	for all := false; !all; runtime.Gosched() {
		l.mu.Lock()
		all = l.next != nil && len(l.next.batches) == askers
		l.mu.Unlock()
	}
	l.run()
	for range askers {
		<-answers
	}
	if reads != 1 || l.busy {
		t.Errorf("%d polls, and another is under way: %t", reads, l.busy)
	}
}
