// Optimistic transactions: a commit in one round trip to the database. The rows that a group of
// batches is decided on were mostly written by this server a moment ago. So the group is decided on
// cached rows (rowcache.go); then one round trip locks its sessions, validates every row that was
// used, writes, and commits. If a row is stale, or the cache lacks one, nothing is written, and the
// group is decided again on rows that are read under lock, in two round trips.
//
// A decision is a function of the loaded rows and of the time. So if the rows are still the same
// under the session's lock, a decision made there would be the same. Validation compares:
//
//   - for each session, the version of its row: in Postgres the number of the transaction that
//     wrote it (xmin). It changes with everything that batches are decided on, except for the items
//     below: the session's log, entries, turns and the authority of its refs (not with a ref's
//     redemption count, which batches do not read). Cursor and head are compared too, since a
//     restored database assigns the same numbers again;
//   - for each stream, the version of its row and, for the same reason, its incarnation and last
//     seq. Its records change only with that row, and so do the leases of its turns, which other
//     streams' batches do not read;
//   - for keys that are not cached and assumed to be free, that they are. Keys that are inserted
//     need no check: the database refuses an existing key and undoes everything written before it;
//   - that the database's clock is close to the assumed time, and that no ref in use has expired
//     since.
//
// Every write depends on the validation's result inside the database. A transaction that reads the
// result before it has sent its last statement, as for long lists (Statement.Into), sends no more
// if the rows were stale.
//
// The validation is one statement, whose snapshot may be older than the locks it waits for. But of
// a row that it has locked it sees the newest version, and if a session's row is the expected one,
// nothing else of the session has changed in between.

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// errStale ends a transaction whose cached rows were stale, or may have been.
var errStale = errors.New("store: the rows are not as they were remembered")

// maxClockSkew is by how many ms the database's clock may be ahead of the time of an optimistic
// decision when that is validated. Events carry the decision's time, and leases of turns run from
// it, so leases may be shorter by as much; no ref is used longer for it (assumptions.validUntil).
// The difference consists of the decision itself, the wait for locks, and the drift of the cached
// clock since it was read: on a busy machine a group of thousands of ops takes tenths of a second.
const maxClockSkew = 500

// assumptions are the facts that an optimistic transaction relies on.
type assumptions struct {
	sessions       []string // in order, with …
	versions       []int64  // … their rows' versions, and …
	cursors        []int64  // … their cursors
	heads          [][]byte
	streams        sessionKeys // outboxes, with …
	streamVersions []int64
	incarnations   []int64
	lastSeqs       []int64
	absentEntries  sessionKeys // keys assumed to have no entry
	absentTurns    sessionKeys // messages assumed to have no turn
	now            int64
	validUntil     int64 // when the first of the refs expires, Unix ms

	validated bool // compared with the database
	fresh     bool // and found unchanged
}

// sessionKeys are pairs of a session and a key.
type sessionKeys struct{ sessions, keys []string }

func (k *sessionKeys) add(session, key string) {
	k.sessions, k.keys = append(k.sessions, session), append(k.keys, key)
}

// UpdateOptimistic is Update for an fn whose only effects are through the Tx: fn may run twice,
// first on cached rows. The effects of the first run are committed only if the cached rows are
// unchanged in the database, which is known before UpdateOptimistic returns.
func (s *Store) UpdateOptimistic(ctx context.Context, fn func(session.Tx) error) error {
	if s.cache == nil {
		return s.Update(ctx, fn)
	}
	err := s.runUpdate(ctx, &assumptions{}, func(t *tx) error {
		err := fn(t)
		if t.assumed != nil && (err != nil || len(t.saved) == 0) {
			return errStale // it depends on rows that were not validated
		}
		return err
	})
	if errors.Is(err, errStale) {
		return s.Update(ctx, fn)
	}
	return err
}

// OptimisticStats returns how many validated decisions were committed and how many were stale,
// since the store was opened.
func (s *Store) OptimisticStats() (right, wrong uint64) {
	if s.cache == nil {
		return 0, 0
	}
	return s.cache.fresh.Load(), s.cache.stale.Load()
}

