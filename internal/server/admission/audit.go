// Audit of refusals outside any transaction. In a window the first refusals of a kind under a
// known ref are kept as single rows; further ones are counted, and so are all of strangers. Both
// are written at intervals: a flood costs the database a few rows a window, and bounded memory.

package admission

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// maxAuditRows bounds the single refusals of a window, and the rows of counts. Further refusals
// are counted; further rows of counts are summed without their names.
const maxAuditRows = 1000

// maxVerbatimRepeats bounds the single refusals of a window that are equal but for their time.
const maxVerbatimRepeats = 32

// AuditStore is the store of the audit.
type AuditStore interface {
	// Audit writes a page of audit rows that no other transaction carries.
	Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error

	// AddUses adds a page to the use counts of refs, each ref at most once a page.
	AddUses(ctx context.Context, page capability.IdempotencyKey, uses []capability.RefUses) error
}

// AuditConfig configures the audit of refusals, and of uses.
type AuditConfig struct {
	Store  AuditStore
	Log    *slog.Logger
	Now    func() time.Time
	Window time.Duration // over which uses, and the tries of strangers, are summed into one row
}

// Auditor collects audit rows. It is safe for concurrent use.
type Auditor struct {
	writer *pageWriter[*capability.AuditRow]
	clock  func() time.Time
	window time.Duration

	mu             sync.Mutex
	current        int64 // number of the current window
	verbatim       []*capability.AuditRow
	verbatimCounts map[capability.AuditRow]int   // single rows of a kind kept in this window
	verbatimLeft   int                           // how many more single rows this window may have
	tallies        map[capability.AuditRow]tally // At and Count are 0 in the key

	denialWindow int64          // number of the window of denialRows
	denialRows   map[string]int // rows granted to denials in transactions, by ref
}

// tally is the number of refusals of a kind, and the time of the last, in Unix ms.
type tally struct {
	n    uint32
	last int64
}

// NewAuditor returns an auditor; Flush writes what it has collected.
func NewAuditor(cfg AuditConfig) *Auditor {
	a := &Auditor{writer: newPageWriter("audit", cfg.Log, cfg.Store.Audit), clock: cfg.Now, window: cfg.Window}
	a.rotate(a.windowOf(a.clock()))
	return a
}

// windowOf returns the number of the window that contains t.
func (a *Auditor) windowOf(t time.Time) int64 { return t.UnixMilli() / max(a.window.Milliseconds(), 1) }

// rotate begins the window of a number, and returns the counts of the one before. mu is held.
func (a *Auditor) rotate(number int64) (counted map[capability.AuditRow]tally) {
	counted = a.tallies
	a.current, a.tallies, a.verbatimCounts, a.verbatimLeft = number, nil, map[capability.AuditRow]int{}, maxAuditRows
	return counted
}

// AddDenial records a refused call. A stranger's has no ref and is recorded under the target that
// was asked for, if that may be named. A redemption without a row of its own is counted here too.
func (a *Auditor) AddDenial(row capability.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock().UnixMilli()
	if row.Act == capability.AuditDenial && a.verbatimLeft > 0 && a.verbatimCounts[row] < maxVerbatimRepeats && len(a.verbatim) < maxAuditRows {
		a.verbatimCounts[row]++
		a.verbatimLeft--
		row.At, row.Count = now, 1
		a.verbatim = append(a.verbatim, &row)
		return
	}
	a.count(row, 1, now)
}

// ReserveRows grants the denials of a ref's batch up to want rows, in the transaction that records
// them: maxAuditRows a window. The rows count even if the transaction fails.
func (a *Auditor) ReserveRows(ref string, want int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.windowOf(a.clock()); now != a.denialWindow || a.denialRows == nil {
		a.denialWindow, a.denialRows = now, map[string]int{}
	}
	if _, known := a.denialRows[ref]; !known && len(a.denialRows) >= maxAuditRows {
		ref = "" // further refs share one count
	}
	given := max(min(want, maxAuditRows-a.denialRows[ref]), 0)
	a.denialRows[ref] += given
	return given
}

// AddCounts counts the denials that got no row.
func (a *Auditor) AddCounts(rows []*capability.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock().UnixMilli()
	for _, row := range rows {
		kind := *row
		kind.At, kind.Count = 0, 0
		a.count(kind, row.Count, now)
	}
}

// count adds n to a row of counts. mu is held.
func (a *Auditor) count(row capability.AuditRow, n uint32, now int64) {
	if a.tallies == nil {
		a.tallies = map[capability.AuditRow]tally{}
	}
	if _, known := a.tallies[row]; !known && len(a.tallies) >= maxAuditRows {
		row = capability.AuditRow{Act: row.Act, Reason: row.Reason}
	}
	sum := a.tallies[row]
	a.tallies[row] = tally{sum.n + min(n, math.MaxUint32-sum.n), max(sum.last, now)}
}

// Flush writes the single rows, and the counts of a window that ended; of the current one too if
// all is set. Rows that cannot be written are retried.
func (a *Auditor) Flush(ctx context.Context, all bool) {
	a.writer.write(ctx, func() []*capability.AuditRow {
		a.mu.Lock()
		defer a.mu.Unlock()
		rows := a.verbatim
		a.verbatim = nil
		if now := a.windowOf(a.clock()); all || now != a.current {
			for row, t := range a.rotate(now) {
				row.At, row.Count = t.last, t.n
				rows = append(rows, &row)
			}
		}
		return rows
	})
}

// Deny audits a call from peer, under ref, that was refused for lack of authority. grant
// is nil if it was not read.
func (a *Auditor) Deny(peer, ref string, grant *capability.Grant, label string, f *fault.Error) {
	if f.Code < fault.UnknownRef || f.Code >= fault.Malformed {
		return
	}
	row := capability.AuditRow{Target: capability.Target(ref), Act: capability.AuditDenial, Ref: ref, Subject: label, Reason: f.Code, Peer: peer}
	if grant != nil {
		row.Actor = grant.Actor
	}
	a.AddDenial(row)
}
