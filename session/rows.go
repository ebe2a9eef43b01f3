package session

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Row is one session's row: what every append and every change of authority
// locks exclusively until commit. A session that somebody tried to create and
// was refused has a row too (Absent), because its stream's outcomes need a home.
type Row struct {
	ID       string
	Space    string // "" while Absent
	External string // the id another system knows it by; unique in the space
	Life     Life
	Cursor   uint64 // of the last event; 0 before the first
	Base     uint64 // the log starts after this cursor; 0 unless trimmed
	Head     Hash   // hash of the event at Cursor: the chain's end
	Epoch    uint64 // starts at 1
	AuthGen  uint64 // raised by every revoke, bump and delete; a change means: check authority again
	Created  int64  // Unix ms
	Updated  int64  // Unix ms
}

// Life is what stage a session is in.
type Life uint8

// A session is Absent until its create (or fork) applies and Deleted after delete.
const (
	Absent Life = iota
	Live
	Deleted
)

// Hash is a SHA-256.
type Hash [32]byte

// Event is one row of a session's log.
type Event struct {
	Session string
	Cursor  uint64
	Method  string // the op's method, or a system one (MethodInterrupted, MethodResumed)
	Key     string // what it is about: message/ID, part/MID/PID, ref/ID, …
	Schema  uint32 // payload's schema_version
	Payload []byte // JSON object text; nil once purged
	Sum     Hash   // of the payload
	Hash    Hash   // over the previous event's Hash, this row's fields and Sum
	Ref     string // the ref it was done under
	Actor   string
	Outbox  string // the stream's outbox; "" for system events
	Op      string // op id; "" for system events
	Batch   string // batch id; "" for system events
	At      int64  // database clock, Unix ms
}

// Entry is one key of the folded state.
type Entry struct {
	Session string
	Key     string
	Cursor  uint64 // of the event that last changed it (a put, begin, finalize; not a delta)
	Schema  uint32
	Sum     Hash   // of the payload
	Payload []byte // as loaded: the value. As saved: nil when it is the payload of the event at Cursor
	TextLen uint64 // bytes of payload.text plus the deltas since; used only while its turn streams
}

// Turn is one begun turn; its key in the log is its message's key.
type Turn struct {
	Session string
	Message string // message id
	Status  TurnStatus
	Outbox  string // the stream that began it and has its lease
	Lease   int64  // Unix ms until which it counts as streaming without renewal
	Begun   uint64 // cursor of begin
	Ended   uint64 // cursor of finalize; 0 while open
	Final   Hash   // digest of finalize's arguments: tells an equal second one
}

// TurnStatus is a turn's state. Interrupted is not terminal.
type TurnStatus uint8

// streaming → completed | failed | aborted, with interrupted beside streaming.
const (
	Streaming TurnStatus = 1 + iota
	Interrupted
	Completed
	Failed
	Aborted
)

// StreamKey names a stream.
type StreamKey struct{ Session, Outbox string }

// Want is what a group of batches needs from the store before it is decided.
// Slices are sorted and free of repeats; the store locks in their order:
// spaces shared, then session rows exclusively (an Absent row is made for an
// id that has none), then everything else unlocked, since it is only ever
// changed under its session's row.
type Want struct {
	Spaces   []string
	Sessions []string
	Streams  []StreamKey
	Records  []RecordRange                // outcome records wanted: duplicates and references
	Grants   []string                     // by ref id
	Entries  map[string][]string          // session → keys
	Prefixes map[string][]string          // session → key prefixes, all entries below each
	Turns    []string                     // sessions whose open turns are wanted, and …
	TurnsOf  map[string][]string          // session → message ids whose turn is wanted, open or ended
	Deltas   map[string]map[string]uint64 // session → part key → deltas after this cursor, joined
	External map[string][]string          // space → external ids: which session has each
	Subtrees []string                     // ref ids whose living descendants are wanted (for revoke)
}

// RecordRange asks for the records of a stream that hold any seq in [From, To],
// or, with Ops, those that hold any of these op ids (searched among unpruned records).
type RecordRange struct {
	Stream   StreamKey
	From, To uint64
}

// Rows is what Load found. Missing things are simply not there.
type Rows struct {
	Now      int64 // database clock, Unix ms: the one now of the transaction
	Sessions map[string]*Row
	Streams  map[StreamKey]*ledger.Stream
	Records  map[StreamKey][]*ledger.Record // by FirstSeq
	Grants   map[string]*capability.Grant
	Entries  map[string]map[string]*Entry
	Turns    map[string]map[string]*Turn
	Deltas   map[string]map[string][]byte // the text after the base value, in order
	External map[string]map[string]string // space → external id → session
}

// Changes is all that a group writes, in bulk, after every decision is made.
type Changes struct {
	Sessions    []*Row
	Streams     []*ledger.Stream
	Records     []StreamRecord
	Prune       []StreamCut // drop records whose last seq is at or below
	Events      []*Event
	Entries     []*Entry
	DropEntries map[string][]string // session → keys
	Turns       []*Turn
	Grants      []*capability.Grant // minted
	Revoke      []RevokedGrant      // with their whole subtrees, in one statement
	DropState   []string            // sessions deleted: entries, turns and event payloads go
}

// StreamRecord is a batch's record to insert.
type StreamRecord struct {
	Stream StreamKey
	Record *ledger.Record
}

// StreamCut is a prune: outcomes at or below Through are gone.
type StreamCut struct {
	Stream  StreamKey
	Through uint64
}

// RevokedGrant marks a ref and every ref minted below it dead.
type RevokedGrant struct {
	ID, By string
	At     int64
	Cut    uint64
}

// Tx is one store transaction, as Commit needs it.
type Tx interface {
	// Load locks and reads. It may be called again for more, but locks
	// sessions only in the first call.
	Load(ctx context.Context, w *Want) (*Rows, error)
	// Save writes everything. No statement in it is expected to fail, since
	// all was decided on locked rows.
	Save(ctx context.Context, c *Changes) error
}
