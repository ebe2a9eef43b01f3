// Counters of the server's own limits. The limits of one connection are counted by package rpc
// (rpc.Limits).

package objects

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/connlimit"
)

// limitKind is a limit of Config that peers can meet.
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

// limitOf converts the bound that a limiter reports; all is the kind of its bound on all addresses.
func limitOf(met connlimit.Bound, all limitKind) limitKind {
	switch met {
	case connlimit.None:
		return limitNone
	case connlimit.PerAddress:
		return limitPerAddress
	}
	return all
}

// String returns the limit's name in metrics.
func (b limitKind) String() string { return limitNames[b] }

// limitHits counts how often each limit was met. It is safe for concurrent use.
type limitHits struct{ n [numLimits]atomic.Uint64 }

func (h *limitHits) add(b limitKind)          { h.n[b].Add(1) }
func (h *limitHits) count(b limitKind) uint64 { return h.n[b].Load() }
