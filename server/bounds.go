// Bounds of the server itself, for counting: those of one connection are the
// vat's own (rpc.Limits).

package server

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/internal/gate"
)

// bound is a limit of Config that something from outside can meet.
type bound int

const (
	boundNone bound = iota
	boundConnections
	boundPerAddress
	boundHandshakes
	boundSubscriptions
	boundBatches
	boundQueue
	boundWrongTries
	boundSnapshots
	bounds
)

var boundNames = [bounds]string{"", "connections", "connections_per_address", "handshakes", "subscriptions",
	"batches_in_flight", "commit_queue", "wrong_tries", "snapshots"}

// boundOf is the bound of a gate that was met, where all is the one on everybody.
func boundOf(met gate.Met, all bound) bound {
	switch met {
	case gate.None:
		return boundNone
	case gate.PerAddress:
		return boundPerAddress
	}
	return all
}

// String gives a bound's name as it stands in metrics.
func (b bound) String() string { return boundNames[b] }

// boundHits counts how often each bound was met.
type boundHits struct{ n [bounds]atomic.Uint64 }

func (h *boundHits) add(b bound)       { h.n[b].Add(1) }
func (h *boundHits) of(b bound) uint64 { return h.n[b].Load() }

// allowance lets everybody do something so many times at once, and then once an
// interval. Safe for concurrent use.
type allowance struct {
	burst int
	every time.Duration

	mu    sync.Mutex
	full  map[string]time.Time // when somebody has all of it again
	swept time.Time            // when those who have were last forgotten
}

// allowances is how many are kept who have not all of theirs; more share one.
const allowances = 1 << 14

func newAllowance(burst int, every time.Duration) *allowance {
	return &allowance{burst: burst, every: every, full: map[string]time.Time{}}
}

// take says whether it is allowed now.
func (a *allowance) take(who string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.full) >= allowances && now.Sub(a.swept) >= a.every {
		maps.DeleteFunc(a.full, func(_ string, full time.Time) bool { return !full.After(now) })
		a.swept = now
	}
	if _, known := a.full[who]; !known && len(a.full) >= allowances {
		who = ""
	}
	full := a.full[who]
	if full.Before(now) {
		full = now
	}
	if full = full.Add(a.every); full.Sub(now) > time.Duration(a.burst)*a.every {
		return false
	}
	a.full[who] = full
	return true
}
