package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/migrations"
)

// both gives an empty database of either kind, with the tables, and what chooses a
// statement's text for it.
func both(t *testing.T, do func(db *sql.DB, text func(*Statement) string)) {
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
		text func(*Statement) string
	}{
		{lite, migrations.SQLite, func(s *Statement) string { return s.SQLite.One }},
		{stdlib.OpenDB(*config), migrations.Postgres, func(s *Statement) string { return s.Postgres.One }},
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

// TestListsReadBeginnings: of a session's info, which may be as large as anything, a list
// reads the beginning, where its title mostly is.
func TestListsReadBeginnings(t *testing.T) {
	t.Parallel()
	both(t, func(db *sql.DB, text func(*Statement) string) {
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
		for name, c := range map[string]struct {
			s    *Statement
			args []any
		}{"oldest": {listOldest, []any{"spc_A", "", 0, 10, 0, "", 10}}, "newest": {listNewest, []any{"spc_A", "~", 0, 10, 0, "", 10}},
			"changed": {listChanged, []any{"spc_A", 0, 1, "~", 0, 10, 0, "", 10}}, "titled": {listTitled, []any{"spc_A", "", "", 0, 10, 0, "", 10}}, "shares": {listShares, []any{"", 10}}} {
			rows, err := db.QueryContext(t.Context(), text(c.s), c.args...)
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
			if rows.Err() != nil || fmt.Sprint(sizes) != fmt.Sprint([]int{100, maxInfoBytes}) {
				t.Errorf("of %s are read infos of %d bytes, %v", name, sizes, rows.Err())
			}
		}
	})
}

// TestTitleInABeginning: wherever it is cut, there is a title or none.
func TestTitleInABeginning(t *testing.T) {
	t.Parallel()
	cut := func(before, title, after string) string {
		info := []byte(`{"x":"` + strings.Repeat("x", maxInfoBytes-len(`{"x":"","title":"`)-len(before)) + `","title":"` + title + after)
		return infoTitle(info[:min(len(info), maxInfoBytes)])
	}
	for name, c := range map[string]struct{ got, want string }{
		"whole":              {infoTitle([]byte(`{"a":1,"title":"a title"}`)), "a title"},
		"none":               {infoTitle([]byte(`{"a":1}`)), ""},
		"no info":            {infoTitle(nil), ""},
		"its first bytes":    {cut("abc", "abcdef", `"}`), "abc"},
		"up to its end":      {cut("abc", "abc", `"}`), "abc"},
		"behind a backslash": {cut(`ab\`, `ab\ncd`, `"}`), `ab"`},
		"within an escape":   {cut(`ab\u00`, `ab\u00e4cd`, `"}`), "ab"},
		"before it":          {cut("", "abcdef", `"}`), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
	if got := infoTitle([]byte(`{"title":"` + strings.Repeat("ä", maxInfoBytes))[:maxInfoBytes]); got != strings.Repeat("ä", maxTitleBytes/2) {
		t.Errorf("of a long title %d bytes are shown", len(got))
	}
}

// TestTitlesAreDue: whoever writes an info, as a server that knows nothing of titles does,
// leaves it to be taken; what is removed is gone at once.
func TestTitlesAreDue(t *testing.T) {
	t.Parallel()
	both(t, func(db *sql.DB, text func(*Statement) string) {
		do := func(text string, args ...any) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
				t.Fatal(err)
			}
		}
		check := func(what string, due int, title string) {
			t.Helper()
			var n int
			var got string
			if err := db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM titles_due), title FROM sessions`).Scan(&n, &got); err != nil || n != due || got != title {
				t.Errorf("%s: %d are due, the title is %q, %v", what, n, got, err)
			}
		}
		put := func(key string, cursor int) {
			do(`INSERT INTO entries (session, key, cursor, schema, text_len, grown, sum) VALUES ('ses_1', $1, $2, 1, 0, 0, $3)
				ON CONFLICT (session, key) DO UPDATE SET cursor = excluded.cursor`, key, cursor, make([]byte, 32))
		}
		do(`INSERT INTO sessions (id, space) VALUES ('ses_1', 'spc_A')`)
		put("message/m", 1)
		check("something else is put", 0, "u")
		put("session", 2)
		check("the info is put", 1, "u")
		do(text(setTitles), "ses_1", "ta title")
		do(text(dropStaleTitles), "ses_1")
		check("it is taken", 0, "ta title")
		put("message/m", 3)
		check("something else is put again", 0, "ta title")
		put("session", 4)
		check("the info is put again", 1, "ta title")
		do(text(dropStaleTitles), "ses_1")
		do(`DELETE FROM entries WHERE key = 'message/m'`)
		check("something else is removed", 0, "ta title")
		do(`DELETE FROM entries WHERE key = 'session'`)
		check("the info is removed", 0, "u")
	})
}
