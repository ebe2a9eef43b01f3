// Package authority tests what refs may do on a store: how they are minted, redeemed, revoked, rotated and shown, how far
// they reach, what is shared by them, and what is audited. Package storetest runs its cases.
package authority

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Isolated are the tests that look at all there is: each has its own database.
var Isolated = harness.Cases{
	"SpaceLock":         testSpaceLock,
	"ListShares":        testListShares,
	"MintUnderRoot":     testMintUnderRoot,
	"CollectPageTokens": testCollectPageTokens,
}

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"Refusals":           testRefusals,
	"Reach":              testReach,
	"ReachLocks":         testReachLocks,
	"ReachRace":          testReachRace,
	"ReachBytes":         testReachBytes,
	"ReachSpares":        testReachSpares,
	"ReachPastForgotten": testReachPastForgotten,
	"Audit":              testAudit,
	"AuditAtOnce":        testAuditAtOnce,
	"OpenStream":         testOpenStream,
	"FindStreams":        testFindStreams,
	"DecidedOpening":     testDecidedOpening,
	"IdleStreams":        testIdleStreams,
	"Redeem":             testRedeem,
	"RedeemLimit":        testRedeemLimit,
	"RedeemLimitAbove":   testRedeemLimitAbove,
	"RedeemWithoutLimit": testRedeemWithoutLimit,
	"RedeemCost":         testRedeemCost,
	"Revoke":             testRevoke,
	"Lineages":           testLineages,
	"ReadTree":           testReadTree,
	"ReadTrees":          testReadTrees,
	"ReadLargeTree":      testReadLargeTree,
	"RevokeTree":         testRevokeTree,
	"Rotate":             testRotate,
	"RotateRoot":         testRotateRoot,
	"RotateRootRace":     testRotateRootRace,
	"PublicShares":       testPublicShares,
	"PageTokens":         testPageTokens,
	"PublishRace":        testPublishRace,
	"Lookups":            testLookups,
}
