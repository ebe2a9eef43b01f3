package store

import (
	"context"
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }

// statements are all that there are.
var statements = map[string]*Statement{
	"shareSpace": shareSpace, "lockSpace": lockSpace, "ensureSessions": ensureSessions, "lockSessions": lockSessions,
	"readSessions": readSessions, "saveSessions": saveSessions, "saveOrigins": saveOrigins, "saveParents": saveParents, "listChildren": listChildren, "listOlder": listOlder, "saveReverts": saveReverts, "findLeft": findLeft, "leftMessages": leftMessages, "dropLeft": dropLeft, "dropLeftParts": dropLeftParts, "dropLeftTurn": dropLeftTurn, "readLeftOut": readLeftOut, "findFilled": findFilled, "listOldest": listOldest, "listNewest": listNewest, "listChanged": listChanged, "listTitled": listTitled, "readActivity": readActivity, "listStaleTitles": listStaleTitles, "readTitles": readTitles, "setTitles": setTitles, "dropStaleTitles": dropStaleTitles, "readExternals": readExternals,
	"claimExternals": claimExternals, "dropExternals": dropExternals,
	"insertEvents": insertEvents, "readEvents": readEvents, "readLogs": readLogs, "readDeltas": readDeltas, "readOpenDeltas": readOpenDeltas, "readKeptDeltas": readKeptDeltas, "keepBefore": keepBefore, "keepRange": keepRange, "readBefore": readBefore, "readBeforeMeta": readBeforeMeta, "readBeforeValues": readBeforeValues, "readBeforeRange": readBeforeRange, "readBeforeMessages": readBeforeMessages, "saveBefore": saveBefore, "dropBefore": dropBefore, "dropAllBefore": dropAllBefore, "saveForks": saveForks, "findForks": findForks,
	"dropAllPayloads": dropAllPayloads, "readPayloadEvents": readPayloadEvents, "dropPayloads": dropPayloads, "replacePayload": replacePayload,
	"readUnordered": readUnordered, "readOutline": readOutline, "readSizes": readSizes, "setOrds": setOrds, "readEntryMeta": readEntryMeta, "readEntries": readEntries, "readRanges": readRanges, "readRange": readRange, "saveEntries": saveEntries,
	"insertEntries": insertEntries, "lapsedClaims": lapsedClaims, "readLapsedClaims": readLapsedClaims, "countClaims": countClaims, "readFreeKeys": readFreeKeys, "nthKey": nthKey, "saveClaims": saveClaims,
	"updateEdited": updateEdited, "saveEdits": saveEdits, "dropEdits": dropEdits, "dropAllEdits": dropAllEdits,
	"dropEntries": dropEntries, "updateAppended": updateAppended, "dropState": dropState,
	"readOpenTurns": readOpenTurns, "readTurns": readTurns, "readTurnRange": readTurnRange, "saveTurns": saveTurns, "dropTurns": dropTurns,
	"lapsedTurns": lapsedTurns, "readTurnRefs": readTurnRefs, "readStreamingTurns": readStreamingTurns, "readFirstOpen": readFirstOpen, "readOpenOrphans": readOpenOrphans,
	"pageTrimmable": pageTrimmable, "pageDeleted": pageDeleted, "readEventMeta": readEventMeta, "materializeValues": materializeValues, "dropEvents": dropEvents,
	"setBase": setBase, "forget": forget, "setForgotten": setForgotten, "forgetEvents": forgotten[0], "forgetWords": forgotten[1], "forgetStreams": forgotten[2],
	"forgetRecords": forgotten[3], "forgetRedemptions": forgotten[4], "forgetGrants": forgotten[5], "forgetManaged": forgotten[6], "forgetUses": forgotten[7],
	"readRequests": readRequests, "saveRequests": saveRequests, "dropRequests": dropRequests, "dropAllRequests": dropAllRequests, "dueRequests": dueRequests,
	"readWebhooks": readWebhooks, "insertWebhook": insertWebhook, "dropWebhook": dropWebhook, "dropAllWebhooks": dropAllWebhooks, "findHooked": findHooked, "claimAnyWebhooks": claimAnyWebhooks, "claimWebhooksOf": claimWebhooksOf, "saveWebhook": saveWebhook, "releaseWebhooks": releaseWebhooks, "releaseAllWebhooks": releaseAllWebhooks,
	"insertManaged": insertManaged, "findManaged": findManaged, "readManaged": readManaged, "readTreeManaged": readTreeManaged, "readTreeReached": readTreeReached, "readBelow": readBelow, "readReaching": readReaching, "readSessionRoots": readSessionRoots, "claimDone": claimDone,
	"readStreams": readStreams, "nthReadOnlyStream": nthReadOnlyStream, "saveStreams": saveStreams, "readRecords": readRecords, "searchRecords": searchRecords,
	"insertRecords": insertRecords, "pruneRecords": pruneRecords,
	"readGrants": readGrants, "lockGrants": lockGrants, "readLineages": readLineages, "insertGrants": insertGrants,
	"revokeSubtree": revokeSubtree, "revokeSpaceSubtree": revokeSpaceSubtree, "countTree": countTree, "readTree": readTree, "readLineageIDs": readLineageIDs, "readRoots": readRoots,
	"lockDescendants": lockDescendants, "moveChildren": moveChildren, "revokeOne": revokeOne, "countRedemption": countRedemption, "insertRedemption": insertRedemption,
	"readRedemption": readRedemption, "chargeGrants": chargeGrants, "releaseSessionBytes": releaseSessionBytes, "releaseGrantBytes": releaseGrantBytes, "releaseAbove": releaseAbove, "forgetAbove": forgetAbove,
	"trimSessions": trimSessions, "trimGrants": trimGrants, "measureLog": measureLog, "measureState": measureState, "setMeasured": setMeasured,
	"clearGrants": clearGrants, "measureGrants": measureGrants, "exemptGrants": exemptGrants, "listUnmeasured": listUnmeasured, "insertAudit": insertAudit, "readAudit": readAudit,
	"ensureAuditHeads": ensureAuditHeads, "lockAuditHeads": lockAuditHeads, "readAuditHead": readAuditHead, "saveAuditHeads": saveAuditHeads,
	"addUses": addUses, "findExpired": findExpired, "lockExpired": lockExpired, "markExpiryAudited": markExpiryAudited,
	"insertShare": insertShare, "insertPublic": insertPublic, "readShare": readShare, "readRecentRequests": readRecentRequests, "readRefusals": readRefusals, "saveRefusals": saveRefusals, "dropRefusals": dropRefusals, "dropAllRefusals": dropAllRefusals, "findByExternal": findByExternal, "readShares": readShares, "listShares": listShares,
	"readOwners": readOwners, "readChildren": readChildren,
	"insertPageToken": insertPageToken, "evictPageTokens": evictPageTokens, "readPageToken": readPageToken, "dropPageToken": dropPageToken,
	"findExpiredTokens": findExpiredTokens, "limitLocks": limitLocks, "touchedSessions": writtenTables[0], "touchedEvents": writtenTables[1], "touchedStreams": writtenTables[2],
	"saveMeta": saveMeta, "countSessions": countSessions, "readMeta": readMeta, "claimMeta": claimMeta, "insertSpace": insertSpace,
	"recordReplica": recordReplica, "readReplicas": readReplicas, "dropReplica": dropReplica, "dropReplicas": dropReplicas, "finishUpgrade": finishUpgrade,
	"readSpaceRef": readSpaceRef, "readAccount": readAccount, "sumAccount": sumAccount, "exemptAccount": exemptAccount, "readExempt": readExempt,
	"listByKey": listByKey, "listByPut": listByPut, "listAmong": listAmong, "nthPut": nthPut, "listSorted": listSorted, "listKinds": listKinds, "readEntryFacts": readEntryFacts, "readChanges": readChanges, "keepChanges": keepChanges,
	"readIndex": readIndex, "seeIndex": seeIndex, "beginIndex": beginIndex, "setIndex": setIndex, "dropIndex": dropIndex, "lockIndexes": lockIndexes, "readChanged": readChanged,
	"insertWords": insertWords, "dropWords": dropWords, "dropWordsBetween": dropWordsBetween, "findWords": findWords,
	"statKeys": statKeys, "statGrown": statGrown, "statMessages": statMessages, "statEntries": statEntries, "statEvents": statEvents, "statEnds": statEnds,
	"pageSessions": pageSessions, "pageAuditHeads": pageAuditHeads, "readHashes": readHashes, "claimKey": claimKey, "pruneWriters": pruneWriters,
}

