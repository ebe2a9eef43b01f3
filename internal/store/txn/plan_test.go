package txn

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/plantest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse())) }

// statements are all that there are.
var statements = plantest.Statements{
	All: map[string]*dialect.Statement{
		"shareSpace": shareSpace, "LockSpace": LockSpace, "ensureSessions": ensureSessions, "LockSessions": LockSessions,
		"ReadSessions": ReadSessions, "saveSessions": saveSessions, "saveOrigins": saveOrigins, "saveParents": saveParents,
		"saveReverts": saveReverts, "leftMessages": leftMessages, "dropLeft": dropLeft, "dropLeftParts": dropLeftParts,
		"dropLeftTurn": dropLeftTurn, "readExternals": readExternals, "claimExternals": claimExternals, "dropExternals": dropExternals,
		"insertEvents": insertEvents, "ReadEvents": ReadEvents, "readLogs": readLogs, "readDeltas": readDeltas,
		"readOpenDeltas": readOpenDeltas, "readKeptDeltas": readKeptDeltas, "keepBefore": keepBefore, "keepRange": keepRange,
		"readBefore": readBefore, "readBeforeMeta": readBeforeMeta, "readBeforeValues": readBeforeValues,
		"readBeforeRange": readBeforeRange, "readBeforeMessages": readBeforeMessages, "saveBefore": saveBefore,
		"dropBefore": dropBefore, "dropAllBefore": dropAllBefore, "saveForks": saveForks, "dropAllPayloads": dropAllPayloads,
		"readPayloadEvents": readPayloadEvents, "DropPayloads": DropPayloads, "replacePayload": replacePayload,
		"ReadUnordered": ReadUnordered, "ReadEntryMeta": ReadEntryMeta, "ReadEntries": ReadEntries, "readRanges": readRanges,
		"readRange": readRange, "saveEntries": saveEntries, "insertEntries": insertEntries, "readLapsedClaims": readLapsedClaims,
		"countClaims": countClaims, "readFreeKeys": readFreeKeys, "NthKey": NthKey, "saveClaims": saveClaims,
		"updateEdited": updateEdited, "saveEdits": saveEdits, "dropEdits": dropEdits, "dropAllEdits": dropAllEdits,
		"dropEntries": dropEntries, "updateAppended": updateAppended, "dropState": dropState, "readOpenTurns": readOpenTurns,
		"ReadTurns": ReadTurns, "saveTurns": saveTurns, "dropTurns": dropTurns, "readTurnRefs": readTurnRefs,
		"readStreamingTurns": readStreamingTurns, "readOpenOrphans": readOpenOrphans, "ReadRequests": ReadRequests,
		"saveRequests": saveRequests, "dropRequests": dropRequests, "dropAllRequests": dropAllRequests,
		"dropAllWebhooks": dropAllWebhooks, "insertManaged": insertManaged, "readManaged": readManaged,
		"readTreeManaged": readTreeManaged, "readTreeReached": readTreeReached, "readBelow": readBelow, "readReaching": readReaching,
		"ReadStreams": ReadStreams, "saveStreams": saveStreams, "readRecords": readRecords, "searchRecords": searchRecords,
		"insertRecords": insertRecords, "pruneRecords": pruneRecords, "ReadGrants": ReadGrants, "ReadLineages": ReadLineages,
		"insertGrants": insertGrants, "revokeSubtree": revokeSubtree, "revokeSpaceSubtree": revokeSpaceSubtree, "countTree": countTree,
		"lockDescendants": lockDescendants, "moveChildren": moveChildren, "revokeOne": revokeOne, "chargeGrants": chargeGrants,
		"releaseSessionBytes": releaseSessionBytes, "releaseGrantBytes": releaseGrantBytes, "releaseAbove": releaseAbove,
		"ForgetAbove": ForgetAbove, "TrimSessions": TrimSessions, "TrimGrants": TrimGrants, "insertAudit": insertAudit,
		"ReadAudit": ReadAudit, "ensureAuditHeads": ensureAuditHeads, "lockAuditHeads": lockAuditHeads, "ReadAuditHead": ReadAuditHead,
		"saveAuditHeads": saveAuditHeads, "insertPublic": insertPublic, "dropAllRefusals": dropAllRefusals, "ReadMeta": ReadMeta,
		"ListByPut": ListByPut, "dropIndex": dropIndex, "lockIndexes": lockIndexes, "DropWords": DropWords, "ReadHashes": ReadHashes,
	},
	Indexed: map[string]string{
		"leftMessages": "entries_put", "readOpenDeltas": "turns_open", "readBeforeMessages": "entries_before_put",
		"ReadUnordered": "entries_unordered", "readLapsedClaims": "entries_claimed", "countClaims": "entries_claimed",
		"readOpenTurns": "turns_counted", "readTurnRefs": "turns_counted", "readStreamingTurns": "turns_streaming",
		"readOpenOrphans": "turns_open", "readTreeReached": "sessions_above", "readBelow": "sessions_above",
		"readReaching": "grants_reaching", "ListByPut": "entries_put",
	},
	Stopping: []string{"readLogs", "readDeltas", "readBeforeValues", "readPayloadEvents", "ReadEntries", "readRanges", "readRange", "ListByPut"},
	Pairing:  []string{"dropExternals"},
}

