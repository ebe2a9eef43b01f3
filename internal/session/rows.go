// The rows of a session in a database, which its rules read and change.

package session

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Row is one session's row. Every append and every change of authority locks it exclusively until
// commit. A session whose create was refused has a row too (Absent), since its stream's outcomes
// refer to one.
type Row struct {
	ID          string
	Space       string // "" while Absent
	External    string // the session's id in another system
	Life        Life
	Cursor      uint64     // of the last event; 0 before the first
	Base        uint64     // the log starts after this cursor; 0 unless trimmed (event.go)
	Head        Hash       // hash of the event at Cursor: the end of the chain
	Epoch       uint64     // starts at 1
	AuthGen     uint64     // incremented by every revoke, bump, purge and delete; if it differs, authority must be read again
	Created     int64      // Unix ms
	Updated     int64      // Unix ms
	Bytes       int64      // stored in it (decide/limits.go)
	ExemptBytes int64      // of Bytes, stored before there was a quota; -1: Bytes are not measured
	Order       Order      // of its state, from its first event (order.go)
	Needs       Features   // that its readers need (features.go)
	Origin      Origin     // what it was forked from, if it was
	Parent      Parent     // the session that it is a child of, if it is one
	Revert      Revert     // what it is reverted to, if it is (hidden.go)
	Compaction  Compaction // up to where it is compacted, if it is; a revert may hide that
	Left        *Left      // what settled reverts hid, as long as the database has rows of it; nil: nothing
	Forking     *Forking   // of an Absent one: the fork that it is being made as (forking.go)
	Copies      *Copies    // the forks that are being copied of it
	Creator     string     // the stream whose create or fork applied: an object of Space.create acts as the owner only for that stream

	// Forgotten reports of a Deleted session that its streams, outcomes and refs are removed or
	// being removed (decide/commit.go).
	Forgotten bool
}

// Origin is what a fork began as a copy of. The zero value is nothing.
type Origin struct {
	Session string
	Cursor  uint64 // of the session, as of which it was copied
	Message string // id of the last message, in the session's order, that was copied; "" for all
}

// Parent is the session under which a child was created. The zero value is none.
type Parent struct {
	Session string
	Key     string // of the message or part of the parent that started the child; "" if none is named
	Above   string // ids of all sessions above the child, with spaces, its parent's last
}

// Depth returns how many sessions are above the child.
func (p Parent) Depth() int { return len(strings.Fields(p.Above)) }

// MaxDepth is the maximum depth of a child.
const MaxDepth = 8

// Totals are sums over sessions: the number of living and of deleted ones, the events in all their
// logs, and the bytes stored in them.
type Totals struct{ Live, Deleted, Events, Bytes int64 }

// Add adds other's.
func (t *Totals) Add(other Totals) {
	t.Live += other.Live
	t.Deleted += other.Deleted
	t.Events += other.Events
	t.Bytes += other.Bytes
}

// Life is a stage in a session's life.
type Life uint8

// A session is Absent until its create or fork applies, and Deleted after delete.
const (
	Absent Life = iota
	Live
	Deleted
)

// Hash is a SHA-256.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses the result of String.
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
	Method   string // the op's method, or one of the system (MethodInterrupted, MethodResumed)
	Key      string // its subject: message/ID, part/MID/PID, ref/ID, …
	Schema   uint32 // payload's schema_version
	Payload  []byte // JSON text, an object but for keys of its users' kinds; nil once purged, or the remainder after a purge
	Sum      Hash   // of the payload as it was written; a follower's events have that of the payload as received
	Hash     Hash   // over the previous event's Hash, this row's fields and Sum
	Ref      string // the ref it was written under
	Actor    string
	Outbox   string // the stream's outbox; "" for system events
	Op       string // op id; "" for system events
	Batch    string // batch id; "" for system events
	At       int64  // database clock, Unix ms
	Redacted bool   // not stored: the payload lacks values older than the reader's ref shows (scope.go)
	Hidden   bool   // not stored: a cursor mark for a reader to whom the events up to Cursor are not visible (scope.go), with the last one's Hash
}

