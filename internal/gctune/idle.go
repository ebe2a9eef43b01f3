// While little is allocated: garbage is collected once more, and memory given back.

package gctune

import "runtime/debug"

const (
	// A server that allocates less between two looks is at rest: pings of 10,000 connections take half of it.
	maxIdleBytes = 32 << 20
	// So much garbage is worth a collection.
	minGarbageBytes = 4 << 20
)

// idle is how much had been allocated at the last look and when garbage was last collected here, and the bytes that stacks had
// before that.
type idle struct{ before, collected, stacks uint64 }

// collectIfIdle collects garbage and returns memory to the system if the process rests. A collection halves the stacks of
// which less than a quarter is used. Where that gave much back, another may too: the first input of a connection takes a
// stack that is several times as large as waiting for the next takes.
func (r *idle) collectIfIdle() {
	now, inUse := read(allocs), read(stacksInUse)
	if now-r.before < maxIdleBytes && (now-r.collected > minGarbageBytes || inUse+minGarbageBytes <= r.stacks) {
		debug.FreeOSMemory()
		r.collected, r.stacks = read(allocs), inUse
	}
	r.before = now
}
