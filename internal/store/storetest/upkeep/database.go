// What is kept of a database as a whole: its history, its servers, and whether it commits.

package upkeep

import (
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testFeaturesInUse: in use is what every server knows that said so lately, and nothing while an
// upgrade is not finished.
func testFeaturesInUse(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	record := func(id string, knows session.Features, within time.Duration, want session.Features) {
		t.Helper()
		inUse, err := f.RecordReplica(f.Ctx, id, knows, within)
		f.Must("record a replica", err)
		if inUse != want {
			t.Errorf("%s knows %b: %b are in use, want %b", id, knows, inUse, want)
		}
	}
	record("a", 0b111, time.Hour, 0b111)
	record("b", 0b011, time.Hour, 0b011)
	record("a", 0b110, time.Hour, 0b010)
	f.Must("forget a replica", f.ForgetReplica(f.Ctx, "b"))
	record("a", 0b111, time.Hour, 0b111)
	record("old", 0, time.Hour, 0)
	record("a", 0b111, -time.Hour, 0b111) // of those alive none is heard of, not even this one
	record("a", 0b111, time.Hour, 0b111)  // and those that were not are gone

	pending, err := f.FinishUpgrade(f.Ctx)
	f.Must("finish the upgrade of a new database", err)
	if pending {
		t.Error("a new database is being upgraded")
	}
}

// testHistory: a database has a history from its first moment, and another once it is said
// to be restored.
func testHistory(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	history := func() string {
		t.Helper()
		id, err := f.HistoryID(f.Ctx)
		f.Must("read the history id", err)
		if len(id) != 32 {
			t.Errorf("the history id is %q", id)
		}
		return id
	}
	was := history()
	if again := history(); again != was {
		t.Errorf("it was %s and is %s", was, again)
	}
	id, err := f.BeginHistory(f.Ctx)
	f.Must("begin a history", err)
	if is := history(); is != id || is == was {
		t.Errorf("after %s it is %s, and was to be %s", was, is, id)
	}
}

// testProbe: probes succeed, of any size, again and again, and of several at once.
func testProbe(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for _, bytes := range []int{0, 1 << 20, 1, 0} {
				if err := f.Probe(f.Ctx, bytes); err != nil {
					t.Errorf("a probe of %d bytes: %v", bytes, err)
				}
			}
		})
	}
	all.Wait()
}
