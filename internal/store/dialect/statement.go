// Statements, written once for both databases.
//
// The databases differ in how a list of values enters a statement (arrays and unnest, or JSON and
// single rows) and in locks. A statement's text has marks in these positions and is rendered for
// both when the program starts:
//
//	{w}        a list of rows as the table w with the columns a, b, c, …; it
//	           stands first in FROM, followed by CROSS JOIN, so that both
//	           databases go from the list to the rows by their keys
//	{values}   the same as the source of an INSERT
//	{1} {2}    single values
//	{lock}     FOR UPDATE, where there are row locks
//	{holds X Y} whether the bytes X contain the text Y
//	{instr}    the function for the place of a text in another, 0 for none
//	{kind}     the kind of the key of the entry e
//	{by X}     makes SQLite use the index X, where it would scan a session's other rows

package dialect

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mooring-rpc/mooring/internal/session"
)

// Column is the type of a list's column.
type Column byte

// The types of a list's columns: text, 64-bit integers, and bytes.
const (
	Text  Column = 't'
	Int   Column = 'i'
	Bytes Column = 'b'
)

// Statement is one statement in both dialects, each in two forms: for a list of any length and,
// cheaper, for a list of one row. A dialect that does not need the statement has no text for it.
type Statement struct {
	Postgres      Forms
	SQLite        Forms
	Columns       []Column // of its list; empty if it takes none
	SharedColumns int      // the number of leading columns that mostly have equal values in all rows
}

// Value returns a list's value itself: a string, an int64, []byte or nil. Lists may also hold
// pointers to these, which saves an allocation for each interface value.
func Value(v any) any {
	switch v := v.(type) {
	case *string:
		return *v
	case *int64:
		return *v
	case *uint64:
		return int64(*v)
	case *session.Hash:
		return v[:]
	case *[]byte:
		return Nullable(*v)
	}
	return v
}

// Values returns the values of a row.
func Values(row []any) []any {
	values := make([]any, len(row))
	for i, v := range row {
		values[i] = Value(v)
	}
	return values
}

// Forms are a statement's texts in one dialect. The arguments of Many are, on Postgres, one array
// for each of the list's columns, then the single values; on SQLite the list as JSON, then the
// single values. The arguments of One are the row's values, then the single values.
//
// On SQLite, long lists use Bulk: BulkRows rows, one after the other. BulkShared is the same for
// rows with equal leading columns, whose values it takes once. The remaining rows use Many, or One
// if there is no Many.
type Forms struct {
	Many, One        string
	Bulk, BulkShared string
}

// BulkRows is the number of rows in one bulk statement on SQLite: enough to make each row's share
// of the statement's fixed cost small.
const BulkRows = 16

// SharesColumns reports whether all rows are equal in the SharedColumns leading columns.
func (s *Statement) SharesColumns(rows [][]any) bool {
	if s.SharedColumns == 0 {
		return false
	}
	for i := range s.SharedColumns {
		first := rows[0][i]
		for _, row := range rows[1:] {
			if !equal(first, row[i]) {
				return false
			}
		}
	}
	return true
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case *string:
		b, ok := b.(*string)
		return ok && *a == *b
	case *int64:
		b, ok := b.(*int64)
		return ok && *a == *b
	case *uint64:
		b, ok := b.(*uint64)
		return ok && *a == *b
	case *[]byte:
		b, ok := b.(*[]byte)
		return ok && *a == nil && *b == nil
	case string, int64:
		return a == b
	}
	return false
}

var postgresTypes = map[Column]string{Text: "text", Int: "bigint", Bytes: "bytea"}

// Both renders text; columns has one letter for each column of its list: upper case for the
// leading columns that mostly have equal values in all rows.
func Both(columns, text string) *Statement {
	s := &Statement{Columns: []Column(strings.ToLower(columns))}
	s.SharedColumns = strings.IndexFunc(columns+"x", unicode.IsLower)
	s.Postgres.One = render(text, postgres.expander(s.oneRow, len(columns)))
	s.SQLite.One = render(text, sqlite.expander(func(mark string) string {
		return oneRow(mark, s.Columns, func(arg string, _ Column) string { return arg })
	}, len(columns)))
	if len(columns) == 0 {
		s.Postgres.Many, s.SQLite.Many = s.Postgres.One, s.SQLite.One
		return s
	}
	s.Postgres.Many = render(text, postgres.expander(s.unnest, len(columns)))
	insert := strings.Contains(text, "{values}")
	if insert || s.SharedColumns > 0 {
		s.SQLite.Bulk = render(text, sqlite.expander(s.bulk, 0))
	}
	if s.SharedColumns > 0 {
		s.SQLite.BulkShared = render(text, sqlite.expander(s.bulkShared, 0))
	}
	if !insert && !slices.Contains(s.Columns, Bytes) { // JSON cannot hold bytes
		s.SQLite.Many = render(text, sqlite.expander(s.jsonEach, 1))
	}
	return s
}

// SetOneRow replaces the text for one row. Its values are $1, $2, ….
func (s *Statement) SetOneRow(text string) *Statement {
	s.Postgres.One, s.SQLite.One = text, text
	return s
}

// RowByRow makes SQLite run text for each row of the list by itself. With a constant key it changes
// rows while it finds them; with a list it first gathers the keys of all, and then seeks each again.
func (s *Statement) RowByRow(text string) *Statement {
	s.SQLite = Forms{One: text}
	return s
}