// loadCached is Load from the cache; nil if w needs a row that is not cached.
func (t *tx) loadCached(w *session.ReadSet) *session.Rows {
	if !cacheable(w) {
		return nil
	}
	g, now := &assumptions{validUntil: math.MaxInt64}, t.cache.now()
	t.cached = t.cache.take(w.Sessions)
	for _, id := range w.Sessions {
		r := t.cached[id]
		if r == nil {
			return nil
		}
		if r.backoff > 0 {
			r.backoff--
			return nil
		}
		if r.version == 0 || now == 0 {
			return nil
		}
	}
	out := &session.Rows{
		Sessions: make(map[string]*session.Row, len(w.Sessions)),
		Streams:  make(map[session.StreamKey]*ledger.Stream, len(w.Streams)),
		Records:  make(map[session.StreamKey][]*ledger.Record, len(w.Records)),
		Grants:   make(map[string]*capability.Grant, len(w.Grants)),
		Entries:  make(map[string]map[string]*session.Entry, len(w.EntryMeta)),
		Turns:    map[string]map[string]*session.Turn{},
	}
	was := make(map[string]priorRow, len(w.Sessions))
	for _, id := range w.Sessions {
		row := t.cached[id].row
		g.sessions, g.versions = append(g.sessions, id), append(g.versions, t.cached[id].version)
		g.cursors, g.heads = append(g.cursors, int64(row.Cursor)), append(g.heads, bytes.Clone(row.Head[:]))
		out.Sessions[id] = &row
		was[id] = priorRow{space: row.Space, external: row.External}
		now = max(now, row.Updated) // time does not run backwards along a log
	}
	if w.ValidUntil != 0 && w.ValidUntil <= now { // it has expired, and later ones may expire soon
		return nil
	}
	if g.now = now; w.ValidUntil != 0 {
		g.validUntil = w.ValidUntil
	}
	if !t.cachedLedger(w, g, out) || !t.cachedGrants(w, g, out) || !t.cachedTurns(w, g, out) || !t.cachedTurnRefs(w, g, out) {
		return nil
	}
	t.cachedEntryMeta(w, out)
	*t.assumed, t.prior = *g, was
	t.loaded, t.locked = true, true
	t.now, out.Now = now, now
	return out
}

// cacheable reports whether w needs only kinds of rows that are cached.
func cacheable(w *session.ReadSet) bool {
	return len(w.Sessions) > 0 && len(w.Spaces)+len(w.ExclusiveSpaces)+len(w.Lineages)+len(w.Trees)+len(w.Entries)+len(w.Prefixes)+
		len(w.Deltas)+len(w.Logs)+len(w.PayloadEvents)+len(w.External)+len(w.StreamingTurns) == 0
}

func (t *tx) cachedLedger(w *session.ReadSet, g *assumptions, out *session.Rows) bool {
	for _, key := range w.Streams {
		r := t.cached[key.Session]
		if r == nil {
			return false
		}
		m, known := r.streams[key.Outbox]
		if !known {
			return false
		}
		g.streams.add(key.Session, key.Outbox)
		g.streamVersions = append(g.streamVersions, m.version)
		g.incarnations, g.lastSeqs = append(g.incarnations, int64(m.row.Incarnation)), append(g.lastSeqs, int64(m.row.LastSeq))
		out.Streams[key] = &m.row
	}
	for _, want := range w.Records {
		stream := out.Streams[want.Stream]
		if stream == nil || len(want.Ops) > 0 {
			return false
		}
		found, ok := t.cached[want.Stream.Session].recordsCovering(stream, want.From, want.To)
		if !ok {
			return false
		}
		out.Records[want.Stream] = append(out.Records[want.Stream], found...)
	}
	return true
}

func (t *tx) cachedGrants(w *session.ReadSet, g *assumptions, out *session.Rows) bool {
	for _, id := range w.Grants {
		if t.cachedGrant(id, g, out) == nil {
			return false
		}
	}
	return true
}

// cachedGrant returns one ref's row; nil if it is not cached.
func (t *tx) cachedGrant(id string, g *assumptions, out *session.Rows) *capability.Grant {
	r := t.cached[capability.Target(id)]
	if r == nil {
		return nil
	}
	ref, known := r.grants[id]
	if !known {
		return nil
	}
	if ref.Expires > g.now {
		g.validUntil = min(g.validUntil, ref.Expires)
	}
	out.Grants[id] = &ref
	return &ref
}

// cachedTurnRefs adds the refs that a session's open turns are counted by; false if one is not
// cached.
func (t *tx) cachedTurnRefs(w *session.ReadSet, g *assumptions, out *session.Rows) bool {
	for _, id := range w.CountedTurns {
		refs, seen := slices.Clone(w.Grants), map[string]bool{}
		for _, u := range out.Turns[id] {
			refs = append(refs, u.Ref)
		}
		for _, ref := range refs {
			for target, _ := splitRef(ref); target == id && !seen[ref]; target, _ = splitRef(ref) {
				found := t.cachedGrant(ref, g, out)
				if found == nil {
					return false
				}
				seen[ref], ref = true, found.Parent
			}
		}
	}
	return true
}

