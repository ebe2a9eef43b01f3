// Counters of the server's own limits. The limits of one connection are counted by package rpc
// (rpc.Limits).

package admission

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/connlimit"
)

// Limit is a limit of Config that peers can meet.
type Limit int

const (
	limitNone Limit = iota
	limitConnections
	limitPerAddress
	limitHandshakes
	LimitSubscriptions // of one connection
	LimitBatches       // unanswered on one stream
	LimitQueue         // ops that wait for a transaction
	limitWrongTries
	LimitSnapshots // of one connection, or waiting for a slot for too long
	numLimits
)

var limitNames = [numLimits]string{"", "connections", "connections_per_address", "handshakes", "subscriptions",
	"batches_in_flight", "commit_queue", "wrong_tries", "snapshots"}

// limitOf converts the bound that a limiter reports; all is the kind of its bound on all addresses.
func limitOf(hit connlimit.Bound, all Limit) Limit {
	switch hit {
	case connlimit.None:
		return limitNone
	case connlimit.PerAddress:
		return limitPerAddress
	}
	return all
}

// AllLimits returns all limits, in their order.
func AllLimits() []Limit {
	all := make([]Limit, 0, numLimits)
	for l := limitNone + 1; l < numLimits; l++ {
		all = append(all, l)
	}
	return all
}

// String returns the limit's name in metrics.
func (b Limit) String() string { return limitNames[b] }

// LimitHits counts how often each limit was met. It is safe for concurrent use.
type LimitHits struct{ n [numLimits]atomic.Uint64 }

// Add counts that a limit was met; Count returns how often.
func (h *LimitHits) Add(b Limit)          { h.n[b].Add(1) }
func (h *LimitHits) Count(b Limit) uint64 { return h.n[b].Load() }