func TestPlans(t *testing.T) { plantest.Check(t, statements) }

// TestPagesEndPostgres: no more is sent than the row that ends a page, however much follows.
func TestPagesEndPostgres(t *testing.T) {
	t.Parallel()
	conn := plantest.Postgres(t)
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
		s      *dialect.Statement
		args   []any
		weight int
	}{
		"events":  {ReadEvents, []any{"ses_A", int64(50), int64(100), int64(bytes)}, EventOverhead},
		"entries": {readRange, []any{"ses_A", "0050", "z", int64(100), int64(bytes)}, EntryOverhead},
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

// TestReachPlans: what is below sessions, and the refs that reach it, are looked up in their indexes, which the planner takes
// for empty until it has seen the first rows: it goes through neither.
func TestReachPlans(t *testing.T) {
	t.Parallel()
	conn := plantest.Postgres(t)
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
		for name, s := range map[string]*dialect.Statement{"below": readBelow, "tree": readTreeReached} {
			for form, text := range map[string]string{"one": s.Postgres.One, "many": s.Postgres.Many} {
				plan, err := plantest.Explain(t, conn, "reach_"+name+"_"+form+"_"+strings.Fields(known)[0], text)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(plan, "sessions_above on sessions s") || !strings.Contains(plan, "Index Cond: ((above >= ") && !strings.Contains(plan, "Index Cond: ((s.above >= ") || strings.Contains(plan, "Join Filter") {
					t.Errorf("%s (%s), after %s:\n%s", name, form, known, plan)
				}
			}
		}
		for form, text := range map[string]string{"one": readReaching.Postgres.One, "many": readReaching.Postgres.Many} {
			plan, err := plantest.Explain(t, conn, "reaching_"+form+"_"+strings.Fields(known)[0], text)
			if err != nil || !strings.Contains(plan, "Index Cond: (target = ") || strings.Contains(plan, "Join Filter") {
				t.Errorf("reaching (%s), after %s: %v\n%s", form, known, err, plan)
			}
		}
	}
	for _, s := range []*dialect.Statement{readBelow, readTreeReached} {
		plan := strings.Join(plantest.SQLitePlan(t, plantest.SQLite(t), s.SQLite.One, 2), "\n")
		if !strings.Contains(plan, "sessions_above (above>? AND above<?)") {
			t.Error(plan)
		}
	}
}

// TestKeyPlans: the next keys of a snapshot and the free ones are looked up in an index, whatever the planner knows of the
// tables, and nothing is sorted.
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
		for name, c := range map[string]struct {
			s    *dialect.Statement
			want string
		}{
			"free":  {readFreeKeys, "((session = $1) AND (key > $2) AND (key < $3))"},
			"range": {readRange, "((session = $1) AND (key >= $2) AND (key < COALESCE($6, $3)))"},
		} {
			plan, err := plantest.Explain(t, conn, name+"_"+strings.Fields(known)[0], c.s.Postgres.One)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(plan, c.want) || strings.Contains(plan, "Sort") {
				t.Errorf("%s after %s: no %q in\n%s", name, known, c.want, plan)
			}
		}
	}
}
