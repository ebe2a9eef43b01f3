// Uses: calls and ops under each ref, counted in memory and written at intervals. A crash loses
// the counts not written: a few seconds of the table of uses, and a window of the audit. Changes
// of authority are audited in their own transaction.

package admission

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// maxUses is the number of (ref, actor, method) rows counted in a window. At the bound the window
// ends early.
const maxUses = 10_000

// useKey is the key that uses are counted by.
type useKey struct {
	ref, actor, method string
	child              string // the session that it was used in, if that is below the ref's; else ""
}

// use is one row of counts in a window.
type use struct {
	useKey
	count     uint64
	unflushed uint64 // part of count not in the table of uses yet
	last      int64  // Unix ms
	cursor    uint64 // the session's highest, as far as known
	peer      string // the address that all came from; "" if there were several
}

// rows returns the audit rows of u: of uses in a child, one in its audit too.
func (u *use) rows() []*capability.AuditRow {
	row := &capability.AuditRow{Target: capability.Target(u.ref), At: u.last, Act: capability.AuditUse, Ref: u.ref, Actor: u.actor,
		Subject: u.method, Cursor: u.cursor, Count: uint32(min(u.count, math.MaxUint32)), Peer: u.peer}
	if u.child == "" {
		return []*capability.AuditRow{row}
	}
	below := *row
	row.Cursor, below.Target = 0, u.child
	return []*capability.AuditRow{row, &below}
}

// UsageCounter counts uses. It is safe for concurrent use; counting costs a lock and a map
// lookup.
type UsageCounter struct {
	countWriter *pageWriter[capability.RefUses] // into the table of uses
	auditWriter *pageWriter[*use]               // into the audit
	clock       func() time.Time
	window      time.Duration
	WindowFull  chan struct{} // a window ended early and is to be written

	mu            sync.Mutex
	flushedAt     int64 // when the last flush began, Unix ms
	current       int64 // number of the current window
	open          map[useKey]*use
	closed        []*use                        // of windows that ended, on no page of the audit yet
	pendingCounts map[string]capability.RefUses // taken from use.unflushed, on no page of the table of uses yet
}

// NewUsageCounter returns a counter of uses; Flush writes what it has counted.
func NewUsageCounter(cfg AuditConfig) *UsageCounter {
	audit := func(ctx context.Context, page capability.IdempotencyKey, uses []*use) error {
		rows := make([]*capability.AuditRow, 0, len(uses))
		for _, e := range uses {
			rows = append(rows, e.rows()...)
		}
		return cfg.Store.Audit(ctx, page, rows)
	}
	return &UsageCounter{countWriter: newPageWriter("uses", cfg.Log, cfg.Store.AddUses), auditWriter: newPageWriter("audit of uses", cfg.Log, audit),
		clock: cfg.Now, window: cfg.Window, WindowFull: make(chan struct{}, 1), open: map[useKey]*use{}}
}

// Add counts the uses of one call from peer. cursor is the session's, 0 if it is not known.
func (u *UsageCounter) Add(peer string, cursor uint64, uses ...decide.Use) {
	if len(uses) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock().UnixMilli()
	u.rotate(now)
	for i := range uses {
		key := useKey{uses[i].Ref, uses[i].Actor, uses[i].Method, uses[i].Session}
		e := u.open[key]
		if e == nil {
			if len(u.open) >= maxUses {
				u.endEarly()
			}
			e = &use{useKey: key, peer: peer}
			u.open[key] = e
		}
		e.count += uint64(uses[i].Count)
		e.unflushed += uint64(uses[i].Count)
		e.last, e.cursor = max(e.last, now), max(e.cursor, cursor)
		if e.peer != peer {
			e.peer = ""
		}
	}
}

// Record counts a call under a ref.
func (u *UsageCounter) Record(peer string, grant *capability.Grant, method string, cursor uint64) {
	use := decide.Use{Ref: grant.ID, Actor: grant.Actor, Method: method, Count: 1}
	if of := capability.Target(grant.ID); capability.IsSession(of) && of != grant.Target {
		use.Session = grant.Target
	}
	u.Add(peer, cursor, use)
}

// rotate ends the window if its time is over. mu is held.
func (u *UsageCounter) rotate(now int64) {
	if w := now / max(u.window.Milliseconds(), 1); w != u.current {
		u.current = w
		u.closeWindow()
	}
}

// endEarly ends the window early. mu is held.
func (u *UsageCounter) endEarly() {
	u.closeWindow()
	select {
	case u.WindowFull <- struct{}{}:
	default: // it is signaled already
	}
}

// closeWindow moves the counts of the window to closed. If writing fails for long, further counts
// are summed in one row without names. mu is held.
func (u *UsageCounter) closeWindow() {
	for _, e := range u.open {
		if len(u.closed) >= 2*maxUses {
			sum := u.closed[len(u.closed)-1]
			sum.useKey, sum.peer, sum.cursor = useKey{}, "", 0
			sum.count, sum.unflushed, sum.last = sum.count+e.count, sum.unflushed+e.unflushed, max(sum.last, e.last)
			continue
		}
		u.closed = append(u.closed, e)
	}
	clear(u.open)
}

// Flush writes new counts into the table of uses, and windows that ended into the audit; the
// current window too if all is set. Rows that cannot be written are retried.
func (u *UsageCounter) Flush(ctx context.Context, all bool) {
	u.mu.Lock()
	u.flushedAt = u.clock().UnixMilli()
	u.rotate(u.flushedAt)
	if all {
		u.closeWindow()
	}
	for _, e := range u.open {
		u.collect(e)
	}
	for _, e := range u.closed {
		u.collect(e)
	}
	u.mu.Unlock()
	u.countWriter.write(ctx, func() []capability.RefUses {
		u.mu.Lock()
		defer u.mu.Unlock()
		counts := slices.Collect(maps.Values(u.pendingCounts))
		u.pendingCounts = nil
		return counts
	})
	u.auditWriter.write(ctx, func() []*use {
		u.mu.Lock()
		for _, e := range u.closed { // of a window that ended meanwhile
			u.collect(e)
		}
		over := u.closed
		u.closed = nil
		u.mu.Unlock()
		slices.SortFunc(over, func(a, b *use) int { return int(a.last - b.last) })
		return over
	})
}

// staleAfter is the maximum age of the uses shown, except for those that other replicas have not
// written yet.
const staleAfter = time.Second

// FlushIfStale writes new counts, for a caller that is about to read them, unless the last flush
// was less than staleAfter ago.
func (u *UsageCounter) FlushIfStale(ctx context.Context) {
	u.mu.Lock()
	due := u.clock().UnixMilli()-u.flushedAt >= staleAfter.Milliseconds()
	u.mu.Unlock()
	if due {
		u.Flush(ctx, false)
	}
}

// collect moves the unflushed count of e to pendingCounts. mu is held.
func (u *UsageCounter) collect(e *use) {
	if e.unflushed == 0 {
		return
	}
	if u.pendingCounts == nil {
		u.pendingCounts = map[string]capability.RefUses{}
	}
	ref := e.ref
	if _, known := u.pendingCounts[ref]; !known && len(u.pendingCounts) >= 3*maxUses {
		ref = ""
	}
	sum := u.pendingCounts[ref]
	u.pendingCounts[ref] = capability.RefUses{Ref: ref, Count: sum.Count + e.unflushed, LastUsed: max(sum.LastUsed, e.last)}
	e.unflushed = 0
}
