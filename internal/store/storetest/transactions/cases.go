// Package transactions tests what a store promises of its transactions: they are whole, they last, they keep each other out,
// and they end when their caller gives up. Package storetest runs its cases.
package transactions

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Isolated are the tests that look at all there is: each has its own database.
var Isolated = harness.Cases{
	"Init":         testInit,
	"InitRace":     testInitRace,
	"StartRace":    testStartRace,
	"ExternalRace": testExternalRace,
	"Listen":       testListen,
}

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"Reopen":            testReopen,
	"Closed":            testClosed,
	"Rollback":          testRollback,
	"Panic":             testPanic,
	"CancelWaiting":     testCancelWaiting,
	"CancelMidway":      testCancelMidway,
	"ClaimRace":         testClaimRace,
	"RevokeRace":        testRevokeRace,
	"OppositeOrder":     testOppositeOrder,
	"SnapshotsAreWhole": testSnapshots,
	"CommitClaim":       testCommitClaim,
	"CommitRevoke":      testCommitRevoke,
	"CommitOpposite":    testCommitOpposite,
	"ClockSetBack":      testClockSetBack,
	"CommitFails":       testCommitFails,
}