// indexed are the statements about turns and keys, of which a session may have very many, and about
// deleted sessions, and the index that each goes by.
var indexed = map[string]string{"listByPut": "entries_put", "listAmong": "entries_put", "nthPut": "entries_put", "listKinds": "entries_put", "leftMessages": "entries_put", "readLeftOut": "entries_put", "findLeft": "sessions_reverts_left", "findForks": "sessions_forking", "readBeforeMessages": "entries_before_put", "readUnordered": "entries_unordered",
	"readReaching": "grants_reaching", "readBelow": "sessions_above", "readTreeReached": "sessions_above", "listChildren": "sessions_above", "readOpenTurns": "turns_counted", "readTurnRefs": "turns_counted", "readStreamingTurns": "turns_streaming", "readActivity": "turns_streaming",
	"lapsedTurns": "turns_streaming", "lapsedClaims": "entries_claimed", "readLapsedClaims": "entries_claimed", "countClaims": "entries_claimed", "dueRequests": "requests_due", "claimAnyWebhooks": "webhooks_due", "readFirstOpen": "turns_open", "readOpenOrphans": "turns_open", "readOpenDeltas": "turns_open", "pageTrimmable": "turns_open", "pageDeleted": "sessions_forgettable"}

// stopping are the statements of which no more is read than there is room for.
var stopping = map[*Statement]bool{readBeforeValues: true, readLogs: true, readDeltas: true, readPayloadEvents: true, readEntries: true, readRanges: true, readRange: true, listByKey: true, listByPut: true, listAmong: true}

