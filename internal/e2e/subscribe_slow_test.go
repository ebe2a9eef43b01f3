//go:build crash

package e2e

// The stories of subscribe_test.go on the other database.

import "testing"

func TestHundredSubscribersOnPostgres(t *testing.T) {
	t.Parallel()
	hundredSubscribers(t, onPostgres)
}

func TestSubscriberThatStopsReadingOnSQLite(t *testing.T) {
	t.Parallel()
	stopReading(t, onSQLite)
}
