package stmtfault

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// TestEachStatement fails each statement of a transaction, in each way of sending it: the code is the one that was asked for,
// what was before has run, what is after has not, and nothing stays.
func TestEachStatement(t *testing.T) {
	t.Parallel()
	p := Postgres(t, pgtest.URL(t), func(sql string) bool { return strings.Contains(sql, "set up") })
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		for _, fatal := range []bool{false, true} {
			met := 0
			for at := 1; ; at++ {
				if at > 20 {
					t.Fatal("it does not end")
				}
				cfg, err := pgx.ParseConfig(p.URL())
				if err != nil {
					t.Fatal(err)
				}
				cfg.DefaultQueryExecMode = mode
				conn, err := pgx.ConnectConfig(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Exec(t.Context(), "/* set up */ CREATE TEMP TABLE t (n int PRIMARY KEY)", pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
				p.Fail(at, false, Failure{State: "57014", Routine: "somewhere", Fatal: fatal})
				answers := 0
				err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					batch := new(pgx.Batch)
					for n := range 2 {
						batch.Queue("INSERT INTO t VALUES ($1)", n).Exec(func(pgconn.CommandTag) error { answers++; return nil })
					}
					return tx.SendBatch(t.Context(), batch).Close()
				})
				failed := p.Failed()
				p.Fail(0, false, Failure{})
				if len(failed) == 0 {
					if err != nil || answers != 2 {
						t.Errorf("%s: not failed, %v", mode, err)
					}
					_ = conn.Close(t.Context())
					break
				}
				met++
				e, is := errors.AsType[*pgconn.PgError](err)
				if !is || e.Code != "57014" || e.Routine != "somewhere" || conn.IsClosed() != (fatal || failed[0] == "commit") {
					t.Errorf("%s, %q: %v, closed %t", mode, failed, err, conn.IsClosed())
				}
				if !conn.IsClosed() {
					var rows int
					if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&rows); err != nil || rows != 0 {
						t.Errorf("%s, %q: %d rows stayed, %v", mode, failed, rows, err)
					}
				}
				_ = conn.Close(t.Context())
			}
			if met < 3 {
				t.Errorf("%s: %d statements were met", mode, met)
			}
		}
	}
}

// TestFailures has a cause for each, so that none of the table is missed.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, f := range append(postgresFailures(), sqliteFailures()...) {
		if f.Cause() == dbfault.None {
			t.Errorf("%v is nothing of the table: say in ofClass which state stands for its class", f)
		}
	}
}

// TestRefuse refuses new connections, and lets in those that there are.
func TestRefuse(t *testing.T) {
	t.Parallel()
	p := Postgres(t, pgtest.URL(t), nil)
	conn, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	p.Refuse(&Failure{State: "53300", Fatal: true})
	_, err = pgx.Connect(t.Context(), p.URL())
	if e, is := errors.AsType[*pgconn.PgError](err); !is || e.Code != "53300" {
		t.Errorf("a new one: %v", err)
	}
	p.Fail(2, true, Failure{State: "25006"})
	for n, fails := range []bool{false, true, true} {
		if _, err := conn.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeSimpleProtocol); (err != nil) != fails {
			t.Errorf("statement %d: %v", n+1, err)
		}
	}
	p.Refuse(nil)
	p.Fail(0, false, Failure{})
	again, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Ping(t.Context()), again.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
