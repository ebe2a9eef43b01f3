package cli

import (
	"testing"
	"time"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"7d": 7 * day, "2w": 14 * day, "1w2d3h4m": 9*day + 3*time.Hour + 4*time.Minute, "1.5d": 36 * time.Hour, "90s": 90 * time.Second, "24h": day, "0": 0, "-2s": -2 * time.Second,
	} {
		var s durationFlag
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(s), err)
		}
	}
	for _, text := range []string{"", "d", "7", "7x", "1d2", "3h2d", "-7d", "1e9d", "99999999999w", "1..5d", "tomorrow"} {
		var s durationFlag
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %v", text, time.Duration(s))
		}
	}
}
