//go:build unlocked

// Session rows without locks: a server with a deliberate error. Built only by a test
// (internal/linear), which verifies that the error is detected.

package txn

import "strings"

func init() {
	for _, text := range []*string{&LockSessions.Postgres.One, &LockSessions.Postgres.Many} {
		without := strings.Replace(*text, "FOR UPDATE", "", 1)
		if without == *text {
			panic("txn: there is no lock to leave out of " + *text)
		}
		*text = without
	}
}
