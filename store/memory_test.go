package store

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// TestRecollectionsAreBounded: what is remembered has an end, in each session and in all.
func TestRecollectionsAreBounded(t *testing.T) {
	t.Parallel()
	var m memory
	of := func(rows int) *recollection {
		r := newRecollection()
		for i := range rows - r.size() {
			r.isTurn(&session.Turn{Message: string(rune(i))})
		}
		return r
	}
	for i := range 40 {
		m.put(map[string]*recollection{string(rune('a' + i)): of(mostOfSession)})
	}
	m.put(map[string]*recollection{"large": of(mostOfSession + 1)})
	sum := 0
	for _, r := range m.sessions {
		sum += r.size()
	}
	if _, large := m.sessions["large"]; large || sum > mostOfAll || sum < mostOfAll-mostOfSession || sum != m.rows {
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
	var m memory
	for range 2 {
		group := map[string]*recollection{}
		for i := range 2*mostOfAll/latestHeads + 10 {
			r := newRecollection()
			for k := range 2*latestHeads - 1 {
				r.isHead(&session.Entry{Key: fmt.Sprint(k)})
			}
			group[fmt.Sprint(i)] = r
		}
		m.put(group)
		sum := 0
		for _, r := range m.sessions {
			sum += r.size()
		}
		if sum != m.rows || sum > mostOfAll || sum < mostOfAll/8*7-2*latestHeads {
			t.Errorf("%d rows of %d sessions, %d counted, at most %d", sum, len(m.sessions), m.rows, mostOfAll)
		}
	}
}

// TestEarlierEntriesGoFirst: where all that is remembered is too much, sessions lose earlier
// entries before they are forgotten, and keep those that were written or grew in their last events.
func TestEarlierEntriesGoFirst(t *testing.T) {
	t.Parallel()
	var m memory
	const events = 2 * latestHeads
	keys := make([]string, events)
	for k := range keys {
		keys[k] = fmt.Sprint(k)
	}
	remember := func(id string) {
		r := newRecollection()
		r.row.Cursor = events + 1
		for k, key := range keys {
			r.isHead(&session.Entry{Key: key, Cursor: uint64(k + 1)})
		}
		r.isHead(&session.Entry{Key: "grows", Cursor: 1, Grown: events + 1})
		m.put(map[string]*recollection{id: r})
	}
	knows := func(r *recollection, key string) bool {
		_, young := r.heads.young[key]
		_, old := r.heads.old[key]
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
		if sum != m.rows || sum > mostOfAll || len(m.sessions) != sessions {
			t.Fatalf("%d rows, %d counted, of %d sessions; all %d have room", sum, m.rows, len(m.sessions), sessions)
		}
	}
	sessions := 0
	more := func(until int) {
		for ; sessions < until; sessions++ {
			remember(fmt.Sprint("ses", sessions))
		}
	}
	more(mostOfAll / 2 / latestHeads)
	check(sessions, events-latestHeads)
	more(mostOfAll / 8 * 7 / (lastEvents * 5 / 4))
	check(sessions, events-lastEvents+1)
	more(sessions + 100)
	if m.rows > mostOfAll || m.rows < mostOfAll/8*7-events {
		t.Errorf("%d rows of %d sessions", m.rows, len(m.sessions))
	}
}

// TestRoomIsMadeForMany: what goes over the bound makes room for thousands that come after it, so
// that they need not look for room again.
func TestRoomIsMadeForMany(t *testing.T) {
	t.Parallel()
	var m memory
	for i := range mostOfAll + 1 {
		m.put(map[string]*recollection{fmt.Sprint(i): newRecollection()})
	}
	if m.rows != len(m.sessions) || m.rows > mostOfAll/8*7 || m.sessions[fmt.Sprint(mostOfAll)] == nil {
		t.Errorf("%d rows of %d sessions are kept", m.rows, len(m.sessions))
	}
}

// TestASessionThatReplaysIsRemembered: one session may be all of a group of 4,000 ops, and of the
// next one, before its client has said that it has the first one's answers.
func TestASessionThatReplaysIsRemembered(t *testing.T) {
	t.Parallel()
	var m memory
	r := newRecollection()
	for i := range 2 * 4000 {
		r.isHead(&session.Entry{Key: fmt.Sprint(i)})
		r.isRecord("obx", &ledger.Record{FirstSeq: uint64(i), Outcomes: make([]ledger.Outcome, 1)})
	}
	m.put(map[string]*recollection{"ses_A": r})
	if m.take([]string{"ses_A"})["ses_A"] != r {
		t.Errorf("a session of %d rows is not remembered", r.size())
	}
}
