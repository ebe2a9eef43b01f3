package dialect

import (
	"strings"
	"testing"
)

func TestStatementForms(t *testing.T) {
	t.Parallel()
	s := Both("ti", `SELECT x FROM {w} CROSS JOIN t WHERE t.a = w.a AND t.b > w.b AND t.c = {1} AND {holds t.d w.a} {lock}`)
	for name, c := range map[string][2]string{
		"postgres many": {s.Postgres.Many, `SELECT x FROM unnest($1::text[], $2::bigint[]) AS w(a, b) CROSS JOIN t WHERE t.a = w.a AND t.b > w.b ` +
			`AND t.c = $3 AND position(convert_to(w.a, 'UTF8') in t.d) > 0 FOR UPDATE`},
		"postgres one": {s.Postgres.One, `SELECT x FROM (SELECT $1::text AS a, $2::bigint AS b) AS w CROSS JOIN t WHERE t.a = w.a AND t.b > w.b ` +
			`AND t.c = $3 AND position(convert_to(w.a, 'UTF8') in t.d) > 0 FOR UPDATE`},
		"sqlite many": {s.SQLite.Many, `SELECT x FROM (SELECT value->>0 AS a, value->>1 AS b FROM json_each($1)) AS w CROSS JOIN t ` +
			`WHERE t.a = w.a AND t.b > w.b AND t.c = $2 AND instr(t.d, CAST(w.a AS BLOB)) > 0 `},
		"sqlite one": {s.SQLite.One, `SELECT x FROM (SELECT $1 AS a, $2 AS b) AS w CROSS JOIN t ` +
			`WHERE t.a = w.a AND t.b > w.b AND t.c = $3 AND instr(t.d, CAST(w.a AS BLOB)) > 0 `},
	} {
		if c[0] != c[1] {
			t.Errorf("%s:\n got %s\nwant %s", name, c[0], c[1])
		}
	}
	v := Both("tb", `INSERT INTO t (a, b) {values}`)
	if v.Postgres.Many != `INSERT INTO t (a, b) SELECT unnest($1::text[]), unnest($2::bytea[])` ||
		v.Postgres.One != `INSERT INTO t (a, b) VALUES ($1::text, $2::bytea)` ||
		v.SQLite.One != `INSERT INTO t (a, b) VALUES ($1, $2)` || v.SQLite.Many != "" {
		t.Errorf("values: %+v", v)
	}
	if l := Both("", `SELECT x FROM t ORDER BY x LIMIT {1}`); l.SQLite.One != `SELECT x FROM t ORDER BY x LIMIT CAST($1 AS BIGINT)` || l.Postgres.One != l.SQLite.One {
		t.Errorf("a limit: %+v", l)
	}
	if p := PostgresOnly("t", `SELECT pg_notify('x', w.a) FROM {w}`); p.SQLite != (Forms{}) || p.Postgres.Many == "" {
		t.Errorf("for Postgres alone: %+v", p)
	}
}

// TestAlike: rows that agree in the capital columns give their values once.
func TestAlike(t *testing.T) {
	t.Parallel()
	s := Both("TIb", `INSERT INTO t (a, b, c) {values}`)
	bulk := `INSERT INTO t (a, b, c) VALUES (?, ?, ?)` + strings.Repeat(", (?, ?, ?)", BulkRows-1)
	alike := `INSERT INTO t (a, b, c) VALUES (?, ?, ?)` + strings.Repeat(", (?1, ?2, ?)", BulkRows-1)
	if s.SQLite.Bulk != bulk || s.SQLite.BulkShared != alike || s.Postgres.Many != `INSERT INTO t (a, b, c) SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::bytea[])` {
		t.Errorf("%+v", s)
	}
	r := Both("Tt", `SELECT x FROM {w} CROSS JOIN t WHERE t.a = w.a AND t.b = w.b`)
	if from := `FROM (SELECT column1 AS a, column2 AS b FROM (VALUES (?, ?), (?1, ?), `; !strings.Contains(r.SQLite.BulkShared, from) || r.SQLite.Many == "" {
		t.Errorf("%+v", r)
	}
	a, b, n, m := "x", "x", int64(1), int64(2)
	for _, c := range []struct {
		one, other []any
		alike      bool
	}{
		{[]any{&a, int64(1), &n}, []any{&b, int64(1), &m}, true},
		{[]any{"x", &n, nil}, []any{"x", &n, &m}, true},
		{[]any{"x", &n, nil}, []any{"x", &m, nil}, false},
		{[]any{"x", &n, nil}, []any{"y", &n, nil}, false},
		{[]any{"x", &n, nil}, []any{&a, &n, nil}, false}, // not worth telling
	} {
		if got := s.SharesColumns([][]any{c.one, c.other}); got != c.alike {
			t.Errorf("%v and %v are alike: %t", c.one, c.other, got)
		}
	}
	if r := Both("tt", ``); r.SharesColumns([][]any{{"x", "x"}, {"x", "x"}}) {
		t.Error("alike, without columns that are to be")
	}
}
