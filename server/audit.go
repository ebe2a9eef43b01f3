// Audit of calls that were refused outside any transaction. In a window the first
// refusals of a kind under a known ref are kept one by one; further ones are counted,
// and so are all of strangers. Both are written now and then: a flood costs the
// database a few rows a window, and memory a bounded number.

package server

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// auditKinds is how many refusals of a window are kept one by one, and how many
// different rows of counts. Further refusals are counted; further rows are counted
// together, without their names.
const auditKinds = 1000

// denialsSingly is how many of those one by one may be all but equal.
const denialsSingly = 32

// auditor gathers audit rows. Safe for concurrent use.
type auditor struct {
	store  Store
	log    *slog.Logger
	clock  func() time.Time
	window time.Duration

	mu     sync.Mutex
	at     int64 // the number of the window that is counted
	singly []*capability.AuditRow
	kept   map[capability.AuditRow]int   // how many of a kind were kept one by one in this window
	left   int                           // how many more may be
	rows   map[capability.AuditRow]tally // At and Count are 0 in the key
}

// tally is how often something was refused, and when last.
type tally struct {
	n    uint32
	last int64
}

func newAuditor(cfg Config) *auditor {
	a := &auditor{store: cfg.Store, log: cfg.Log, clock: cfg.Now, window: cfg.AuditWindow}
	a.turn(a.number(a.clock()))
	return a
}

// number is that of the window of a time.
func (a *auditor) number(t time.Time) int64 { return t.UnixMilli() / max(a.window.Milliseconds(), 1) }

// turn begins the window of a number, and gives what was counted in the one before. mu
// is held.
func (a *auditor) turn(number int64) (counted map[capability.AuditRow]tally) {
	counted = a.rows
	a.at, a.rows, a.kept, a.left = number, nil, map[capability.AuditRow]int{}, auditKinds
	return counted
}

// denied takes a call that was refused. A stranger's has no ref and is kept
// under the target that was asked for, if that may be named.
func (a *auditor) denied(row capability.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock().UnixMilli()
	if row.Act == capability.AuditDenial && a.left > 0 && a.kept[row] < denialsSingly && len(a.singly) < auditKinds {
		a.kept[row]++
		a.left--
		row.At, row.Count = now, 1
		a.singly = append(a.singly, &row)
		return
	}
	a.count(row, tally{1, now})
}

// count adds to a row's count. mu is held.
func (a *auditor) count(row capability.AuditRow, t tally) {
	if a.rows == nil {
		a.rows = map[capability.AuditRow]tally{}
	}
	if _, known := a.rows[row]; !known && len(a.rows) >= auditKinds {
		row = capability.AuditRow{Act: row.Act, Reason: row.Reason}
	}
	sum := a.rows[row]
	a.rows[row] = tally{sum.n + min(t.n, math.MaxUint32-sum.n), max(sum.last, t.last)}
}

// flush writes what was gathered, and what was counted in a window that is over;
// all of it if all is set. What cannot be written is kept.
func (a *auditor) flush(ctx context.Context, all bool) {
	a.mu.Lock()
	singly := a.singly
	a.singly = nil
	var counted map[capability.AuditRow]tally
	if now := a.number(a.clock()); all || now != a.at {
		counted = a.turn(now)
	}
	a.mu.Unlock()
	if len(singly)+len(counted) == 0 {
		return
	}
	rows := singly
	for row, t := range counted {
		row.At, row.Count = t.last, t.n
		rows = append(rows, &row)
	}
	err := a.store.Audit(ctx, rows)
	if err == nil {
		return
	}
	a.log.Warn("audit not written", "rows", len(rows), "error", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	for row, t := range counted {
		a.count(row, t)
	}
	kept := min(len(singly), auditKinds-len(a.singly))
	for _, row := range singly[kept:] { // more came in the meantime
		a.count(counting(row), tally{row.Count, row.At})
	}
	a.singly = append(singly[:kept:kept], a.singly...)
}

// counting is a row as it is counted.
func counting(row *capability.AuditRow) capability.AuditRow {
	key := *row
	key.At, key.Count, key.Op = 0, 0, ""
	return key
}

// denied audits a call from peer, under ref, that was refused for want of
// authority; its grant may be nil, if it was not read.
func (s *Server) denied(peer, ref string, grant *capability.Grant, what string, f *fault.Error) {
	if f.Code < fault.UnknownRef || f.Code >= fault.Malformed {
		return
	}
	row := capability.AuditRow{Target: capability.Target(ref), Act: capability.AuditDenial, Ref: ref, Subject: what, Reason: f.Code, Peer: peer}
	if grant != nil {
		row.Actor = grant.Actor
	}
	s.audit.denied(row)
}
