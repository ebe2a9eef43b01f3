// Package heap decides how much memory a process takes beyond what lives in it: garbage
// that waits to be collected while it is busy, and nothing when it rests.
//
// Go collects whenever the heap has doubled. A process of which little lives, but which
// allocates hundreds of megabytes a second, then collects several times a second, and
// to collect costs by what lives, however little of it has become garbage. So it may
// gather more where that is little in megabytes. Go's own settings win: GOGC as a
// whole, GOMEMLIMIT as the bound that it is.
package heap

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	paceLook = time.Second

	usual = 100       // percent: Go's own
	most  = 400       // percent: beyond it little is to be gained
	room  = 256 << 20 // bytes of garbage that are little, where there is enough memory
	share = 8         // and part of the memory that there is
)

// What runtime/metrics calls them.
const (
	allocs  = "/gc/heap/allocs:bytes" // ever allocated
	live    = "/gc/heap/live:bytes"   // found alive by the last collection
	percent = "/gc/gogc:percent"
)

// Pace has garbage gather up to 256 MiB, or an eighth of the memory that there is, before
// it is collected, until ctx ends; in a heap of more than that as ever, when it has doubled.
// In a container the process stays below nine tenths of what it may have, as far as the
// collector can see to it. If GOGC is set Pace does nothing but that. A process has one.
func Pace(ctx context.Context) {
	total := bound()
	if os.Getenv("GOGC") != "" {
		return
	}
	pace := func() { adjust(total) }
	pace()
	each(ctx, paceLook, pace)
}

// bound sets the limit that a container has; it gives what memory there is.
func bound() uint64 {
	limit, err := memlimit.Set() // nine tenths of the container's, if GOMEMLIMIT is not set
	if err == nil && limit != math.MaxInt64 {
		return uint64(limit)
	}
	total, err := memlimit.FromSystem()
	if err != nil {
		return 0 // not known: as ever
	}
	return total
}

// adjust sets by how many percent of what lives the heap may grow. It is called at times,
// not with each collection: to set it stops the world, and what grows that fast is bounded
// by the first collection that finds it alive.
func adjust(total uint64) {
	want, is := percentOf(read(live), total), int(read(percent))
	if d := want - is; d > is/8 || d < -is/8 {
		debug.SetGCPercent(want)
	}
}

// percentOf is that for so many bytes that live, where there is so much memory.
func percentOf(live, total uint64) int {
	garbage := min(room, total/share)
	return int(max(usual, min(most, garbage*100/max(live, 1))))
}

func read(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// each calls f every so often until ctx ends.
func each(ctx context.Context, every time.Duration, f func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
