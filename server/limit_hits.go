// Bounds of the server itself, for counting: those of one connection are the
// vat's own (rpc.Limits).

package server

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/connlimit"
)

// limitKind is a limit of Config that something from outside can meet.
type limitKind int

const (
	limitNone limitKind = iota
	limitConnections
	limitPerAddress
	limitHandshakes
	limitSubscriptions
	limitBatches
	limitQueue
	limitWrongTries
	limitSnapshots
	numLimits
)

var limitNames = [numLimits]string{"", "connections", "connections_per_address", "handshakes", "subscriptions",
	"batches_in_flight", "commit_queue", "wrong_tries", "snapshots"}

// limitOf is the bound of a gate that was met, where all is the one on everybody.
func limitOf(met connlimit.Bound, all limitKind) limitKind {
	switch met {
	case connlimit.None:
		return limitNone
	case connlimit.PerAddress:
		return limitPerAddress
	}
	return all
}

// String gives a bound's name as it stands in metrics.
func (b limitKind) String() string { return limitNames[b] }

// limitHits counts how often each bound was met.
type limitHits struct{ n [numLimits]atomic.Uint64 }

func (h *limitHits) add(b limitKind)          { h.n[b].Add(1) }
func (h *limitHits) count(b limitKind) uint64 { return h.n[b].Load() }
