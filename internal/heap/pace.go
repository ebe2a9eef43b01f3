// While much is allocated: how seldom garbage is collected.

package heap

import "runtime/debug"

const (
	usual = 100       // percent: Go's own
	most  = 400       // percent: beyond it little is to be gained
	room  = 256 << 20 // bytes of garbage that are little, where there is enough memory
	share = 8         // and part of the memory that there is

	// Who allocates less between two looks is about at rest, and gains nothing by gathering.
	busyBytes = restingBytes / 4
	// What lives grows if a collection finds more of it than the one before by so much, and by an eighth.
	growth = 4 << 20
)

// pace is how much memory there is, and what was found at the last look.
type pace struct {
	total uint64
	found
}

// found is what the runtime tells, in bytes but for cycles.
type found struct {
	allocated uint64 // ever
	cycles    uint64 // collections so far
	live      uint64 // found by the last one
	scanned   uint64 // beside the heap, by the last one: Go takes its percent of that too
}

// look sets by how many percent of what lives the heap may grow. It is called at times,
// not with each collection: to set it stops the world, and what grows that fast is bounded
// by the first collection that finds it alive.
func (p *pace) look() {
	is := int(read(percent))
	want := p.decide(found{read(allocs), read(cycles), read(live), read(stacks) + read(globals)}, is)
	if d := want - is; d > is/8 || d < -is/8 {
		debug.SetGCPercent(want)
	}
}

// decide is how many percent they are to be, where they are as many as is.
func (p *pace) decide(now found, is int) (want int) {
	before := p.found
	p.found = now
	switch {
	case now.allocated-before.allocated < busyBytes:
		return usual
	case now.cycles == before.cycles:
		return is // it is known no better
	case now.live > before.live+max(growth, before.live/8):
		return usual
	}
	return percentOf(now.live+now.scanned, p.total)
}

// percentOf is how many percent they are where so many bytes live and there is so much memory.
func percentOf(live, total uint64) int {
	garbage := min(room, total/share)
	return int(max(usual, min(most, garbage*100/max(live, 1))))
}
