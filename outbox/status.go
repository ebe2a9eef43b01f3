package outbox

// What the outbox tells about itself.

import (
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// State is where a row stands.
type State uint8

// pending → in_flight → acked | failed | skipped | void. An op in flight has a
// seq and may have been sent; only a takeover makes it pending again.
const (
	Pending State = 1 + iota
	InFlight
	Acked   // applied
	Failed  // denied, in conflict, rejected, or aborted with its batch
	Skipped // an op it refers to or depends on did not apply
	Void    // dropped
)

var stateNames = [...]string{"", "pending", "in_flight", "acked", "failed", "skipped", "void"}

// String is the state's name: pending, in_flight, acked, failed, skipped, void.
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

// Finished says whether the state is final.
func (s State) Finished() bool { return s >= Acked }

// Row is one op intent as List shows it.
type Row struct {
	Op, Batch, Session, Via string
	Index                   int    // in its batch, from 0
	Seq                     uint64 // 0 while it has none
	Method                  string
	Atomic                  bool
	State                   State
	Dropping                bool // Drop was asked for, but it may have been sent: the sender will tell
	Attempts                int
	NextRetry               time.Time // zero if none is planned
	LastError               string    // of the last attempt that failed, or why the stream stopped
	Retries                 string    // the op this one stands for
	Committed               time.Time
	Outcome                 *ledger.Outcome // nil unless finished
	NoDigest                bool            // stored by a former version, without a digest: damage may go unseen
}

// Filter selects rows for List; zero fields select all.
type Filter struct {
	States  []State
	Session string
	Batch   string
	Op      string
	Limit   int // rows at most; 0 for all
}

// StreamStatus is a session's queue.
type StreamStatus struct {
	Session    string
	Unfinished int        // op intents
	Stopped    fault.Code // why it is stopped until someone decides; None if it is not
	LastError  string
	Attempts   int
	NextRetry  time.Time

	maxSeq int64 // the highest that was given to them; 0 for none
}

// Status is the outbox at one moment.
type Status struct {
	Outbox      string
	Name        string // in Postgres; "default" in a file
	Incarnation uint64
	Sending     bool      // this process holds the lease
	LeasedUntil time.Time // zero if no process does

	// BlockingPID is the process that has stood in a transaction on the outbox's file for more
	// than ten seconds, so that nobody can write; 0 for none.
	BlockingPID   int
	BlockingSince time.Time

	Pending, InFlight, Acked, Failed, Skipped, Void int
	Bytes                                           int64          // of unfinished rows
	Streams                                         []StreamStatus // those with unfinished rows, by session
}

// Unfinished counts the op intents that have no outcome yet.
func (s *Status) Unfinished() int { return s.Pending + s.InFlight }

// Role says what a stored ref is to us.
type Role string

// Roles.
const (
	SpaceOwner   Role = "space"   // a space's: creates and lists sessions
	SessionOwner Role = "session" // the owner ref of a session we made
	Shared       Role = "share"   // given to us, or made by us to give away

	roleRotating Role = "rotating" // a new one that is to take another's place: that one's id is its label
	roleRotated  Role = "rotated"  // an old one's id, whose place the one with the id in label has taken
	roleGone     Role = "gone"     // one that was dropped: its id alone is left, for processes that remember the ref
)

// RefMeta is what an outbox remembers of a ref beside its text.
type RefMeta struct {
	Role     Role
	External string // the id another system knows the session by
	Label    string
	RefStatus
}

// RefStatus is a server's word about a ref. A ref is confirmed once a server has accepted its
// secret. Until then nobody knows whether it was mistyped, or whether its server has yet
// to hear of it; only the owner's ref of a session that was made here needs no word.
type RefStatus struct {
	Confirmed  time.Time         // when a server last accepted the secret; zero if none has
	Rights     capability.Rights // the rights it has; 0 if they are not known
	Restricted bool              // it is for some methods, one message, or a part of the log alone
	Dead       fault.Code        // why it is of no use any more; None while it is, as far as is known
}

// SavedRef is a stored ref, with its secret.
type SavedRef struct {
	capability.Ref
	RefMeta
	Redemption string // the redemption id to restore it with, always
	Saved      time.Time

	replaced  []replacedRef   // those whose place it has taken
	successor *capability.Ref // what is about to take its place
}

// replacedRef is a ref whose place another has taken.
type replacedRef struct {
	id   string
	hash string // of its secret, as text; "" where that was not kept
}
