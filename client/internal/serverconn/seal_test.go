package serverconn

import "testing"

// A server keeps a bounded number of challenges, so no more are asked for at once.
func TestManyProofsTakeTurns(t *testing.T) {
	t.Parallel()
	var q challengeQueue
	var running, most, done int
	var overs []func()
	for range 3 * maxChallenges {
		q.start(func() {
			running++
			most = max(most, running)
			overs = append(overs, func() { running--; done++; q.finish() })
		})
	}
	for len(overs) > 0 {
		next := overs[0]
		overs = overs[1:]
		next()
	}
	if most != maxChallenges || done != 3*maxChallenges || q.running != 0 {
		t.Errorf("%d at once, %d done, %d never over", most, done, q.running)
	}
}