// TestEveryStatementHasAPlan: what is made by one of this package's makers of statements is among those whose plans are looked
// at.
func TestEveryStatementHasAPlan(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	makers := map[string]bool{} // functions that return a statement
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Type.Results != nil && len(f.Type.Results.List) == 1 {
				if to, ok := f.Type.Results.List[0].Type.(*ast.StarExpr); ok && fmt.Sprint(to.X) == "Statement" {
					makers[f.Name.Name] = true
				}
			}
		}
	}
	found := 0
	for _, file := range files {
		for _, d := range file.Decls {
			vars, ok := d.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				v := spec.(*ast.ValueSpec)
				for i, value := range v.Values {
					call, ok := value.(*ast.CallExpr)
					if !ok {
						continue
					}
					maker := fmt.Sprint(call.Fun)
					if method, ok := call.Fun.(*ast.SelectorExpr); ok { // statement("…").setOneRow("…")
						maker = method.Sel.Name
					}
					if !makers[maker] {
						continue
					}
					found++
					if name := v.Names[i].Name; statements[name] == nil {
						t.Errorf("%s is not in statements", name)
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d statements were found", found)
	}
}

var placeholder = regexp.MustCompile(`\$(\d+)`)

// arguments counts a statement's placeholders.
func arguments(text string) int {
	most := 0
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		var n int
		if _, err := fmt.Sscan(m[1], &n); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// TestPlansSQLite: every statement goes by keys; none reads a table through.
func TestPlansSQLite(t *testing.T) {
	t.Parallel()
	db := sqliteDB(t)
	for name, s := range statements {
		for form, text := range map[string]string{"one": s.SQLite.One, "many": s.SQLite.Many, "bulk": s.SQLite.Bulk, "alike": s.SQLite.BulkShared} {
			if text == "" {
				continue
			}
			values := arguments(text)
			if form == "bulk" || form == "alike" { // its parameters are not all numbered
				values = BulkRows * len(s.Columns)
			}
			inner := map[string]bool{} // selects within it
			plan := sqlitePlan(t, db, text, values)
			if !strings.Contains(strings.Join(plan, "\n"), indexed[name]) {
				t.Errorf("%s (%s) does not go by %s: %q", name, form, indexed[name], plan)
			}
			for _, step := range plan {
				if strings.Contains(step, "TEMP B-TREE FOR ORDER BY") && stopping[s] {
					t.Errorf("%s (%s) reads all to sort it, although its caller may stop: %s", name, form, step)
				}
				if name, ok := strings.CutPrefix(step, "CO-ROUTINE "); ok {
					inner[name] = true
				}
				if table, scans := strings.CutPrefix(step, "SCAN "); scans && !passing(table) && !inner[table] {
					t.Errorf("%s (%s) reads a table through: %s", name, form, step)
				}
			}
		}
	}
}

// passing says whether what is scanned is a list or an intermediate result.
func passing(table string) bool {
	for _, list := range []string{"w", "json_each", "line", "below", "top", "y", "page", "f", "hit", "CONSTANT ROW", "16-ROW VALUES", "(subquery", "1 CONSTANT"} {
		if strings.HasPrefix(table, list) {
			return true
		}
	}
	// Of streaming turns alone, of what is not measured, and of titles that are due.
	return table == "d" || strings.HasSuffix(table, " INDEX turns_streaming") || strings.HasSuffix(table, " INDEX sessions_unmeasured")
}

// allPairs is a join that looks at each pair of rows, although there are keys.
var allPairs = regexp.MustCompile(`Join Filter: \(+\w+\.\w+ = |Join Filter: .* AND \(\w+\.\w+ = `)

// TestPlansPostgres is the same on Postgres (without a store's settings an empty
// table would be read through).
func TestPlansPostgres(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	for name, s := range statements {
		forms := map[string]string{"one": s.Postgres.One, "many": s.Postgres.Many}
		for form, text := range forms {
			plan, err := explain(t, conn, name+"_"+form, text)
			if err != nil {
				t.Errorf("%s (%s): %v", name, form, err)
			}
			if !strings.Contains(plan, indexed[name]) {
				t.Errorf("%s (%s) does not go by %s:\n%s", name, form, indexed[name], plan)
			}
			if strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s (%s) reads a table through:\n%s", name, form, plan)
			}
			if allPairs.MatchString(plan) && s != dropExternals { // which goes by both
				t.Errorf("%s (%s) compares all rows of a session or space with each other:\n%s", name, form, plan)
			}
		}
	}
}

// postgresConn is a connection to an empty database with the tables, with the
// settings that a store's connections have.
func postgresConn(t *testing.T) *pgx.Conn {
	t.Helper()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	if err := migrations.Up(t.Context(), db, migrations.Postgres); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "plan_cache_mode = force_generic_plan"} {
		if _, err := conn.Exec(t.Context(), "SET "+setting); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func explain(t *testing.T, conn *pgx.Conn, name, text string) (string, error) {
	if _, err := conn.Exec(t.Context(), "PREPARE "+name+" AS "+text); err != nil {
		return "", err
	}
	execute := "EXPLAIN EXECUTE " + name
	if n := arguments(text); n > 0 {
		execute += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	rows, err := conn.Query(t.Context(), execute)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// TestPagesEndPostgres: no more is sent than the row that ends a page, however much follows.
func TestPagesEndPostgres(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	const n, size, bytes = 200, 1000, 10_000
	for _, there := range []string{
		`INSERT INTO events SELECT 'ses_A', i, 0, 0, 'put', '', '', '', '', '', '', '', '', $2::bytea FROM generate_series(1, $1) AS i`,
		`INSERT INTO entries SELECT 'ses_A', lpad(i::text, 4, '0'), i, 0, 0, 0, '', CASE WHEN i % 2 = 1 THEN $2::bytea END FROM generate_series(1, $1) AS i`,
	} {
		if _, err := conn.Exec(t.Context(), there, n, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		s      *Statement
		args   []any
		weight int
	}{
		"events":  {readEvents, []any{"ses_A", int64(50), int64(100), int64(bytes)}, eventOverhead},
		"entries": {readRange, []any{"ses_A", "0050", "z", int64(100), int64(bytes)}, entryOverhead},
	} {
		rows, err := conn.Query(t.Context(), c.s.Postgres.One, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		for rows.Next() {
			sent++
		}
		if fit := bytes / (size + c.weight); rows.Err() != nil || sent <= fit || sent > fit+2 {
			t.Errorf("%d %s are sent where %d fit, %v", sent, name, fit, rows.Err())
		}
	}
}

// TestListPlans: the sessions that changed last, and those whose titles come next, are found
// without sorting all of a space's, whatever the planner knows of the tables.
func TestListPlans(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
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
			plan, err := explain(t, conn, name+"_"+strings.Fields(known)[0], c.text)
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
	plan := strings.Join(sqlitePlan(t, sqliteDB(t), listTitled.SQLite.One, 8), "\n")
	if !strings.Contains(plan, "sessions_titled (space=? AND (title,id)>(?,?))") || strings.Contains(plan, "TEMP B-TREE") {
		t.Error(plan)
	}
}

// TestTreePlans: what is next in a tree of refs is looked up in the index, whole places of
// siblings too, whatever the planner knows of the tables.
func TestTreePlans(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	if _, err := conn.Exec(t.Context(), `INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires,
			visible_from, redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash)
		SELECT 'ses_A', 'o' || i, 'ses_A', 'o' || i % 2 * (i - 1), 0, 1, 1, 'null', 0, 0, 0, 0, i, 0, 0, '', '', '', '' FROM generate_series(1, 20000) AS i`); err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"SELECT", "ANALYZE grants"} {
		if _, err := conn.Exec(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		plan, err := explain(t, conn, "tree_"+strings.Fields(known)[0], readTree.Postgres.One)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(plan, "using grants_parent") != 2 || strings.Contains(plan, "Sort Key: g") ||
			!strings.Contains(plan, "(parent_tail = w.parent_tail) AND (ROW(created, target, tail) > ROW(") {
			t.Errorf("after %s:\n%s", known, plan)
		}
	}
	plan := strings.Join(sqlitePlan(t, sqliteDB(t), readTree.SQLite.One, 6), "\n")
	if !strings.Contains(plan, "grants_parent (parent_target=? AND parent_tail=? AND (created,target,tail)>(?,?,?))") {
		t.Error(plan)
	}
}

// TestReachPlans: what is below sessions, and the refs that reach it, are looked up in their indexes, which the planner takes
// for empty until it has seen the first rows: it goes through neither.
func TestReachPlans(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
	for _, fill := range []string{`INSERT INTO sessions (id) SELECT 'ses_' || i FROM generate_series(1, 5000) AS i`, "ANALYZE sessions",
		`INSERT INTO sessions (id, life, parent, above) SELECT 'ses_below' || i, 1, 'ses_' || i / 10, 'ses_' || i / 10 FROM generate_series(10, 5000) AS i`} {
		if _, err := conn.Exec(t.Context(), fill); err != nil {
			t.Fatal(err)
		}
	}
	for _, known := range []string{"SELECT", "ANALYZE sessions"} {
		if _, err := conn.Exec(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]*Statement{"below": readBelow, "tree": readTreeReached} {
			for form, text := range map[string]string{"one": s.Postgres.One, "many": s.Postgres.Many} {
				plan, err := explain(t, conn, "reach_"+name+"_"+form+"_"+strings.Fields(known)[0], text)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(plan, "sessions_above on sessions s") || !strings.Contains(plan, "Index Cond: ((above >= ") && !strings.Contains(plan, "Index Cond: ((s.above >= ") || strings.Contains(plan, "Join Filter") {
					t.Errorf("%s (%s), after %s:\n%s", name, form, known, plan)
				}
			}
		}
		for form, text := range map[string]string{"one": readReaching.Postgres.One, "many": readReaching.Postgres.Many} {
			plan, err := explain(t, conn, "reaching_"+form+"_"+strings.Fields(known)[0], text)
			if err != nil || !strings.Contains(plan, "Index Cond: (target = ") || strings.Contains(plan, "Join Filter") {
				t.Errorf("reaching (%s), after %s: %v\n%s", form, known, err, plan)
			}
		}
	}
	for _, s := range []*Statement{readBelow, readTreeReached} {
		plan := strings.Join(sqlitePlan(t, sqliteDB(t), s.SQLite.One, 2), "\n")
		if !strings.Contains(plan, "sessions_above (above>? AND above<?)") {
			t.Error(plan)
		}
	}
}

// TestKeyPlans: the next keys, by key and by first put, those of a snapshot, the free ones and the next
// kind are looked up in an index, whatever the planner knows of the tables, and nothing is sorted but
// what is to be. Keys that are looked for among those of their kind are compared in the index alone.
func TestKeyPlans(t *testing.T) {
	t.Parallel()
	conn := postgresConn(t)
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
			s     *Statement
			sorts bool
			want  []string
		}{
			"key":    {listByKey, false, []string{"((session = $1) AND (key >= $2) AND (key < $3))"}},
			"put":    {listByPut, false, []string{"Index Cond: ((session = $1) AND (split_part(key, '/'::text, 1) = $2) AND " + next}},
			"among":  {listAmong, false, []string{next, "Index Only Scan using entries_put", "((session = p.session) AND (key = p.key))"}},
			"nth":    {nthPut, false, []string{next, "Index Only Scan using entries_put", "((session = e_1.session) AND (key = e_1.key))"}},
			"sorted": {listSorted, true, []string{"((session = $1) AND (key >= $2) AND (key < $3))", "Sort Key: e.ord, e.ord_index, e.key"}},
			"kinds":  {listKinds, false, []string{"Index Only Scan using entries_put"}},
			"free":   {readFreeKeys, false, []string{"((session = $1) AND (key > $2) AND (key < $3))"}},
			"range":  {readRange, false, []string{"((session = $1) AND (key >= $2) AND (key < COALESCE($6, $3)))"}},
		} {
			plan, err := explain(t, conn, name+"_"+strings.Fields(known)[0], c.s.Postgres.One)
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
	for s, c := range map[*Statement]struct {
		values int
		want   string
	}{
		listByKey: {4, "SEARCH e USING PRIMARY KEY (session=? AND key>? AND key<?)"},
		listByPut: {6, "SEARCH e USING INDEX entries_put (session=? AND <expr>=? AND (ord,ord_index,key)>(?,?,?))"},
		listAmong: {9, "SEARCH e USING COVERING INDEX entries_put (session=? AND <expr>=? AND (ord,ord_index,key)>(?,?,?))"},
		nthPut:    {6, "SEARCH e USING COVERING INDEX entries_put (session=? AND <expr>=? AND (ord,ord_index,key)>(?,?,?))"},
		listKinds: {2, "SEARCH e USING COVERING INDEX entries_put (session=? AND <expr>>?)"},
	} {
		if plan := strings.Join(sqlitePlan(t, sqliteDB(t), s.SQLite.One, c.values), "\n"); !strings.Contains(plan, c.want) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("no %s:\n%s", c.want, plan)
		}
	}
}

// sqliteDB is an empty SQLite database with the tables.
func sqliteDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := migrations.Up(t.Context(), db, migrations.SQLite); err != nil {
		t.Fatal(err)
	}
	return db
}

// sqlitePlan are the steps of a statement with so many values.
func sqlitePlan(t *testing.T, db *sql.DB, text string, values int) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, values)...)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	for rows.Next() {
		var n int
		var step string
		if err := rows.Scan(&n, &n, &n, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	return steps
}
