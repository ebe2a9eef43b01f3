// The row cache: rows of sessions that recent transactions have read or written, with the version
// of the session's own row that they belong to. Everything that ops are decided on changes together
// with that row, or, for a stream, with the stream's row, which has a version of its own; this
// holds whichever server makes the change. So a cached row may be stale at any time, and comparing
// versions detects it (optimistic.go).

package store

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Bounds of the cache, in rows except for protectedEvents. The entries of a session are its latest,
// at most twice maxRecentEntries: an entry that is written again was mostly written a moment ago,
// and an entry that is not cached is assumed to be absent. If older entries keep being rewritten,
// the session's transactions read their rows from the database for a while.
const (
	maxSessionRows   = 1 << 14
	maxCachedRows    = 1 << 17
	maxRecentEntries = 1 << 9
	protectedEvents  = 1 << 8 // the latest events of a session, whose entries are evicted last
)

// rowCache is safe for concurrent use.
type rowCache struct {
	mu       sync.Mutex
	sessions map[string]*cachedSession
	rows     int // of all sessions

	dbClock    int64     // the database's clock, Unix ms, when it was read …
	observedAt time.Time // … and this process's clock then

	fresh, stale atomic.Uint64 // validations that found the cached rows unchanged, or not
}

// cachedSession has the cached rows of one session. A transaction takes it out and, once committed,
// puts it back, so only one transaction at a time has it.
type cachedSession struct {
	row          session.Row
	version      int64                       // of row, to which all else belongs; 0: nothing is cached
	streams      map[string]versionedStream  // by outbox
	records      map[string][]*ledger.Record // by outbox, in order; not necessarily all
	grants       map[string]capability.Grant // by id
	entries      recentEntries               // of the session's entries
	turns        map[string]session.Turn     // by message
	allOpenTurns bool                        // all open turns are in turns, except orphans
	outcomes     int                         // number of outcomes in records

	staleStreak int // stale validations in a row
	backoff     int // transactions until the next optimistic one
}

// recentEntries are recently used entries of a session, by key.
type recentEntries struct{ young, old map[string]cachedEntry }

// cachedEntry is an entry without its session, its key and its payload. It has no pointers: the
// cache holds many, and the garbage collector need not scan them.
type cachedEntry struct {
	cursor, since, textLen, grown uint64
	schema                        uint32
	ord                           session.Ord
	sum                           session.Hash
}

func (l *recentEntries) get(key string) (h cachedEntry, known bool) {
	if h, known = l.young[key]; known {
		return h, true
	}
	if h, known = l.old[key]; known {
		l.set(key, h)
	}
	return h, known
}

func (l *recentEntries) set(key string, h cachedEntry) {
	if len(l.young) >= maxRecentEntries {
		clear(l.old)
		l.old, l.young = l.young, l.old
	}
	if l.young == nil {
		l.young = make(map[string]cachedEntry, len(l.old))
	}
	l.young[key] = h // it takes precedence over the one in l.old
}

func (l *recentEntries) drop(key string) {
	delete(l.young, key)
	delete(l.old, key)
}

// evictBefore drops the entries that were written before the last protectedEvents events up to
// cursor, if the session has more than protectedEvents*5/4 entries.
func (l *recentEntries) evictBefore(cursor uint64) {
	if l.size() <= protectedEvents*5/4 {
		return
	}
	few := make(map[string]cachedEntry)
	for _, heads := range []map[string]cachedEntry{l.old, l.young} {
		for key, h := range heads {
			if max(h.cursor, h.grown)+protectedEvents > cursor {
				few[key] = h
			}
		}
	}
	*l = recentEntries{young: few}
}

func (l *recentEntries) size() int { return len(l.young) + len(l.old) }

// versionedStream is a stream with its row's own version.
type versionedStream struct {
	row     ledger.Stream
	version int64
}

func newCachedSession() *cachedSession {
	r := &cachedSession{}
	r.reset()
	return r
}

// reset drops all rows, and keeps the counts of stale validations.
func (r *cachedSession) reset() {
	*r = cachedSession{streams: map[string]versionedStream{}, records: map[string][]*ledger.Record{}, grants: map[string]capability.Grant{},
		turns: map[string]session.Turn{}, staleStreak: r.staleStreak, backoff: r.backoff}
}

// size returns the number of rows.
func (r *cachedSession) size() int {
	return 1 + len(r.streams) + len(r.grants) + r.entries.size() + len(r.turns) + r.outcomes
}

