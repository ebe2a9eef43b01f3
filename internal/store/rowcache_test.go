package store

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// TestRecollectionsAreBounded: what is remembered has an end, in each session and in all.
func TestRecollectionsAreBounded(t *testing.T) {
	t.Parallel()
	var m rowCache
	of := func(rows int) *cachedSession {
		r := newCachedSession()
		for i := range rows - r.size() {
			r.setTurn(&session.Turn{Message: string(rune(i))})
		}
		return r
	}
	for i := range 40 {
		m.put(map[string]*cachedSession{string(rune('a' + i)): of(maxSessionRows)})
	}
	m.put(map[string]*cachedSession{"large": of(maxSessionRows + 1)})
	sum := 0
	for _, r := range m.sessions {
		sum += r.size()
	}
	if _, large := m.sessions["large"]; large || sum > maxCachedRows || sum < maxCachedRows-maxSessionRows || sum != m.rows {
		t.Errorf("%d rows of %d sessions are kept, and %d counted", sum, len(m.sessions), m.rows)
	}
	for id := range m.sessions {
		taken := m.take([]string{id, "unknown"})
		if taken[id] == nil || taken["unknown"] != nil {
			t.Errorf("taken: %v", taken)
		}
	}
	if len(m.sessions) != 0 || m.rows != 0 {
		t.Errorf("%d sessions and %d rows are left", len(m.sessions), m.rows)
	}
}

// TestLargeGroupIsBounded: what one transaction has used is not too much either.
func TestLargeGroupIsBounded(t *testing.T) {
	t.Parallel()
	var m rowCache
	for range 2 {
		group := map[string]*cachedSession{}
		for i := range 2*maxCachedRows/maxRecentEntries + 10 {
			r := newCachedSession()
			for k := range 2*maxRecentEntries - 1 {
				r.setEntry(&session.Entry{Key: fmt.Sprint(k)})
			}
			group[fmt.Sprint(i)] = r
		}
		m.put(group)
		sum := 0
		for _, r := range m.sessions {
			sum += r.size()
		}
		if sum != m.rows || sum > maxCachedRows || sum < maxCachedRows/8*7-2*maxRecentEntries {
			t.Errorf("%d rows of %d sessions, %d counted, at most %d", sum, len(m.sessions), m.rows, maxCachedRows)
		}
	}
}

// TestEarlierEntriesGoFirst: where all that is remembered is too much, sessions lose earlier
// entries before they are forgotten, and keep those that were written or grew in their last events.
func TestEarlierEntriesGoFirst(t *testing.T) {
	t.Parallel()
	var m rowCache
	const events = 2 * maxRecentEntries
	keys := make([]string, events)
	for k := range keys {
		keys[k] = fmt.Sprint(k)
	}
	remember := func(id string) {
		r := newCachedSession()
		r.row.Cursor = events + 1
		for k, key := range keys {
			r.setEntry(&session.Entry{Key: key, Cursor: uint64(k + 1)})
		}
		r.setEntry(&session.Entry{Key: "grows", Cursor: 1, LastAppend: events + 1})
		m.put(map[string]*cachedSession{id: r})
	}
	knows := func(r *cachedSession, key string) bool {
		_, young := r.entries.young[key]
		_, old := r.entries.old[key]
		return young || old
	}
	check := func(sessions, from int) {
		t.Helper()
		sum := 0
		for id, r := range m.sessions {
			sum += r.size()
			for k := from; k < events; k++ {
				if !knows(r, keys[k]) {
					t.Fatalf("of %d sessions %s has lost the entry of its event %d of %d", len(m.sessions), id, k, events)
				}
			}
			if !knows(r, "grows") {
				t.Fatalf("of %d sessions %s has lost a text that grows", len(m.sessions), id)
			}
		}
		if sum != m.rows || sum > maxCachedRows || len(m.sessions) != sessions {
			t.Fatalf("%d rows, %d counted, of %d sessions; all %d have room", sum, m.rows, len(m.sessions), sessions)
		}
	}
	sessions := 0
	more := func(until int) {
		for ; sessions < until; sessions++ {
			remember(fmt.Sprint("ses", sessions))
		}
	}
	more(maxCachedRows / 2 / maxRecentEntries)
	check(sessions, events-maxRecentEntries)
	more(maxCachedRows / 8 * 7 / (protectedEvents * 5 / 4))
	check(sessions, events-protectedEvents+1)
	more(sessions + 100)
	if m.rows > maxCachedRows || m.rows < maxCachedRows/8*7-events {
		t.Errorf("%d rows of %d sessions", m.rows, len(m.sessions))
	}
}

// TestRoomIsMadeForMany: what goes over the bound makes room for thousands that come after it, so
// that they need not look for room again.
func TestRoomIsMadeForMany(t *testing.T) {
	t.Parallel()
	var m rowCache
	for i := range maxCachedRows + 1 {
		m.put(map[string]*cachedSession{fmt.Sprint(i): newCachedSession()})
	}
	if m.rows != len(m.sessions) || m.rows > maxCachedRows/8*7 || m.sessions[fmt.Sprint(maxCachedRows)] == nil {
		t.Errorf("%d rows of %d sessions are kept", m.rows, len(m.sessions))
	}
}

// TestASessionThatReplaysIsRemembered: one session may be all of a group of 4,000 ops, and of the
// next one, before its client has said that it has the first one's answers.
func TestASessionThatReplaysIsRemembered(t *testing.T) {
	t.Parallel()
	var m rowCache
	r := newCachedSession()
	for i := range 2 * 4000 {
		r.setEntry(&session.Entry{Key: fmt.Sprint(i)})
		r.setRecord("obx", &ledger.Record{FirstSeq: uint64(i), Outcomes: make([]ledger.Outcome, 1)})
	}
	m.put(map[string]*cachedSession{"ses_A": r})
	if m.take([]string{"ses_A"})["ses_A"] != r {
		t.Errorf("a session of %d rows is not remembered", r.size())
	}
}
