// Package storetest is the conformance suite of stores: what a store promises,
// as tests that run alike on every database. A backend's own tests call Run and
// Bench and add only what the others cannot have.
package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/ledger"
)

// Database is one empty database that stores can be opened on.
type Database struct {
	// Open opens a store on the database; who opens it closes it.
	Open func(context.Context) (*store.Store, error)
	// Shared says that any number of stores may be open at once, and hear of
	// each other. Where it is false the second one is refused.
	Shared bool

	opened *store.Store // what tests share that need no store of their own
}

// Fresh makes an empty database for a test, gone when the test ends.
type Fresh func(testing.TB) Database

// timeout bounds every test of the suite.
const timeout = 60 * time.Second

// Run runs the whole suite, its tests in parallel.
func Run(t *testing.T, fresh Fresh) {
	run(t, isolatedTests, fresh)
	RunTogether(t, fresh)
}

// RunTogether runs the part of the suite that needs one database at most: all that
// appends is in it.
func RunTogether(t *testing.T, fresh Fresh) {
	if db := fresh(t); db.Shared {
		// The others' ids never meet, and making databases takes time, as connecting to them does.
		db.opened = open(t, db).Store
		fresh = func(testing.TB) Database { return db }
	}
	run(t, sharedTests, fresh)
}

func run(t *testing.T, tests []test, fresh Fresh) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, fresh)
		})
	}
}

type test struct {
	name string
	run  func(*testing.T, Fresh)
}

// isolatedTests are the tests that look at all there is: each has its own database.
var isolatedTests = []test{
	{"Init", testInit},
	{"InitRace", testInitRace},
	{"StartRace", testStartRace},
	{"ExternalRace", testExternalRace},
	{"SpaceLock", testSpaceLock},
	{"Lapsed", testLapsed},
	{"Expire", testExpire},
	{"ExpireRace", testExpireRace},
	{"Trimmable", testTrimmable},
	{"Forgettable", testForgettable},
	{"Forget", testForget},
	{"Listen", testListen},
	{"ListShares", testListShares},
	{"MintUnderRoot", testMintUnderRoot},
	{"CollectPageTokens", testCollectPageTokens},
	{"Probe", testProbe},
	{"FeaturesInUse", testFeaturesInUse},
}

// sharedTests are the tests that may share one.
var sharedTests = []test{
	{"RoundTrip", testRoundTrip},
	{"LongLists", testLongLists},
	{"Replace", testReplace},
	{"Absent", testAbsent},
	{"LockOnce", testLockOnce},
	{"Records", testRecords},
	{"Prefixes", testPrefixes},
	{"Deltas", testDeltas},
	{"LoadBound", testLoadBound},
	{"RowBound", testRowBound},
	{"StrangeTexts", testStrangeTexts},
	{"DropState", testDropState},
	{"Externals", testExternals},
	{"Refusals", testRefusals},
	{"LargePayload", testLargePayload},
	{"LargeGroup", testLargeGroup},
	{"Look", testReadAccess},
	{"ReadLog", testReadLog},
	{"Pages", testPages},
	{"ReadState", testReadState},
	{"Order", testOrder},
	{"Keys", testKeys},
	{"HiddenKeys", testHiddenKeys},
	{"LongPrefixes", testLongPrefixes},
	{"LateLists", testLateLists},
	{"KeysMeanwhile", testKeysMeanwhile},
	{"KeyRefusals", testKeyRefusals},
	{"Edits", testEdits},
	{"Reverts", testReverts},
	{"Compactions", testCompactions},
	{"CompactedLife", testCompactedLife},
	{"Forks", testForks},
	{"ForksEarlier", testForksEarlier},
	{"ForksAtOnce", testForksAtOnce},
	{"ForksEnd", testForksEnd},
	{"Search", testSearch},
	{"LargeSearch", testLargeSearch},
	{"HeavySearch", testHeavySearch},
	{"ListSessions", testListSessions},
	{"Children", testChildren},
	{"ChildLocksParent", testChildLocksParent},
	{"Reach", testReach},
	{"ReachLocks", testReachLocks},
	{"ReachRace", testReachRace},
	{"ReachBytes", testReachBytes},
	{"ReachSpares", testReachSpares},
	{"ReachPastForgotten", testReachPastForgotten},
	{"Older", testOlder},
	{"OlderLocksSpace", testOlderLocksSpace},
	{"SessionLists", testSessionLists},
	{"Titles", testTitles},
	{"ListSearch", testListSearch},
	{"ListTitles", testListTitles},
	{"Audit", testAudit},
	{"AuditAtOnce", testAuditAtOnce},
	{"Uses", testUses},
	{"PageOnce", testPageOnce},
	{"OpenStream", testOpenStream},
	{"FindStreams", testFindStreams},
	{"DecidedOpening", testDecidedOpening},
	{"IdleStreams", testIdleStreams},
	{"Measure", testMeasure},
	{"Totals", testTotals},
	{"Redeem", testRedeem},
	{"Accounts", testAccounts},
	{"RedeemLimit", testRedeemLimit},
	{"RedeemLimitAbove", testRedeemLimitAbove},
	{"RedeemWithoutLimit", testRedeemWithoutLimit},
	{"RedeemCost", testRedeemCost},
	{"Revoke", testRevoke},
	{"Lineages", testLineages},
	{"Turns", testTurns},
	{"Claims", testClaims},
	{"FreeKeys", testFreeKeys},
	{"Requests", testRequests},
	{"ReadRequests", testReadRequests},
	{"Webhooks", testWebhooks},
	{"WebhooksAtOnce", testWebhooksAtOnce},
	{"RequestsEndWithTheSpacesRef", testRequestsEndWithTheSpacesRef},
	{"RevertScripts", testRevertScripts},
	{"OrphansKeepTheLog", testOrphansKeepTheLog},
	{"ReadTree", testReadTree},
	{"ReadTrees", testReadTrees},
	{"ReadLargeTree", testReadLargeTree},
	{"RevokeTree", testRevokeTree},
	{"Rotate", testRotate},
	{"RotateRoot", testRotateRoot},
	{"RotateRootRace", testRotateRootRace},
	{"Reopen", testReopen},
	{"Closed", testClosed},
	{"Rollback", testRollback},
	{"Panic", testPanic},
	{"CancelWaiting", testCancelWaiting},
	{"CancelMidway", testCancelMidway},
	{"ClaimRace", testClaimRace},
	{"RevokeRace", testRevokeRace},
	{"OppositeOrder", testOppositeOrder},
	{"SnapshotsAreWhole", testSnapshots},
	{"CommitScripts", testCommitScripts},
	{"CommitEdits", testCommitEdits},
	{"ReplicaScripts", testReplicaScripts},
	{"ReplicasMeanwhile", testReplicasMeanwhile},
	{"CommitClaim", testCommitClaim},
	{"CommitRevoke", testCommitRevoke},
	{"CommitOpposite", testCommitOpposite},
	{"ClockSetBack", testClockSetBack},
	{"CommitFails", testCommitFails},
	{"Trim", testTrim},
	{"TrimBounds", testTrimBounds},
	{"TrimScripts", testTrimScripts},
	{"TrimRace", testTrimRace},
	{"Purge", testPurge},
	{"PublicShares", testPublicShares},
	{"PageTokens", testPageTokens},
	{"PublishRace", testPublishRace},
	{"Lookups", testLookups},
	{"History", testHistory},
}

