package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// TestALeaseThatLooksDifferent was renewed, whatever changed of it.
func TestALeaseThatLooksDifferent(t *testing.T) {
	t.Parallel()
	ago := time.Now().Add(-time.Hour)
	for i, row := range []sqlstore.BoxRow{{Holder: "x", LeaseUntil: 5}, {Holder: "y", LeaseUntil: 5}, {Holder: "x", LeaseUntil: 6}} {
		w := &Waiter{Holder: "x", Until: 5, Since: ago}
		if same := w.unchangedFor(row) >= time.Hour; same != (i == 0) {
			t.Errorf("%+v looks the same (%t)", row, same)
		}
		if w.Holder != row.Holder || w.Until != row.LeaseUntil {
			t.Errorf("%+v was seen as %+v", row, w)
		}
	}
}

// TestDecidedOpsTakeNoSeqs: a takeover counts those of a batch that travel, if it can be
// read, else all.
func TestDecidedOpsTakeNoSeqs(t *testing.T) {
	t.Parallel()
	var seqs writer.Seqs
	seqs.SetLeading(true)
	id, first := opid.NewBatch(), int64(5)
	bd := &intent.Batch{Ops: make([]intent.Op, 3)}
	for i := range bd.Ops {
		bd.Ops[i] = intent.Op{ID: opid.Of(id, i), Method: "put"}
	}
	bd.Ops[1].LocalOutcome = &ledger.Outcome{OpID: bd.Ops[1].ID, Status: ledger.Skipped}
	for i, c := range []struct {
		body []byte
		next uint64
	}{{bd.Encode("0", id), 7}, {[]byte("junk"), 8}} {
		session := fmt.Sprint(i)
		loadSeqs(&seqs, session, []*sqlstore.BatchRow{{ID: id, Session: session, FirstSeq: &first, Ops: 3, Body: c.body}}, sqlstore.StreamRow{LastSeq: 2})
		if la := seqs.AddStream(session, 0); la.Next != c.next {
			t.Errorf("the next seq is %d, want %d", la.Next, c.next)
		}
	}
}
