// Guessing: a commit in one round trip to the database. What a group of batches
// is decided on is mostly what this server has written itself a moment ago. So
// the group is decided on the rows as they are remembered (memory.go); then one
// round trip locks its sessions, compares all rows that were used with the
// database's, writes, and commits. Where one of them is another, or the rows that
// are needed are not remembered, nothing is written, and the group is decided
// again on rows that are read under lock, in two round trips.
//
// A decision is a function of the rows that were loaded and of the time, so one
// that was made on rows which are still the same under the session's lock is the
// one that would be made there. What is compared:
//
//   - of a row that is thought to be there, its version, in Postgres the number of the
//     transaction that wrote it (xmin), which a writer of any kind changes;
//   - of a key that is thought to be free, that it is;
//   - that the database's clock is where it was thought to be, and that no ref in
//     use has expired since.
//
// Two things need not be compared. Turns are begun, interrupted and ended by
// events, which change the session's row, so its open turns are those that were
// open at that row's version. And records change with their stream's row alone.

package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// errWrong ends a transaction whose guess was wrong, or might be.
var errWrong = errors.New("store: the rows are not as they were remembered")

// clockSlack is how far the database's clock may be ahead of what it is thought
// to show, in ms. Events bear the latter.
const clockSlack = 100

// guess is what a transaction takes for granted.
type guess struct {
	sessions expected // id
	streams  expected // session, outbox
	grants   expected // target, tail
	heads    expected // session, key
	turns    expected // session, message
	free     expected // session, key of no entry
	unbegun  expected // session, message of no turn
	now      int64
	until    int64 // when the first of the refs expires

	compared bool // with the database
	right    bool // and found so
}

// expected is a list of keys, with the versions of their rows.
type expected struct {
	a, b     []string
	versions []int64
}

func (c *expected) add(a, b string, version int64) {
	c.a, c.b, c.versions = append(c.a, a), append(c.b, b), append(c.versions, version)
}

// list is that of the keys' first column, with versions.
func (c *expected) list() [][]any {
	list := make([][]any, len(c.a))
	for i := range list {
		list[i] = []any{c.a[i], c.versions[i]}
	}
	return list
}

// Guess is Update for what decides on what it loads and does nothing else: fn may
// be run twice, first on rows as they are remembered. What it does then holds only
// if they are right, which is seen to before Guess returns.
func (s *Store) Guess(ctx context.Context, fn func(session.Tx) error) error {
	if s.memory == nil {
		return s.Update(ctx, fn)
	}
	err := s.guessing(ctx, &guess{}, func(t *tx) error {
		err := fn(t)
		if t.guess != nil && (err != nil || len(t.saved) == 0) {
			return errWrong // it depends on what nobody has compared
		}
		return err
	})
	if errors.Is(err, errWrong) {
		return s.Update(ctx, fn)
	}
	return err
}

// Guesses is how many guesses were right, and how many wrong, so far: of those
// that were compared with the database.
func (s *Store) Guesses() (right, wrong uint64) {
	if s.memory == nil {
		return 0, 0
	}
	return s.memory.right.Load(), s.memory.wrong.Load()
}

// recall is Load from what is remembered; nil if that is not all that w wants.
func (t *tx) recall(w *session.Want) *session.Rows {
	if !recallable(w) {
		return nil
	}
	g, now := &guess{until: math.MaxInt64}, t.memory.now()
	t.own = t.memory.take(w.Sessions)
	for _, id := range w.Sessions {
		r := t.own[id]
		if r == nil {
			return nil
		}
		if r.pause > 0 {
			r.pause--
			return nil
		}
		if r.row.version == 0 || now == 0 {
			return nil
		}
	}
	out := &session.Rows{
		Sessions: make(map[string]*session.Row, len(w.Sessions)),
		Streams:  make(map[session.StreamKey]*ledger.Stream, len(w.Streams)),
		Records:  make(map[session.StreamKey][]*ledger.Record, len(w.Records)),
		Grants:   make(map[string]*capability.Grant, len(w.Grants)),
		Entries:  make(map[string]map[string]*session.Entry, len(w.Heads)),
		Turns:    map[string]map[string]*session.Turn{},
	}
	was := make(map[string]before, len(w.Sessions))
	for _, id := range w.Sessions {
		row := t.own[id].row
		g.sessions.add(id, "", row.version)
		out.Sessions[id] = &row.row
		was[id] = before{space: row.row.Space, external: row.row.External}
		now = max(now, row.row.Updated) // time does not run backwards along a log
	}
	g.now = now
	if !t.recallLedger(w, g, out) || !t.recallGrants(w, g, out) || !t.recallTurns(w, g, out) {
		return nil
	}
	t.recallHeads(w, g, out)
	*t.guess, t.before = *g, was
	t.loaded, t.locked = true, true
	t.now, out.Now = now, now
	return out
}

