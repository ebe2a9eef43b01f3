package reads

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/plantest"
)

// TestListsReadBeginnings: of a session's info, which may be as large as anything, a list
// reads the beginning, where its title mostly is.
func TestListsReadBeginnings(t *testing.T) {
	t.Parallel()
	plantest.ReadBeginnings(t, map[string]plantest.List{
		"oldest":  {Statement: listOldest, Args: []any{"spc_A", "", 0, 10, 0, "", 10}},
		"newest":  {Statement: listNewest, Args: []any{"spc_A", "~", 0, 10, 0, "", 10}},
		"changed": {Statement: listChanged, Args: []any{"spc_A", 0, 1, "~", 0, 10, 0, "", 10}},
		"titled":  {Statement: listTitled, Args: []any{"spc_A", "", "", 0, 10, 0, "", 10}},
	}, MaxInfoBytes)
}

// TestTitleInABeginning: wherever it is cut, there is a title or none.
func TestTitleInABeginning(t *testing.T) {
	t.Parallel()
	cut := func(before, title, after string) string {
		info := []byte(`{"x":"` + strings.Repeat("x", MaxInfoBytes-len(`{"x":"","title":"`)-len(before)) + `","title":"` + title + after)
		return InfoTitle(info[:min(len(info), MaxInfoBytes)])
	}
	for name, c := range map[string]struct{ got, want string }{
		"whole":              {InfoTitle([]byte(`{"a":1,"title":"a title"}`)), "a title"},
		"none":               {InfoTitle([]byte(`{"a":1}`)), ""},
		"no info":            {InfoTitle(nil), ""},
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
	if got := InfoTitle([]byte(`{"title":"` + strings.Repeat("ä", MaxInfoBytes))[:MaxInfoBytes]); got != strings.Repeat("ä", maxTitleBytes/2) {
		t.Errorf("of a long title %d bytes are shown", len(got))
	}
}

// TestTitlesAreDue: whoever writes an info, as a server that knows nothing of titles does,
// leaves it to be taken; what is removed is gone at once.
func TestTitlesAreDue(t *testing.T) {
	t.Parallel()
	plantest.Both(t, func(db *sql.DB, text func(*dialect.Statement) string) {
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
