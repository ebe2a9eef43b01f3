// Package humantime says lengths of time as people do.
package humantime

import (
	"fmt"
	"time"
)

// Duration is about how long d is, in the largest unit of which it has two or more, or one
// of the smallest: "22 hours", "90 seconds".
func Duration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		long time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if d+time.Second >= 2*unit.long {
			return fmt.Sprintf("%d %ss", d.Round(unit.long)/unit.long, unit.name)
		}
	}
	switch n := d / time.Second; {
	case n < 1:
		return "less than a second"
	case n == 1:
		return "1 second"
	default:
		return fmt.Sprintf("%d seconds", n)
	}
}
