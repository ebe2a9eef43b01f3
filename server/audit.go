// Audit of calls that were refused outside any transaction: gathered by the
// kind and written now and then, so that a stranger's flood costs the database
// a row a while, and memory a bounded number of counts.

package server

import (
	"context"
	"log/slog"
	"math"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
)

// auditKinds is how many different rows may wait; further ones are counted
// together, without their names.
const auditKinds = 1000

// auditor gathers audit rows. Safe for concurrent use.
type auditor struct {
	store Store
	log   *slog.Logger

	mu   sync.Mutex
	rows map[capability.AuditRow]uint32 // Count is 0 in the key
}

// denied counts a call that was refused. A stranger's has no ref and is kept
// under the target that was asked for, if that may be named.
func (a *auditor) denied(row capability.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count(row, 1)
}

// count adds n to a row's count. mu is held.
func (a *auditor) count(row capability.AuditRow, n uint32) {
	if a.rows == nil {
		a.rows = map[capability.AuditRow]uint32{}
	}
	if _, known := a.rows[row]; !known && len(a.rows) >= auditKinds {
		row = capability.AuditRow{Act: row.Act, Reason: row.Reason}
	}
	a.rows[row] += min(n, math.MaxUint32-a.rows[row])
}

// flush writes what was gathered. What cannot be written is kept.
func (a *auditor) flush(ctx context.Context) {
	a.mu.Lock()
	gathered := a.rows
	a.rows = nil
	a.mu.Unlock()
	if len(gathered) == 0 {
		return
	}
	rows := make([]*capability.AuditRow, 0, len(gathered))
	for row, n := range gathered {
		row.Count = n
		rows = append(rows, &row)
	}
	err := a.store.Audit(ctx, rows)
	if err == nil {
		return
	}
	a.log.Warn("audit not written", "rows", len(rows), "error", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	for row, n := range gathered {
		a.count(row, n)
	}
}
