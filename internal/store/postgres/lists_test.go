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
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

var insertListed = &dialect.Statement{
	Postgres: dialect.Forms{Many: `INSERT INTO listed (t, i, b, h) SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::bytea[]), unnest($4::bytea[])`},
	Columns:  []dialect.Column{dialect.Text, dialect.Int, dialect.Bytes, dialect.Bytes},
}

// listedRows are rows of all that a list may have.
func listedRows(n int) [][]any {
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

// TestLists: all kinds of values arrive, or the transaction fails.
func TestLists(t *testing.T) {
	t.Parallel()
	pool, b := bareBackend(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE listed (t text, i bigint, b bytea, h bytea)`); err != nil {
		t.Fatal(err)
	}
	list := listedRows(4000)
	insert := func() error {
		return b.Update(t.Context(), func(r dialect.Runner) error {
			r.Queue(insertListed, list, nil, nil)
			return nil
		})
	}
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `DELETE FROM listed RETURNING t, i, b, h`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close() // else the pool would wait for it where the test fails
	n := 0
	for ; rows.Next(); n++ {
		var text string
		var number int64
		var long, sum []byte
		if err := rows.Scan(&text, &number, &long, &sum); err != nil {
			t.Fatal(err)
		}
		want := dialect.Values(list[number])
		wantLong, _ := want[2].([]byte)
		if text != want[0] || number != want[1] || !bytes.Equal(long, wantLong) || (long == nil) != (wantLong == nil) || !bytes.Equal(sum, want[3].([]byte)) {
			t.Fatalf("row %q, %d, %d bytes, %x", text, number, len(long), sum)
		}
	}
	if rows.Err() != nil || n != len(list) {
		t.Errorf("%d rows of %d: %v", n, len(list), rows.Err())
	}
	list[7][0] = 3.14
	if err := insert(); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("a value that no list has: %v", err)
	}
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM listed`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows: %v", n, err)
	}
}

// bareBackend is a backend without tables.
func bareBackend(t *testing.T) (*pgxpool.Pool, *backend) {
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
	return pool, &backend{pool: pool, sizedPool: pgtune.NewAdaptivePool(pool, nil), log: slog.New(slog.DiscardHandler), announcer: newAnnouncer()}
}

// TestRefusedAnswersKeepStatements: who refuses an answer, does not have
// the connection forget what it has prepared.
func TestRefusedAnswersKeepStatements(t *testing.T) {
	t.Parallel()
	pool, b := bareBackend(t)
	conn, err := pool.Acquire(t.Context()) // the other one is the backend's
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	refused := errors.New("refused")
	one := &dialect.Statement{Postgres: dialect.Forms{One: `SELECT 1 AS refused`}}
	for range 2 {
		calls := 0
		err := b.Update(t.Context(), func(r dialect.Runner) error {
			for range 2 {
				r.Queue(one, nil, nil, func(dialect.Scanner) error { calls++; return refused })
			}
			return nil
		})
		if !errors.Is(err, refused) || calls != 1 {
			t.Fatalf("%d calls: %v", calls, err)
		}
	}
	prepared := 0
	err = b.Update(t.Context(), func(r dialect.Runner) error {
		r.Queue(&dialect.Statement{Postgres: dialect.Forms{One: `SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 1 AS refused'`}},
			nil, nil, func(row dialect.Scanner) error { return row.Scan(&prepared) })
		return nil
	})
	if err != nil || prepared != 1 {
		t.Errorf("%d statements are prepared: %v", prepared, err)
	}
}
