// While much is allocated: how seldom garbage is collected.

package gctune

import "runtime/debug"

const (
	defaultPercent = 100       // percent: Go's own
	maxPercent     = 400       // percent: beyond it little is to be gained
	maxGarbage     = 256 << 20 // bytes of garbage that are little, where there is enough memory
	memoryShare    = 8         // and part of the memory that there is

	// A process that allocates less between two samples is nearly idle, and gains nothing by a higher target.
	minBusyBytes = maxIdleBytes / 4
	// The live heap grows if a collection finds more of it than the one before by this much, and by an eighth.
	minGrowth = 4 << 20
)

// pace is how much memory there is, and what was found at the last look.
type pace struct {
	total uint64
	gcStats
}

// gcStats is what the runtime tells, in bytes but for cycles.
type gcStats struct {
	allocated uint64 // ever
	cycles    uint64 // collections so far
	live      uint64 // found by the last one
	scanned   uint64 // beside the heap, by the last one: Go takes its percent of that too
}

// adjust sets by how many percent of what lives the heap may grow. It is called at times,
// not with each collection: to set it stops the world, and what grows that fast is bounded
// by the first collection that finds it alive.
func (p *pace) adjust() {
	is := int(read(percent))
	want := p.decide(gcStats{read(allocs), read(cycles), read(live), read(stacks) + read(globals)}, is)
	if d := want - is; d > is/8 || d < -is/8 {
		debug.SetGCPercent(want)
	}
}

// decide is how many percent they are to be, where they are as many as is.
func (p *pace) decide(now gcStats, is int) (want int) {
	before := p.gcStats
	p.gcStats = now
	switch {
	case now.allocated-before.allocated < minBusyBytes:
		return defaultPercent
	case now.cycles == before.cycles:
		return is // it is known no better
	case now.live > before.live+max(minGrowth, before.live/8):
		return defaultPercent
	}
	return percentOf(now.live+now.scanned, p.total)
}

// percentOf is how many percent they are where so many bytes live and there is so much memory.
func percentOf(live, total uint64) int {
	garbage := min(maxGarbage, total/memoryShare)
	return int(max(defaultPercent, min(maxPercent, garbage*100/max(live, 1))))
}
