// Uses: what is done under which ref, counted in memory and written now and
// then. A crash loses what was not written: a few seconds of the table of uses,
// a window of the audit. What changes authority is in its own transaction.

package server

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/session"
)

// usesKept is how many refs, actors and methods are counted apart in a window.
// When there are more, the window ends early.
const usesKept = 10_000

// useKey is what uses are counted by.
type useKey struct{ ref, actor, method string }

// use is one of them in a window.
type use struct {
	useKey
	count  uint64
	fresh  uint64 // of count, not in the table of uses yet
	last   int64  // Unix ms
	cursor uint64 // the session's, as far as was seen
	peer   string // the address that all came from; "" if they came from many
}

// row is the audit's.
func (u *use) row() *capability.AuditRow {
	return &capability.AuditRow{Target: capability.Target(u.ref), At: u.last, Act: capability.AuditUse, Ref: u.ref, Actor: u.actor,
		Subject: u.method, Cursor: u.cursor, Count: uint32(min(u.count, math.MaxUint32)), Peer: u.peer}
}

// usage counts uses. Safe for concurrent use; counting is a lock and a look
// into a map.
type usage struct {
	counts *pages[capability.Uses] // into the table of uses
	rows   *pages[*use]            // into the audit
	clock  func() time.Time
	window time.Duration
	full   chan struct{} // a window ended early: what is over is to be written

	mu   sync.Mutex
	sent int64 // when the last flush began, Unix ms
	at   int64 // the number of the window that is counted
	now  map[useKey]*use
	over []*use                     // of windows that are over, on no page of the audit yet
	owed map[string]capability.Uses // taken out of use.fresh, on no page of the table of uses yet
}

func newUsage(cfg Config) *usage {
	audit := func(ctx context.Context, page capability.Page, uses []*use) error {
		rows := make([]*capability.AuditRow, len(uses))
		for i, e := range uses {
			rows[i] = e.row()
		}
		return cfg.Store.Audit(ctx, page, rows)
	}
	return &usage{counts: newPages("uses", cfg.Log, cfg.Store.Used), rows: newPages("audit of uses", cfg.Log, audit),
		clock: cfg.Now, window: cfg.AuditWindow, full: make(chan struct{}, 1), now: map[useKey]*use{}}
}

// used counts what was done by one call from peer. cursor is the session's, 0
// if it is not known.
func (u *usage) used(peer string, cursor uint64, uses ...session.Use) {
	if len(uses) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock().UnixMilli()
	u.turn(now)
	for i := range uses {
		key := useKey{uses[i].Ref, uses[i].Actor, uses[i].Method}
		e := u.now[key]
		if e == nil {
			if len(u.now) >= usesKept {
				u.end()
			}
			e = &use{useKey: key, peer: peer}
			u.now[key] = e
		}
		e.count += uint64(uses[i].Count)
		e.fresh += uint64(uses[i].Count)
		e.last, e.cursor = max(e.last, now), max(e.cursor, cursor)
		if e.peer != peer {
			e.peer = ""
		}
	}
}

// turn ends the window if its time is over. mu is held.
func (u *usage) turn(now int64) {
	if w := now / max(u.window.Milliseconds(), 1); w != u.at {
		u.at = w
		u.rest()
	}
}

// end ends the window early. mu is held.
func (u *usage) end() {
	u.rest()
	select {
	case u.full <- struct{}{}:
	default: // it was said
	}
}

// rest puts what was counted with what is over. If that cannot be written for
// long, it is counted on without names. mu is held.
func (u *usage) rest() {
	for _, e := range u.now {
		if len(u.over) >= 2*usesKept {
			sum := u.over[len(u.over)-1]
			sum.useKey, sum.peer, sum.cursor = useKey{}, "", 0
			sum.count, sum.fresh, sum.last = sum.count+e.count, sum.fresh+e.fresh, max(sum.last, e.last)
			continue
		}
		u.over = append(u.over, e)
	}
	clear(u.now)
}

// flush writes what is new into the table of uses, and windows that are over into
// the audit; all of it if all is set. What cannot be written is kept.
func (u *usage) flush(ctx context.Context, all bool) {
	u.mu.Lock()
	u.sent = u.clock().UnixMilli()
	u.turn(u.sent)
	if all {
		u.rest()
	}
	for _, e := range u.now {
		u.pour(e)
	}
	for _, e := range u.over {
		u.pour(e)
	}
	u.mu.Unlock()
	u.counts.write(ctx, func() []capability.Uses {
		u.mu.Lock()
		defer u.mu.Unlock()
		counts := slices.Collect(maps.Values(u.owed))
		u.owed = nil
		return counts
	})
	u.rows.write(ctx, func() []*use {
		u.mu.Lock()
		for _, e := range u.over { // of a window that ended meanwhile
			u.pour(e)
		}
		over := u.over
		u.over = nil
		u.mu.Unlock()
		slices.SortFunc(over, func(a, b *use) int { return int(a.last - b.last) })
		return over
	})
}

// shownAfter is how old what is shown of uses may be, but for what other replicas
// have not written yet.
const shownAfter = time.Second

// show writes what is new, for somebody who is about to read it, unless that was
// done just now.
func (u *usage) show(ctx context.Context) {
	u.mu.Lock()
	due := u.clock().UnixMilli()-u.sent >= shownAfter.Milliseconds()
	u.mu.Unlock()
	if due {
		u.flush(ctx, false)
	}
}

// pour takes what is fresh of e, to be written. mu is held.
func (u *usage) pour(e *use) {
	if e.fresh == 0 {
		return
	}
	if u.owed == nil {
		u.owed = map[string]capability.Uses{}
	}
	ref := e.ref
	if _, known := u.owed[ref]; !known && len(u.owed) >= 3*usesKept {
		ref = ""
	}
	sum := u.owed[ref]
	u.owed[ref] = capability.Uses{Ref: ref, Count: sum.Count + e.fresh, Last: max(sum.Last, e.last)}
	e.fresh = 0
}

// used counts a call under a ref.
func (s *Server) used(peer string, grant *capability.Grant, method string, cursor uint64) {
	s.uses.used(peer, cursor, session.Use{Ref: grant.ID, Actor: grant.Actor, Method: method, Count: 1})
}

// account writes uses and refusals now and then, until ctx ends. What is written
// then is finished.
func (s *Server) account(ctx context.Context) {
	pause := min(s.cfg.SweepInterval, s.cfg.AuditWindow)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.uses.full:
		case <-time.After(spread(pause)):
		}
		s.writeAudit(false)
	}
}

// writeAudit writes what has been gathered and is due, or all of it.
func (s *Server) writeAudit(all bool) {
	ctx, cancel := s.writing()
	defer cancel()
	s.audit.flush(ctx, all)
	s.uses.flush(ctx, all)
}
