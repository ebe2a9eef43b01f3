package plantest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/migrations"
)

// Both gives an empty database of either kind, with the tables, and what chooses a
// statement's text for it.
func Both(t *testing.T, do func(db *sql.DB, text func(*dialect.Statement) string)) {
	t.Helper()
	lite, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []struct {
		*sql.DB
		set  migrations.Schema
		text func(*dialect.Statement) string
	}{
		{lite, migrations.SQLite, func(s *dialect.Statement) string { return s.SQLite.One }},
		{stdlib.OpenDB(*config), migrations.Postgres, func(s *dialect.Statement) string { return s.Postgres.One }},
	} {
		if err := migrations.Up(t.Context(), kind.DB, kind.set); err != nil {
			t.Fatal(err)
		}
		if do(kind.DB, kind.text); t.Failed() {
			t.Logf("on %s", kind.set.Dialect)
		}
		if err := kind.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// List is a statement that reads a list, with its arguments: the last column is of an info.
type List struct {
	Statement *dialect.Statement
	Args      []any
}

// ReadBeginnings tests that of a session's info, which may be as large as anything, lists of the space spc_A and of all shares
// read the beginning, where its title mostly is.
func ReadBeginnings(t *testing.T, lists map[string]List, most int) {
	t.Helper()
	Both(t, func(db *sql.DB, text func(*dialect.Statement) string) {
		for i, size := range []int{100, 1 << 20} {
			id := fmt.Sprint("ses_", i)
			for _, there := range []struct {
				text string
				args []any
			}{
				{`INSERT INTO sessions (id, space) VALUES ($1, 'spc_A')`, []any{id}},
				{`INSERT INTO entries (session, key, cursor, schema, text_len, grown, sum, payload) VALUES ($1, 'session', 1, 1, 0, 0, $2, $3)`, []any{id, make([]byte, 32), make([]byte, size)}},
				{`INSERT INTO public_shares (id, session, owner_tail, share_tail, reader_tail, created) VALUES ($1, $1, '', '', '', 1)`, []any{id}},
			} {
				if _, err := db.ExecContext(t.Context(), there.text, there.args...); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, c := range lists {
			rows, err := db.QueryContext(t.Context(), text(c.Statement), c.Args...)
			if err != nil {
				t.Fatal(err)
			}
			columns, err := rows.Columns()
			if err != nil {
				t.Fatal(err)
			}
			var sizes []int
			for rows.Next() {
				row := make([]any, len(columns))
				for i := range row {
					row[i] = new(any)
				}
				var info []byte
				row[len(row)-1] = &info
				if err := rows.Scan(row...); err != nil {
					t.Fatal(err)
				}
				sizes = append(sizes, len(info))
			}
			slices.Sort(sizes)
			if rows.Err() != nil || fmt.Sprint(sizes) != fmt.Sprint([]int{100, most}) {
				t.Errorf("of %s are read infos of %d bytes, %v", name, sizes, rows.Err())
			}
		}
	})
}
