// The audit log and its chain of hashes.

package authority

import (
	"slices"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func testAudit(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	full := &capability.AuditRow{Target: id, At: 7, Act: capability.AuditDenial, Ref: harness.NewRef(id), Actor: "a", Subject: "put",
		Reason: fault.StaleEpoch, Op: harness.NewOp(), Cursor: 9, Count: 3}
	f.Must("audit", f.Audit(f.Ctx, harness.NewIdempotencyKey(), []*capability.AuditRow{full}))
	f.Must("audit nothing", f.Audit(f.Ctx, harness.NewIdempotencyKey(), nil))
	f.Save(&session.Changes{Audit: []*capability.AuditRow{{Target: id, Act: capability.AuditShare}, {Target: harness.NewSession(), Act: capability.AuditBump}}}, id)
	rows := f.AuditOf(id)
	if len(rows) != 2 || rows[1].Act != capability.AuditShare || rows[1].At == 0 || rows[1].Count != 1 {
		t.Fatalf("audit: %v", rows)
	}
	full.Seq, full.Hash = 1, rows[0].Hash
	harness.Same(f, "row", rows[0], full)
	page, err := f.ReadAudit(f.Ctx, id, 1, 1, nil)
	f.Must("read audit", err)
	if len(page.Rows) != 1 || page.Rows[0].Act != capability.AuditShare || page.Seq != 2 || page.Now == 0 {
		t.Errorf("the second row: %+v", page)
	}
}

// testAuditAtOnce: rows that many transactions add at once are one chain.
func testAuditAtOnce(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	a, b := harness.NewSession(), harness.NewSession()
	var wg sync.WaitGroup
	for i := range 40 {
		rows := []*capability.AuditRow{{Target: a}, {Target: b}, {Target: a}}
		if i%2 == 1 {
			slices.Reverse(rows[:2])
		}
		wg.Go(func() {
			if err := f.Audit(f.Ctx, harness.NewIdempotencyKey(), rows); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n, m := len(f.AuditOf(a)), len(f.AuditOf(b)); n != 80 || m != 40 {
		t.Errorf("%d and %d rows", n, m)
	}
}
