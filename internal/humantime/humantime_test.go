package humantime_test

import (
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/humantime"
)

func TestLong(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "less than a second", -time.Hour: "less than a second", 999 * time.Millisecond: "less than a second",
		time.Second: "1 second", 118 * time.Second: "118 seconds", 24*time.Hour - time.Second: "24 hours", 48*time.Hour - time.Millisecond: "2 days", 2 * time.Minute: "2 minutes", 119 * time.Minute: "119 minutes",
		79202330 * time.Millisecond: "22 hours", 47 * time.Hour: "47 hours", 48 * time.Hour: "2 days", 365 * 24 * time.Hour: "365 days",
	} {
		if got := humantime.Duration(d); got != want {
			t.Errorf("%v is said as %q, want %q", d, got, want)
		}
	}
}
