// While little is allocated: garbage is collected once more, and memory given back.

package gctune

import "runtime/debug"

const (
	// A server that allocates less between two looks is at rest: pings of 10,000 connections take half of it.
	maxIdleBytes = 32 << 20
	// So much garbage is worth a collection.
	minGarbageBytes = 4 << 20
)

// idle is how much had been allocated at the last look, and when garbage was last collected here.
type idle struct{ before, collected uint64 }

// collectIfIdle collects garbage and returns memory to the system if the process rests.
func (r *idle) collectIfIdle() {
	now := read(allocs)
	if now-r.before < maxIdleBytes && now-r.collected > minGarbageBytes {
		debug.FreeOSMemory()
		r.collected = read(allocs)
	}
	r.before = now
}
