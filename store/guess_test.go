package store

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// TestWhatAGuessCompares: a guess is right if everything is as it expects, and wrong
// if any one thing is not.
func TestWhatAGuessCompares(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	const id, outbox, key, message = "ses_A", "obx_A", "message/a", "a"
	version := func(insert string, args ...any) (v int64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), insert+` RETURNING xmin::text::bigint`, args...).Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	row := version(`INSERT INTO sessions (id) VALUES ($1)`, id)
	stream := version(`INSERT INTO streams VALUES ($1, $2, 1, 0, 0, '', '', '')`, id, outbox)
	ref := version(`INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires, visible_from,
		redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash)
		VALUES ($1, 'x', '', '', 1, 1, 15, 'null', 0, 0, 0, 0, 0, 0, 0, '', '', '', '')`, id)
	head := version(`INSERT INTO entries VALUES ($1, $2, 1, 1, 0, 0, '', NULL)`, id, key)
	turn := version(`INSERT INTO turns VALUES ($1, $2, 1, 0, 1, 0, $3, '')`, id, message, outbox)

	var clock int64
	if err := conn.QueryRow(t.Context(), "SELECT "+databaseClock).Scan(&clock); err != nil {
		t.Fatal(err)
	}
	expects := func() *guess {
		g := &guess{now: clock, until: math.MaxInt64}
		g.sessions.add(id, "", row)
		g.streams.add(id, outbox, stream)
		g.grants.add(id, "x", ref)
		g.heads.add(id, key, head)
		g.turns.add(id, message, turn)
		g.free.add(id, "message/other", 0)
		g.unbegun.add(id, "other", 0)
		return g
	}
	once := func(g *guess) (is bool) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			n := int64(len(g.sessions.a))
			hold, args := holdSessions.Postgres.Many, []any{g.sessions.a, g.sessions.versions, n}
			if n == 1 {
				hold, args = holdSessions.Postgres.One, []any{g.sessions.a[0], g.sessions.versions[0], n}
			}
			if _, err := tx.Exec(t.Context(), hold, args...); err != nil {
				return err
			}
			s, args := g.statement()
			if g.now == clock { // the test may take long
				args[1] = min(g.now+time.Hour.Milliseconds(), g.until-1)
			}
			var text string
			var now, version int64
			err := tx.QueryRow(t.Context(), s.Postgres.One, args...).Scan(&text, &now, &version)
			if is = text == "true"; now < clock {
				t.Errorf("the clock shows %d, after %d", now, clock)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	// right also asks for everything twice, which takes other statements.
	right := func(g *guess) bool {
		t.Helper()
		is := once(g)
		for _, e := range []*expected{&g.sessions, &g.streams, &g.grants, &g.heads, &g.turns, &g.free, &g.unbegun} {
			e.a, e.b, e.versions = slices.Repeat(e.a, 2), slices.Repeat(e.b, 2), slices.Repeat(e.versions, 2)
		}
		if again := once(g); again != is {
			t.Errorf("once: %v, twice: %v", is, again)
		}
		return is
	}
	if !right(expects()) {
		t.Error("what is as expected is wrong")
	}
	least := &guess{now: clock, until: math.MaxInt64}
	least.sessions.add(id, "", row)
	if !right(least) {
		t.Error("a session as expected is wrong")
	}
	for name, spoil := range map[string]func(*guess){
		"another version of the session": func(g *guess) { g.sessions.versions[0]++ },
		"a session that is not there":    func(g *guess) { g.sessions.add("ses_B", "", row) },
		"another version of the stream":  func(g *guess) { g.streams.versions[0]++ },
		"a stream that is not there":     func(g *guess) { g.streams.b[0] = "obx_B" },
		"another version of the ref":     func(g *guess) { g.grants.versions[0]++ },
		"a ref that is not there":        func(g *guess) { g.grants.b[0] = "y" },
		"another version of the entry":   func(g *guess) { g.heads.versions[0]++ },
		"an entry that is not there":     func(g *guess) { g.heads.b[0] = "message/b" },
		"an entry that is there":         func(g *guess) { g.free.b[0] = key },
		"another version of the turn":    func(g *guess) { g.turns.versions[0]++ },
		"a turn that is not there":       func(g *guess) { g.turns.b[0] = "b" },
		"a turn that is there":           func(g *guess) { g.unbegun.b[0] = message },
		"a clock that was ahead":         func(g *guess) { g.now = clock + time.Hour.Milliseconds() },
		"a clock that was behind":        func(g *guess) { g.now = clock - clockSlack - 1 },
		"a ref that has expired since":   func(g *guess) { g.until = clock },
	} {
		g := expects()
		if spoil(g); right(g) {
			t.Errorf("%s: found right", name)
		}
	}
	s, _ := expects().statement()
	plan, err := explain(t, conn, "guess", s.Postgres.One)
	if err != nil || strings.Contains(plan, "Seq Scan") {
		t.Errorf("%v, reads a table through:\n%s", err, plan)
	}
}

