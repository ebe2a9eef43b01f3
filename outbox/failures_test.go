package outbox

// Errors of the databases: what they are taken for, and what is done with them.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func TestSQLiteErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]error{
		sqlite3.SQLITE_CONSTRAINT_UNIQUE: sqlstore.ErrUnique, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: sqlstore.ErrUnique,
		sqlite3.SQLITE_FULL: fault.DiskFull, sqlite3.SQLITE_IOERR_WRITE: fault.DiskFull, sqlite3.SQLITE_IOERR_SHMSIZE: fault.DiskFull,
		sqlite3.SQLITE_BUSY: fault.Unavailable, sqlite3.SQLITE_BUSY_SNAPSHOT: fault.Unavailable, sqlite3.SQLITE_LOCKED: fault.Unavailable,
		sqlite3.SQLITE_CORRUPT: fault.OutboxDamaged, sqlite3.SQLITE_CORRUPT_INDEX: fault.OutboxDamaged, sqlite3.SQLITE_NOTADB: fault.OutboxDamaged,
		sqlite3.SQLITE_ERROR: fault.OutboxDamaged, sqlite3.SQLITE_MISMATCH: fault.OutboxDamaged,
		sqlite3.SQLITE_READONLY: fault.Usage, sqlite3.SQLITE_READONLY_DBMOVED: fault.Usage, sqlite3.SQLITE_CANTOPEN: fault.Usage, sqlite3.SQLITE_PERM: fault.Usage,
		sqlite3.SQLITE_CONSTRAINT_NOTNULL: codeError(sqlite3.SQLITE_CONSTRAINT_NOTNULL), sqlite3.SQLITE_IOERR_READ: codeError(sqlite3.SQLITE_IOERR_READ),
	} {
		if err := sqlite.Failure(codeError(code)); !errors.Is(err, want) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// TestAStatementThatFails undoes its transaction, whatever follows it.
func TestAStatementThatFails(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		ctx := limited(t)
		name := func(op, batch string) func(context.Context, sqlstore.Querier) error {
			return func(_ context.Context, q sqlstore.Querier) error {
				b.t.IndexOp(q, op, batch)
				b.t.IndexOp(q, "another of "+batch, batch)
				return nil
			}
		}
		if err := b.w.Do(ctx, name("x", "first")); err != nil {
			t.Fatal(err)
		}
		if err := b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
			b.t.IndexOp(q, "y", "second")
			return name("x", "second")(ctx, q)
		}); !errors.Is(err, sqlstore.ErrUnique) {
			t.Errorf("an op that is there: %v", err)
		}
		for op, want := range map[string]string{"x": "first", "another of first": "first", "y": "", "another of second": ""} {
			got := ""
			err := b.read(ctx, "look", func(ctx context.Context, q sqlstore.Querier) error {
				return q.Query(ctx, sqlstore.SQLBatchOf, []any{b.t.Box, op}, func(scan sqlstore.Scanner) error { return scan(&got) })
			})
			if err != nil || got != want {
				t.Errorf("op %s is in batch %q, want %q: %v", op, got, want, err)
			}
		}
	})
}

// TestAReadingThatIsCutOff is an error, and not what had been read by then.
func TestAReadingThatIsCutOff(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		ctx, cancel := context.WithCancel(limited(t))
		err := b.db.Read(ctx, func(q sqlstore.Querier) error {
			return q.Query(ctx, "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n", nil, func(sqlstore.Scanner) error {
				cancel()
				return nil
			})
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, postgres.ErrNoAnswer) {
			t.Errorf("%v", err)
		}
	})
}

// TestAmbiguousEnds: only what the server says itself is certain.
func TestAmbiguousEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		ambiguous bool
	}{
		{nil, false},
		{fmt.Errorf("commit: %w", &pgconn.PgError{Code: "40001"}), false},
		{sqlstore.ErrUnique, false},
		{io.ErrUnexpectedEOF, true},
		{context.DeadlineExceeded, true},
	} {
		if end := postgres.TxResultOf(c.err); end.Ambiguous != c.ambiguous || end.Rerun || !errors.Is(end.Err, c.err) {
			t.Errorf("%v: %+v", c.err, end)
		}
	}
}

// TestAPoolThatIsTheCallersStays: when the database has not answered, connections that
// are ours are given up, and no others.
func TestAPoolThatIsTheCallersStays(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	db := b.db.(*postgres.DB)
	for _, own := range []bool{false, true} {
		var pids [2]uint32
		for i := range pids {
			conn, err := pool.Acquire(limited(t))
			if err != nil {
				t.Fatal(err)
			}
			pids[i] = conn.Conn().PgConn().PID()
			if i == 0 {
				db.OwnsPool = own
				err = db.NoAnswer(context.DeadlineExceeded)
				db.OwnsPool = false
				if !errors.Is(err, fault.Unavailable) || !errors.Is(err, postgres.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
			}
			conn.Release()
		}
		if given := pids[0] != pids[1]; given != own {
			t.Errorf("ours (%t): given up (%t)", own, given)
		}
	}
}

// TestFilesAreSyncedAndPrivate: a commit is on the disk when it returns, and nobody but the
// owner reads the secrets, of which none stays behind.
func TestFilesAreSyncedAndPrivate(t *testing.T) {
	t.Parallel()
	p, ctx := newPlace(t, "sqlite"), limited(t)
	if err := os.WriteFile(p.at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.at, 0o620); err != nil {
		t.Fatal(err)
	}
	b, err := p.tryOpen(quick())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(p.at); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal"} {
		got := ""
		if err := b.db.(*sqlite.DB).Writer.Conn.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v", pragma, got, err)
		}
	}
	var list []capability.Ref
	for range 20 {
		list = append(list, testRef(t, b, newSession(), RefMeta{Role: SessionOwner}))
	}
	for _, ref := range list {
		if err := b.DropRef(ctx, ref.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil { // there is no log any more
		t.Fatal(err)
	}
	data, err := os.ReadFile(p.at)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range list {
		if bytes.Contains(data, []byte(ref.Secret.RevealText())) {
			t.Errorf("the file still has the secret of %s", ref.ID)
		}
	}
}