// Entry is one key of the folded state.
type Entry struct {
	Session    string
	Key        string
	Cursor     uint64 // of the event that last changed it (a put, begin, finalize; not a delta)
	Ord        Ord    // its position among the others (order.go)
	Since      uint64 // cursor of the put or begin that the value continues: before Cursor if a turn's end copied it; 0 where the row does not say, which may be any time
	Schema     uint32
	Sum        Hash   // of the payload
	Payload    []byte // loaded: the value, nil if only the entry without its payload was read. Saved: nil if it is the payload of the event at Cursor
	TextLen    uint64 // parts: bytes of payload.text plus the deltas since, or NoText; else 0
	Edited     uint64 // the value's length, if its changes are stored apart from its base (view/edits.go); 0: the row has it whole
	Edits      []byte // the stored form of those changes; nil: the stored payload is the value
	LastAppend uint64 // cursor of the last appendText since Cursor; 0 if there was none and the payload is the whole value
	Claim      *Claim // who works on it, nil for nobody (claim.go); saved by Changes.Claims alone
}

// NoText is the TextLen of a part whose payload.text exists but is no string.
const NoText uint64 = 1<<63 - 1

// Turn is one begun turn; its key in the log is its message's key.
type Turn struct {
	Session string
	Message string // message id
	Status  TurnStatus
	Outbox  string // the stream that began it and holds its lease
	Ref     string // it was begun under; "" if no row has it any more
	Lease   int64  // Unix ms until which it counts as streaming without a renewal
	Begun   uint64 // cursor of begin
	Ended   uint64 // cursor of finalize; 0 while open
	Final   Hash   // digest of finalize's arguments, to recognize an equal second call
	Orphan  bool   // its ref was found dead while it was open: it is not counted, and renewed only by its own text (view/turns.go)
}

// TurnStatus is a turn's state. Interrupted is not terminal.
type TurnStatus uint8

// The states: streaming → completed | failed | aborted, and streaming ⇄ interrupted.
const (
	Streaming TurnStatus = 1 + iota
	Interrupted
	Completed
	Failed
	Aborted
)

// ReadSet is the rows that a group of batches needs from the store before it is decided. Slices are
// sorted and without duplicates; the store locks in their order: spaces shared (exclusively if
// External names them, since no other lock keeps two creates from using one external id), then
// session rows exclusively (creating an Absent row for an id without one). It reads everything else
// without locks, since it only changes under its session's row. A later Load of the same
// transaction has no Spaces and no ExclusiveSpaces, unless the earlier ones had only Below, and Sessions only if
// no earlier one had.
type ReadSet struct {
	Spaces          []string
	ExclusiveSpaces []string // spaces to lock exclusively, as every change of a space's own refs does
	Sessions        []string
	Others          []string        // sessions to read without a lock: those of refs that reach others
	Below           map[string]bool // sessions: the living sessions below each, if a living ref of it reaches them, or if it says so; with these refs, into Rows.Grants
	Streams         []StreamKey
	Records         []RecordRange                // outcome records: for duplicates, references and acknowledgements
	Grants          []string                     // by ref id
	Lineages        []string                     // ref ids to read with all their ancestors (for revoke), into Rows.Grants
	Managed         []string                     // space's refs: the sessions that each has opened by the right manage; the rows of these, and of those whose refs were minted from it, are locked
	Trees           []string                     // ref ids: for each, the number of living refs by session or space in its tree, itself included
	EntryMeta       map[string][]string          // session → keys: entries without their payload
	Entries         map[string][]string          // session → keys: entries with their payload
	Prefixes        map[string][]string          // session → key prefixes ("" for all): every entry below each, with its payload
	Turns           []string                     // sessions whose open turns (Streaming, Interrupted) are read, except orphans
	CountedTurns    []string                     // the subset of Turns whose turns are counted: the turns' refs and the refs of Grants are read with their ancestors in the session
	StreamingTurns  []string                     // sessions whose Streaming turns are read, orphans included
	OpenOrphans     []string                     // sessions whose open orphans are read, the oldest first and at most MaxOrphans of each
	TurnsOf         map[string][]string          // session → message ids whose turn is read, open or ended
	LapsedClaims    []string                     // sessions whose entries with claims that lapsed by LapsedBy are read without payload, at most MaxLapses of all; a Load that does not lock
	LapsedBy        int64                        // Unix ms
	Requests        []string                     // sessions whose requests that are open or claimed are read
	CountedClaims   string                       // the session whose claims that have not lapsed by LapsedBy are counted
	FreeKeys        *FreeKeys                    // a search for keys that are not claimed
	Ordered         []string                     // sessions whose entries must all have an Ord: those of servers of earlier versions get theirs first
	FirstMessage    map[string]KeyPosition       // session → place: the first message after it in the session's order, into Rows.Entries, without its payload
	Deltas          map[string]map[string]uint64 // session → part key → cursor: the texts of later appendText events, joined
	Logs            map[string]uint64            // session → cursor: its events up to and including that one (fork at an earlier cursor; of untrimmed logs)
	Page            *EntryPage                   // entries with their values, into Rows.Page
	Before          *BeforeSet                   // of what was kept for a fork, into Rows.Before
	LogRange        *LogRange                    // into Rows.LogRange
	PayloadEvents   map[string]string            // session → key: the events that hold payloads of that key, or may (HoldsPayload)
	External        []ExternalID                 // the living session with each

	// ValidUntil is when the first attenuated capability of the group expires, Unix ms, which no
	// row says; 0: none does.
	ValidUntil int64

	// MaxBytes bounds the payload bytes that Entries, Prefixes, Deltas, Logs and PayloadEvents read
	// in all; 0 is no bound. Above it reading stops, and Rows.Bytes exceeds it.
	MaxBytes int
}

