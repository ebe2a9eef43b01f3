// Package upkeep tests what a server and its operator do beside commits: trimming and forgetting, expiry, removing old
// sessions, measuring, and the care of a database as a whole. Package storetest runs its cases.
package upkeep

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Isolated are the tests that look at all there is: each has its own database.
var Isolated = harness.Cases{
	"Expire":        testExpire,
	"ExpireRace":    testExpireRace,
	"Trimmable":     testTrimmable,
	"Forgettable":   testForgettable,
	"Forget":        testForget,
	"Probe":         testProbe,
	"FeaturesInUse": testFeaturesInUse,
}

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"Older":           testOlder,
	"OlderLocksSpace": testOlderLocksSpace,
	"Uses":            testUses,
	"PageOnce":        testPageOnce,
	"Measure":         testMeasure,
	"Totals":          testTotals,
	"Accounts":        testAccounts,
	"Trim":            testTrim,
	"TrimBounds":      testTrimBounds,
	"TrimRace":        testTrimRace,
	"History":         testHistory,
}
