package objects

import (
	"testing"
	"time"
)

// What a connection can make a server keep is bounded: the oldest challenge goes.
func TestOldestChallengeIsForgotten(t *testing.T) {
	t.Parallel()
	var cs challenges
	now := time.Now()
	first, second := cs.issue(now), cs.issue(now)
	for range maxOpenChallenges - 1 {
		cs.issue(now)
	}
	if cs.consume(first, now) || !cs.consume(second, now) || cs.consume(second, now) || len(cs.open) != maxOpenChallenges-1 {
		t.Errorf("%d are open", len(cs.open))
	}
}
