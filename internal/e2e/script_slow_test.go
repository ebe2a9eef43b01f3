//go:build crash

package e2e

// The whole story of script_test.go with a turn of ten thousand deltas.

import "testing"

func TestScriptedAgentOfTenThousandDeltas(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) { scriptedAgent(t, db, 10_000, 24) })
}
