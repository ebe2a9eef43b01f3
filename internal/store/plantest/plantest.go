// Package plantest looks at the plans of statements on both databases: every statement goes by keys, and none reads a table
// through. The tests of each package that has statements call Check with all of them, and look by themselves at plans of
// which more is to be said. It knows nothing of what the statements are for.
//
//	plan      what a database says that it will do for a statement
//	indexed   the statements that must go by a certain index
//	stopping  the statements of which no more is read than there is room for
package plantest

import (
	"context"
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/migrations"
)

// Statements are all of a package, by their names.
type Statements struct {
	All map[string]*dialect.Statement
	// Indexed are the statements about turns and keys, of which a session may have very many, and about deleted
	// sessions, and the index that each goes by.
	Indexed map[string]string
	// Stopping are the statements of which no more is read than there is room for.
	Stopping []string
	// Pairing are those that compare pairs of rows although there are keys, and go by both.
	Pairing []string
}

// Check tests that the statements of the package in the working folder are all here, and their forms and plans.
func Check(t *testing.T, s Statements) {
	t.Run("Complete", func(t *testing.T) { s.complete(t) })
	t.Run("Forms", func(t *testing.T) { s.forms(t) })
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		s.sqlite(t)
	})
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		s.postgres(t)
	})
}

// complete: whatever a maker of statements makes in the package is here.
func (s *Statements) complete(t *testing.T) {
	here, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	makersOfAll, err := filepath.Glob("../dialect/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	makers := map[string]bool{} // functions that return a statement
	for _, name := range slices.Concat(here, makersOfAll) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Type.Results != nil && len(f.Type.Results.List) == 1 {
				if to, ok := f.Type.Results.List[0].Type.(*ast.StarExpr); ok && nameOf(to.X) == "Statement" {
					makers[f.Name.Name] = true
				}
			}
		}
	}
	found := 0
	for _, file := range files {
		for _, d := range file.Decls {
			vars, ok := d.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				v := spec.(*ast.ValueSpec)
				for i, value := range v.Values {
					call, ok := value.(*ast.CallExpr)
					if !ok {
						continue
					}
					if !makers[nameOf(call.Fun)] {
						continue
					}
					found++
					if name := v.Names[i].Name; s.All[name] == nil {
						t.Errorf("%s is not among the statements", name)
					}
				}
			}
		}
	}
	if found == 0 || found < len(s.All)/2 {
		t.Errorf("%d statements were found of %d", found, len(s.All))
	}
}

// nameOf is the name of what is called or pointed to, without its package and what comes before it.
func nameOf(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok { // dialect.Both("…").SetOneRow("…")
		return s.Sel.Name
	}
	return fmt.Sprint(e)
}

var (
	bareLimit = regexp.MustCompile(`LIMIT [$?]`)
	insert    = regexp.MustCompile(`(?s)^\s*INSERT INTO \w+ \(([^)]*)\)\s+VALUES \(([^()]*)\)`)
)

// forms: SQLite compiles no statement anew for each limit, JSON holds no bytes, and every INSERT names as many columns as
// it has values.
func (s *Statements) forms(t *testing.T) {
	for name, st := range s.All {
		if text := strings.Join([]string{st.SQLite.One, st.SQLite.Many, st.SQLite.Bulk, st.SQLite.BulkShared}, "; "); bareLimit.MatchString(text) {
			t.Errorf("SQLite compiles %s anew for each limit: %s", name, text)
		}
		if st.SQLite.Many != "" && slices.Contains(st.Columns, dialect.Bytes) {
			t.Errorf("%s has bytes, which JSON cannot hold: %s", name, st.SQLite.Many)
		}
		m := insert.FindStringSubmatch(st.SQLite.One)
		if strings.HasPrefix(strings.TrimSpace(st.SQLite.One), "INSERT") && strings.Contains(st.SQLite.One, "VALUES (") && m == nil {
			t.Errorf("%s has columns and values that are not found: %s", name, st.SQLite.One)
		}
		if m != nil {
			if names, values := strings.Count(m[1], ",")+1, strings.Count(m[2], ",")+1; names != values {
				t.Errorf("%s has %d columns and %d values: %s", name, names, values, st.SQLite.One)
			}
		}
	}
}

var placeholder = regexp.MustCompile(`\$(\d+)`)

