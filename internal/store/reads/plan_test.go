package reads

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/plantest"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }

// statements are all that there are.
var statements = plantest.Statements{
	All: map[string]*dialect.Statement{
		"listChildren": listChildren, "listOlder": listOlder, "readLeftOut": readLeftOut, "findFilled": findFilled,
		"listOldest": listOldest, "listNewest": listNewest, "listChanged": listChanged, "listTitled": listTitled,
		"readActivity": readActivity, "listStaleTitles": listStaleTitles, "readTitles": readTitles, "setTitles": setTitles,
		"dropStaleTitles": dropStaleTitles, "readOutline": readOutline, "readSizes": readSizes, "setOrds": setOrds,
		"lapsedClaims": lapsedClaims, "readTurnRange": readTurnRange, "lapsedTurns": lapsedTurns, "dueRequests": dueRequests,
		"readTree": readTree, "readLineageIDs": readLineageIDs, "listByKey": listByKey, "listAmong": listAmong, "nthPut": nthPut,
		"listSorted": listSorted, "listKinds": listKinds, "readEntryFacts": readEntryFacts, "readChanges": readChanges,
		"readIndex": readIndex, "seeIndex": seeIndex, "beginIndex": beginIndex, "setIndex": setIndex, "readChanged": readChanged,
		"insertWords": insertWords, "dropWordsBetween": dropWordsBetween, "findWords": findWords, "statKeys": statKeys,
		"statGrown": statGrown, "statMessages": statMessages, "statEntries": statEntries, "statEvents": statEvents,
		"statEnds": statEnds,
	},
	Indexed: map[string]string{
		"listChildren": "sessions_above", "readLeftOut": "entries_put", "readActivity": "turns_streaming",
		"lapsedClaims": "entries_claimed", "lapsedTurns": "turns_streaming", "dueRequests": "requests_due", "listAmong": "entries_put",
		"nthPut": "entries_put", "listKinds": "entries_put",
	},
	Stopping: []string{"listByKey", "listAmong"},
}

func TestPlans(t *testing.T) { plantest.Check(t, statements) }

// TestListPlans: the sessions that changed last, and those whose titles come next, are found
// without sorting all of a space's, whatever the planner knows of the tables.
func TestListPlans(t *testing.T) {
	t.Parallel()
	conn := plantest.Postgres(t)
	if _, err := conn.Exec(t.Context(), `INSERT INTO sessions (id, space, life, updated, title)
		SELECT 'ses_' || lpad(i::text, 6, '0'), 'spc_A', 1, i * 7919 % 20000 * 1000, 't' || i * 7919 % 5000 FROM generate_series(1, 20000) AS i`); err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"SELECT", "ANALYZE sessions"} {
		if _, err := conn.Exec(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			text string
			want []string
		}{
			"changed": {listChanged.Postgres.One, []string{"sessions_changed", "Presorted Key: s_1.minute"}},
			"titled":  {listTitled.Postgres.One, []string{"Index Scan using sessions_titled", "(ROW(title, id) > ROW($2, $3))"}},
		} {
			plan, err := plantest.Explain(t, conn, name+"_"+strings.Fields(known)[0], c.text)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(plan, want) {
					t.Errorf("%s after %s has no %s:\n%s", name, known, want, plan)
				}
			}
			if name == "titled" && strings.Contains(plan, "Sort") {
				t.Errorf("%s after %s sorts:\n%s", name, known, plan)
			}
		}
	}
	plan := strings.Join(plantest.SQLitePlan(t, plantest.SQLite(t), listTitled.SQLite.One, 8), "\n")
	if !strings.Contains(plan, "sessions_titled (space=? AND (title,id)>(?,?))") || strings.Contains(plan, "TEMP B-TREE") {
		t.Error(plan)
	}
}

