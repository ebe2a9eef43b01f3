// Bounds of the server itself, for counting: those of one connection are the
// vat's own (rpc.Limits).

package server

import (
	"sync/atomic"

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
