package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestPercentOf(t *testing.T) {
	t.Parallel()
	const mega, giga = 1 << 20, 1 << 30
	for _, c := range []struct {
		live, total uint64
		want        int
	}{
		{0, 8 * giga, 400},
		{10 * mega, 8 * giga, 400},
		{64 * mega, 8 * giga, 400},
		{128 * mega, 8 * giga, 200},
		{256 * mega, 8 * giga, 100},
		{20 * giga, 64 * giga, 100},
		{64 * mega, giga, 200},       // an eighth of what there is
		{20 * mega, 128 * mega, 100}, // a small container: as ever
		{mega, 0, 100},               // not known
	} {
		if got := percentOf(c.live, c.total); got != c.want {
			t.Errorf("%d MiB live of %d: %d%%, want %d%%", c.live/mega, c.total/mega, got, c.want)
		}
	}
}

// paced runs Pace until it has looked once, and gives what it came to.
func paced(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Pace(ctx)
	return int(read(percent))
}

// TestPace sets what the whole process has: nothing may run beside it.
func TestPace(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(usual) })
	t.Setenv("GOGC", "")
	runtime.GC()
	if got := paced(t); got <= usual {
		t.Errorf("with %d KiB that live it collects at %d%%", read(live)>>10, got)
	}
	kept := make([]byte, room)
	runtime.GC()
	if got := paced(t); got != usual {
		t.Errorf("with %d MiB that live it collects at %d%%", read(live)>>20, got)
	}
	runtime.KeepAlive(kept)
	kept = nil
	runtime.GC()
	if got := paced(t); got <= usual {
		t.Errorf("with %d KiB that live again it collects at %d%%", read(live)>>10, got)
	}
	debug.SetGCPercent(50)
	t.Setenv("GOGC", "50")
	if got := paced(t); got != 50 {
		t.Errorf("it collects at %d%% where GOGC says 50", got)
	}
}
