//go:build lockgap

// A delay between locking a session's row and reading the rows under its lock, so that transactions
// which the lock should keep out have time to run. Built only by a test (internal/linear), with the
// lock and without it.

package txn

// lockGap is how long the row's statement takes after it has locked the row: many times the
// duration of a commit.
const lockGap = "0.003" // s

func init() {
	for _, text := range []*string{&LockSessions.Postgres.One, &LockSessions.Postgres.Many} {
		*text = "WITH held AS MATERIALIZED (" + *text + ") SELECT * FROM held WHERE pg_sleep(" + lockGap + ") IS NOT NULL"
	}
}