func (t *tx) cachedTurns(w *session.ReadSet, g *assumptions, out *session.Rows) bool {
	for _, id := range w.Turns {
		r := t.cached[id]
		if r == nil || !r.allOpenTurns {
			return false
		}
		for _, u := range r.turns {
			if u.Status.Open() && !u.Orphan {
				put(out.Turns, id, u.Message, &u)
			}
		}
	}
	for id, messages := range w.TurnsOf {
		r := t.cached[id]
		if r == nil {
			return false
		}
		for _, m := range messages {
			u, known := r.turns[m]
			switch {
			case !known:
				g.absentTurns.add(id, m)
			case out.Turns[id][m] == nil:
				put(out.Turns, id, m, &u)
			}
		}
	}
	return true
}

func (t *tx) cachedEntryMeta(w *session.ReadSet, out *session.Rows) {
	t.absent = make(map[string][]string, len(w.EntryMeta))
	for id, keys := range w.EntryMeta {
		absent := make([]string, 0, len(keys))
		out.Entries[id] = map[string]*session.Entry{}
		for _, key := range keys {
			if h, known := t.cached[id].entries.get(key); known {
				out.Entries[id][key] = &session.Entry{Session: id, Key: key, Cursor: h.cursor, Since: h.since, Ord: h.ord, Schema: h.schema, Sum: h.sum,
					TextLen: h.textLen, LastAppend: h.grown}
			} else {
				absent = append(absent, key)
			}
		}
		t.absent[id] = absent
	}
}

// queueValidation queues the validation of the assumptions, before the first statement that depends
// on it. Changes that batches rarely make have no guarded statements: they are errStale.
func (t *tx) queueValidation(c *session.Changes) error {
	if !t.onlyAdvanced(c.Sessions) || len(c.Purge)+len(c.Grants)+len(c.Rotate)+len(c.Revoke)+len(c.DropState)+len(c.Audit) > 0 {
		return errStale
	}
	if len(t.saved) > 0 {
		return nil
	}
	g := t.assumed
	g.absentEntries = t.unwrittenKeys()
	s, args := g.validation()
	t.run.Queue(s, nil, args, func(row Scanner) error {
		var right string
		var now int64
		err := row.Scan(&right, &now, &t.version)
		g.validated, g.fresh = true, right == "true"
		t.cache.observeClock(now)
		if err == nil && !g.fresh {
			err = errStale
		}
		return err
	})
	return nil
}

// unwrittenKeys returns the keys assumed to be free that need a check: the ones that splitEntries
// has left. An insert of an existing key is refused (ErrRowExists).
func (t *tx) unwrittenKeys() (rest sessionKeys) {
	for _, id := range sortedKeys(t.absent) {
		for _, key := range t.absent[id] {
			rest.add(id, key)
		}
	}
	return rest
}

// sessionLockClause locks the sessions' rows and streamLockClause the streams'; lockGapClause is a
// condition on the session rows after their lock. Only test builds with a deliberate error change
// them.
var sessionLockClause, streamLockClause, lockGapClause = "FOR UPDATE OF s", "FOR UPDATE OF m", ""

// guardedList is a list for a statement that does nothing if the assumptions are stale.
type guardedList struct {
	s    *Statement
	list [][]any
}

// queueGuarded queues the statements of a Save: as one if all lists have one row, as they do for a
// single op, since the cost is then per statement and not per row.
func (t *tx) queueGuarded() {
	held := t.guarded
	t.guarded = nil
	var key [maxCombined]*Statement
	single := len(held) > 1 && len(held) <= len(key)
	for i := 0; single && i < len(held); i++ {
		single, key[i] = len(held[i].list) == 1, held[i].s
	}
	if !single {
		for _, h := range held {
			t.run.Queue(h.s.guarded, h.list, nil, nil)
		}
		return
	}
	s, known := combinedStatements.Load(key)
	if !known {
		s, _ = combinedStatements.LoadOrStore(key, combine(held))
	}
	var args []any
	for _, h := range held {
		args = append(args, Values(h.list[0])...)
	}
	t.run.Queue(s.(*Statement), nil, args, nil)
}

// maxCombined is the maximum number of statements that are combined into one.
const maxCombined = 10

// combinedStatements caches combined statements by their parts.
var combinedStatements sync.Map // [maxCombined]*Statement → *Statement

var parameterPattern = regexp.MustCompile(`\$[0-9]+`)

// combine returns a statement with the effect of all statements in held, each for one row; its
// values are theirs one after the other. No two of them touch the same row.
func combine(held []guardedList) *Statement {
	var text strings.Builder
	before := 0
	for i, h := range held {
		own := parameterPattern.ReplaceAllStringFunc(h.s.guarded.Postgres.One, func(p string) string {
			n, _ := strconv.Atoi(p[1:]) // digits only
			return "$" + strconv.Itoa(n+before)
		})
		fmt.Fprintf(&text, "%s part%d AS (%s)", map[bool]string{true: "WITH", false: ","}[i == 0], i, own)
		before += len(h.list[0])
	}
	return &Statement{Postgres: Forms{One: text.String() + " SELECT 1"}}
}