// TestHeldStatements: where a guess was wrong they do nothing.
func TestHeldStatements(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	const id = "ses_A"
	for _, there := range []string{`INSERT INTO sessions (id) VALUES ($1)`, `INSERT INTO streams VALUES ($1, 'obx_B', 1, 0, 0, '', '', '')`} {
		if _, err := conn.Exec(t.Context(), there, id); err != nil {
			t.Fatal(err)
		}
	}
	hash := make([]byte, 32)
	entry := []any{id, int64(1), int64(0), nil, "message/a", int64(1), int64(0), hash}
	for _, c := range []struct {
		name string
		s    *Statement
		row  []any
	}{
		{"new sessions", saveSessions, sessionValues(&session.Row{ID: id, Cursor: 7})},
		{"sessions", updateSessions, sessionValues(&session.Row{ID: id, Cursor: 7})},
		{"new streams", saveStreams, streamValues(&ledger.Stream{Session: id, Outbox: "obx_A"})},
		{"records", insertRecords, []any{id, "obx_A", int64(1), int64(1), hash}},
		{"events", insertEvents, []any{id, int64(1), int64(1), "put", "ref", "actor", "obx_A", "batch", int64(1), "message/a", "op", hash, hash, hash}},
		{"new entries", insertEntries, entry},
		{"entries", saveEntries, entry},
		{"texts", growEntries, []any{id, "message/a", int64(5), int64(6)}},
		{"turns", saveTurns, turnValues(&session.Turn{Session: id, Message: "a", Status: session.Streaming})},
		{"removals", dropEntries, []any{id, "message/a"}},
		{"streams", updateStreams, streamValues(&ledger.Stream{Session: id, Outbox: "obx_B"})},
		{"prunes", pruneRecords, []any{id, "obx_A", int64(1)}},
	} {
		for form, text := range map[string]string{"one": c.s.held.Postgres.One, "many": c.s.held.Postgres.Many} {
			args := slices.Clone(c.row)
			if form == "many" {
				for i, column := range c.s.Columns {
					switch v := args[i]; column {
					case Text:
						args[i] = []string{v.(string)}
					case Int:
						args[i] = []int64{v.(int64)}
					case Bytes:
						b, _ := v.([]byte)
						args[i] = [][]byte{b}
					}
				}
			}
			for held, want := range map[string]int64{"false": 0, "true": 1} {
				err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					fill := c.s == growEntries || c.s == dropEntries || c.s == pruneRecords
					if fill { // there is something to change
						for _, s := range []struct {
							text string
							args []any
						}{{insertEntries.Postgres.One, entry}, {insertRecords.Postgres.One, []any{id, "obx_A", int64(1), int64(1), hash}}} {
							if _, err := tx.Exec(t.Context(), s.text, s.args...); err != nil {
								return err
							}
						}
					}
					if _, err := tx.Exec(t.Context(), `SELECT set_config('mooring.right', $1, true)`, held); err != nil {
						return err
					}
					tag, err := tx.Exec(t.Context(), text, args...)
					if err == nil && tag.RowsAffected() != want {
						t.Errorf("%s (%s), %s: %d rows, want %d", c.name, form, held, tag.RowsAffected(), want)
					}
					if err == nil {
						err = pgx.ErrTxCommitRollback // the next one begins anew
					}
					return err
				})
				if err != pgx.ErrTxCommitRollback {
					t.Errorf("%s (%s): %v", c.name, form, err)
				}
			}
		}
	}
}

