//go:build crash

package e2e

// The whole story of script_test.go on Postgres too.

import "testing"

func TestScriptedAgentOnPostgres(t *testing.T) {
	t.Parallel()
	scriptedAgent(t, onPostgres, 10_000, 24)
}
