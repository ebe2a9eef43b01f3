package gctune

import "testing"

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
	t.Parallel()
	const mega = 1 << 20
	p := pace{total: 8 << 30}
	is := defaultPercent
	for _, step := range []struct {
		what                          string
		allocates, collections, lives uint64 // MiB more, more, MiB
		want                          int
	}{
		{"it rests", 1, 1, 3, defaultPercent},
		{"it is busy", 100, 3, 4, maxPercent},
		{"no collection since", 100, 0, 4, maxPercent},
		{"a little more lives", 100, 1, 7, maxPercent},
		{"more lives", 100, 1, 40, defaultPercent},
		{"no collection since that", 100, 0, 40, defaultPercent},
		{"still more", 100, 2, 80, defaultPercent},
		{"as much", 100, 1, 81, 246}, // and 23 MiB of stacks
		{"little again", 300, 1, 5, maxPercent},
		{"more than garbage has room for", 600, 1, 500, defaultPercent},
		{"which goes on to live", 600, 1, 500, defaultPercent},
		{"little again", 300, 1, 5, maxPercent},
		{"it rests", 7, 0, 5, defaultPercent},
	} {
		is = p.decide(gcStats{p.allocated + step.allocates*mega, p.cycles + step.collections, step.lives * mega, 23 * mega}, is)
		if is != step.want {
			t.Errorf("%s: it collects at %d%%, want %d%%", step.what, is, step.want)
			is = step.want
		}
	}
}
