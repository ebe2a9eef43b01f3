package outbox

// What callers are told, and what stays, when a statement fails with each of the codes that databases fail with.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// failing is an outbox whose statements can be told to fail.
type failing struct {
	*stmtfault.Statements
	box  *Box
	pool *pgxpool.Pool // nil on SQLite
}

// codeOf is what callers are told of a failure, and unsure that a commit may have come to be all the same.
func codeOf(f stmtfault.Failure) (code fault.Code, unsure bool) {
	cause := f.Cause()
	switch code = cause.Code(); {
	case f.State != "": // an outbox's file is its user's own
	case cause == dbfault.Damaged:
		code = fault.OutboxDamaged
	case cause == dbfault.ReadOnly, f.Code == sqlite3.SQLITE_CANTOPEN:
		code = fault.Usage
	}
	return code, f.State == "" && f.Code&0xff == sqlite3.SQLITE_IOERR
}

// aside are statements whose failure is no verb's: by which a Box looks for news, those of a test's own transactions, and what
// undoes something.
func aside(sql string) bool {
	return sql == "begin" || sql == "rollback" || strings.Contains(sql, "LISTEN") || strings.Contains(sql, "pg_backend_pid") || strings.Contains(sql, "data_version")
}

// onFailing runs a test on both databases.
func onFailing(t *testing.T, f func(t *testing.T, d failing)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		proxy := stmtfault.Postgres(t, shared.get(t), aside)
		cfg, err := pgxpool.ParseConfig(proxy.URL())
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = 4
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // it would be a statement now and then
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		b, err := newPostgres(limited(t), pool, newSession(), quick())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		f(t, failing{&proxy.Statements, b, pool})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		driver := stmtfault.SQLite(t, aside)
		b, err := openSQLiteBy(limited(t), driver.Name(), newPlace(t, "sqlite").at, quick())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		f(t, failing{&driver.Statements, b, nil})
	})
}

// failingVerbs are verbsOf, but for those that SQLite does not have.
func (d failing) failingVerbs(t *testing.T, session string) (names []string, verbs map[string]func(context.Context) error) {
	t.Helper()
	kept := testRef(t, d.box, session, RefMeta{Role: SessionOwner})
	x := commit(t, d.box, Batch{Session: session, Ops: []Op{put("1")}})
	verbs = verbsOf(d.box, d.pool, session, kept, x)
	if d.pool == nil {
		delete(verbs, "CommitTx")
		delete(verbs, "NewPostgres")
	}
	for name := range verbs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, verbs
}

// checkFailing runs a verb with its at-th statement, and all after it, failing, and then with none. It says whether
// there was such a statement.
func (d failing) checkFailing(t *testing.T, name string, verb func(context.Context) error, at int, f stmtfault.Failure) (met bool) {
	t.Helper()
	failed, err := d.During(at, f, func() error { return verb(limited(t)) })
	if len(failed) == 0 {
		return false
	}
	what := fmt.Sprintf("%s, %s at %.60q", name, f, failed[0])
	want, unsure := codeOf(f)
	switch code := fault.CodeOf(err); {
	case err == nil && looksAfterwards(name, failed[0]):
	case err == nil || code != want && !(unsure && code == fault.Unavailable && errors.Is(err, writer.ErrAmbiguous)):
		t.Errorf("%s: %v, want %s", what, err, want)
	}
	err = verb(limited(t))
	_, sqlite := errors.AsType[sqlite.Error](err)
	_, postgres := errors.AsType[*pgconn.PgError](err)
	if sqlite || postgres || err != nil && fault.CodeOf(err) == fault.Internal {
		t.Errorf("%s, then again: %v", what, err)
	}
	return true
}

// looksAfterwards says of a verb's statement that the verb has done what it is to do, and looks for what has become of the refs
// it remembers: if it cannot, the next one does.
func looksAfterwards(verb, sql string) bool {
	switch verb {
	case "PutRef", "RefAnswered", "DropRef", "BeginRotation", "FinishRotation", "AbandonRotation":
		return sql == "BEGIN" || strings.Contains(sql, "LEFT JOIN mooring_outbox_ref AS r")
	}
	return false
}

// TestCodesAtStatements gives each code at each kind of statement, and each verb one at each of its statements: what comes
// out is what the table says, and the next try is as if nothing had been.
func TestCodesAtStatements(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		names, verbs := d.failingVerbs(t, newSession())
		turn := 0
		for _, name := range names {
			met := 0
			for at := 1; at <= 12; at++ {
				f := d.Failures[turn%len(d.Failures)]
				if !d.checkFailing(t, name, verbs[name], at, f) {
					break
				}
				turn++
				met++
			}
			if met == 0 {
				t.Errorf("%s runs no statement", name)
			}
		}
		for _, f := range d.Failures {
			for _, name := range []string{"Commit", "Status"} {
				for at := 1; at <= seed.Cases(12) && d.checkFailing(t, name, verbs[name], at, f); at++ {
				}
			}
		}
	})
}

// TestCodesWhileSending gives each code at statements of committing, sending and settling, one at a time: who commits again what
// failed, under its id, has it applied once and in order, and every batch is answered and settled.
func TestCodesWhileSending(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		d.sendThrough(t, func(i int) []int { return []int{1 + i%3, 4 + i%5} })
	})
}

// sendThrough commits a batch for each failure and each of the statements that atOf has for the i-th one fail.
func (d failing) sendThrough(t *testing.T, atOf func(i int) []int) {
	t.Helper()
	session, srv := withSession(t, d.box), newFakeServer()
	run(t, d.box, srv)
	var sent []string
	last := d.Failures[0] // what is gathered with outcomes of the batch before may fail with those
	for i, f := range d.Failures {
		want, unsure := codeOf(f)
		if want == fault.OutboxDamaged {
			continue // nobody goes on with such a file
		}
		for _, at := range atOf(i) {
			x := Batch{ID: opid.NewBatch(), Session: session, Ops: []Op{put(fmt.Sprintf("%q", opid.NewBatch()))}}
			checkCode := func(verb string, err error) {
				t.Helper()
				before, unsureBefore := codeOf(last)
				if code := fault.CodeOf(err); code != want && code != before && !((unsure || unsureBefore) && errors.Is(err, writer.ErrAmbiguous)) {
					t.Fatalf("%s, %s at %d: %v, want %s", verb, f, at, err, want)
				}
			}
			d.Fail(at, false, f)
			_, err := d.box.Commit(limited(t), x)
			for err != nil {
				checkCode("commit", err)
				_, err = d.box.Commit(limited(t), x)
			}
			outs, err := d.box.Wait(limited(t), x.ID)
			for err != nil {
				checkCode("wait", err)
				outs, err = d.box.Wait(limited(t), x.ID)
			}
			if len(outs) != 1 || outs[0].Status != ledger.Applied {
				t.Errorf("%s at %d: %+v", f, at, outs)
			}
			sent, last = append(sent, string(x.Ops[0].Args[0].JSON)), f
		}
	}
	d.Fail(0, false, stmtfault.Failure{})
	var got []string
	for _, e := range srv.log(session) {
		got = append(got, string(e.args[0].JSON))
	}
	if !slices.Equal(got, sent) {
		t.Errorf("%d ops were applied, want %d, each once and in order", len(got), len(sent))
	}
	until.True(t, "all outcomes are stored", func() bool {
		st, err := d.box.Status(limited(t))
		return err == nil && st.Unfinished() == 0
	})
}