// whereFresh is the condition of guarded statements, after the validation in the same transaction.
const (
	whereFresh = " WHERE " + isFresh
	andFresh   = " AND " + isFresh
	isFresh    = "current_setting('mooring.right') = 'true'"
)

// PostgresNow selects the clock of a Postgres database, Unix ms, and the transaction's number,
// which is the version of the rows it writes.
const PostgresNow = databaseClock + `, coalesce(txid_current_if_assigned(), 0) % 4294967296`

const databaseClock = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`

// validation returns the statement that locks the sessions and streams of g, in this order, sets
// the result that guarded statements depend on, and selects the clock and the version of the rows
// written.
func (g *assumptions) validation() (*Statement, []any) {
	c := &queryBuilder{}
	c.add(`SELECT set_config('mooring.right', (held.n = %s AND s.n = %s AND now BETWEEN %s AND %s AND current_setting('transaction_isolation') = 'read committed'`,
		int64(len(g.sessions)), int64(len(g.streams.keys)), g.now, min(g.now+maxClockSkew, g.validUntil-1))
	c.requireAbsent(&g.absentEntries, "entries e", "e.session", "e.key")
	c.requireAbsent(&g.absentTurns, "turns t", "t.session", "t.message")
	c.add(`)::text, true), now, version FROM (SELECT count(*) FROM (`)
	if len(g.sessions) == 1 { // the common case, which a cheaper statement serves
		c.add(`SELECT 1 FROM sessions s WHERE s.id = %s AND `+versionOf("s")+` = %s AND s.cursor = %s AND s.head = %s `+sessionLockClause,
			g.sessions[0], g.versions[0], g.cursors[0], g.heads[0])
	} else {
		c.add(`SELECT 1 FROM unnest(%s, %s, %s, %s) AS w(a, b, c, d) CROSS JOIN sessions s
			WHERE s.id = w.a AND `+versionOf("s")+` = w.b AND s.cursor = w.c AND s.head = w.d ORDER BY s.id `+sessionLockClause,
			g.sessions, g.versions, g.cursors, g.heads)
	}
	c.add(`) AS sessions ` + lockGapClause + `) AS held(n) CROSS JOIN LATERAL (SELECT count(*) FROM (`)
	if len(g.streams.keys) == 1 {
		c.add(`SELECT 1 FROM streams m WHERE m.session = %s AND m.outbox = %s AND `+versionOf("m")+` = %s
			AND m.incarnation = %s AND m.last_seq = %s AND held.n > 0 `+streamLockClause,
			g.streams.sessions[0], g.streams.keys[0], g.streamVersions[0], g.incarnations[0], g.lastSeqs[0])
	} else {
		c.add(`SELECT 1 FROM unnest(%s, %s, %s, %s, %s) AS w(a, b, c, d, e) CROSS JOIN streams m
			WHERE m.session = w.a AND m.outbox = w.b AND `+versionOf("m")+` = w.c
			AND m.incarnation = w.d AND m.last_seq = w.e AND held.n > 0 `+streamLockClause,
			g.streams.sessions, g.streams.keys, g.streamVersions, g.incarnations, g.lastSeqs)
	}
	c.text.WriteString(`) AS streams) AS s(n) CROSS JOIN LATERAL (SELECT ` + PostgresNow + ` WHERE s.n >= 0) AS d(now, version)`)
	return &Statement{Postgres: Forms{One: c.text.String()}}, c.args
}

// queryBuilder builds a statement's text and arguments.
type queryBuilder struct {
	text strings.Builder
	args []any
}

// add appends text, in which each %s is replaced by one of args.
func (c *queryBuilder) add(text string, args ...any) {
	places := make([]any, len(args))
	for i, arg := range args {
		c.args = append(c.args, arg)
		var of string
		switch arg.(type) {
		case string:
			of = "text"
		case int64:
			of = "bigint"
		case []string:
			of = "text[]"
		case []byte:
			of = "bytea"
		case []int64:
			of = "bigint[]"
		case [][]byte:
			of = "bytea[]"
		}
		places[i] = fmt.Sprintf("$%d::%s", len(c.args), of)
	}
	fmt.Fprintf(&c.text, text, places...)
}

// requireAbsent adds the condition that none of the keys has a row.
func (c *queryBuilder) requireAbsent(k *sessionKeys, table, session, key string) {
	switch len(k.keys) {
	case 0:
	case 1:
		c.add(` AND NOT EXISTS (SELECT 1 FROM `+table+` WHERE `+session+` = %s AND `+key+` = %s)`, k.sessions[0], k.keys[0])
	default:
		c.add(` AND NOT EXISTS (SELECT 1 FROM unnest(%s, %s) AS w(a, b) CROSS JOIN `+table+` WHERE `+session+` = w.a AND `+key+` = w.b)`,
			k.sessions, k.keys)
	}
}