// TestTreePlans: what is next in a tree of refs is looked up in the index, whole places of
// siblings too, whatever the planner knows of the tables.
func TestTreePlans(t *testing.T) {
	t.Parallel()
	conn := plantest.Postgres(t)
	if _, err := conn.Exec(t.Context(), `INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires,
			visible_from, redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash)
		SELECT 'ses_A', 'o' || i, 'ses_A', 'o' || i % 2 * (i - 1), 0, 1, 1, 'null', 0, 0, 0, 0, i, 0, 0, '', '', '', '' FROM generate_series(1, 20000) AS i`); err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"SELECT", "ANALYZE grants"} {
		if _, err := conn.Exec(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		plan, err := plantest.Explain(t, conn, "tree_"+strings.Fields(known)[0], readTree.Postgres.One)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(plan, "using grants_parent") != 2 || strings.Contains(plan, "Sort Key: g") ||
			!strings.Contains(plan, "(parent_tail = w.parent_tail) AND (ROW(created, target, tail) > ROW(") {
			t.Errorf("after %s:\n%s", known, plan)
		}
	}
	plan := strings.Join(plantest.SQLitePlan(t, plantest.SQLite(t), readTree.SQLite.One, 6), "\n")
	if !strings.Contains(plan, "grants_parent (parent_target=? AND parent_tail=? AND (created,target,tail)>(?,?,?))") {
		t.Error(plan)
	}
}

// TestKeyPlans: the next keys, by key and by first put, and the next
// kind are looked up in an index, whatever the planner knows of the tables, and nothing is sorted but
// what is to be. Keys that are looked for among those of their kind are compared in the index alone.
func TestKeyPlans(t *testing.T) {
	t.Parallel()
	conn := plantest.Postgres(t)
	if _, err := conn.Exec(t.Context(), `INSERT INTO entries (session, key, cursor, schema, text_len, grown, sum, since, ord)
		SELECT 'ses_' || i % 2, 'kind' || i % 5 || '/' || i, i, 1, 0, 0, '', i, i * 7919 % 20000 FROM generate_series(1, 20000) AS i`); err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"SELECT", "ANALYZE entries"} {
		if _, err := conn.Exec(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		const next = "(ROW(ord, ord_index, key) > ROW($3, $4, $5)))"
		for name, c := range map[string]struct {
			s     *dialect.Statement
			sorts bool
			want  []string
		}{
			"key":    {listByKey, false, []string{"((session = $1) AND (key >= $2) AND (key < $3))"}},
			"put":    {txn.ListByPut, false, []string{"Index Cond: ((session = $1) AND (split_part(key, '/'::text, 1) = $2) AND " + next}},
			"among":  {listAmong, false, []string{next, "Index Only Scan using entries_put", "((session = p.session) AND (key = p.key))"}},
			"nth":    {nthPut, false, []string{next, "Index Only Scan using entries_put", "((session = e_1.session) AND (key = e_1.key))"}},
			"sorted": {listSorted, true, []string{"((session = $1) AND (key >= $2) AND (key < $3))", "Sort Key: e.ord, e.ord_index, e.key"}},
			"kinds":  {listKinds, false, []string{"Index Only Scan using entries_put"}},
		} {
			plan, err := plantest.Explain(t, conn, name+"_"+strings.Fields(known)[0], c.s.Postgres.One)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(plan, want) || strings.Contains(plan, "Sort") != c.sorts {
					t.Errorf("%s after %s: no %q in\n%s", name, known, want, plan)
				}
			}
		}
	}
	for s, c := range map[*dialect.Statement]struct {
		values int
		want   string
	}{
		listByKey:     {4, "SEARCH e USING PRIMARY KEY (session=? AND key>? AND key<?)"},
		txn.ListByPut: {6, "SEARCH e USING INDEX entries_put (session=? AND <expr>=? AND (ord,ord_index,key)>(?,?,?))"},
		listAmong:     {9, "SEARCH e USING COVERING INDEX entries_put (session=? AND <expr>=? AND (ord,ord_index,key)>(?,?,?))"},
		nthPut:        {6, "SEARCH e USING COVERING INDEX entries_put (session=? AND <expr>=? AND (ord,ord_index,key)>(?,?,?))"},
		listKinds:     {2, "SEARCH e USING COVERING INDEX entries_put (session=? AND <expr>>?)"},
	} {
		if plan := strings.Join(plantest.SQLitePlan(t, plantest.SQLite(t), s.SQLite.One, c.values), "\n"); !strings.Contains(plan, c.want) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("no %s:\n%s", c.want, plan)
		}
	}
}
