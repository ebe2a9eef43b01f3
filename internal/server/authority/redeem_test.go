package authority

import (
	"testing"
	"time"
)

// What a connection can make a server keep is bounded: the oldest challenge goes.
func TestOldestChallengeIsForgotten(t *testing.T) {
	t.Parallel()
	var cs Challenges
	now := time.Now()
	first, second := cs.Issue(now), cs.Issue(now)
	for range maxOpenChallenges - 1 {
		cs.Issue(now)
	}
	if cs.consume(first, now) || !cs.consume(second, now) || cs.consume(second, now) || len(cs.open) != maxOpenChallenges-1 {
		t.Errorf("%d are open", len(cs.open))
	}
}