// EntryPage selects the entries of a session after a key, in the order of the keys: at most Keys and, but for the
// first, about Bytes of them. With Before they are those that were kept for a fork, whose deltas are in the log of
// another session.
type EntryPage struct {
	Session, After string
	Bytes, Keys    int
	Before         bool
	Log            string
}

// BeforeSet selects entries of those that are kept for a fork (Changes).
type BeforeSet struct {
	Session string
	Keys    []string // without their values
	Values  []string // keys, with their values, until these have more than Bytes; of one there is its value
	Parts   []string // messages: the first Limit parts of each after the key After, without values
	After   string
	From    KeyPosition // the first Limit messages from that place in the session's order on, without values; of a Key
	Bytes   int
	Limit   int
}

// LogRange selects the events of a session after a cursor: at most Events and, but for the first, about Bytes of them.
type LogRange struct {
	Session       string
	After         uint64
	Events, Bytes int
}

// ExternalID is an external id among the sessions created under one ref of the space. At most one
// living session has it, apart from sessions created with decide.Direct.SharedExternalID; sessions created
// under other refs do not count.
type ExternalID struct {
	Space    string
	SpaceRef string // the space's ref; after a rotation its replacement
	ID       string
}

// RecordRange selects unpruned records of a stream: the ones with any seq in [From, To] (none if To
// is 0), and the ones with any of Ops.
type RecordRange struct {
	Stream   StreamKey
	From, To uint64
	Ops      []string // op ids
}

// Rows is the result of Load. Rows that do not exist are absent from the maps.
type Rows struct {
	Now           int64 // database clock, Unix ms: the single time of the transaction
	Sessions      map[string]*Row
	Others        map[string]*Row
	Below         map[string][]string // session → ids, in order
	Streams       map[StreamKey]*ledger.Stream
	Records       map[StreamKey][]*ledger.Record // by FirstSeq
	Grants        map[string]*capability.Grant
	Entries       map[string]map[string]*Entry // session → key; also entries without payload (nil)
	Turns         map[string]map[string]*Turn  // session → message id
	Deltas        map[string]map[string][]byte // session → part key → the text after the base value, in order (DeltaText of each event's payload)
	Logs          map[string][]*Event          // session → events in cursor order
	PayloadEvents map[string][]*Event          // session → events in cursor order, with Cursor and Method, and with Payload if the event only may hold the key's
	External      map[ExternalID]string        // → session
	Managed       map[string][]string          // ref id → sessions, in order
	Trees         map[string]map[string]uint64 // ref id → session or space → living refs; 0 where a ref of the tree only manages the session, or reaches it
	Page          []*Entry                     // with all their text
	MorePage      bool                         // others follow
	LogRange      []*Event                     // in cursor order
	Before        map[string]*Entry            // key → entry, of ReadSet.Before
	FreeKeys      []*Entry                     // entries without payload, by key
	ClaimCounts   map[string]int               // ref id → claims, of CountedClaims
	Requests      map[string][]*OpenRequest    // session → in any order
	MoreFreeKeys  bool                         // the search for FreeKeys looked at as many keys as it may, and others follow

	// Bytes is the size of all payloads read, plus a little for each row. Above ReadSet.MaxBytes
	// the rows are incomplete, and must not be used.
	Bytes int
}

