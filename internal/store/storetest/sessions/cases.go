// Package sessions tests a session's rows on a store: that they come back as they were saved, and what logs, states, keys,
// searches and lists show of them. Package storetest runs its cases.
package sessions

import "github.com/mooring-rpc/mooring/internal/store/storetest/harness"

// Isolated are the tests that look at all there is: each has its own database.
var Isolated = harness.Cases{
	"Lapsed": testLapsed,
}

// Shared are the tests that may share one database.
var Shared = harness.Cases{
	"RoundTrip":        testRoundTrip,
	"LongLists":        testLongLists,
	"Replace":          testReplace,
	"Absent":           testAbsent,
	"LockOnce":         testLockOnce,
	"Records":          testRecords,
	"Prefixes":         testPrefixes,
	"Deltas":           testDeltas,
	"LoadBound":        testLoadBound,
	"RowBound":         testRowBound,
	"StrangeTexts":     testStrangeTexts,
	"DropState":        testDropState,
	"Externals":        testExternals,
	"LargePayload":     testLargePayload,
	"LargeGroup":       testLargeGroup,
	"Look":             testReadAccess,
	"ReadLog":          testReadLog,
	"Pages":            testPages,
	"ReadState":        testReadState,
	"Order":            testOrder,
	"Keys":             testKeys,
	"HiddenKeys":       testHiddenKeys,
	"LongPrefixes":     testLongPrefixes,
	"LateLists":        testLateLists,
	"KeysMeanwhile":    testKeysMeanwhile,
	"KeyRefusals":      testKeyRefusals,
	"Edits":            testEdits,
	"Search":           testSearch,
	"LargeSearch":      testLargeSearch,
	"HeavySearch":      testHeavySearch,
	"ListSessions":     testListSessions,
	"Children":         testChildren,
	"ChildLocksParent": testChildLocksParent,
	"SessionLists":     testSessionLists,
	"Titles":           testTitles,
	"ListSearch":       testListSearch,
	"ListTitles":       testListTitles,
}
