// What a session is in a database: the rows that its rules read and change.

package session

import (
	"context"
	"encoding/hex"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Row is one session's row: what every append and every change of authority
// locks exclusively until commit. A session that somebody tried to create and
// was refused has a row too (Absent), because its stream's outcomes need a home.
type Row struct {
	ID          string
	Space       string // "" while Absent
	External    string // the id another system knows it by
	Life        Life
	Cursor      uint64 // of the last event; 0 before the first
	Base        uint64 // the log starts after this cursor; 0 unless trimmed (trim.go)
	Head        Hash   // hash of the event at Cursor: the chain's end
	Epoch       uint64 // starts at 1
	AuthGen     uint64 // raised by every revoke, bump, purge and delete; a change means: read and check authority again
	Created     int64  // Unix ms
	Updated     int64  // Unix ms
	Bytes       int64  // that it holds (quota.go)
	ExemptBytes int64  // of them, that were there before there was a quota; -1: Bytes are not measured
	Order       Order  // of its state, as its first event says (order.go)
	Creator     string // the stream whose create or fork made it: an object of Space.create acts as the owner only for that one

	// Forgotten says of a Deleted session that its streams, outcomes and refs are gone, or are going
	// (forgotten.go).
	Forgotten bool
}

// Totals are sums over sessions: how many there are of those that are there and of those that
// were deleted, the events in all their logs, and the bytes that they hold.
type Totals struct{ Live, Deleted, Events, Bytes int64 }

// Add adds other's.
func (t *Totals) Add(other Totals) {
	t.Live += other.Live
	t.Deleted += other.Deleted
	t.Events += other.Events
	t.Bytes += other.Bytes
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

// String is the hash in hexadecimal, as commands print it.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what String gives.
func ParseHash(text string) (h Hash, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(h) {
		return h, fault.BadArgument.With("a hash is 64 hexadecimal digits")
	}
	return Hash(b), nil
}

// Event is one row of a session's log.
type Event struct {
	Session  string
	Cursor   uint64
	Method   string // the op's method, or a system one (MethodInterrupted, MethodResumed)
	Key      string // what it is about: message/ID, part/MID/PID, ref/ID, …
	Schema   uint32 // payload's schema_version
	Payload  []byte // JSON object text; nil once purged, or what a purge has left of it
	Sum      Hash   // of the payload as it was written; followed events have that of the payload as it is
	Hash     Hash   // over the previous event's Hash, this row's fields and Sum
	Ref      string // the ref it was done under
	Actor    string
	Outbox   string // the stream's outbox; "" for system events
	Op       string // op id; "" for system events
	Batch    string // batch id; "" for system events
	At       int64  // database clock, Unix ms
	Redacted bool   // no row is so: its payload is without what is older than the reader's ref shows (scope.go)
	Hidden   bool   // no row: a cursor mark for a reader whom the events up to Cursor are not shown to (scope.go), with the last one's Hash
}

// Entry is one key of the folded state.
type Entry struct {
	Session    string
	Key        string
	Cursor     uint64 // of the event that last changed it (a put, begin, finalize; not a delta)
	Ord        Ord    // its place among the others (order.go)
	Since      uint64 // of the put or begin that the value goes on from: before Cursor where a turn's end took it over; 0 where no row says, so it may be from any time
	Schema     uint32
	Sum        Hash   // of the payload
	Payload    []byte // as loaded: the value (nil if only the head was wanted). As saved: nil when it is the payload of the event at Cursor
	TextLen    uint64 // parts: bytes of payload.text plus the deltas since, or NoText; else 0
	LastAppend uint64 // cursor of the last appendText since Cursor; 0 if there was none, so the payload is the whole value
}

// NoText is the TextLen of a part whose payload.text is there but is no string.
const NoText uint64 = 1<<63 - 1

// Turn is one begun turn; its key in the log is its message's key.
type Turn struct {
	Session string
	Message string // message id
	Status  TurnStatus
	Outbox  string // the stream that began it and has its lease
	Ref     string // it was begun under; "" if no row says so any more
	Lease   int64  // Unix ms until which it counts as streaming without renewal
	Begun   uint64 // cursor of begin
	Ended   uint64 // cursor of finalize; 0 while open
	Final   Hash   // digest of finalize's arguments: tells an equal second one
	Orphan  bool   // while it was open its ref was found dead: it counts for nobody, and is renewed by nothing but text of its own (turncount.go)
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

// ReadSet is what a group of batches needs from the store before it is decided.
// Slices are sorted and free of repeats; the store locks in their order:
// spaces shared (exclusively those that External names, since nothing else
// keeps a maker from giving one external id twice), then session rows exclusively (an
// Absent row is made for an id that has none), then reads everything else
// unlocked, since it is only ever changed under its session's row.
// A later Load of the same transaction names no Spaces and no ExclusiveSpaces, and
// Sessions only if none before it did.
type ReadSet struct {
	Spaces          []string
	ExclusiveSpaces []string // spaces to lock exclusively, as every change of a space's own refs does
	Sessions        []string
	Streams         []StreamKey
	Records         []RecordRange                // outcome records wanted: duplicates, references, what is acknowledged
	Grants          []string                     // by ref id
	Lineages        []string                     // ref ids wanted together with all their ancestors (for revoke); they come in Rows.Grants
	Trees           []string                     // ref ids: how many living refs there are for each session or space in the tree below each, itself among them
	EntryMeta       map[string][]string          // session → keys: entries without their payload
	Entries         map[string][]string          // session → keys: entries with their payload
	Prefixes        map[string][]string          // session → key prefixes ("" for all): every entry below each, with its payload
	Turns           []string                     // sessions whose open turns (Streaming, Interrupted) are wanted, but for orphans, and …
	CountedTurns    []string                     // those of them whose open turns are to be counted: the refs that they were begun under, and those of Grants, come with their ancestors in the session, and …
	StreamingTurns  []string                     // sessions whose Streaming turns are wanted, orphans too, and …
	TurnsOf         map[string][]string          // session → message ids whose turn is wanted, open or ended
	Deltas          map[string]map[string]uint64 // session → part key → texts of its appendText events after this cursor, joined
	Logs            map[string]uint64            // session → its events up to and with this cursor (fork at an earlier cursor; of untrimmed logs)
	PayloadEvents   map[string]string            // session → key: the events that hold that key's payload, or may (HoldsPayload)
	External        []ExternalID                 // which living session has each

	// ValidUntil is when the first of the narrowed capabilities ends that the group acts
	// under and that no row tells of, Unix ms; 0: none does.
	ValidUntil int64

	// MaxBytes bounds what Entries, Prefixes, Deltas, Logs and PayloadEvents read in all; 0 is no
	// bound. Above it reading stops, and Rows.Bytes says so.
	MaxBytes int
}

// ExternalID is an external id among the sessions that were made under one ref of
// the space. Of those a living one has it, but for sessions that were made with
// Direct.SharedExternalID; whoever made others is not asked.
type ExternalID struct {
	Space    string
	SpaceRef string // the space's ref; after a rotation the one in its place
	ID       string
}

// RecordRange asks for the unpruned records of a stream: those that hold any
// seq in [From, To] (none if To is 0), and those that hold any of Ops.
type RecordRange struct {
	Stream   StreamKey
	From, To uint64
	Ops      []string // op ids
}

// Rows is what Load found. Missing things are simply not there.
type Rows struct {
	Now           int64 // database clock, Unix ms: the one now of the transaction
	Sessions      map[string]*Row
	Streams       map[StreamKey]*ledger.Stream
	Records       map[StreamKey][]*ledger.Record // by FirstSeq
	Grants        map[string]*capability.Grant
	Entries       map[string]map[string]*Entry // session → key; heads too, with Payload nil
	Turns         map[string]map[string]*Turn  // session → message id
	Deltas        map[string]map[string][]byte // the text after the base value, in order (DeltaText of each event's payload)
	Logs          map[string][]*Event          // session → events in cursor order
	PayloadEvents map[string][]*Event          // session → events in cursor order: Cursor and Method, and Payload of those that only may hold the key's
	External      map[ExternalID]string        // → session
	Trees         map[string]map[string]uint64 // ref id → session or space → living refs

	// Bytes are those of all payloads that were read, with a little for each row.
	// Above ReadSet.MaxBytes the rows are incomplete, and of no use.
	Bytes int
}

// Changes is all that a group writes, in bulk, after every decision is made.
// Save writes in the order of the fields; Revoke therefore also reaches grants
// minted in the same group, and DropState events and entries of the same group.
// Rows are whole: an insert or a replacement, whichever it takes.
type Changes struct {
	Sessions    []*Row // by ID; one that was Absent and has a Space now claims its External
	Streams     []*ledger.Stream
	Prune       []StreamPrune // drop records whose last seq is at or below
	Records     []StreamRecord
	Events      []*Event            // by session, in cursor order
	Purge       []PurgedEvent       // events of earlier groups, by session, in cursor order; what was removed must not stay in the database's files
	DropEntries map[string][]string // session → keys, sorted
	Entries     []*Entry            // by session and key
	Appended    []*Entry            // like Entries, of others: only TextLen and LastAppend changed, whatever holds the payload stays
	Turns       []*Turn             // by session and message
	Grants      []*capability.Grant // minted
	Charges     []Charge            // by ref
	Rotate      []RotatedGrant      // each alone dies, and what was minted from it is the new one's
	Revoke      []RevokedGrant      // with their whole living subtrees, in one statement
	DropState   []string            // sessions deleted: entries, turns, external key and all event payloads go, rows and hashes stay
	Audit       []*capability.AuditRow
}

// Charge adds to the bytes that are held of what was written under a ref.
type Charge struct {
	Ref   string
	Bytes int64
}

// PurgedEvent is an event of which a payload goes: Payload is what is left of
// it, nil for nothing.
type PurgedEvent struct {
	Session string
	Cursor  uint64
	Payload []byte
}

// StreamRecord is a batch's record to insert.
type StreamRecord struct {
	Stream StreamKey
	Record *ledger.Record
}

// StreamPrune is a prune: outcomes at or below Through are gone.
type StreamPrune struct {
	Stream  StreamKey
	Through uint64
}

// RotatedGrant puts the ref By, minted in the same group or before it, in the
// place of ID, which alone is marked dead.
type RotatedGrant struct {
	ID, By string
	At     int64
	Cut    uint64
}

// RevokedGrant marks a ref and every ref minted below it dead. If ID is a space's
// ref, the cut of each session's refs is the cursor that its row has by then.
type RevokedGrant struct {
	ID, By string
	At     int64
	Cut    uint64
}

// Tx is one store transaction, as Commit needs it.
type Tx interface {
	// Load locks and reads. It may be called again for more, but locks
	// sessions only in the first call. What it returns belongs to the caller,
	// which changes it in place.
	Load(ctx context.Context, w *ReadSet) (*Rows, error)
	// Save writes everything. No statement in it is expected to fail, since
	// all was decided on locked rows.
	Save(ctx context.Context, c *Changes) error
}
