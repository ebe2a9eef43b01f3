// What the server needs of a store. The packages store/sqlite and
// store/postgres give one; nobody but cmd and tests imports them.

package server

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// Store keeps the rows. Methods that write are one transaction each, methods
// that read see one snapshot with authority and rows together. All are safe for
// concurrent use. Errors that mean something are faults (Unavailable, DiskFull);
// all others are defects.
type Store interface {
	// Update runs fn in one read-write transaction and commits if it returns
	// nil; its error comes back as it is.
	Update(ctx context.Context, fn func(session.Tx) error) error

	// UpdateOptimistic is Update for what decides on what it loads and does nothing else: fn
	// may be run twice, first on rows as they are remembered.
	UpdateOptimistic(ctx context.Context, fn func(session.Tx) error) error

	// OptimisticStats is how many transactions were committed on such rows, and how many
	// were not because they were others.
	OptimisticStats() (right, wrong uint64)

	// PoolStats are how many there are to the database, of how many at most, 0 of 0
	// without a pool; short says that there were no more to be had.
	PoolStats() (have, most int, short bool)

	// FreeSpace is how many bytes there is room for on the database's disk, where that is known.
	FreeSpace() (bytes uint64, known bool)

	// OpenStream opens the stream that a secret opens (session.StreamFor), or makes it,
	// and raises its incarnation (WrongOutbox, Fenced, session.ErrIdle).
	OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error)

	// FindStreams gives those of a session's streams of keys that are there.
	FindStreams(ctx context.Context, keys []session.StreamKey, refs []string) (*session.Access, map[session.StreamKey]*ledger.Stream, error)

	// Redeem has admit decide on a ref; if it returns nil, a redemption id not
	// counted before is counted, and audited with the address of peer.
	Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error

	// Init makes the first space with root as its ref if there is none; it
	// gives the first space's id and whether this call made it.
	Init(ctx context.Context, root *capability.Grant) (space string, created bool, err error)

	// Audit writes a page of audit rows that no transaction of theirs carries.
	Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error

	// ReadAudit gives the rows of a session's or space's audit after the row seq,
	// with the end of its chain.
	ReadAudit(ctx context.Context, target string, seq uint64, limit int, refs []string) (*session.AuditPage, error)

	// AddUses adds a page to the uses of refs, each named once. AuditExpired notes in the audit
	// refs that have expired, at most limit; more says that there may be others.
	AddUses(ctx context.Context, page capability.IdempotencyKey, uses []capability.RefUses) error
	AuditExpired(ctx context.Context, limit int) (more bool, err error)

	// CollectPageTokens removes tokens of pages whose time is over, as AuditExpired does.
	CollectPageTokens(ctx context.Context, limit int) (more bool, err error)

	// ReadAccess gives a session's row and those of refs that are known, Describe the
	// session's info too (nil if there is none).
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)
	Describe(ctx context.Context, session string, refs []string) (*session.Access, *session.Entry, error)

	// ReadLog gives events after a cursor, ReadState the folded state in pieces
	// (piece must not wait without bound: it is called inside the snapshot),
	// ReadRange that of the keys between two, ReadRows the rows of those sessions
	// that are there. hashesAt are cursors whose events' hashes are wanted too.
	ReadLog(ctx context.Context, session string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.LogPage, error)
	ReadState(ctx context.Context, session string, refs []string, pieceBytes int, piece func(*session.StateChunk) error) error
	ReadRange(ctx context.Context, session, after, below string, maxBytes, maxEntries int, refs []string) (*session.StateRange, error)
	// ReadOutline gives the entries of the keys between two without values, by key, and
	// ReadValues those of keys, in their order, both as far as they fit.
	ReadOutline(ctx context.Context, session, after, below string, most int, refs []string) (*session.StateRange, error)
	ReadValues(ctx context.Context, session string, keys []string, maxBytes int, refs []string) (page *session.StateRange, next int, err error)
	ReadRows(ctx context.Context, sessions []string) (map[string]*session.Row, error)

	// ListSessions gives a page of a space's sessions.
	ListSessions(ctx context.Context, space string, q session.ListQuery, refs []string) (*session.ListPage, error)

	// ReadTree gives a page of the refs below one, with the sight of the session
	// ("" for none) and refs.
	ReadTree(ctx context.Context, id string, q session.TreeQuery, refs []string) (*session.TreePage, error)

	// LapsedTurns gives sessions with a streaming turn whose lease ran out before a
	// time (0: the database's now), by id from the one after after.
	LapsedTurns(ctx context.Context, before int64, after string, limit int) ([]string, error)

	// Trimmable gives, of the next sessions by id, those whose logs begin with
	// what is older than keep, and where to go on from ("" at the end); Trim lets
	// go of a piece of one's log and says whether more of it is due.
	Trimmable(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)
	// TrimmableDeleted is Trimmable for sessions that were deleted longer ago than keep, and
	// Forget is Trim for what is left of them, at most rows of each kind.
	TrimmableDeleted(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)
	Forget(ctx context.Context, session string, keep time.Duration, rows int) (more bool, err error)
	Trim(ctx context.Context, session string, keep time.Duration, maxEvents, maxBytes int) (more bool, err error)

	// RefreshTitles has the titles that were written lists are sorted by, at most so many.
	RefreshTitles(ctx context.Context, limit int) (more bool, err error)
	// Unmeasured gives sessions of which it is not known what they hold, Measure finds it out.
	Unmeasured(ctx context.Context, limit int) (ids []string, err error)
	Measure(ctx context.Context, id string) (bytes int64, err error)

	// Totals sums up the next sessions by id, and gives where to go on from ("" if there were none).
	Totals(ctx context.Context, after string, limit int) (t session.Totals, next string, err error)

	// AccountRef gives the ref of a space that a session counts for, or another ref of the space
	// does, and AccountUsage what all that counts for one holds; -1 is spared while that is not known.
	AccountRef(ctx context.Context, id string) (ref string, err error)
	AccountUsage(ctx context.Context, ref string) (bytes, spared int64, err error)

	// HistoryID is the id of the history that the database's commits belong to.
	HistoryID(ctx context.Context) (id string, err error)

	// Listen calls heard for commits until ctx ends; heard("", 0) says that
	// some may have been missed.
	Listen(ctx context.Context, heard func(session string, cursor uint64)) error

	// Ping is nil if the database answers, Probe if it commits, a row of so many bytes too.
	Ping(ctx context.Context) error
	Probe(ctx context.Context, bytes int) error
}