// fixture is a store with helpers that fail the test.
type fixture struct {
	testing.TB
	ctx context.Context
	*store.Store
	later int64 // how much later it is for commits than by the database's clock, in ms
}

// OpenStream is the store's for a ref that may do something.
func (f *fixture) OpenStream(ctx context.Context, key session.StreamKey, secretHash [32]byte, incarnation uint64) (*ledger.Stream, error) {
	return f.Store.OpenStream(ctx, session.StreamRequest{Key: key, SecretHash: secretHash, Incarnation: incarnation})
}

// everything is a grant that shows all of a session.
var everything = &capability.Grant{}

// The reads are the store's, with all rows.

func (f *fixture) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refs []string, hashesAt ...uint64) (*session.LogPage, error) {
	page, err := f.Store.ReadLog(ctx, id, after, maxBytes, maxEvents, refs, hashesAt...)
	return whole(page, err)
}

func (f *fixture) ReadState(ctx context.Context, id string, refs []string, pieceBytes int, piece func(*session.StateChunk) error) error {
	return f.Store.ReadState(ctx, id, refs, pieceBytes, nil, func(p *session.Unscoped[*session.StateChunk]) error { return piece(p.Shown(everything)) })
}

func (f *fixture) ReadRange(ctx context.Context, id, after, below string, maxBytes, maxEntries int, refs []string) (*session.StateRange, error) {
	page, err := f.Store.ReadRange(ctx, id, after, below, maxBytes, maxEntries, refs)
	return whole(page, err)
}

func (f *fixture) ReadOutline(ctx context.Context, id, after, below string, most int, refs []string) (*session.StateRange, error) {
	page, err := f.Store.ReadOutline(ctx, id, after, below, most, refs)
	return whole(page, err)
}

func (f *fixture) ReadValues(ctx context.Context, id string, keys []string, maxBytes int, refs []string) (*session.StateRange, int, error) {
	found, next, err := f.Store.ReadValues(ctx, id, keys, maxBytes, refs)
	page, err := whole(found, err)
	return page, next, err
}

func (f *fixture) Describe(ctx context.Context, id string, refs []string) (*session.Access, *session.Entry, error) {
	found, err := f.Store.Describe(ctx, id, refs)
	if err != nil {
		return nil, nil, err
	}
	d := found.Shown(everything)
	return &d.Access, d.Info, nil
}

