// Store: the interface of the server to its database. The packages store/sqlite and
// store/postgres implement it; only cmd and tests import them.

package objects

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Store keeps the rows. A method that writes is one transaction. A method that reads returns
// authority and rows of one snapshot. All methods are safe for concurrent use. Errors that
// callers handle are faults (Unavailable, DiskFull); all others are defects.
type Store interface {
	// Update runs fn in one read-write transaction and commits if fn returns nil; otherwise
	// it returns fn's error unchanged.
	Update(ctx context.Context, fn func(session.Tx) error) error

	// UpdateOptimistic is Update for an fn that decides on the rows it loads and has no other
	// effect: fn may run twice, first on cached rows and again if these were stale.
	UpdateOptimistic(ctx context.Context, fn func(session.Tx) error) error

	// OptimisticStats returns the number of transactions committed on cached rows, and of
	// those decided again because a cached row was stale.
	OptimisticStats() (right, wrong uint64)

	// PoolStats returns the open connections to the database and their maximum, 0 and 0
	// without a pool. short reports that the database granted no more connections.
	PoolStats() (have, most int, short bool)

	// FreeSpace returns the free bytes on the database's disk; known is false if it cannot tell.
	FreeSpace() (bytes uint64, known bool)

	// OpenStream opens the stream of the request's secret (session.StreamFor), or makes it,
	// and raises its incarnation. Errors: WrongOutbox, Fenced, session.ErrReadOnlyStreams.
	OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error)

	// FindStreams returns the existing streams among keys, with the session's row and grants.
	FindStreams(ctx context.Context, keys []session.StreamKey, refs []string) (*session.Access, map[session.StreamKey]*ledger.Stream, error)

	// Redeem calls admit to decide on a ref. If admit returns nil, a redemption id not
	// counted before is counted, and audited with the address of peer.
	Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error

	// Init makes the first space with root as its ref if there is none. It returns the id of
	// the first space, and whether this call made it.
	Init(ctx context.Context, root *capability.Grant) (space string, created bool, err error)

	// Audit writes a page of audit rows that no other transaction carries.
	Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error

	// ReadAudit returns at most limit rows of a session's or space's audit after row seq, and
	// the end of its hash chain.
	ReadAudit(ctx context.Context, target string, seq uint64, limit int, refs []string) (*session.AuditPage, error)

	// AddUses adds a page to the use counts of refs, each ref at most once a page. AuditExpired
	// audits refs that have expired, at most limit; more reports that others may be left.
	AddUses(ctx context.Context, page capability.IdempotencyKey, uses []capability.RefUses) error
	AuditExpired(ctx context.Context, limit int) (more bool, err error)

	// CollectPageTokens removes expired tokens of pages, at most limit, as AuditExpired does.
	CollectPageTokens(ctx context.Context, limit int) (more bool, err error)

	// ReadAccess returns a session's row and the grants of the refs that exist. Describe also
	// returns the session's info entry, nil if there is none.
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)
	Describe(ctx context.Context, session string, refs []string) (*session.Access, *session.Entry, error)

	// ReadLog returns events after a cursor; hashesAt are cursors whose event hashes are
	// returned too. ReadState calls piece with the folded state in pieces (piece runs inside
	// the snapshot, so it must not wait without bound). ReadRange returns the state of the
	// keys between two keys. ReadRows, below, returns the rows of the sessions that exist.
	ReadLog(ctx context.Context, session string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.LogPage, error)
	ReadState(ctx context.Context, session string, refs []string, pieceBytes int, piece func(*session.StateChunk) error) error
	ReadRange(ctx context.Context, session, after, below string, maxBytes, maxEntries int, refs []string) (*session.StateRange, error)
	// ReadOutline returns the entries of the keys between two keys, by key and without values.
	// ReadValues returns the entries of keys, in their order. Both stop at their limit.
	ReadOutline(ctx context.Context, session, after, below string, most int, refs []string) (*session.StateRange, error)
	ReadValues(ctx context.Context, session string, keys []string, maxBytes int, refs []string) (page *session.StateRange, next int, err error)
	ReadRows(ctx context.Context, sessions []string) (map[string]*session.Row, error)

	// ListSessions returns a page of a space's sessions.
	ListSessions(ctx context.Context, space string, q session.ListQuery, refs []string) (*session.ListPage, error)

	// ReadTree returns a page of the refs below one ref, with the row of the session ("" for
	// none) and the grants of refs.
	ReadTree(ctx context.Context, id string, q session.TreeQuery, refs []string) (*session.TreePage, error)

	// LapsedTurns returns at most limit ids, greater than after, of sessions with a streaming
	// turn whose lease ran out before a time (0: the database's now).
	LapsedTurns(ctx context.Context, before int64, after string, limit int) ([]string, error)

	// Trimmable returns, of the next sessions by id, those whose logs begin with events older
	// than keep, and the id to continue after ("" at the end). Trim removes a part of one log,
	// and reports whether more of it is due.
	Trimmable(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)
	// TrimmableDeleted is Trimmable for sessions deleted longer ago than keep. Forget is Trim
	// for their remaining rows, at most rows of each kind.
	TrimmableDeleted(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)
	Forget(ctx context.Context, session string, keep time.Duration, rows int) (more bool, err error)
	Trim(ctx context.Context, session string, keep time.Duration, maxEvents, maxBytes int) (more bool, err error)

	// RefreshTitles updates the sort keys of lists from changed titles, at most limit of them.
	RefreshTitles(ctx context.Context, limit int) (more bool, err error)
	// Unmeasured returns sessions whose size is not known; Measure measures one, in bytes.
	Unmeasured(ctx context.Context, limit int) (ids []string, err error)
	Measure(ctx context.Context, id string) (bytes int64, err error)

	// Totals sums up the next sessions by id, and returns the id to continue after (""
	// if there were none).
	Totals(ctx context.Context, after string, limit int) (t session.Totals, next string, err error)

	// AccountRef returns the ref of a space to whose account a session, or another ref of the
	// space, counts. AccountUsage returns the bytes of an account and the bytes exempt from its
	// quota; spared is -1 while that is not known.
	AccountRef(ctx context.Context, id string) (ref string, err error)
	AccountUsage(ctx context.Context, ref string) (bytes, spared int64, err error)

	// HistoryID returns the id of the history that the database's commits belong to.
	HistoryID(ctx context.Context) (id string, err error)

	// Listen calls heard for commits until ctx ends; heard("", 0) reports that notifications
	// may have been missed.
	Listen(ctx context.Context, heard func(session string, cursor uint64)) error

	// Ping returns nil if the database answers. Probe returns nil if it commits a row of
	// that many bytes.
	Ping(ctx context.Context) error
	Probe(ctx context.Context, bytes int) error
}
