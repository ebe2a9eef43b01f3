// What a reader gets: each of these is one snapshot, in which the rows and the
// authority to see them belong together. The server checks the grants of a
// snapshot before any of its rows leaves the process.

package session

import "github.com/mooring-rpc/mooring/capability"

// Access is a session's row and some refs' rows in one snapshot.
type Access struct {
	Now    int64                        // database clock, Unix ms
	Row    *Row                         // nil if there is none (or for a space); may be Absent or Deleted
	Grants map[string]*capability.Grant // by ref id; a ref that is not known is not in it
	Key    HashKey                      // of the hashes that are shown; of pages, states, ranges and descriptions
}

// LogPage is a piece of a session's log in one snapshot.
type LogPage struct {
	Access
	// Checkpoint is the event at Row.Base, without its payload: what the chain of
	// a trimmed log goes on from. It is read only by who asks from before Base.
	Checkpoint *Event
	Events     []*Event // consecutive cursors, from the one after that asked for (or Row.Base)
	More       bool     // the log went on beyond Events when it was read
	// Hashes are those of the events at the cursors that were asked for beside, as far
	// as their rows are there: of the end of what was trimmed, too.
	Hashes map[uint64]Hash
}

// AuditPage is a piece of a target's audit in one snapshot.
type AuditPage struct {
	Access
	Rows []*capability.AuditRow // by Seq
	Seq  uint64                 // of the last row there is, 0 for none
	Head Hash                   // its hash
}

// StateChunk is a part of the folded state. All pieces of one read are of one
// snapshot and share its Access; the state is that of Row.Cursor. Deltas of open
// turns are folded into their parts' payloads.
type StateChunk struct {
	Access
	Turns   []*Turn  // by message over all pieces, before the first entry
	Entries []*Entry // in no order of their own: their Ord says it (CompareEntries, SortDocument)
	Last    bool
	Hash    Hash // of the event at Row.Cursor, as the ref is shown it: set by who shows the state
}

// StateRange is a piece of the folded state by keys, in one snapshot. Deltas of open
// turns are folded into their parts' payloads.
type StateRange struct {
	Access
	Entries []*Entry // in key order
	Turns   []*Turn  // of the messages among Entries that were begun, in their order
	More    bool     // there were more keys in the range
}

// Bytes is what a turn costs in a piece, about.
func (t *Turn) Bytes() int { return len(t.Message) + len(t.Outbox) + len(t.Ref) + 64 }

// Bytes is what an entry costs in a piece, about.
func (e *Entry) Bytes() int { return len(e.Payload) + len(e.Key) + 128 }

// Listing is a session in a list of its space.
type Listing struct {
	Row
	Title string // the session info's title; "" if it has none
}

// SharedListing is a public share in a list of all, with its session.
type SharedListing struct {
	Listing
	Share capability.PublicShare
}

// Redemption is what a redeeming decides on.
type Redemption struct {
	Access
	Grant            *capability.Grant   // nil: no such ref
	LimitedAncestors []*capability.Grant // those with a limit that it was minted from, by id, where one more is to be counted: a redemption of it is one of theirs
	AlreadyCounted   bool                // this redemption id was counted before: it is free
	// Uncounted is set after the decision, where nothing is kept of the redemption: the ref has no
	// limit, and was redeemed so often that one more is not told apart.
	Uncounted bool
}
