//go:build crash

package e2e

// The story of subscribe_test.go on the other database.

import "testing"

func TestHundredSubscribersOnPostgres(t *testing.T) {
	t.Parallel()
	hundredSubscribers(t, onPostgres)
}
