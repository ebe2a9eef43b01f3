// Package work tests how agents share work on a store: requests, claims, turns, and webhooks that tell of them. Package
// storetest runs its cases.
package work

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"Turns":                       testTurns,
	"Claims":                      testClaims,
	"FreeKeys":                    testFreeKeys,
	"Requests":                    testRequests,
	"ReadRequests":                testReadRequests,
	"Webhooks":                    testWebhooks,
	"WebhooksAtOnce":              testWebhooksAtOnce,
	"RequestsEndWithTheSpacesRef": testRequestsEndWithTheSpacesRef,
	"OrphansKeepTheLog":           testOrphansKeepTheLog,
}