func whole[P any](page interface{ Shown(*capability.Grant) P }, err error) (all P, _ error) {
	if err == nil {
		all = page.Shown(everything)
	}
	return all, err
}

// begin gives a test a store on a database in which nobody else has what it makes.
func begin(t testing.TB, fresh Fresh) *fixture {
	t.Helper()
	db := fresh(t)
	if db.opened == nil {
		return open(t, db)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return &fixture{TB: t, ctx: ctx, Store: db.opened}
}

func open(t testing.TB, db Database) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	s, err := db.Open(ctx)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &fixture{TB: t, ctx: ctx, Store: s}
}

// save writes changes in a transaction that has locked the sessions.
func (f *fixture) save(c *session.Changes, sessions ...string) {
	f.Helper()
	err := f.Update(f.ctx, func(tx session.Tx) error {
		if _, err := tx.Load(f.ctx, &session.ReadSet{Sessions: sessions}); err != nil {
			return err
		}
		return tx.Save(f.ctx, c)
	})
	if err != nil {
		f.Fatalf("save: %v", err)
	}
}

// load reads in a transaction of its own.
func (f *fixture) load(w *session.ReadSet) *session.Rows {
	f.Helper()
	var rows *session.Rows
	err := f.Update(f.ctx, func(tx session.Tx) (err error) {
		rows, err = tx.Load(f.ctx, w)
		return err
	})
	if err != nil {
		f.Fatalf("load: %v", err)
	}
	return rows
}

// chained is the last hash of events that go on from the one at cursor, whose hash
// is prev, and what is wrong with them.
func chained(prev session.Hash, cursor uint64, events []*session.Event) (session.Hash, error) {
	v := session.NewVerifier(prev, cursor)
	v.Add(events)
	return v.Head(), v.Err()
}

// must stops the test on an error.
func (f *fixture) must(what string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

// Ids and rows for tests.

func newSession() string { return capability.SessionPrefix + ulid.Make().String() }
func newSpace() string   { return capability.SpacePrefix + ulid.Make().String() }
func newOutbox() string  { return "obx_" + ulid.Make().String() }
func newOp() string      { return ulid.Make().String() }
func newRef(target string) string { // later ones sort behind earlier ones
	return capability.ServerID(target, ulid.Make())
}
func clientRef(target string) string { // as an op may name it
	return capability.DeriveID(target, capability.NewSecret())
}

var counter atomic.Uint64

// hash is some hash that is no other's.
func hash() (h [32]byte) {
	return sha256.Sum256(fmt.Appendf(nil, "hash %d", counter.Add(1)))
}

// liveRow is a session's row as after n events.
func liveRow(id, space string, cursor uint64) *session.Row {
	return &session.Row{ID: id, Space: space, Life: session.Live, Cursor: cursor, Head: hash(), Epoch: 1, AuthGen: 1,
		Created: 1000, Updated: 2000, Creator: newOutbox()}
}

// event is a put of key at cursor.
func event(id string, cursor uint64, key, payload string) *session.Event {
	return &session.Event{Session: id, Cursor: cursor, Method: session.MethodPut, Key: key, Schema: 1, Payload: []byte(payload),
		Sum: session.SumOf([]byte(payload)), Hash: hash(), Ref: newRef(id), Actor: "owner/a", Outbox: newOutbox(), Op: newOp(),
		Batch: newOp(), At: 1234}
}

// deltaEvent is an appendText to key at cursor.
func deltaEvent(id string, cursor uint64, key, text string) *session.Event {
	e := event(id, cursor, key, fmt.Sprintf(`{"offset":0,"text":%q}`, text))
	e.Method = session.MethodAppendText
	return e
}

// entryOf is the entry that an event puts.
func entryOf(e *session.Event) *session.Entry {
	return &session.Entry{Session: e.Session, Key: e.Key, Cursor: e.Cursor, Since: e.Cursor, Ord: session.Ord{At: e.Cursor}, Schema: e.Schema, Sum: e.Sum}
}

func grant(id, parent string) *capability.Grant {
	return &capability.Grant{ID: id, Target: capability.Target(id), Parent: parent, Hash: hash(), Epoch: 1,
		Rights: capability.Read | capability.Append, Created: 5, Label: "label", Actor: "owner/b"}
}

func record(first uint64, ops ...string) *ledger.Record {
	r := &ledger.Record{BatchID: newOp(), FirstSeq: first}
	for i, op := range ops {
		r.Outcomes = append(r.Outcomes, ledger.Outcome{OpID: op, Digest: hash(), Status: ledger.Applied,
			Cursor: first + uint64(i), Result: []byte(`{"cursor":1}`)})
	}
	return r
}

// code checks an error's code.
func (f *fixture) code(what string, err error, want fault.Code) {
	f.Helper()
	if fault.CodeOf(err) != want {
		f.Fatalf("%s: got %v, want %v", what, err, want)
	}
}
