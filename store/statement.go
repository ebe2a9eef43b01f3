// Statements, written once for both databases.
//
// The databases differ in how a list of values gets into a statement (arrays
// and unnest, or JSON and rows one by one) and in locks; a statement's text has
// marks in these places and is rendered for both when the program starts:
//
//	{w}        a list of rows as the table w with the columns a, b, c, …; it
//	           stands first in FROM, followed by CROSS JOIN, so that both
//	           databases go from the list to the rows by their keys
//	{values}   the same as the source of an INSERT
//	{1} {2}    single values
//	{lock}     FOR UPDATE, where there are row locks
//	{holds X Y} whether the bytes X contain the text Y

package store

import (
	"fmt"
	"strconv"
	"strings"
)

// Column is the type of a list's column.
type Column byte

// Lists have columns of text, 64-bit integers and bytes; bytes only in {values}.
const (
	Text  Column = 't'
	Int   Column = 'i'
	Bytes Column = 'b'
)

// Statement is one statement in both dialects. A dialect that does not need it
// has no text for it.
type Statement struct {
	Postgres string
	SQLite   string
	Columns  []Column // of its list; none if it takes none
	PerRow   bool     // SQLite runs it once for each row of the list, with the row's values as arguments
}

// arrays are the types of Postgres's arrays.
var arrays = map[Column]string{Text: "text[]", Int: "bigint[]", Bytes: "bytea[]"}

// statement renders text; columns has one letter for each column of its list.
func statement(columns, text string) *Statement {
	s := &Statement{Columns: []Column(columns), PerRow: strings.Contains(text, "{values}")}
	s.Postgres = render(text, func(mark string) string {
		switch {
		case mark == "w":
			return fmt.Sprintf("unnest(%s) AS w(%s)", s.arrayArgs(), letters(len(columns)))
		case mark == "values":
			return fmt.Sprintf("SELECT * FROM unnest(%s)", s.arrayArgs())
		case mark == "lock":
			return "FOR UPDATE"
		case strings.HasPrefix(mark, "holds "):
			x, y, _ := strings.Cut(strings.TrimPrefix(mark, "holds "), " ")
			return fmt.Sprintf("position(convert_to(%s, 'UTF8') in %s) > 0", y, x)
		}
		return "$" + strconv.Itoa(single(mark)+len(columns))
	})
	s.SQLite = render(text, func(mark string) string {
		switch {
		case mark == "w":
			fields := make([]string, len(columns))
			for i := range fields {
				fields[i] = fmt.Sprintf("value->>%d AS %c", i, 'a'+i)
			}
			return fmt.Sprintf("(SELECT %s FROM json_each($1)) AS w", strings.Join(fields, ", "))
		case mark == "values":
			args := make([]string, len(columns))
			for i := range args {
				args[i] = "$" + strconv.Itoa(i+1)
			}
			return "VALUES (" + strings.Join(args, ", ") + ")"
		case mark == "lock":
			return ""
		case strings.HasPrefix(mark, "holds "):
			x, y, _ := strings.Cut(strings.TrimPrefix(mark, "holds "), " ")
			return fmt.Sprintf("instr(%s, CAST(%s AS BLOB)) > 0", x, y)
		}
		n := single(mark)
		if len(columns) > 0 {
			n++ // the list is the first argument
		}
		return "$" + strconv.Itoa(n)
	})
	return s
}

// onPostgres is a statement that SQLite, with one writer at a time, has no need of.
func onPostgres(columns, text string) *Statement {
	s := statement(columns, text)
	s.SQLite = ""
	return s
}

// arrayArgs is $1::text[], $2::bigint[], … for the list's columns.
func (s *Statement) arrayArgs() string {
	args := make([]string, len(s.Columns))
	for i, c := range s.Columns {
		args[i] = fmt.Sprintf("$%d::%s", i+1, arrays[c])
	}
	return strings.Join(args, ", ")
}

// letters is a, b, c, …
func letters(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	return strings.Join(names, ", ")
}

// render replaces each {mark} by what it stands for.
func render(text string, mark func(string) string) string {
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

func single(mark string) int {
	n, err := strconv.Atoi(mark)
	if err != nil {
		panic("store: unknown mark {" + mark + "}")
	}
	return n
}
