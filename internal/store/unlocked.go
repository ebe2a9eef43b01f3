//go:build unlocked

// Session rows without locks: a server with a deliberate error. Built only by a test
// (internal/linear), which verifies that the error is detected.

package store

import "strings"

func init() {
	for _, text := range []*string{&lockSessions.Postgres.One, &lockSessions.Postgres.Many} {
		without := strings.Replace(*text, "FOR UPDATE", "", 1)
		if without == *text {
			panic("store: there is no lock to leave out of " + *text)
		}
		*text = without
	}
}
