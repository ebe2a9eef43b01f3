package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// TestWhatAGuessCompares: a guess is right if everything is as it expects, and wrong
// if any one thing is not.
func TestWhatAGuessCompares(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	const id, outbox, key, message = "ses_A", "obx_A", "message/a", "a"
	var row, stream, clock int64
	if err := conn.QueryRow(t.Context(), `INSERT INTO sessions (id, cursor, head) VALUES ($1, 5, 'head') RETURNING `+versionOf("sessions")+`, `+databaseClock, id).
		Scan(&row, &clock); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), `INSERT INTO streams VALUES ($1, $2, 1, 8, 0, '', '', '') RETURNING `+versionOf("streams"), id, outbox).
		Scan(&stream); err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{`INSERT INTO entries (session, key, cursor, schema, text_len, grown, sum) VALUES ($1, 'message/a', 1, 1, 0, 0, '')`, `INSERT INTO turns VALUES ($1, 'a', 1, 0, 1, 0, 'obx_A', '')`} {
		if _, err := conn.Exec(t.Context(), there, id); err != nil {
			t.Fatal(err)
		}
	}
	expects := func() *assumptions {
		g := &assumptions{now: clock, validUntil: math.MaxInt64, sessions: []string{id}, versions: []int64{row}, cursors: []int64{5}, heads: [][]byte{[]byte("head")},
			streamVersions: []int64{stream}, incarnations: []int64{1}, lastSeqs: []int64{8}}
		g.streams.add(id, outbox)
		g.absentEntries.add(id, "message/other")
		g.absentTurns.add(id, "other")
		return g
	}
	another := func(g *assumptions) {
		g.sessions, g.versions = append(g.sessions, "ses_B"), append(g.versions, row)
		g.cursors, g.heads = append(g.cursors, 5), append(g.heads, []byte("head"))
	}
	once := func(g *assumptions) bool {
		t.Helper()
		s, args := g.validation()
		if g.now == clock { // the test may take long
			args[3] = min(g.now+time.Hour.Milliseconds(), g.validUntil-1)
		}
		var is string
		var now, version int64
		if err := conn.QueryRow(t.Context(), s.Postgres.One, args...).Scan(&is, &now, &version); err != nil {
			t.Fatal(err)
		}
		if now < clock || is == "true" && version == 0 {
			t.Errorf("the clock shows %d, after %d; what is written has version %d", now, clock, version)
		}
		return is == "true"
	}
	// right also asks for all keys twice, which takes another statement.
	right := func(g *assumptions) bool {
		t.Helper()
		is := once(g)
		for _, k := range []*sessionKeys{&g.absentEntries, &g.absentTurns, &g.streams} {
			k.sessions, k.keys = slices.Repeat(k.sessions, 2), slices.Repeat(k.keys, 2)
		}
		for _, of := range []*[]int64{&g.streamVersions, &g.incarnations, &g.lastSeqs} {
			*of = slices.Repeat(*of, 2)
		}
		if again := once(g); again != is {
			t.Errorf("once: %v, twice: %v", is, again)
		}
		return is
	}
	if !right(expects()) {
		t.Error("what is as expected is wrong")
	}
	for name, spoil := range map[string]func(*assumptions){
		"another version of the session": func(g *assumptions) { g.versions[0]++ },
		"a session that is not there":    func(g *assumptions) { g.sessions[0] = "ses_B" },
		"one of two that is not there":   func(g *assumptions) { another(g) },
		"a log that is longer":           func(g *assumptions) { g.cursors[0] = 4 },
		"another log of that length":     func(g *assumptions) { g.heads[0] = []byte("other") },
		"another version of a stream":    func(g *assumptions) { g.streamVersions[0]++ },
		"another incarnation of it":      func(g *assumptions) { g.incarnations[0]++ },
		"a stream that is longer":        func(g *assumptions) { g.lastSeqs[0]-- },
		"a stream that is not there":     func(g *assumptions) { g.streams.keys[0] = "obx_B" },
		"an entry that is there":         func(g *assumptions) { g.absentEntries.keys[0] = key },
		"a turn that is there":           func(g *assumptions) { g.absentTurns.keys[0] = message },
		"a clock that was ahead":         func(g *assumptions) { g.now = clock + time.Hour.Milliseconds() },
		"a clock that was behind":        func(g *assumptions) { g.now = clock - time.Hour.Milliseconds() },
		"a ref that has expired since":   func(g *assumptions) { g.validUntil = clock },
	} {
		g := expects()
		if spoil(g); right(g) {
			t.Errorf("%s: found right", name)
		}
	}
	two := expects()
	another(two)
	for _, g := range []*assumptions{two, expects()} {
		s, _ := g.validation()
		plan, err := explain(t, conn, fmt.Sprintf("guess%d", len(g.sessions)), s.Postgres.One)
		if err != nil || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%v, reads a table through:\n%s", err, plan)
		}
	}
	// Somebody changes the stream, and not the session's row, while the guess waits
	// for the lock on it: a server of the version before does.
	other, err := pgx.ConnectConfig(t.Context(), conn.Config().Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	waited := make(chan bool, 1)
	err = pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error {
		for _, does := range []string{`SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE`, `UPDATE streams SET incarnation = 2 WHERE session = $1`} {
			if _, err := tx.Exec(t.Context(), does, id); err != nil {
				return err
			}
		}
		go func() { waited <- once(expects()) }()
		for waits := false; !waits; {
			err := tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE pid = $1 AND NOT granted)`, conn.PgConn().PID()).Scan(&waits)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if <-waited {
		t.Error("a stream that was changed under the lock is found right")
	}
	// In a transaction that sees an older state than its lock it is never right.
	var is string
	err = pgx.BeginTxFunc(t.Context(), conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		s, args := expects().validation()
		args[2], args[3] = int64(0), int64(math.MaxInt64)
		return tx.QueryRow(t.Context(), s.Postgres.One, args...).Scan(&is, new(int64), new(int64))
	})
	if err != nil || is != "false" {
		t.Errorf("on a snapshot of its own: %s, %v", is, err)
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
	grant, err := grantValues(&capability.Grant{ID: id + ".a", Target: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), insertGrants.Postgres.One, grant...); err != nil {
		t.Fatal(err)
	}
	entry := []any{id, int64(1), int64(0), nil, "message/a", int64(1), int64(0), hash, int64(1), int64(1), int64(0)}
	for _, c := range []struct {
		name string
		s    *Statement
		row  []any
	}{
		{"new sessions", saveSessions, sessionValues(&session.Row{ID: id, Cursor: 7})},
		{"sessions", advanceSessions, []any{id, int64(7), hash, int64(8), int64(9)}},
		{"new streams", saveStreams, streamValues(&ledger.Stream{Session: id, Outbox: "obx_A"})},
		{"records", insertRecords, []any{id, "obx_A", int64(1), int64(1), hash}},
		{"events", insertEvents, []any{id, int64(1), int64(1), "put", "ref", "actor", "obx_A", "batch", int64(1), "message/a", "op", hash, hash, hash}},
		{"new entries", insertEntries, entry},
		{"entries", saveEntries, entry},
		{"texts", updateAppended, []any{id, "message/a", int64(5), int64(6)}},
		{"turns", saveTurns, turnValues(&session.Turn{Session: id, Message: "a", Status: session.Streaming})},
		{"removals", dropEntries, []any{id, "message/a"}},
		{"touches", bumpSessionVersions, []any{id}},
		{"streams", advanceStreams, []any{id, "obx_B", int64(2), int64(1), "op", hash}},
		{"charges", chargeGrants, []any{id, "a", int64(1)}},
		{"prunes", pruneRecords, []any{id, "obx_A", int64(1)}},
	} {
		for form, text := range map[string]string{"one": c.s.guarded.Postgres.One, "many": c.s.guarded.Postgres.Many} {
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
					fill := c.s == updateAppended || c.s == dropEntries || c.s == pruneRecords
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

// TestRecall: what is remembered is given where that is all that is wanted, at a
// time that is not before the session's last event.
func TestRecall(t *testing.T) {
	t.Parallel()
	id, outbox := capability.SessionPrefix+ulid.Make().String(), "obx_A"
	ref := capability.ServerID(id, ulid.Make())
	remembers := func() (*tx, *cachedSession) {
		m := &rowCache{}
		m.observeClock(1000)
		r := newCachedSession()
		r.setRow(&session.Row{ID: id, Space: "spc_A", Updated: 900_000}, 7)
		r.setStream(&ledger.Stream{Session: id, Outbox: outbox, LastSeq: 3, AckedThrough: 2}, 6)
		r.setRecord(outbox, &ledger.Record{FirstSeq: 3, Outcomes: make([]ledger.Outcome, 1)})
		r.setGrant(&capability.Grant{ID: ref, Expires: 900_100})
		r.setEntry(&session.Entry{Session: id, Key: "message/a", Cursor: 5})
		r.setTurn(&session.Turn{Session: id, Message: "a", Status: session.Streaming})
		r.setTurn(&session.Turn{Session: id, Message: "b", Status: session.Completed})
		r.setAllOpenTurns()
		m.put(map[string]*cachedSession{id: r})
		return &tx{cache: m, assumed: &assumptions{}}, r
	}
	key := session.StreamKey{Session: id, Outbox: outbox}
	wants := func() *session.ReadSet {
		return &session.ReadSet{Sessions: []string{id}, Streams: []session.StreamKey{key}, Records: []session.RecordRange{{Stream: key, From: 3, To: 3}},
			Grants: []string{ref}, EntryMeta: map[string][]string{id: {"message/a", "message/b"}}, Turns: []string{id}, TurnsOf: map[string][]string{id: {"a", "b", "c"}}}
	}
	reader, r := remembers()
	rows := reader.loadCached(wants())
	if rows == nil {
		t.Fatal("what is remembered is not recalled")
	}
	if rows.Now != 900_000 || reader.now != rows.Now || reader.assumed.now != rows.Now || reader.assumed.validUntil != 900_100 {
		t.Errorf("decided at %d, held for right from %d to %d", rows.Now, reader.assumed.now, reader.assumed.validUntil)
	}
	if len(rows.Records[key]) != 1 || rows.Entries[id]["message/a"].Cursor != 5 || len(rows.Entries[id]) != 1 || len(rows.Turns[id]) != 2 ||
		!slices.Equal(reader.absent[id], []string{"message/b"}) || !slices.Equal(reader.assumed.absentTurns.keys, []string{"c"}) {
		t.Errorf("recalled %+v, and took for granted %+v", rows, reader.assumed)
	}
	if !slices.Equal(reader.assumed.versions, []int64{7}) || !slices.Equal(reader.assumed.streamVersions, []int64{6}) {
		t.Errorf("versions %v and %v", reader.assumed.versions, reader.assumed.streamVersions)
	}
	narrowed, _ := remembers()
	narrow := wants()
	narrow.ValidUntil = 900_050
	if narrowed.loadCached(narrow) == nil || narrowed.assumed.validUntil != 900_050 {
		t.Errorf("a narrowed capability ends at 900050, the guess at %d", narrowed.assumed.validUntil)
	}
	// What is given is the caller's.
	rows.Sessions[id].Cursor, rows.Streams[key].LastSeq, rows.Grants[ref].Revoked = 99, 99, 99
	rows.Entries[id]["message/a"].Cursor, rows.Turns[id]["a"].Begun = 99, 99
	head, _ := r.entries.get("message/a")
	if r.row.Cursor+r.streams[outbox].row.LastSeq+head.cursor+r.turns["a"].Begun != 8 || r.grants[ref].Revoked != 0 {
		t.Errorf("a caller has changed what is remembered: %+v", r)
	}
	moved := r.row
	moved.Cursor, moved.Head, moved.Updated = 9, session.Hash{1}, 5
	if !reader.onlyAdvanced([]*session.Row{&moved}) {
		t.Error("a session with one more event has not only moved")
	}
	if moved.AuthGen++; reader.onlyAdvanced([]*session.Row{&moved}) {
		t.Error("a session of which authority changed has only moved")
	}
	for name, other := range map[string]func(w *session.ReadSet, tx *tx, r *cachedSession){
		"another session":   func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Sessions = append(w.Sessions, "ses_B") },
		"another stream":    func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Streams[0].Outbox = "obx_B" },
		"another ref":       func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Grants[0] = capability.ServerID(id, ulid.Make()) },
		"an older record":   func(_ *session.ReadSet, _ *tx, r *cachedSession) { r.prune(outbox, 3) },
		"records of ops":    func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Records[0].Ops = []string{"op"} },
		"a value":           func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Entries = w.EntryMeta },
		"ancestors":         func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Lineages = w.Grants },
		"unknown turns":     func(_ *session.ReadSet, _ *tx, r *cachedSession) { r.allOpenTurns = false },
		"an unknown row":    func(_ *session.ReadSet, _ *tx, r *cachedSession) { r.version = 0 },
		"a pause":           func(_ *session.ReadSet, _ *tx, r *cachedSession) { r.backoff = 1 },
		"an unknown clock":  func(_ *session.ReadSet, tx *tx, _ *cachedSession) { tx.cache.dbClock = 0 },
		"no session at all": func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.Sessions = nil },
		"an end that is past, so that the next one is not known": func(w *session.ReadSet, _ *tx, _ *cachedSession) { w.ValidUntil = 900_000 },
	} {
		w := wants()
		reader, r := remembers()
		if other(w, reader, r); reader.loadCached(w) != nil {
			t.Errorf("%s: recalled", name)
		}
	}
}

// TestWhatBelongsToAnotherRowIsForgotten: whatever a row's version is, what is remembered with
// it belongs to that very row. A database that was put back to an earlier state under a running
// server gives versions again, and what is not there any more would be taken for granted.
func TestWhatBelongsToAnotherRowIsForgotten(t *testing.T) {
	t.Parallel()
	row := session.Row{ID: "ses_A", Cursor: 5, Head: session.Hash{5}}
	stream := ledger.Stream{Session: "ses_A", Outbox: "obx_A", Incarnation: 1, LastSeq: 3}
	remembers := func() *cachedSession {
		r := newCachedSession()
		r.setRow(&row, 7)
		for _, outbox := range []string{"obx_A", "obx_B"} {
			m := stream
			m.Outbox = outbox
			r.setStream(&m, 6)
			r.setRecord(outbox, &ledger.Record{FirstSeq: 2, Outcomes: make([]ledger.Outcome, 2)})
		}
		r.setEntry(&session.Entry{Key: "message/a", Cursor: 5})
		r.setAllOpenTurns()
		return r
	}
	for name, c := range map[string]struct {
		changes func(*session.Row)
		version int64
		kept    bool
	}{
		"nothing":         {func(*session.Row) {}, 7, true},
		"the version":     {func(*session.Row) {}, 8, false},
		"the cursor":      {func(s *session.Row) { s.Cursor = 4 }, 7, false},
		"the head":        {func(s *session.Row) { s.Head = session.Hash{6} }, 7, false},
		"the log's start": {func(s *session.Row) { s.Base = 1 }, 7, false},
	} {
		r, other := remembers(), row
		c.changes(&other)
		r.setRow(&other, c.version)
		if kept := r.size() > 1 && r.allOpenTurns; kept != c.kept || !kept && r.size() != 1 || r.row != other || r.version != c.version {
			t.Errorf("of a session %s is another: kept %v, %d rows", name, kept, r.size())
		}
	}
	for name, c := range map[string]struct {
		changes func(*ledger.Stream)
		version int64
		kept    bool
	}{
		"nothing":         {func(*ledger.Stream) {}, 6, true},
		"the version":     {func(*ledger.Stream) {}, 7, false},
		"the last seq":    {func(m *ledger.Stream) { m.LastSeq = 4 }, 6, false},
		"the incarnation": {func(m *ledger.Stream) { m.Incarnation = 2 }, 6, false},
	} {
		r, other := remembers(), stream
		c.changes(&other)
		r.setStream(&other, c.version)
		if kept := len(r.records["obx_A"]) == 1; kept != c.kept || len(r.records["obx_B"]) != 1 || !kept && r.outcomes != 2 || r.streams["obx_A"].row != other {
			t.Errorf("of a stream %s is another: kept %v, %d outcomes", name, kept, r.outcomes)
		}
	}
	r := remembers()
	if r.setRecord("obx_A", &ledger.Record{BatchID: "another", FirstSeq: 2, Outcomes: make([]ledger.Outcome, 1)}); r.records["obx_A"][0].BatchID != "another" || r.outcomes != 3 {
		t.Errorf("in the place of another record is %+v, of %d outcomes", r.records["obx_A"][0], r.outcomes)
	}
}

// TestWrongGuessesArePutOff: the more of them in a row, the longer.
func TestWrongGuessesArePutOff(t *testing.T) {
	t.Parallel()
	m := &rowCache{}
	r := newCachedSession()
	r.setRow(&session.Row{ID: "ses_A"}, 7)
	r.setEntry(&session.Entry{Key: "message/a", Cursor: 5})
	m.put(map[string]*cachedSession{"ses_A": r})
	var pauses, sizes []int
	for i := range 9 { // the first two were compared with nothing
		(&tx{cache: m, assumed: &assumptions{validated: i > 1}, cached: m.take([]string{"ses_A"})}).invalidate()
		pauses, sizes = append(pauses, m.sessions["ses_A"].backoff), append(sizes, m.rows)
	}
	if want := []int{0, 1, 3, 7, 15, 31, 63, 63, 63}; !slices.Equal(pauses, want) || m.stale.Load() != 7 {
		t.Errorf("pauses: %v, want %v; %d wrong ones", pauses, want, m.stale.Load())
	}
	if want := []int{2, 2, 1, 1, 1, 1, 1, 1, 1}; !slices.Equal(sizes, want) || m.sessions["ses_A"].version != 0 {
		t.Errorf("of the session are kept so many rows: %v, want %v", sizes, want)
	}
	(&tx{cache: m, assumed: &assumptions{fresh: true}, cached: m.take([]string{"ses_A"})}).updateCache()
	if m.sessions["ses_A"].staleStreak != 0 || m.fresh.Load() != 1 {
		t.Error("a right one counts for nothing")
	}
}

// TestLatestEntries: those that were used last are remembered.
func TestLatestEntries(t *testing.T) {
	t.Parallel()
	r := newCachedSession()
	key := func(i int) string { return fmt.Sprintf("message/%d", i) }
	for i := range 10 * maxRecentEntries {
		if r.setEntry(&session.Entry{Key: key(i), Cursor: uint64(i)}); i%maxRecentEntries == 0 {
			r.setEntry(&session.Entry{Key: "message/often"})
		}
		if _, known := r.entries.get("message/often"); !known {
			t.Fatalf("after %d: what is used all the time is forgotten", i)
		}
		if size := r.entries.size(); size > 2*maxRecentEntries || r.size() != 1+size {
			t.Fatalf("after %d: %d are kept", i, size)
		}
	}
	for i := range 10 * maxRecentEntries {
		e, known := r.entries.young[key(i)]
		if !known {
			e, known = r.entries.old[key(i)]
		}
		if latest := i >= 9*maxRecentEntries; latest && !known || i < 8*maxRecentEntries-2 && known || known && e.cursor != uint64(i) {
			t.Errorf("%d: %v, %+v", i, known, e)
		}
	}
	for i := range 10 * maxRecentEntries {
		r.entries.drop(key(i))
	}
	if r.entries.drop("message/often"); r.entries.size() != 0 {
		t.Errorf("%d are left", r.entries.size())
	}
}

// TestUnwritten: keys that are inserted need not be looked for, but for those that
// are dropped first.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	trans := &tx{assumed: &assumptions{}, absent: map[string][]string{"ses_A": {"a", "b", "c", "d"}, "ses_B": {"a"}}}
	c := &session.Changes{
		Entries:     []*session.Entry{{Session: "ses_A", Key: "a"}, {Session: "ses_A", Key: "c"}, {Session: "ses_A", Key: "e"}},
		DropEntries: map[string][]string{"ses_A": {"b", "c"}, "ses_B": {"a"}},
	}
	fresh, others := trans.splitEntries(c)
	if !slices.Equal(fresh, c.Entries[:1]) || !slices.Equal(others, c.Entries[1:]) {
		t.Errorf("inserts %v, and is ready for either with %v", fresh, others)
	}
	rest := trans.unwrittenKeys()
	if !slices.Equal(rest.sessions, []string{"ses_A", "ses_A", "ses_A", "ses_B"}) || !slices.Equal(rest.keys, []string{"b", "c", "d", "a"}) {
		t.Errorf("looks for %v of %v", rest.keys, rest.sessions)
	}
}

// TestRememberedRecords: those that hold what is asked for, or none of them.
func TestRememberedRecords(t *testing.T) {
	t.Parallel()
	r := newCachedSession()
	rec := func(first uint64, n int) *ledger.Record {
		return &ledger.Record{FirstSeq: first, Outcomes: make([]ledger.Outcome, n)}
	}
	for _, one := range []*ledger.Record{rec(8, 2), rec(4, 1), rec(5, 3), rec(4, 1)} { // 4, 5-7, 8-9
		r.setRecord("o", one)
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
		found, ok := r.recordsCovering(stream, c.from, c.to)
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
	var m rowCache
	if m.now() != 0 {
		t.Error("a clock that nobody looked at shows something")
	}
	m.observeClock(1_000_000)
	m.observedAt = m.observedAt.Add(-10 * time.Second)
	if now := m.now(); now < 1_009_980 || now > 1_010_000+time.Since(m.observedAt).Milliseconds()-10_000 {
		t.Errorf("after ten seconds: %d", now)
	}
	m.observeClock(500_000) // it was put back
	if now := m.now(); now < 500_000 || now > 501_000 {
		t.Errorf("after it was put back: %d", now)
	}
	m.observedAt = m.observedAt.Add(-clockMaxAge - time.Second)
	if m.now() != 0 {
		t.Error("what was heard long ago is used")
	}
}

// TestPacked: rows are what each makes of them, and what they were leaves nothing behind.
func TestPacked(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 500, 2, 0} {
		trans := &tx{}
		events := make([]*session.Event, n)
		for i := range events {
			events[i] = &session.Event{Key: fmt.Sprint(i), Cursor: uint64(i)}
		}
		list := bufferedRows(trans, events, insertEvents, eventValues)
		if len(list) != n {
			t.Fatalf("%d rows of %d", len(list), n)
		}
		for i, row := range list {
			if !slices.Equal(row, eventValues(nil, events[i])) {
				t.Errorf("row %d is %v", i, row)
			}
		}
		packs := trans.buffers
		trans.releaseBuffers()
		for _, p := range packs {
			if slices.ContainsFunc(p.values[:cap(p.values)], func(v any) bool { return v != nil }) {
				t.Error("values are kept")
			}
		}
	}
}

// inPlace is a backend whose transactions go nowhere.
type inPlace struct{ Backend }

func (inPlace) Update(_ context.Context, fn func(Runner) error) error { return fn(nil) }
func (inPlace) Announce(map[string]uint64)                            {}

// TestPacksComeBack: with the end of a transaction, however it ends.
func TestPacksComeBack(t *testing.T) {
	t.Parallel()
	for _, end := range []error{nil, errStale} {
		var used *tx
		s := &Store{backend: inPlace{}}
		err := s.update(t.Context(), func(trans *tx) error {
			used = trans
			bufferedRows(trans, []*session.Event{{}}, insertEvents, eventValues)
			return end
		})
		if !errors.Is(err, end) || len(used.buffers) > 0 {
			t.Errorf("%d are in use after %v", len(used.buffers), err)
		}
	}
}
