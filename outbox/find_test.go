package outbox

import (
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestSeqOfAnOp: those before it that were decided without a server have none.
func TestSeqOfAnOp(t *testing.T) {
	t.Parallel()
	skipped := &ledger.Outcome{Status: ledger.Skipped}
	first := int64(7)
	bd := &intent.Batch{Ops: []intent.Op{{}, {LocalOutcome: skipped}, {LocalOutcome: skipped, Void: true}, {}, {LocalOutcome: skipped}, {}}}
	row := &sqlstore.BatchRow{FirstSeq: &first}
	for place, want := range []uint64{7, 0, 8, 9, 0, 10} {
		if got := (sqlstore.FoundOp{Row: row, Body: bd, Index: place}).Seq(); got != want {
			t.Errorf("op %d has seq %d, want %d", place, got, want)
		}
	}
	if got := (sqlstore.FoundOp{Row: row}).Seq(); got != 7 {
		t.Errorf("of a row that cannot be read: %d", got)
	}
	if got := (sqlstore.FoundOp{Row: &sqlstore.BatchRow{}, Body: bd}).Seq(); got != 0 {
		t.Errorf("of a row that waits: %d", got)
	}
}