// Changes is everything that a group writes, in bulk, after all decisions. Save writes in the order
// of the fields; Revoke therefore also reaches grants minted in the same group, and DropState
// events and entries of the same group. Each row is complete, and is inserted or replaces the
// existing one.
//
// Where forks of a session are being copied, by its row as loaded (Row.Copies), its entries from up to Copied.At are kept
// for each, once, before they change or are dropped. A purge removes the key from what was copied and kept too, and
// DropState all of it.
type Changes struct {
	Sessions     []*Row // by ID; one that was Absent and now has a Space claims its External
	Streams      []*ledger.Stream
	Prune        []StreamPrune // drop the records whose last seq is at or below
	Records      []StreamRecord
	Events       []*Event      // by session, in cursor order
	Purge        []PurgedEvent // events of earlier groups, by session, in cursor order; removed payloads must not stay in the database's files
	DropReverted []RevertedMessage
	DropEntries  map[string][]string      // session → keys, sorted
	Entries      []*Entry                 // by session and key
	Appended     []*Entry                 // like Entries, but of other keys: only TextLen and LastAppend changed, the stored payload stays
	Edited       []*Entry                 // like Entries, but of other keys: the stored payload stays, and Edits make the value of it
	DropBefore   map[string][]string      // a fork's session → keys, sorted: of what was kept for it
	Before       []*Entry                 // by key: what is kept for a fork; where Payload is nil the stored one stays
	DropEdits    map[string][]string      // session → keys, sorted: their values are whole now, or gone
	Claims       []*Entry                 // by session and key: Claim changed, and nothing else is read; of entries that exist then
	Turns        []*Turn                  // by session and message
	Requests     []*OpenRequest           // by session and id: inserted or replaced
	DropRequests map[string][]string      // session → ids, sorted: they have ended
	Grants       []*capability.Grant      // minted
	Public       []capability.PublicShare // of minted refs that have a public id
	Managed      []Managed                // that space's refs have opened, again or anew
	Charges      []Charge                 // by ref
	Rotate       []RotatedGrant           // each ref alone is revoked, and its children become the new ref's
	Revoke       []RevokedGrant           // with all living descendants, in one statement
	DropState    []string                 // deleted sessions: entries, turns, requests, external id and all event payloads are removed, rows and hashes stay
	Audit        []*capability.AuditRow
}

// Charge adds to the bytes stored under a ref.
type Charge struct {
	Ref   string
	Bytes int64
}

// RevertedMessage is a message that a settled revert hid: its row and those of its parts and its turn are
// removed, as far as they are from before cursor Before. If Part is set, the revert hid only its parts from
// that one on, which is at the place From.
type RevertedMessage struct {
	Session, Message string
	Before           uint64
	Part             string
	From             Ord
}

// PurgedEvent is an event that loses a payload: Payload is the remainder, nil for none.
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

// StreamPrune removes the outcomes at or below Through.
type StreamPrune struct {
	Stream  StreamKey
	Through uint64
}

// RotatedGrant replaces ID by By, minted in the same group or before; ID alone is revoked.
type RotatedGrant struct {
	ID, By string
	At     int64
	Cut    uint64
}

// RevokedGrant revokes a ref and all its descendants. If ID is a space's ref, the cut of each
// session's refs is the cursor of that session's row at the time of the write.
type RevokedGrant struct {
	ID, By string
	At     int64
	Cut    uint64
}

// Tx is one store transaction, as decide.Commit uses it. It is for one goroutine.
type Tx interface {
	// Load locks and reads. It may be called again for more rows, but locks sessions in one call
	// only. The result belongs to the caller, who changes it in place.
	Load(ctx context.Context, w *ReadSet) (*Rows, error)
	// Save writes all changes. No statement in it is expected to fail, since everything was decided
	// on locked rows.
	Save(ctx context.Context, c *Changes) error
}

// Managed is a session in which a space's ref may have acted.
type Managed struct{ Ref, Session string }

// below reports whether a session is below another.
func (p Parent) below(id string) bool { return slices.Contains(strings.Fields(p.Above), id) }

// Below reports whether the session is below another.
func (r *Row) Below(id string) bool { return r.Parent.below(id) }
