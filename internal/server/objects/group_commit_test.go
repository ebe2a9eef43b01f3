package objects

import (
	"context"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/ledger"
)

// inMemory is a store of which only UpdateOptimistic is used.
type inMemory struct {
	Store
	rows *memtx.Store
}

func (s inMemory) UpdateOptimistic(ctx context.Context, do func(session.Tx) error) error {
	return s.rows.Update(ctx, do)
}

// A defect in giving an answer costs that answer: the hub hears of the commit
// all the same, or it would hold back for ever what others tell of the session.
func TestAnswerThatPanics(t *testing.T) {
	t.Parallel()
	cfg := Config{Store: inMemory{rows: memtx.New()}}.withDefaults()
	h := newHub(cfg.Store, cfg.ReadTimeout, cfg.Log)
	c := newCommitter(t.Context(), cfg, h, newUsageCounter(cfg), new(limitHits), newMeasureQueue(), newInstruments(), newOutage(cfg, newInstruments()))
	c.run()
	const id = "ses_01J0000000000000000000000A"
	answered := 0
	for i := range 2 {
		refused := c.submit(&pendingCommit{ops: 1, caller: t.Context(),
			sub: session.Submission{Ack: true, Batch: ledger.Batch{Session: id, Outbox: "obx_1"}},
			done: func(session.Answer) {
				if i == 0 {
					panic("a defect")
				}
				answered++
			}})
		if refused != nil {
			t.Fatal(refused)
		}
	}
	c.close()
	h.close()
	if len(h.holds) != 0 {
		t.Errorf("%d sessions are held back", len(h.holds))
	}
	if answered != 1 {
		t.Errorf("%d of the others were answered", answered)
	}
}
