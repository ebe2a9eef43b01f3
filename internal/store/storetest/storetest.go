// Package storetest is the conformance suite of stores: what a store promises,
// as tests that run alike on every database. A backend's own tests call Run and
// Bench and add only what the others cannot have.
//
// The tests are in packages by what they are about: sessions, work, history, authority, transactions, upkeep, and scripts,
// which compares random groups with the model. None of these uses another; all use harness.
package storetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/internal/store/storetest/authority"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/internal/store/storetest/history"
	"github.com/mooring-rpc/mooring/internal/store/storetest/scripts"
	"github.com/mooring-rpc/mooring/internal/store/storetest/sessions"
	"github.com/mooring-rpc/mooring/internal/store/storetest/transactions"
	"github.com/mooring-rpc/mooring/internal/store/storetest/upkeep"
	"github.com/mooring-rpc/mooring/internal/store/storetest/work"
)

// Run runs the whole suite, its tests in parallel.
func Run(t *testing.T, fresh harness.Fresh) {
	for _, tests := range []harness.Cases{sessions.Isolated, authority.Isolated, transactions.Isolated, upkeep.Isolated} {
		run(t, tests, fresh)
	}
	RunTogether(t, fresh)
}

// RunTogether runs the part of the suite that needs one database at most: all that
// appends is in it.
func RunTogether(t *testing.T, fresh harness.Fresh) {
	fresh = harness.Together(t, fresh)
	for _, tests := range []harness.Cases{sessions.Shared, work.Shared, history.Shared, authority.Shared, transactions.Shared, upkeep.Shared, scripts.Shared} {
		run(t, tests, fresh)
	}
}

func run(t *testing.T, tests harness.Cases, fresh harness.Fresh) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests[name](t, fresh)
		})
	}
}
