//go:build unix

package pgtest

import (
	"net/url"
	"strconv"
	"testing"
)

// Role makes a role that may make tables in a database of this package's and has so many
// connections; -1 is any number. It gives the database's URL with that role, and what changes
// the number: of new connections, since those that are there stay. The role is gone, with all
// that it owns, when tb ends.
func Role(tb testing.TB, databaseURL string, connections int) (roleURL string, allow func(connections int)) {
	tb.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatalf("pgtest: the database's URL cannot be read")
	}
	name, password := newName(), randomHex(16)
	do := func(sql string) {
		tb.Helper()
		if err := execute(databaseURL, sql); err != nil {
			tb.Fatalf("pgtest: role: %v", err)
		}
	}
	do("CREATE ROLE " + name + " LOGIN PASSWORD '" + password + "' CONNECTION LIMIT " + strconv.Itoa(connections))
	tb.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + name + " CASCADE", "DROP ROLE " + name} {
			if err := execute(databaseURL, sql); err != nil {
				tb.Errorf("pgtest: drop role: %v", err)
			}
		}
	})
	do("GRANT ALL ON SCHEMA public TO " + name)
	u.User = url.UserPassword(name, password)
	return u.String(), func(connections int) {
		tb.Helper()
		do("ALTER ROLE " + name + " CONNECTION LIMIT " + strconv.Itoa(connections))
	}
}