// take removes the cached rows of sessions from the cache and returns them, until they are put
// back; nil for each session that has none.
func (m *rowCache) take(ids []string) map[string]*cachedSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := make(map[string]*cachedSession, len(ids))
	for _, id := range ids {
		r := m.sessions[id]
		if taken[id] = r; r != nil {
			m.rows -= r.size()
			delete(m.sessions, id)
		}
	}
	return taken
}

// put returns sessions to the cache. If that exceeds the bound, other sessions first lose all
// entries except the ones that their last events have written, and are then evicted, until there is
// room. If that is not enough, sessions of the same transaction follow.
func (m *rowCache) put(sessions map[string]*cachedSession) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions == nil {
		m.sessions = map[string]*cachedSession{}
	}
	for id, r := range sessions {
		if r == nil || r.size() > maxSessionRows {
			continue
		}
		if old := m.sessions[id]; old != nil { // put by another transaction at the same time
			m.rows -= old.size()
		}
		m.sessions[id] = r
		m.rows += r.size()
	}
	for _, spared := range []map[string]*cachedSession{sessions, nil} {
		if m.rows <= maxCachedRows {
			return
		}
		m.evict(spared, func(r *cachedSession) { r.entries.evictBefore(r.row.Cursor) })
		m.evict(spared, nil)
	}
}

// evict frees rows until there is room for a while: sessions not in spared lose the rows that drop
// removes, or, if drop is nil, are evicted.
func (m *rowCache) evict(spared map[string]*cachedSession, drop func(*cachedSession)) {
	for id, r := range m.sessions {
		if m.rows <= maxCachedRows/8*7 {
			return
		}
		if spared[id] != nil {
			continue
		}
		m.rows -= r.size()
		if drop == nil {
			delete(m.sessions, id)
			continue
		}
		drop(r)
		m.rows += r.size()
	}
}

// observeClock stores a reading of the database's clock.
func (m *rowCache) observeClock(clock int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dbClock, m.observedAt = clock, time.Now()
}

// now returns an estimate of the database's clock, which is hardly ever ahead of it: the reading is
// older than its arrival here, and the two clocks run equally fast within 0.1 %. It is 0 if the
// last reading is older than clockMaxAge.
func (m *rowCache) now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.dbClock == 0 || now.Sub(m.observedAt) > clockMaxAge {
		return 0
	}
	return m.estimateClock(now)
}

// clockMaxAge is how long a reading of the database's clock is used.
const clockMaxAge = time.Minute

func (m *rowCache) estimateClock(now time.Time) int64 {
	since := now.Sub(m.observedAt)
	return m.dbClock + (since - since/1000).Milliseconds()
}

// The rows that a load has read, the session's row first, and a stream before its records. Only the
// transaction's own sessions are cached. Where a row differs from the cached one, the rows that
// belong to it are dropped, whatever the version: a restored database, or a standby that took over,
// assigns the same versions again.

func (r *cachedSession) setRow(s *session.Row, version int64) {
	if r == nil {
		return
	}
	if version != r.version || *s != r.row {
		r.reset()
	}
	r.row, r.version = *s, version
}

func (r *cachedSession) setStream(m *ledger.Stream, version int64) {
	if r == nil {
		return
	}
	found := versionedStream{*m, version}
	if r.streams[m.Outbox] != found {
		r.prune(m.Outbox, math.MaxUint64)
	}
	r.streams[m.Outbox] = found
}

func (r *cachedSession) setRecord(outbox string, rec *ledger.Record) {
	if r == nil {
		return
	}
	list := r.records[outbox]
	i, found := slices.BinarySearchFunc(list, rec.FirstSeq, func(have *ledger.Record, seq uint64) int { return cmp.Compare(have.FirstSeq, seq) })
	if found {
		r.outcomes -= len(list[i].Outcomes)
		list[i] = rec
	} else {
		r.records[outbox] = slices.Insert(list, i, rec)
	}
	r.outcomes += len(rec.Outcomes)
}

func (r *cachedSession) setGrant(g *capability.Grant) {
	if r != nil {
		r.grants[g.ID] = *g
	}
}

func (r *cachedSession) setEntry(e *session.Entry) {
	if r != nil {
		r.entries.set(e.Key, cachedEntry{e.Cursor, e.Since, e.TextLen, e.LastAppend, e.Schema, e.Ord, e.Sum})
	}
}