// recallable says whether w wants only such rows as are remembered.
func recallable(w *session.Want) bool {
	return len(w.Sessions) > 0 && len(w.Spaces)+len(w.Claims)+len(w.Lineages)+len(w.Trees)+len(w.Entries)+len(w.Prefixes)+
		len(w.Deltas)+len(w.Logs)+len(w.Holders)+len(w.External) == 0
}

func (t *tx) recallLedger(w *session.Want, g *guess, out *session.Rows) bool {
	for _, key := range w.Streams {
		r := t.own[key.Session]
		if r == nil || r.streams[key.Outbox].version == 0 {
			return false
		}
		m := r.streams[key.Outbox]
		g.streams.add(key.Session, key.Outbox, m.version)
		out.Streams[key] = &m.row
	}
	for _, want := range w.Records {
		stream := out.Streams[want.Stream]
		if stream == nil || len(want.Ops) > 0 {
			return false
		}
		found, ok := t.own[want.Stream.Session].covering(stream, want.From, want.To)
		if !ok {
			return false
		}
		out.Records[want.Stream] = append(out.Records[want.Stream], found...)
	}
	return true
}

func (t *tx) recallGrants(w *session.Want, g *guess, out *session.Rows) bool {
	for _, id := range w.Grants {
		target, tail := split(id)
		r := t.own[target]
		if r == nil || r.grants[id].version == 0 {
			return false
		}
		ref := r.grants[id]
		g.grants.add(target, tail, ref.version)
		if ref.row.Expires > g.now {
			g.until = min(g.until, ref.row.Expires)
		}
		out.Grants[id] = &ref.row
	}
	return true
}

func (t *tx) recallTurns(w *session.Want, g *guess, out *session.Rows) bool {
	give := func(u versioned[session.Turn]) {
		if id := u.row.Session; out.Turns[id][u.row.Message] == nil {
			g.turns.add(id, u.row.Message, u.version)
			put(out.Turns, id, u.row.Message, &u.row)
		}
	}
	for _, id := range w.Turns {
		r := t.own[id]
		if r == nil || !r.open {
			return false
		}
		for _, u := range r.turns {
			if u.row.Status.Open() {
				give(u)
			}
		}
	}
	for id, messages := range w.TurnsOf {
		r := t.own[id]
		if r == nil {
			return false
		}
		for _, m := range messages {
			if u, known := r.turns[m]; known {
				give(u)
			} else {
				g.unbegun.add(id, m, 0)
			}
		}
	}
	return true
}

func (t *tx) recallHeads(w *session.Want, g *guess, out *session.Rows) {
	t.absent = make(map[string]map[string]struct{}, len(w.Heads))
	for id, keys := range w.Heads {
		t.absent[id] = make(map[string]struct{}, len(keys))
		out.Entries[id] = make(map[string]*session.Entry, len(keys))
		for _, key := range keys {
			if e, known := t.own[id].head(key); known {
				g.heads.add(id, key, e.version)
				out.Entries[id][key] = &e.row
			} else {
				g.free.add(id, key, 0)
				t.absent[id][key] = struct{}{}
			}
		}
	}
}

// compare queues what makes a guess good, before the first thing that depends on it.
func (t *tx) compare(c *session.Changes) error {
	for _, s := range c.Sessions {
		if was := t.before[s.ID]; was.space == "" && s.Space != "" {
			return errWrong
		}
	}
	if len(c.Purge)+len(c.Grants)+len(c.Rotate)+len(c.Revoke)+len(c.DropState)+len(c.Audit) > 0 {
		return errWrong // which is seldom
	}
	if len(t.saved) > 0 {
		return nil
	}
	g := t.guess
	t.run.Queue(holdSessions, g.sessions.list(), []any{int64(len(g.sessions.a))}, nil)
	s, args := g.statement()
	t.run.Queue(s, nil, args, func(row Scanner) error {
		var right string
		var now int64
		err := row.Scan(&right, &now, &t.version)
		g.compared, g.right = true, right == "true"
		t.memory.heard(now)
		return err
	})
	return nil
}

