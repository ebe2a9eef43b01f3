//go:build unlocked

// A session's row without its lock: a server that is wrong on purpose. Only a
// test builds it (internal/linear), to see that it would be found out.

package store

import "strings"

func init() {
	sessionLockClause, streamLockClause = "", ""
	for _, text := range []*string{&lockSessions.Postgres.One, &lockSessions.Postgres.Many} {
		without := strings.Replace(*text, "FOR UPDATE", "", 1)
		if without == *text {
			panic("store: there is no lock to leave out of " + *text)
		}
		*text = without
	}
}