// TestRecollectionsAreBounded: what is remembered has an end, in each session and in all.
func TestRecollectionsAreBounded(t *testing.T) {
	t.Parallel()
	var m memory
	of := func(rows int) *recollection {
		r := newRecollection()
		for i := range rows - r.size() {
			r.isHead(&session.Entry{Key: string(rune(i)), Payload: []byte("x")}, 1)
		}
		return r
	}
	for i := range 40 {
		m.put(map[string]*recollection{string(rune('a' + i)): of(mostOfSession)})
	}
	m.put(map[string]*recollection{"large": of(mostOfSession + 1)})
	sum := 0
	for _, r := range m.sessions {
		sum += r.size()
		if r.heads["a"].row.Payload != nil {
			t.Error("a payload is kept")
		}
	}
	if _, large := m.sessions["large"]; large || sum > mostOfAll || sum < mostOfAll-mostOfSession || sum != m.rows {
		t.Errorf("%d rows of %d sessions are kept, and %d counted", sum, len(m.sessions), m.rows)
	}
	for id := range m.sessions {
		taken := m.take([]string{id, "unknown"})
		if taken[id] == nil || taken["unknown"] != nil {
			t.Errorf("taken: %v", taken)
		}
	}
	if len(m.sessions) != 0 || m.rows != 0 {
		t.Errorf("%d sessions and %d rows are left", len(m.sessions), m.rows)
	}
}

// TestRememberedRecords: those that hold what is asked for, or none of them.
func TestRememberedRecords(t *testing.T) {
	t.Parallel()
	r := newRecollection()
	rec := func(first uint64, n int) *ledger.Record {
		return &ledger.Record{FirstSeq: first, Outcomes: make([]ledger.Outcome, n)}
	}
	for _, one := range []*ledger.Record{rec(8, 2), rec(4, 1), rec(5, 3), rec(4, 1)} { // 4, 5-7, 8-9
		r.isRecord("o", one)
	}
	stream := &ledger.Stream{Outbox: "o", AckedThrough: 3, LastSeq: 11}
	for _, c := range []struct {
		from, to uint64
		first    []uint64
		ok       bool
	}{
		{4, 4, []uint64{4}, true}, {6, 6, []uint64{5}, true}, {4, 9, []uint64{4, 5, 8}, true}, {1, 5, []uint64{4, 5}, true},
		{1, 3, nil, true}, {9, 10, []uint64{8}, false}, {12, 20, nil, true}, {0, 0, nil, true}, {10, 10, nil, false},
	} {
		found, ok := r.covering(stream, c.from, c.to)
		var first []uint64
		for _, one := range found {
			first = append(first, one.FirstSeq)
		}
		if ok != c.ok || ok && !slices.Equal(first, c.first) {
			t.Errorf("from %d to %d: %v, %v, want %v, %v", c.from, c.to, first, ok, c.first, c.ok)
		}
	}
	r.prune("o", 6)
	if r.outcomes != 5 || len(r.records["o"]) != 2 {
		t.Errorf("%d outcomes in %d records after a prune", r.outcomes, len(r.records["o"]))
	}
}

// TestRememberedClock: it is never ahead of what was heard and has passed since.
func TestRememberedClock(t *testing.T) {
	t.Parallel()
	var m memory
	if m.now() != 0 {
		t.Error("a clock that nobody looked at shows something")
	}
	m.heard(1_000_000)
	m.clockAt = m.clockAt.Add(-10 * time.Second)
	if now := m.now(); now < 1_009_980 || now > 1_010_000+time.Since(m.clockAt).Milliseconds()-10_000 {
		t.Errorf("after ten seconds: %d", now)
	}
	m.heard(500_000) // it was put back
	if now := m.now(); now < 500_000 || now > 501_000 {
		t.Errorf("after it was put back: %d", now)
	}
	m.clockAt = m.clockAt.Add(-clockKept - time.Second)
	if m.now() != 0 {
		t.Error("what was heard long ago is used")
	}
}
