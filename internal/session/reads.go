// Results of reads. Each is one snapshot, in which the rows and the authority to see them belong
// together. The store returns them as Unscoped, so no row leaves the process without its scope.

package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Reader is what the objects read of sessions and spaces. A method returns authority and rows of one
// snapshot.
type Reader interface {
	// ReadAudit returns at most limit rows of a session's or space's audit after row seq, and
	// the end of its hash chain.
	ReadAudit(ctx context.Context, target string, seq uint64, limit int, refs []string) (*AuditPage, error)

	// Describe returns a session's row and info entry.
	Describe(ctx context.Context, session string, refs []string) (*Unscoped[*Description], error)

	// ReadRange returns the state of the keys between two keys.
	ReadRange(ctx context.Context, session, after, below string, maxBytes, maxEntries int, refs []string) (*Unscoped[*StateRange], error)
	// ReadOutline returns the entries of the keys between two keys, by key and without values.
	// ReadValues returns the entries of keys, in their order. Both stop at their limit.
	ReadOutline(ctx context.Context, session, after, below string, most int, refs []string) (*Unscoped[*StateRange], error)
	ReadValues(ctx context.Context, session string, keys []string, maxBytes int, refs []string) (values *Unscoped[*StateRange], next int, err error)

	// ListSessions returns a page of a space's sessions.
	ListSessions(ctx context.Context, space string, q ListQuery, refs []string) (*ListPage, error)

	// ListOlder returns a page of a space's old sessions.
	ListOlder(ctx context.Context, space string, q OlderQuery, refs []string) (*OldPage, error)

	// ReadChildren returns a page of what a ref of a session shows of its living children, by id.
	// admit is as in ReadStat.
	ReadChildren(ctx context.Context, session, after string, limit int, refs []string, admit Admit) (*ListPage, error)

	// ReadTree returns a page of the refs below one ref, with the row of the session ("" for
	// none) and the grants of refs.
	ReadTree(ctx context.Context, id string, q TreeQuery, refs []string) (*TreePage, error)

	// ReadStat returns how much of a session a ref shows: by the grant that admit returns, which is
	// called with the session's row and the grants of refs. It returns admit's error unchanged.
	ReadStat(ctx context.Context, session string, refs []string, admit Admit) (*Stat, error)

	// ReadKeys returns the entries of keys that a ref shows, in their order and of about maxBytes or
	// one entry. next is the number of keys that were read. admit is as in ReadStat.
	ReadKeys(ctx context.Context, session string, keys []string, maxBytes int, refs []string, admit Admit) (page *Unscoped[*KeyPage], next int, err error)

	// ListKeys returns a page of the keys below a prefix that a ref shows, of about maxBytes or one
	// entry. admit is as in ReadStat.
	ListKeys(ctx context.Context, session string, q KeyQuery, maxBytes int, refs []string, admit Admit) (*Unscoped[*KeyPage], error)

	// ReadRequests returns a page of the requests that are open or claimed and that a ref shows, of about
	// maxBytes or one request. admit is as in ReadStat.
	ReadRequests(ctx context.Context, session string, q RequestQuery, maxBytes int, refs []string, admit Admit) (*Unscoped[*RequestPage], error)

	// Search returns a page of the entries that a ref shows and a query finds. It first brings the
	// session's index up to date, or as far as one search goes. admit is as in ReadStat, and called twice.
	Search(ctx context.Context, session string, q SearchQuery, refs []string, admit Admit) (*Unscoped[*SearchPage], error)
}

// Admit returns the grant by which a session is shown, or why it is not. It is called with the rows
// of the snapshot.
type Admit = func(*Access) (*capability.Grant, error)

// Access is a session's row and some refs' rows in one snapshot.
type Access struct {
	Now    int64                        // database clock, Unix ms
	Row    *Row                         // nil if there is none (or for a space); may be Absent or Deleted
	Grants map[string]*capability.Grant // by ref id, without unknown refs
	Others map[string]*Row              // by id: the other sessions that have refs among Grants
	Key    HashKey                      // of masked hashes; set in pages, states, ranges and descriptions
}

// LogPage is a piece of a session's log in one snapshot.
type LogPage struct {
	Access
	// Checkpoint is the event at Row.Base, without its payload: the chain of a trimmed log
	// continues from it. It is read only if the page was requested from before Base.
	Checkpoint *Event
	Events     []*Event // consecutive cursors, from the one after the requested (or Row.Base)
	More       bool     // the log continued beyond Events when it was read
	// Hashes are the hashes of the events at the additionally requested cursors that have rows,
	// including the last trimmed one.
	Hashes map[uint64]Hash
}

// AuditPage is a piece of a target's audit in one snapshot.
type AuditPage struct {
	Access
	Rows []*capability.AuditRow // by Seq
	Seq  uint64                 // of the last row, 0 for none
	Head Hash                   // its hash
}

// StateChunk is a part of the folded state. All chunks of one read are of one snapshot and share
// its Access; the state is as of Row.Cursor. Deltas of open turns are folded into their parts'
// payloads.
type StateChunk struct {
	Access
	// Compacted is what the view is compacted to, in each chunk. LeftOut are ids of messages that it leaves out, over
	// all chunks, before the first turn: a reader who follows leaves out what comes of them.
	Compacted Compaction
	LeftOut   []string
	Turns     []*Turn  // by message over all chunks, before the first entry
	Entries   []*Entry // in no particular order: their Ord is the order (CompareEntries, SortDocument)
	Last      bool
	Hash      Hash // of the event at Row.Cursor, as the ref is shown it; zero in what the store read
}