// oneRow renders a list of one row for Postgres.
func (s *Statement) oneRow(mark string) string {
	return oneRow(mark, s.Columns, func(arg string, c Column) string { return arg + "::" + postgresTypes[c] })
}

// oneRow renders a list of one row.
func oneRow(mark string, columns []Column, typed func(arg string, c Column) string) string {
	args := make([]string, len(columns))
	for i, c := range columns {
		args[i] = typed("$"+strconv.Itoa(i+1), c)
		if mark == "w" {
			args[i] += fmt.Sprintf(" AS %c", 'a'+i)
		}
	}
	list := strings.Join(args, ", ")
	if mark == "w" {
		return "(SELECT " + list + ") AS w"
	}
	return "VALUES (" + list + ")"
}

// unnest renders a list as arrays. An INSERT unnests all arrays in step in its select list; in FROM
// each would be materialized first, which costs a sixth more.
func (s *Statement) unnest(mark string) string {
	args := make([]string, len(s.Columns))
	names := make([]string, len(s.Columns))
	for i, c := range s.Columns {
		args[i] = fmt.Sprintf("$%d::%s[]", i+1, postgresTypes[c])
		names[i] = string(rune('a' + i))
	}
	if mark == "values" {
		return "SELECT unnest(" + strings.Join(args, "), unnest(") + ")"
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS w(" + strings.Join(names, ", ") + ")"
}

// bulk renders a list of BulkRows rows.
func (s *Statement) bulk(mark string) string { return s.rows(mark, 0) }

// bulkShared is bulk for rows with equal leading columns.
func (s *Statement) bulkShared(mark string) string { return s.rows(mark, s.SharedColumns) }

// rows renders a list of BulkRows rows whose first same columns are given once. A ? is the
// parameter after the highest one so far.
func (s *Statement) rows(mark string, same int) string {
	var shared, own strings.Builder
	for i := range s.Columns {
		if i > 0 {
			shared.WriteString(", ")
			own.WriteString(", ")
		}
		own.WriteByte('?')
		if shared.WriteByte('?'); i < same {
			shared.WriteString(strconv.Itoa(i + 1))
		}
	}
	values := "VALUES (" + own.String() + ")" + strings.Repeat(", ("+shared.String()+")", BulkRows-1)
	if mark != "w" {
		return values
	}
	names := make([]string, len(s.Columns))
	for i := range names {
		names[i] = fmt.Sprintf("column%d AS %c", i+1, 'a'+i)
	}
	return fmt.Sprintf("(SELECT %s FROM (%s)) AS w", strings.Join(names, ", "), values)
}

// jsonEach renders a list as a JSON array of arrays.
func (s *Statement) jsonEach(string) string {
	fields := make([]string, len(s.Columns))
	for i := range fields {
		fields[i] = fmt.Sprintf("value->>%d AS %c", i, 'a'+i)
	}
	return fmt.Sprintf("(SELECT %s FROM json_each($1)) AS w", strings.Join(fields, ", "))
}

// dialect has the expansions of the marks that are not lists.
type dialect struct{ lock, contains, instr, kind, indexedBy string }

var (
	postgres = dialect{lock: "FOR UPDATE", contains: "position(convert_to(%[2]s, 'UTF8') in %[1]s) > 0", instr: "strpos", kind: "split_part(e.key, '/', 1)"}
	sqlite   = dialect{contains: "instr(%s, CAST(%s AS BLOB)) > 0", instr: "instr", kind: "substr(e.key, 1, instr(e.key || '/', '/') - 1)", indexedBy: "INDEXED BY "}
)

// expander returns a function that expands marks; list expands the marks of the list, which takes
// the first before arguments.
func (d dialect) expander(list func(mark string) string, before int) func(string) string {
	return func(mark string) string {
		name, args, _ := strings.Cut(mark, " ")
		switch name {
		case "w", "values":
			return list(mark)
		case "lock":
			return d.lock
		case "holds":
			x, y, _ := strings.Cut(args, " ")
			return fmt.Sprintf(d.contains, x, y)
		case "instr":
			return d.instr
		case "kind":
			return d.kind
		case "by":
			if d.indexedBy == "" {
				return ""
			}
			return d.indexedBy + args
		}
		return "$" + strconv.Itoa(argNumber(mark)+before)
	}
}

// Each returns a statement that is written twice.
func Each(postgres, sqlite *Statement) *Statement {
	s := *sqlite
	s.Postgres = postgres.Postgres
	return &s
}

// PostgresOnly returns a statement that SQLite, with one writer at a time, does not need.
func PostgresOnly(columns, text string) *Statement {
	s := Both(columns, text)
	s.SQLite = Forms{}
	return s
}

// bareLimit is a LIMIT or OFFSET whose number is a parameter and nothing else.
var bareLimit = regexp.MustCompile(`\b(LIMIT|OFFSET) (\{\d+\})`)

// render replaces each {mark} by its expansion. A limit's parameter is cast, since SQLite compiles
// a statement anew for each value of a bare one.
func render(text string, mark func(string) string) string {
	text = bareLimit.ReplaceAllString(text, "$1 CAST($2 AS BIGINT)")
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, found := strings.Cut(rest, "}")
		if !found {
			panic("store: unclosed mark in " + text)
		}
		b.WriteString(mark(name))
		text = after
	}
}

func argNumber(mark string) int {
	n, err := strconv.Atoi(mark)
	if err != nil {
		panic("store: unknown mark {" + mark + "}")
	}
	return n
}
