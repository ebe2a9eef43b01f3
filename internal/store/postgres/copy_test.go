package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
)

// copied is a table that knows by which statement its rows came.
const copied = `CREATE TABLE copied (t text, i bigint, b bytea, h bytea, by text DEFAULT current_query())`

var insertCopied = &store.Statement{
	Postgres: store.Forms{Many: `INSERT INTO copied (t, i, b, h) SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::bytea[]), unnest($4::bytea[])`},
	Columns:  []store.Column{store.Text, store.Int, store.Bytes, store.Bytes},
	Into:     "copied (t, i, b, h)",
}

// copiedRows are rows of all that a list may have; one is longer than what goes out at a time.
func copiedRows(n int) [][]any {
	list := make([][]any, n)
	for i := range list {
		text, number, sum := fmt.Sprintf("row %d", i), uint64(i), session.SumOf([]byte{byte(i)})
		var none []byte
		list[i] = []any{&text, &number, &none, &sum}
		if i%2 == 1 {
			list[i] = []any{text, int64(i), []byte(strings.Repeat("\x00\xff", i%50)), sum[:]}
		}
	}
	list[n/2][2] = bytes.Repeat([]byte("long"), 64<<10)
	return list
}

// TestLongListsAreCopied: they go in by COPY, in their place among the statements, with the
// values that shorter ones have by INSERT, and with what was queued before them or not at all.
func TestLongListsAreCopied(t *testing.T) {
	t.Parallel()
	pool, b := copyBackend(t)
	if _, err := pool.Exec(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM copied`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := &store.Statement{Postgres: store.Forms{One: `SELECT count(*) FROM copied`}}
	for _, c := range []struct {
		rows int
		by   string
	}{{b.copyRows - 1, "INSERT"}, {b.copyRows, "COPY"}} {
		list := copiedRows(c.rows)
		var before, after int
		err := b.Update(t.Context(), func(r store.Runner) error {
			r.Queue(all, nil, nil, func(row store.Scanner) error { return row.Scan(&before) })
			r.Queue(insertCopied, list, nil, nil)
			r.Queue(all, nil, nil, func(row store.Scanner) error { return row.Scan(&after) })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if before != 0 || after != c.rows || count() != c.rows {
			t.Errorf("%d rows: %d before, %d after, %d in the end", c.rows, before, after, count())
		}
		rows, err := pool.Query(t.Context(), `DELETE FROM copied RETURNING t, i, b, h, by`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close() // else the pool would wait for it where the test fails
		for i := 0; rows.Next(); i++ {
			var text, by string
			var number int64
			var long, sum []byte
			if err := rows.Scan(&text, &number, &long, &sum, &by); err != nil {
				t.Fatal(err)
			}
			want := store.Values(list[number])
			wantLong, _ := want[2].([]byte)
			if text != want[0] || number != want[1] || !bytes.Equal(long, wantLong) || (long == nil) != (wantLong == nil) || !bytes.Equal(sum, want[3].([]byte)) {
				t.Fatalf("%s: row %d is %q, %d, %d bytes, %x", c.by, i, text, number, len(long), sum)
			}
			if !strings.HasPrefix(by, c.by) {
				t.Fatalf("%d rows came by %s", c.rows, by)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	wrong := errors.New("wrong")
	err := b.Update(t.Context(), func(r store.Runner) error {
		r.Queue(all, nil, nil, func(store.Scanner) error { return wrong })
		r.Queue(insertCopied, copiedRows(b.copyRows), nil, nil)
		return nil
	})
	if !errors.Is(err, wrong) || count() != 0 {
		t.Errorf("after a statement whose answer is refused: %v, %d rows", err, count())
	}
	err = b.Update(t.Context(), func(r store.Runner) error {
		list := copiedRows(b.copyRows)
		list[7][0] = 3.14
		r.Queue(insertCopied, list, nil, nil)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "float64") || count() != 0 {
		t.Errorf("a value that no list has: %v, %d rows", err, count())
	}
}

// copyBackend is a backend without tables.
func copyBackend(t *testing.T) (*pgxpool.Pool, *backend) {
	t.Helper()
	cfg, err := poolConfig(Config{URL: pgtest.URL(t), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, &backend{pool: pool, sizedPool: pgtune.NewAdaptivePool(pool, nil), log: slog.New(slog.DiscardHandler), copyRows: copyRows, announcer: newAnnouncer()}
}

// TestRefusedAnswersKeepStatements: who refuses an answer, as after a wrong guess, does not have
// the connection forget what it has prepared.
func TestRefusedAnswersKeepStatements(t *testing.T) {
	t.Parallel()
	pool, b := copyBackend(t)
	conn, err := pool.Acquire(t.Context()) // the other one is the backend's
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	refused := errors.New("refused")
	one := &store.Statement{Postgres: store.Forms{One: `SELECT 1 AS refused`}}
	for range 2 {
		calls := 0
		err := b.Update(t.Context(), func(r store.Runner) error {
			for range 2 {
				r.Queue(one, nil, nil, func(store.Scanner) error { calls++; return refused })
			}
			return nil
		})
		if !errors.Is(err, refused) || calls != 1 {
			t.Fatalf("%d calls: %v", calls, err)
		}
	}
	prepared := 0
	err = b.Update(t.Context(), func(r store.Runner) error {
		r.Queue(&store.Statement{Postgres: store.Forms{One: `SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 1 AS refused'`}},
			nil, nil, func(row store.Scanner) error { return row.Scan(&prepared) })
		return nil
	})
	if err != nil || prepared != 1 {
		t.Errorf("%d statements are prepared: %v", prepared, err)
	}
}