func (r *cachedSession) setTurn(t *session.Turn) {
	if r != nil {
		r.turns[t.Message] = *t
	}
}

func (r *cachedSession) setAllOpenTurns() {
	if r != nil {
		r.allOpenTurns = true
	}
}

// prune drops the records that end at or below through.
func (r *cachedSession) prune(outbox string, through uint64) {
	list := r.records[outbox]
	n := 0
	for n < len(list) && list[n].LastSeq() <= through {
		r.outcomes -= len(list[n].Outcomes)
		n++
	}
	r.records[outbox] = slices.Delete(list, 0, n)
}

// recordsCovering returns the records of the existing seqs in [from, to]; ok is false if they are
// not all cached.
func (r *cachedSession) recordsCovering(stream *ledger.Stream, from, to uint64) (found []*ledger.Record, ok bool) {
	next := max(from, stream.AckedThrough+1)
	to = min(to, stream.LastSeq)
	for _, rec := range r.records[stream.Outbox] {
		if rec.LastSeq() < next {
			continue
		}
		if next > to || rec.FirstSeq > next {
			break
		}
		found, next = append(found, rec), rec.LastSeq()+1
	}
	return found, next > to
}

// applyToCache applies a transaction's changes to the cached rows; false if the new rows are not
// all known.
func (t *tx) applyToCache(c *session.Changes) bool {
	if len(c.Purge)+len(c.Grants)+len(c.Rotate)+len(c.Revoke)+len(c.DropState) > 0 {
		return false
	}
	for _, s := range c.Sessions {
		if r := t.cached[s.ID]; r != nil {
			r.row, r.version = *s, t.version
		}
	}
	for _, m := range c.Streams {
		if r := t.cached[m.Session]; r != nil {
			r.streams[m.Outbox] = versionedStream{*m, t.version}
		}
	}
	for _, p := range c.Prune {
		if r := t.cached[p.Stream.Session]; r != nil {
			r.prune(p.Stream.Outbox, p.Through)
		}
	}
	for _, rec := range c.Records {
		t.cached[rec.Stream.Session].setRecord(rec.Stream.Outbox, rec.Record)
	}
	for _, ch := range c.Charges {
		if r := t.cached[capability.Target(ch.Ref)]; r != nil {
			if g, known := r.grants[ch.Ref]; known {
				g.Bytes += ch.Bytes
				r.grants[ch.Ref] = g
			}
		}
	}
	for id, keys := range c.DropEntries {
		for _, key := range keys {
			if r := t.cached[id]; r != nil {
				r.entries.drop(key)
			}
		}
	}
	for _, list := range [][]*session.Entry{c.Entries, c.Appended} {
		for _, e := range list {
			t.cached[e.Session].setEntry(e)
		}
	}
	for _, u := range c.Turns {
		t.cached[u.Session].setTurn(u)
	}
	return true
}

// checkOut takes the cached rows of the sessions that w locks, to be updated by this transaction.
func (t *tx) checkOut(w *session.ReadSet) {
	if t.cache == nil || len(w.Sessions) == 0 {
		return
	}
	if t.cached == nil {
		t.cached = t.cache.take(w.Sessions)
	}
	for _, id := range w.Sessions {
		if t.cached[id] == nil {
			t.cached[id] = newCachedSession()
		}
	}
}

// updateCache puts back the rows of the committed transaction, as read and written.
func (t *tx) updateCache() {
	if t.cached == nil || t.version == 0 && len(t.saved) > 0 {
		return
	}
	for _, c := range t.saved {
		if !t.applyToCache(c) {
			return
		}
	}
	if t.assumed != nil {
		t.cache.fresh.Add(1)
		for _, r := range t.cached {
			r.staleStreak = 0
		}
	}
	t.cache.put(t.cached)
}

// invalidate drops the rows that a stale decision was based on, and delays the session's next
// optimistic transaction: longer the more were stale in a row. Rows that were not compared, because
// the transaction was not worth it or needed more, may be valid and stay.
func (t *tx) invalidate() {
	if t.assumed.validated {
		t.cache.stale.Add(1)
	}
	for id, r := range t.cached {
		if r == nil {
			r = newCachedSession()
			t.cached[id] = r
		} else if t.assumed.validated {
			r.reset()
		}
		r.staleStreak++
		r.backoff = 1<<min(r.staleStreak-1, 6) - 1
	}
	if t.cached != nil {
		t.cache.put(t.cached)
	}
}
