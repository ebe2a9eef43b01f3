// Package scripts runs random groups of ops on a store and on the model in memory, at the same time of their clocks, and
// compares every answer and every row. Package storetest runs its cases; whatever a single rule needs is tested in
// another package.
package scripts

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"RevertScripts":     testRevertScripts,
	"CommitScripts":     testCommitScripts,
	"CommitEdits":       testCommitEdits,
	"ReplicaScripts":    testReplicaScripts,
	"ReplicasMeanwhile": testReplicasMeanwhile,
	"TrimScripts":       testTrimScripts,
}
