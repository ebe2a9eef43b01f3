package outbox

// Status, rows and refs, as callers see them.

import (
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
)

// State is the state of a row's op.
type State uint8

// pending → in_flight → acked | failed | skipped | void. An op in flight has a seq and may have
// been sent; only a takeover makes it pending again.
const (
	Pending State = 1 + iota
	InFlight
	Acked   // applied
	Failed  // denied, in conflict, rejected, or aborted with its batch
	Skipped // an op it refers to or depends on did not apply
	Void    // dropped
)

var stateNames = [...]string{"", "pending", "in_flight", "acked", "failed", "skipped", "void"}

// String returns the state's name: pending, in_flight, acked, failed, skipped, void.
func (s State) String() string {
	if int(s) < len(stateNames) && s != 0 {
		return stateNames[s]
	}
	return "unknown"
}

// ParseState is the reverse of String.
func ParseState(name string) (State, bool) {
	for s, n := range stateNames {
		if n == name && s != 0 {
			return State(s), true
		}
	}
	return 0, false
}

// Finished reports whether the state is final.
func (s State) Finished() bool { return s >= Acked }

// Row is one op intent as List shows it.
type Row struct {
	Op, Batch, Session, Via string
	Index                   int    // in its batch, from 0
	Seq                     uint64 // 0 while it has none
	Method                  string
	Atomic                  bool
	State                   State
	Dropping                bool // Drop was requested, but the op may have been sent: the sender will decide
	Attempts                int
	NextRetry               time.Time // zero if none is planned
	LastError               string    // of the last attempt that failed, or why the stream stopped
	Retries                 string    // the op that this one retries
	Committed               time.Time
	Outcome                 *ledger.Outcome // nil unless finished
	NoDigest                bool            // stored by a former version, without a digest: damage may go undetected
}

// Filter selects rows for List; zero fields select all.
type Filter struct {
	States  []State
	Session string
	Batch   string
	Op      string
	Limit   int // rows at most; 0 for all
}

// StreamStatus is the state of a session's queue.
type StreamStatus struct {
	Session    string
	Unfinished int        // op intents
	Stopped    fault.Code // why it stopped until someone decides; None if it has not
	LastError  string
	Attempts   int
	NextRetry  time.Time
}

// Status is the outbox as it was read, statement by statement: an op that finished meanwhile may be
// counted as unfinished and as finished.
type Status struct {
	Outbox      string
	Name        string // in Postgres; "default" in a file
	Incarnation uint64
	Sending     bool      // this process holds the lease
	LeasedUntil time.Time // zero if no process holds the lease

	// BlockingPID is the process whose transaction on the outbox's file has been open for more
	// than ten seconds and blocks all writers; 0 for none.
	BlockingPID   int
	BlockingSince time.Time

	Pending, InFlight, Acked, Failed, Skipped, Void int
	Bytes                                           int64          // of unfinished rows
	Streams                                         []StreamStatus // streams with unfinished rows, by session
}

// Unfinished counts the op intents that have no outcome yet.
func (s *Status) Unfinished() int { return s.Pending + s.InFlight }

// Role is what a stored ref is for.
type Role = refs.Role

// Roles.
const (
	SpaceOwner   = refs.SpaceOwner   // a space's: creates and lists sessions
	SessionOwner = refs.SessionOwner // the owner ref of a session created here
	Shared       = refs.Shared       // received from someone, or created here to give away
)

// RefMeta is what an outbox stores with a ref's text.
type RefMeta = refs.RefMeta

// RefStatus is a server's answer about a ref: whether it accepts the secret, and what it allows.
type RefStatus = refs.RefStatus

// SavedRef is a stored ref, with its secret.
type SavedRef = refs.SavedRef

// RefAnswer is a server's answer to a call that was made with a ref (Box.RefAnswered).
type RefAnswer = refs.Answer

// StreamStoppedError is the error of waiting for batches that are not sent until someone
// decides: their session's stream has stopped. The batches stay in the outbox. errors.Is finds
// Code.
type StreamStoppedError struct {
	Session string
	Code    fault.Code
	Reason  string // for people; begins with the code
}

func (s *StreamStoppedError) Error() string {
	reason := strings.TrimPrefix(s.Reason, s.Code.String()+": ")
	return s.Code.String() + ": session " + s.Session + " cannot go on: " + reason
}

// Unwrap returns the code.
func (s *StreamStoppedError) Unwrap() error { return s.Code }