// arguments counts a statement's placeholders.
func arguments(text string) int {
	most := 0
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		var n int
		if _, err := fmt.Sscan(m[1], &n); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// sqlite: every statement goes by keys; none reads a table through.
func (s *Statements) sqlite(t *testing.T) {
	db := SQLite(t)
	for name, st := range s.All {
		for form, text := range map[string]string{"one": st.SQLite.One, "many": st.SQLite.Many, "bulk": st.SQLite.Bulk, "alike": st.SQLite.BulkShared} {
			if text == "" {
				continue
			}
			values := arguments(text)
			if form == "bulk" || form == "alike" { // its parameters are not all numbered
				values = dialect.BulkRows * len(st.Columns)
			}
			inner := map[string]bool{} // selects within it
			plan := SQLitePlan(t, db, text, values)
			if !strings.Contains(strings.Join(plan, "\n"), s.Indexed[name]) {
				t.Errorf("%s (%s) does not go by %s: %q", name, form, s.Indexed[name], plan)
			}
			for _, step := range plan {
				if strings.Contains(step, "TEMP B-TREE FOR ORDER BY") && slices.Contains(s.Stopping, name) {
					t.Errorf("%s (%s) reads all to sort it, although its caller may stop: %s", name, form, step)
				}
				if name, ok := strings.CutPrefix(step, "CO-ROUTINE "); ok {
					inner[name] = true
				}
				if table, scans := strings.CutPrefix(step, "SCAN "); scans && !passing(table) && !inner[table] {
					t.Errorf("%s (%s) reads a table through: %s", name, form, step)
				}
			}
		}
	}
}

// passing says whether what is scanned is a list or an intermediate result.
func passing(table string) bool {
	for _, list := range []string{"w", "json_each", "line", "below", "top", "y", "page", "f", "hit", "CONSTANT ROW", "16-ROW VALUES", "(subquery", "1 CONSTANT"} {
		if strings.HasPrefix(table, list) {
			return true
		}
	}
	// Of streaming turns alone, of what is not measured, and of titles that are due.
	return table == "d" || strings.HasSuffix(table, " INDEX turns_streaming") || strings.HasSuffix(table, " INDEX sessions_unmeasured")
}

// allPairs is a join that looks at each pair of rows, although there are keys.
var allPairs = regexp.MustCompile(`Join Filter: \(+\w+\.\w+ = |Join Filter: .* AND \(\w+\.\w+ = `)

// postgres is the same on Postgres (without a store's settings an empty table would be read through).
func (s *Statements) postgres(t *testing.T) {
	conn := Postgres(t)
	for name, st := range s.All {
		forms := map[string]string{"one": st.Postgres.One, "many": st.Postgres.Many}
		for form, text := range forms {
			plan, err := Explain(t, conn, name+"_"+form, text)
			if err != nil {
				t.Errorf("%s (%s): %v", name, form, err)
			}
			if !strings.Contains(plan, s.Indexed[name]) {
				t.Errorf("%s (%s) does not go by %s:\n%s", name, form, s.Indexed[name], plan)
			}
			if strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s (%s) reads a table through:\n%s", name, form, plan)
			}
			if allPairs.MatchString(plan) && !slices.Contains(s.Pairing, name) {
				t.Errorf("%s (%s) compares all rows of a session or space with each other:\n%s", name, form, plan)
			}
		}
	}
}

// Postgres is a connection to an empty database with the tables, with the
// settings that a store's connections have.
func Postgres(t *testing.T) *pgx.Conn {
	t.Helper()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	if err := migrations.Up(t.Context(), db, migrations.Postgres); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off", "plan_cache_mode = force_generic_plan"} {
		if _, err := conn.Exec(t.Context(), "SET "+setting); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// Explain is the plan of a statement that is prepared by a name.
func Explain(t *testing.T, conn *pgx.Conn, name, text string) (string, error) {
	if _, err := conn.Exec(t.Context(), "PREPARE "+name+" AS "+text); err != nil {
		return "", err
	}
	execute := "EXPLAIN EXECUTE " + name
	if n := arguments(text); n > 0 {
		execute += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	rows, err := conn.Query(t.Context(), execute)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// SQLite is an empty SQLite database with the tables.
func SQLite(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := migrations.Up(t.Context(), db, migrations.SQLite); err != nil {
		t.Fatal(err)
	}
	return db
}

// SQLitePlan are the steps of a statement with so many values.
func SQLitePlan(t *testing.T, db *sql.DB, text string, values int) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, values)...)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	for rows.Next() {
		var n int
		var step string
		if err := rows.Scan(&n, &n, &n, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	return steps
}
