package heap

import (
	"runtime"
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

func TestPace(t *testing.T) {
	asUsual(t)
	p := pace{total: 8 << 30}
	var kept [][]byte
	for _, step := range []struct {
		what     string
		keep     int // bytes more; below 0: nothing any more
		collects bool
		more     bool // than usual
	}{
		{"little lives", 0, true, true},
		{"more lives, which nobody has seen yet", 16 * growth, false, true},
		{"more was seen to live", 0, true, false},
		{"no collection since", 0, false, false},
		{"as much lives as before", 0, true, true},
		{"a little more lives", growth / 2, true, true},
		{"so much lives that its garbage is not little", room, true, false},
		{"and goes on to live", 0, true, false},
		{"little lives again", -1, true, true},
	} {
		switch {
		case step.keep > 0:
			kept = append(kept, make([]byte, step.keep))
		case step.keep < 0:
			kept = nil
		}
		if step.collects {
			runtime.GC()
		} else if step.keep > 0 {
			p.cycles = read(cycles) // to make it may have had one
		}
		p.look()
		if got := read(percent); got > usual != step.more {
			t.Errorf("%s: with %d KiB that live it collects at %d%%", step.what, read(live)>>10, got)
		}
	}
	runtime.KeepAlive(kept)
}
