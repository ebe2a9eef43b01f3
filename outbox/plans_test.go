package outbox

// How the databases look for what is unfinished.

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// A queue is looked at while it is long: once through its rows, and not once
// through them for each of them.
func TestUnfinishedRowsAreReadOnce(t *testing.T) {
	statements := map[string]string{"usage": sqlstore.SQLUsage, "counts": sqlstore.SQLPendingCounts, "streams": sqlstore.SQLStreams, "list": sqlstore.SQLListOpen, "old": sqlstore.SQLOldUnfinished}
	more := map[string][]any{"list": {0, "''"}, "old": {0}} // arguments beside the box
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		_, pool, _ := pgBox(t, quick())
		conn, err := pool.Acquire(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		exec := func(sql string) string {
			t.Helper()
			rows, err := conn.Query(context.Background(), sql)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var plan strings.Builder
			for rows.Next() {
				var line string
				if err := rows.Scan(&line); err != nil {
					t.Fatal(err)
				}
				plan.WriteString(line + "\n")
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return plan.String()
		}
		exec("SET plan_cache_mode = force_generic_plan")
		for name, sql := range statements {
			exec("PREPARE p_" + name + " AS " + sql)
			args := "1"
			for _, arg := range more[name] {
				args += fmt.Sprint(", ", arg)
			}
			plan := exec("EXPLAIN EXECUTE p_" + name + "(" + args + ")")
			if strings.Contains(plan, "Semi Join") || strings.Contains(plan, "SubPlan") || !strings.Contains(plan, "Append") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		b := newPlace(t, "sqlite").open(t, quick())
		for name, sql := range statements {
			plan := sqlitePlan(t, b, sql, append([]any{b.t.Box}, more[name]...)...)
			text := strings.ReplaceAll(plan, "SCAN mooring_outbox_batch USING INDEX mooring_outbox_batch_waiting", "")
			if strings.Contains(text, "SCAN mooring_outbox_batch") || strings.Contains(text, "LIST SUBQUERY") {
				t.Errorf("%s:\n%s", name, text)
			}
		}
	})
}

// What is on its way is counted again and again while a rotation waits for it.
func TestInFlightIsFoundByNumber(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	if plan := sqlitePlan(t, b, sqlstore.SQLInFlightVia, b.t.Box, "x"); strings.Contains(plan, "SCAN mooring_outbox_batch") {
		t.Error(plan)
	}
}

// Streams are many, and mostly none stands still: to ask, or to take over, is not to
// read all of them. (TestPlansGoByKeys has Postgres.)
func TestStoppedStreamsHaveAnIndex(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	for sql, args := range map[string][]any{sqlstore.SQLAnyStopped: {b.t.Box, 1}, sqlstore.SQLClearStopped: {b.t.Box}} {
		if plan := sqlitePlan(t, b, sql, args...); !strings.Contains(plan, "mooring_outbox_stream_stopped") {
			t.Error(plan)
		}
	}
}

// sqlitePlan is how SQLite goes about a statement.
func sqlitePlan(t *testing.T, b *Box, sql string, args ...any) string {
	t.Helper()
	var plan strings.Builder
	err := b.db.Read(limited(t), func(q sqlstore.Querier) error {
		plan.Reset()
		return q.Query(t.Context(), "EXPLAIN QUERY PLAN "+sql, args, func(scan sqlstore.Scanner) error {
			var id, parent, unused int
			var line string
			err := scan(&id, &parent, &unused, &line)
			plan.WriteString(line + "\n")
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
