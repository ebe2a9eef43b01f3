// The bounds of a commit and of a session.

package session

import (
	"math"

	"github.com/mooring-rpc/mooring/ledger"
)

// Limits bound a commit; hello announces them to clients.
type Limits struct {
	ledger.Limits
	// SessionBytes and RefBytes bound the bytes stored in a session, and under one ref: beyond them
	// writes are QuotaExceeded, except ones that free bytes. 0: no bound.
	SessionBytes, RefBytes int
	// AccountBytes is about how many bytes may be stored in all sessions created under one ref of a
	// space and its descendants. The caller enforces it (Config.CheckQuota).
	AccountBytes int

	EventBytes int // payload of one event: bounds what fork copies at once and finalize writes
	ForkBytes  int // of those what is copied by fork: a larger one is copied in pieces of about that size; 0 for no such bound
	TextBytes  int // a part's text with all its deltas
	LabelBytes int // label, actor, external id: each

	// UnackedOps is how many recorded ops of a stream its client may leave unacknowledged: above it
	// new batches are Overloaded until it acknowledges; repeated ones are answered. It must exceed
	// the number of seqs that an outbox assigns ahead: otherwise records that an unanswered op
	// refers to, which are therefore not acknowledged, would block that very op.
	UnackedOps int
}

// Bounds of open turns: MaxOpenTurns of one stream in a session, and of a ref that is not an
// owner's with its descendants; MaxSessionTurns of a session, since every batch reads them. Turns
// of dead refs are not counted (decide/limits.go); MaxOrphans is how many of them a session may have for a
// revert to end those that it hides.
const (
	MaxOpenTurns    = 256
	MaxSessionTurns = 4096
	MaxOrphans      = 4096
)

// Bounds of the claims in force: MaxRefClaims of a ref that is not an owner's with its descendants, and
// MaxSessionClaims of a session, which is below view.MaxPassedClaims: what is free is found (decide/limits.go).
const (
	MaxRefClaims     = 1024
	MaxSessionClaims = 8192
)

// MaxReadOnlyUnacked replaces UnackedOps for a stream that was created under a ref without a write
// right.
const MaxReadOnlyUnacked = 1000

// MaxTerminalParts is the maximum number of parts in one finalize.
const MaxTerminalParts = 10_000

// DefaultLimits returns a server's default limits.
func DefaultLimits() Limits {
	l := ledger.DefaultLimits()
	return Limits{Limits: l, EventBytes: 32 << 20, ForkBytes: 8 << 20, TextBytes: l.PayloadBytes, LabelBytes: 256,
		SessionBytes: 1 << 30, RefBytes: 1 << 30, AccountBytes: min(10<<30, math.MaxInt),
		UnackedOps: 300 * l.BatchOps} // the Go client's: 256 batches
}

// MaxLapses is the maximum number of claims that one Lapse ends.
const MaxLapses = 1000
