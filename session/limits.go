// The bounds of a commit and of a session, and what the rules are configured with.

package session

import (
	"math"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Limits bound what one commit takes; hello tells them to clients.
type Limits struct {
	ledger.Limits
	// What a session may hold, and what may be held of what was written under one ref:
	// beyond it QuotaExceeded, but for what takes something away. 0: any.
	SessionBytes, RefBytes int
	// AccountBytes is what all sessions may hold together that were made under one ref of a
	// space and what was made from it, about. It is the caller's to hold against (Config.CheckQuota).
	AccountBytes int

	EventBytes int // payload of one event: what fork copies and finalize writes
	TextBytes  int // a part's text with all its deltas
	LabelBytes int // label, actor, external id: each

	// UnackedOps is how many recorded ops of a stream its client may leave
	// unacknowledged: above it new batches are Overloaded, until it acknowledges;
	// repeated ones are answered. It must be more than an outbox gives seqs ahead,
	// or what an unanswered op refers to, and is therefore not acknowledged, would
	// keep that very op from coming.
	UnackedOps int
}

// How many turns may be open: of one stream in a session, and of a ref that is no owner's
// with all that descend from it; and of the session, for every batch looks at them. Those
// of refs that are dead do not count (turncount.go).
const (
	MaxOpenTurns    = 256
	MaxSessionTurns = 4096
)

// MaxReadOnlyUnacked is how many outcomes of a stream that was made under a ref which could
// change nothing its client may leave unacknowledged: UnackedOps of the others.
const MaxReadOnlyUnacked = 1000

// MaxTerminalParts is how many parts one finalize may give.
const MaxTerminalParts = 10_000

// readBytes is what one submission may read of payloads beyond its own: enough
// for whatever makes an event of EventBytes, and for a log with some history.
func (l *Limits) readBytes() int { return 4 * l.EventBytes }

// DefaultLimits are what a server takes unless told otherwise.
func DefaultLimits() Limits {
	l := ledger.DefaultLimits()
	return Limits{Limits: l, EventBytes: 32 << 20, TextBytes: l.PayloadBytes, LabelBytes: 256,
		SessionBytes: 1 << 30, RefBytes: 1 << 30, AccountBytes: min(10<<30, math.MaxInt),
		UnackedOps: 300 * l.BatchOps} // the Go client's: 256 batches
}

// Config is what Commit and Lapse need to know besides their rows.
type Config struct {
	Limits Limits
	Lease  time.Duration // how long a streaming turn counts as such without a sign of its stream

	// DenialRows says how many rows of the audit the denials of a ref's batch may have, of
	// those that they want; the caller counts the others (Answer.Denied). It may be called
	// for the same batch again. nil: all that they want.
	DenialRows func(ref string, want int) int

	// CheckQuota says why nothing more may be written to a session, or no more sessions be made under
	// a ref of a space; it is asked where all else allows that. nil: never.
	CheckQuota func(id string) *fault.Error
}

// DefaultConfig is DefaultLimits with a lease of 30 s.
func DefaultConfig() Config { return Config{Limits: DefaultLimits(), Lease: 30 * time.Second} }
