// Package gctune decides how much memory a process takes beyond what lives in it: garbage
// that waits to be collected while it is busy, and nothing when it rests.
//
// Go collects whenever the heap has doubled. A process of which little lives, but which
// allocates hundreds of megabytes a second, then collects several times a second, and
// to collect costs by what lives, however little of it has become garbage. So it may
// gather more where that is little in megabytes. Go's own settings win: GOGC as a
// whole, GOMEMLIMIT as the bound that it is. Without it, one writer on SQLite commits at 0.82
// of the speed (docs/benchmarks.md, "Tricks on trial").
package gctune

import (
	"context"
	"math"
	"os"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	paceInterval = time.Second
	idleInterval = 5 * time.Second
)

// Run decides when the process collects garbage, until ctx ends; a process has one Run:
//
//   - while the process is busy garbage gathers up to 256 MiB, or an eighth of the memory
//     that there is, before it is collected, in a heap of more than that as ever, when it
//     has doubled. While what lives grows it is as ever too: what is made then is to stay,
//     and would lie scattered among garbage. If GOGC is set all of this is left to it;
//   - in a container the collector's limit is nine tenths of what that may have, unless
//     GOMEMLIMIT is set;
//   - whenever the process rests, garbage is collected and memory returned to the system:
//     a server with thousands of connections that rest should cost what they hold.
func Run(ctx context.Context) {
	now := read(allocs)
	p, r := pace{total: applyMemoryLimit(), gcStats: gcStats{allocated: now}}, idle{before: now}
	pacing := os.Getenv("GOGC") == ""
	paced, rested := time.NewTicker(paceInterval), time.NewTicker(idleInterval)
	defer paced.Stop()
	defer rested.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-paced.C:
			if pacing {
				p.adjust()
			}
		case <-rested.C:
			r.collectIfIdle()
		}
	}
}

// applyMemoryLimit sets the limit that a container has; it gives what memory there is.
func applyMemoryLimit() uint64 {
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

// The names in runtime/metrics.
const (
	allocs      = "/gc/heap/allocs:bytes" // ever allocated
	live        = "/gc/heap/live:bytes"   // found alive by the last collection
	stacks      = "/gc/scan/stack:bytes"  // looked through by the last collection
	globals     = "/gc/scan/globals:bytes"
	stacksInUse = "/memory/classes/heap/stacks:bytes"
	cycles      = "/gc/cycles/total:gc-cycles" // collections so far
	percent     = "/gc/gogc:percent"           // by so much of what lives the heap may grow
)

func read(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