// Portion is what is read of a state: the entries in ranges of keys, which are disjoint and in order, with the turns
// of the messages among them, and without what the view that is Compacted to that leaves out.
type Portion struct {
	Ranges    []KeyRange
	Compacted Compaction
}

// StateRange is a range of keys of the folded state, in one snapshot. Deltas of open turns are
// folded into their parts' payloads.
type StateRange struct {
	Access
	Entries []*Entry // in key order
	Turns   []*Turn  // turns of the messages among Entries, in their order
	More    bool     // the range has more keys
	Last    string   // the last key that was looked at, which may be hidden
}

// Stat is how much of a session a ref shows.
type Stat struct {
	Cursor uint64     `json:"cursor"` // of the session's last event
	Events uint64     `json:"events"` // that are in the log, without cursor marks
	First  int64      `json:"first"`  // when the first and the last of them were committed, Unix ms; 0 if there is none
	Last   int64      `json:"last"`
	Kinds  []KindStat `json:"kinds"` // of the keys, by name: of the first 256 kinds that have some
}

// KindStat is how many keys of a kind there are, and about how many bytes their values have.
type KindStat struct {
	Kind  string `json:"kind"`
	Keys  uint64 `json:"keys"`
	Bytes uint64 `json:"bytes"`
}

// Bytes is about the size of a turn in a chunk.
func (t *Turn) Bytes() int { return len(t.Message) + len(t.Outbox) + len(t.Ref) + 64 }

// Bytes is the approximate cost of an event on its way to a subscriber.
func (e *Event) Bytes() int { return len(e.Payload) + len(e.Key) + len(e.Actor) + 256 }

// Bytes is about the size of an entry in a chunk.
func (e *Entry) Bytes() int { return len(e.Payload) + len(e.Key) + 128 }

// Listing is a session in a list of its space.
type Listing struct {
	Row
	Title string // the session info's title; "" if it has none

	Activity *Activity // nil unless it was asked for, and of a session without a last event
}

// Activity is what goes on in a session.
type Activity struct {
	Running bool   // a turn is being written: its lease runs
	Ref     string // of the last event
	Actor   string // likewise
}

// SharedListing is a public share in the list of all shares, with its session.
type SharedListing struct {
	Listing
	Share capability.PublicShare
}

// Redemption is the input of a decision to redeem a ref.
type Redemption struct {
	Access
	Grant            *capability.Grant   // nil: no such ref
	LimitedAncestors []*capability.Grant // its ancestors with a limit, by id, if this redemption is a new one: it counts for them too
	AlreadyCounted   bool                // this redemption id was counted before: it is free
	// Uncounted is set after the decision if the redemption is not stored: the ref has no limit,
	// and was redeemed MaxCountedRedemptions times before.
	Uncounted bool
}

// OtherSessions returns the sessions of refs that are not those of session id.
func OtherSessions(id string, refs []string) (others []string) {
	for _, ref := range refs {
		if target := capability.Target(ref); capability.IsSession(target) && target != id && !slices.Contains(others, target) {
			others = append(others, target)
		}
	}
	slices.Sort(others)
	return others
}

// NoChild returns the refusal of a session that is not below another. It is the same whether there is such a
// session or not.
func NoChild() *fault.Error { return fault.NotFound.With("the session has no such child") }

// TreeRow is a ref in a tree, as shown to a holder who may revoke it.
type TreeRow struct {
	Grant    *capability.Grant
	Epoch    uint64 // its session's; 0 for a space's ref
	Uses     uint64 // calls and ops under it
	LastUsed int64  // time of the last use, Unix ms; 0 never
}

// TreeQuery is a request for a page of a tree.
type TreeQuery struct {
	Under string // the root of the tree; "": the ref of the call
	After string // the previous page's TreePage.Next; "": from the start
	Limit int    // the maximum number of refs
}

// TreePage is a page of the tree below a ref in one snapshot.
type TreePage struct {
	Access
	// Lineage has the ids from the requested ref up to the root that all refs descend from; empty
	// if there is no such ref.
	Lineage []string
	// Rows are in depth-first order, siblings in order of creation: each ref is followed by its
	// descendants.
	Rows []TreeRow
	Next string // the After of the next page; "": there is none
	// Moved reports that the position After no longer exists: Rows is empty.
	Moved bool
}

// TreePosition returns the position in a tree after the first ref of line, which has the ids from
// that ref up to the tree's root. Refs are never removed from a tree, but a rotation moves the
// children of one ref below another, elsewhere in the order. So a position names the whole line.
func TreePosition(line []string) string {
	return line[0] + treePositionSep + lineageSum(line)
}

const treePositionSep = "~"

func lineageSum(line []string) string {
	sum := sha256.Sum256([]byte(strings.Join(line, " ")))
	return hex.EncodeToString(sum[:8])
}

// TreePositionRef returns the ref that a position is after.
func TreePositionRef(place string) string {
	ref, _, _ := strings.Cut(place, treePositionSep)
	return ref
}

// IsTreePosition reports whether a position is after the first of line. A position that is only a
// ref's id, as from clients of earlier versions, is wherever that ref is.
func IsTreePosition(place string, line []string) bool {
	ref, sum, whole := strings.Cut(place, treePositionSep)
	return len(line) > 0 && line[0] == ref && (!whole || sum == lineageSum(line))
}
