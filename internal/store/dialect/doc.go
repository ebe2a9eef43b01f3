// Package dialect makes SQL statements for both databases from one text, and says what a backend does with them. All packages
// of the store make their statements here; store/sqlite and store/postgres implement Backend and Runner, and are the only ones
// that look at a statement's texts. It knows no table, and touches no database.
//
//	statement  one text, rendered for either database (statement.go has the marks)
//	list       the rows that a statement takes, as a table of its own
//	form       a statement's text for a list of many rows, or of one
//	dialect    how one database spells what they spell differently
//	bounded    of a statement: it ends at the row with which a limit of bytes is exceeded
//	backend    one database: how a transaction runs, and how a commit is announced
//	runner     one transaction, in which statements are queued and sent together
//
// It has no locks. A Runner is for one goroutine at a time, a Backend for any number.
package dialect
