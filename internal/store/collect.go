// Common row callbacks of statements.

package store

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// collect returns a callback that appends each scanned row to a list.
func collect[T any](to *[]T, scan func(Scanner) (T, error)) func(Scanner) error {
	return func(row Scanner) error {
		v, err := scan(row)
		*to = append(*to, v)
		return err
	}
}

// grantsByID returns a callback that puts refs into a map.
func grantsByID(grants map[string]*capability.Grant) func(Scanner) error {
	return func(row Scanner) error {
		g, err := scanGrant(row)
		if err == nil {
			grants[g.ID] = g
		}
		return err
	}
}

// sessionsByID returns a callback that puts sessions into a map; more are destinations of further
// columns.
func sessionsByID(rows map[string]*session.Row, more ...any) func(Scanner) error {
	return func(row Scanner) error {
		r, err := scanSession(row, more...)
		if err == nil {
			rows[r.ID] = r
		}
		return err
	}
}

// scanRef is scanGrant without further columns.
func scanRef(row Scanner) (*capability.Grant, error) { return scanGrant(row) }

// setClock returns a callback that stores the database's time.
func setClock(to *int64) func(now int64) {
	return func(now int64) { *to = now }
}

func scanText(row Scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}
