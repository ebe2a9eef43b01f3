// Audit of calls that were refused outside any transaction. In a window the first
// refusals of a kind under a known ref are kept one by one; further ones are counted,
// and so are all of strangers. Both are written now and then: a flood costs the
// database a few rows a window, and memory a bounded number.

package server

import (
	"context"
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
	out    *pages[*capability.AuditRow]
	clock  func() time.Time
	window time.Duration

	mu     sync.Mutex
	at     int64 // the number of the window that is counted
	singly []*capability.AuditRow
	kept   map[capability.AuditRow]int   // how many of a kind were kept one by one in this window
	left   int                           // how many more may be
	rows   map[capability.AuditRow]tally // At and Count are 0 in the key

	roomAt int64          // the window of
	rooms  map[string]int // rows given to denials in transactions, by ref
}

// tally is how often something was refused, and when last.
type tally struct {
	n    uint32
	last int64
}

func newAuditor(cfg Config) *auditor {
	a := &auditor{out: newPages("audit", cfg.Log, cfg.Store.Audit), clock: cfg.Now, window: cfg.AuditWindow}
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
// under the target that was asked for, if that may be named. A redemption of which no row
// of its own is kept comes here too, and is counted.
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
	a.count(row, 1, now)
}

// room gives so many rows of what the denials of a ref's batch want, in the transaction that
// records them: auditKinds a window. They may have been given for one that came to nothing.
func (a *auditor) room(ref string, want int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.number(a.clock()); now != a.roomAt || a.rooms == nil {
		a.roomAt, a.rooms = now, map[string]int{}
	}
	if _, known := a.rooms[ref]; !known && len(a.rooms) >= auditKinds {
		ref = "" // more refs share one
	}
	given := max(min(want, auditKinds-a.rooms[ref]), 0)
	a.rooms[ref] += given
	return given
}

// counted takes denials that had no room.
func (a *auditor) counted(rows []*capability.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock().UnixMilli()
	for _, row := range rows {
		kind := *row
		kind.At, kind.Count = 0, 0
		a.count(kind, row.Count, now)
	}
}

// count adds to a row of counts. mu is held.
func (a *auditor) count(row capability.AuditRow, n uint32, now int64) {
	if a.rows == nil {
		a.rows = map[capability.AuditRow]tally{}
	}
	if _, known := a.rows[row]; !known && len(a.rows) >= auditKinds {
		row = capability.AuditRow{Act: row.Act, Reason: row.Reason}
	}
	sum := a.rows[row]
	a.rows[row] = tally{sum.n + min(n, math.MaxUint32-sum.n), max(sum.last, now)}
}

// flush writes what was gathered, and what was counted in a window that is over;
// all of it if all is set. What cannot be written is kept.
func (a *auditor) flush(ctx context.Context, all bool) {
	a.out.write(ctx, func() []*capability.AuditRow {
		a.mu.Lock()
		defer a.mu.Unlock()
		rows := a.singly
		a.singly = nil
		if now := a.number(a.clock()); all || now != a.at {
			for row, t := range a.turn(now) {
				row.At, row.Count = t.last, t.n
				rows = append(rows, &row)
			}
		}
		return rows
	})
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
