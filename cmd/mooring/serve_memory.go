// What a busy time leaves behind is given back to the system when it is over: a
// server with thousands of connections that rest should cost what they hold.

package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	memoryLook = 5 * time.Second
	// A server that allocates less between two looks is at rest: pings of 10,000 connections take half of it.
	restingBytes = 32 << 20
	// So much garbage is worth a collection.
	garbageBytes = 4 << 20
)

// giveMemoryBack collects garbage and returns memory whenever the server rests, until ctx ends.
func giveMemoryBack(ctx context.Context) {
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	m := memory{before: allocated()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.look()
		}
	}
}

// memory is how much had been allocated at the last look, and when garbage was last collected here.
type memory struct{ before, collected uint64 }

func (m *memory) look() {
	now := allocated()
	if now-m.before < restingBytes && now-m.collected > garbageBytes {
		debug.FreeOSMemory()
		m.collected = allocated()
	}
	m.before = now
}

// allocated is how many bytes this process has ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
