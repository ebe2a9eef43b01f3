package heap

import "runtime/debug"

const (
	usual = 100       // percent: Go's own
	most  = 400       // percent: beyond it little is to be gained
	room  = 256 << 20 // bytes of garbage that are little, where there is enough memory
	share = 8         // and part of the memory that there is

	// What lives grows if a collection finds more of it than the one before by so much, and by an eighth.
	growth = 4 << 20
)

// pace is how much memory there is, and, as at the last look, what lives and how often was collected.
type pace struct{ total, live, cycles uint64 }

// look sets by how many percent of what lives the heap may grow. It is called at times,
// not with each collection: to set it stops the world, and what grows that fast is bounded
// by the first collection that finds it alive.
func (p *pace) look() {
	collections, now := read(cycles), read(live)
	if collections == p.cycles && collections > 0 {
		return // it knows no better than at the last look
	}
	want, is := percentOf(now+read(stacks)+read(globals), p.total), int(read(percent)) // of these together Go takes its percent
	if now > p.live+max(growth, p.live/8) {
		want = usual
	}
	p.live, p.cycles = now, collections
	if d := want - is; d > is/8 || d < -is/8 {
		debug.SetGCPercent(want)
	}
}

// percentOf is how many percent they are where so many bytes live and there is so much memory.
func percentOf(live, total uint64) int {
	garbage := min(room, total/share)
	return int(max(usual, min(most, garbage*100/max(live, 1))))
}
