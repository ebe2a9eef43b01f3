package heap

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	restLook = 5 * time.Second
	// A server that allocates less between two looks is at rest: pings of 10,000 connections take half of it.
	restingBytes = 32 << 20
	// So much garbage is worth a collection.
	garbageBytes = 4 << 20
)

// GiveBack collects garbage and returns memory to the system whenever the process rests,
// until ctx ends: a server with thousands of connections that rest should cost what they hold.
func GiveBack(ctx context.Context) {
	r := rest{before: read(allocs)}
	each(ctx, restLook, r.look)
}

// rest is how much had been allocated at the last look, and when garbage was last collected here.
type rest struct{ before, collected uint64 }

func (r *rest) look() {
	now := read(allocs)
	if now-r.before < restingBytes && now-r.collected > garbageBytes {
		debug.FreeOSMemory()
		r.collected = read(allocs)
	}
	r.before = now
}
