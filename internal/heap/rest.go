// While little is allocated: garbage is collected once more, and memory given back.

package heap

import "runtime/debug"

const (
	// A server that allocates less between two looks is at rest: pings of 10,000 connections take half of it.
	restingBytes = 32 << 20
	// So much garbage is worth a collection.
	garbageBytes = 4 << 20
)

// rest is how much had been allocated at the last look, and when garbage was last collected here.
type rest struct{ before, collected uint64 }

// look collects garbage and returns memory to the system if the process rests.
func (r *rest) look() {
	now := read(allocs)
	if now-r.before < restingBytes && now-r.collected > garbageBytes {
		debug.FreeOSMemory()
		r.collected = read(allocs)
	}
	r.before = now
}
