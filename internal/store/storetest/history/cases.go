// Package history tests what becomes of a session's past on a store: forks of it, reverts and compactions that hide a part,
// and purges that take one away. Package storetest runs its cases.
package history

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"Reverts":       testReverts,
	"Compactions":   testCompactions,
	"CompactedLife": testCompactedLife,
	"Forks":         testForks,
	"ForksEarlier":  testForksEarlier,
	"ForksAtOnce":   testForksAtOnce,
	"ForksEnd":      testForksEnd,
	"Purge":         testPurge,
}
