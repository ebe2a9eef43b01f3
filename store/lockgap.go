//go:build lockgap

// Time between a session's row and what is read under its lock, so that what the
// lock keeps out has time to come in. Only a test builds it (internal/linear),
// with the lock and without it.

package store

// lockGap is how long the row's statement takes after it has the row: many times
// what a commit takes.
const lockGap = "0.003" // s

func init() {
	lockGapClause = "WHERE pg_sleep(" + lockGap + ") IS NOT NULL"
	for _, text := range []*string{&lockSessions.Postgres.One, &lockSessions.Postgres.Many} {
		*text = "WITH held AS MATERIALIZED (" + *text + ") SELECT * FROM held WHERE pg_sleep(" + lockGap + ") IS NOT NULL"
	}
}