// ifRight is the condition under which statements do anything once a guess was
// compared, in the same transaction.
const (
	ifRight  = " WHERE " + right
	andRight = " AND " + right
	right    = "current_setting('mooring.right') = 'true'"
)

// PostgresNow is the clock of a Postgres database, Unix ms, and the number of the
// transaction, as the versions of what it writes have it.
const PostgresNow = databaseClock + `, coalesce(txid_current_if_assigned(), 0) % 4294967296`

const databaseClock = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`

// holdSessions locks sessions, and a guess is right so far if that gives so many.
var holdSessions = onPostgres("ti", `
	SELECT set_config('mooring.right', (count(*) = {1})::text, true) FROM (
		SELECT 1 FROM {w} CROSS JOIN sessions s
		WHERE s.id = w.a AND {version s} = w.b ORDER BY s.id FOR UPDATE OF s) AS held`)

// statement compares the rest of a guess, under the sessions' locks: that nobody
// saw to it that statements see an older state than that, the clock, and of all
// else what there is.
func (g *guess) statement() (*Statement, []any) {
	c := comparison{}
	c.text.WriteString(`SELECT set_config('mooring.right', (` + right + ` AND current_setting('transaction_isolation') = 'read committed'`)
	c.and("now BETWEEN %s AND %s", g.now, min(g.now+clockSlack, g.until-1))
	c.same(&g.streams, "streams m", "m.session", "m.outbox", "m")
	c.same(&g.grants, "grants g", "g.target", "g.tail", "g")
	c.same(&g.heads, "entries e", "e.session", "e.key", "e")
	c.same(&g.turns, "turns t", "t.session", "t.message", "t")
	c.none(&g.free, "entries e", "e.session", "e.key")
	c.none(&g.unbegun, "turns t", "t.session", "t.message")
	c.text.WriteString(`)::text, true), now, version FROM (SELECT ` + PostgresNow + `) AS d(now, version)`)
	return &Statement{Postgres: Forms{One: c.text.String()}}, c.args
}

// comparison is a condition in the making.
type comparison struct {
	text strings.Builder
	args []any
}

// and adds a condition, in which each %s stands for one of args.
func (c *comparison) and(condition string, args ...any) {
	places := make([]any, len(args))
	for i, arg := range args {
		c.args = append(c.args, arg)
		of := map[bool]string{true: "bigint", false: "text"}
		switch arg.(type) {
		case string, int64:
			_, number := arg.(int64)
			places[i] = fmt.Sprintf("$%d::%s", len(c.args), of[number])
		default:
			_, numbers := arg.([]int64)
			places[i] = fmt.Sprintf("$%d::%s[]", len(c.args), of[numbers])
		}
	}
	fmt.Fprintf(&c.text, " AND "+condition, places...)
}

// same demands that each of the rows is there in its version.
func (c *comparison) same(e *expected, table, a, b, name string) {
	switch n := len(e.a); n {
	case 0:
	case 1: // mostly, and then it can cost less
		c.and("EXISTS (SELECT 1 FROM "+table+" WHERE "+a+" = %s AND "+b+" = %s AND "+versionOf(name)+" = %s)", e.a[0], e.b[0], e.versions[0])
	default:
		c.and("(SELECT count(*) FROM unnest(%s, %s, %s) AS w(a, b, c) CROSS JOIN "+table+
			" WHERE "+a+" = w.a AND "+b+" = w.b AND "+versionOf(name)+" = w.c) = %s", e.a, e.b, e.versions, int64(n))
	}
}

// none demands that none of the keys has a row.
func (c *comparison) none(e *expected, table, a, b string) {
	switch len(e.a) {
	case 0:
	case 1:
		c.and("NOT EXISTS (SELECT 1 FROM "+table+" WHERE "+a+" = %s AND "+b+" = %s)", e.a[0], e.b[0])
	default:
		c.and("NOT EXISTS (SELECT 1 FROM unnest(%s, %s) AS w(a, b) CROSS JOIN "+table+" WHERE "+a+" = w.a AND "+b+" = w.b)", e.a, e.b)
	}
}
