// The bounds of a commit and of a session, and the configuration of the rules.

package session

import (
	"math"
	"time"

	"github.com/mooring-rpc/mooring/fault"
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
// of dead refs are not counted (turncount.go); MaxOrphans is how many of them a session may have for a
// revert to end those that it hides.
const (
	MaxOpenTurns    = 256
	MaxSessionTurns = 4096
	MaxOrphans      = 4096
)

// Bounds of the claims in force: MaxRefClaims of a ref that is not an owner's with its descendants, and
// MaxSessionClaims of a session, which is below MaxPassedClaims: what is free is found (claimcount.go).
const (
	MaxRefClaims     = 1024
	MaxSessionClaims = 8192
)

// MaxReadOnlyUnacked replaces UnackedOps for a stream that was created under a ref without a write
// right.
const MaxReadOnlyUnacked = 1000

// MaxTerminalParts is the maximum number of parts in one finalize.
const MaxTerminalParts = 10_000

// readBytes is how many bytes of payloads one submission may read beyond its own: enough for any
// event of EventBytes, and for a log with some history.
func (l *Limits) readBytes() int { return 4 * l.EventBytes }

// DefaultLimits returns a server's default limits.
func DefaultLimits() Limits {
	l := ledger.DefaultLimits()
	return Limits{Limits: l, EventBytes: 32 << 20, ForkBytes: 8 << 20, TextBytes: l.PayloadBytes, LabelBytes: 256,
		SessionBytes: 1 << 30, RefBytes: 1 << 30, AccountBytes: min(10<<30, math.MaxInt),
		UnackedOps: 300 * l.BatchOps} // the Go client's: 256 batches
}

// Config configures Commit and Lapse.
type Config struct {
	Limits Limits
	Lease  time.Duration // how long a streaming turn stays so without an op of its stream

	// Features returns the features that every replica knows. An op that needs another is answered
	// Unsupported: it is not recorded, and is sent again. nil: all.
	Features func() Features

	// DenialRows returns how many audit rows the denials of a ref's batch may have, of the want
	// that they need; the caller counts the others (Answer.Denied). It may be called again for the
	// same batch. nil: no bound.
	DenialRows func(ref string, want int) int

	// CheckQuota returns the reason that nothing more may be written to a session, or no more
	// sessions created under a ref of a space; it is called when all other checks have passed. nil:
	// no check.
	CheckQuota func(id string) *fault.Error
}

// DefaultConfig returns DefaultLimits with a lease of 30 s.
func DefaultConfig() Config { return Config{Limits: DefaultLimits(), Lease: 30 * time.Second} }
