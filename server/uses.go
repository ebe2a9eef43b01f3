// Uses: what is done under which ref, counted in memory and written now and
// then. A crash loses what was not written: a few seconds of the table of uses,
// a window of the audit. What changes authority is in its own transaction.

package server

import (
	"context"
	"log/slog"
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
	store  Store
	log    *slog.Logger
	clock  func() time.Time
	window time.Duration
	full   chan struct{} // a window ended early: what is over is to be written

	mu   sync.Mutex
	sent int64 // when the last flush began, Unix ms
	at   int64 // the number of the window that is counted
	now  map[useKey]*use
	over []*use                     // of windows that are over, not in the audit yet
	owed map[string]capability.Uses // taken out of use.fresh, and could not be written
}

func newUsage(cfg Config) *usage {
	return &usage{store: cfg.Store, log: cfg.Log, clock: cfg.Now, window: cfg.AuditWindow, full: make(chan struct{}, 1), now: map[useKey]*use{}}
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

// usesAtOnce is how many rows are written in one transaction.
const usesAtOnce = 500

// flush writes what is new into the table of uses, and windows that are over into
// the audit; all of it if all is set. What cannot be written is kept.
func (u *usage) flush(ctx context.Context, all bool) {
	u.mu.Lock()
	u.sent = u.clock().UnixMilli()
	u.turn(u.sent)
	if all {
		u.rest()
	}
	fresh := u.owed
	if fresh == nil {
		fresh = map[string]capability.Uses{}
	}
	u.owed = nil
	for _, e := range u.now {
		e.pour(fresh)
	}
	for _, e := range u.over {
		e.pour(fresh)
	}
	over := u.over
	u.over = nil
	u.mu.Unlock()
	slices.SortFunc(over, func(a, b *use) int { return int(a.last - b.last) })

	for uses := range slices.Chunk(slices.Collect(maps.Values(fresh)), usesAtOnce) {
		if err := u.store.Used(ctx, uses); err != nil {
			u.log.Warn("uses not written", "refs", len(fresh), "error", err)
			break
		}
		for _, one := range uses {
			delete(fresh, one.Ref)
		}
	}
	for len(over) > 0 {
		n := min(len(over), usesAtOnce)
		rows := make([]*capability.AuditRow, n)
		for i, e := range over[:n] {
			rows[i] = e.row()
		}
		if err := u.store.Audit(ctx, rows); err != nil {
			u.log.Warn("uses not audited", "rows", len(over), "error", err)
			break
		}
		over = over[n:]
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = append(over, u.over...)
	for ref, one := range fresh {
		u.owe(ref, one)
	}
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

// pour takes what is fresh of e.
func (u *use) pour(into map[string]capability.Uses) {
	if u.fresh == 0 {
		return
	}
	sum := into[u.ref]
	into[u.ref] = capability.Uses{Ref: u.ref, Count: sum.Count + u.fresh, Last: max(sum.Last, u.last)}
	u.fresh = 0
}

// owe keeps what could not be written. mu is held.
func (u *usage) owe(ref string, one capability.Uses) {
	if u.owed == nil {
		u.owed = map[string]capability.Uses{}
	}
	if _, known := u.owed[ref]; !known && len(u.owed) >= 2*usesKept {
		ref = ""
	}
	sum := u.owed[ref]
	u.owed[ref] = capability.Uses{Ref: ref, Count: sum.Count + one.Count, Last: max(sum.Last, one.Last)}
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
