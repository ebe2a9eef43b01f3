package acprun

import "testing"

// TestFates has all stages, and what comes back.
func TestFates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stage Stage
		// what becomes of it if the agent's history has not, and has, the message
		lost, found Fate
	}{
		{Claiming, GoOn, GoOn},
		{Taken, GoOn, GoOn},
		{Handing, Unknown, Interrupted},
		{Handed, Unknown, Interrupted},
		{Heard, Interrupted, Interrupted},
		{Done, Nothing, Nothing},
		{"of a newer version", Unknown, Unknown},
	} {
		if got := FateOf(c.stage, false); got != c.lost {
			t.Errorf("%s: %d", c.stage, got)
		}
		if got := FateOf(c.stage, true); got != c.found {
			t.Errorf("%s, found: %d", c.stage, got)
		}
	}
}
