package objects

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// A transaction has so many sessions, events and bytes, and one session at least.
func TestPiecesOfOldSessions(t *testing.T) {
	t.Parallel()
	of := func(n int, events uint64, bytes int64) []session.OldSession {
		return slices.Repeat([]session.OldSession{{Events: events, Bytes: bytes}}, n)
	}
	for name, c := range map[string]struct {
		todo []session.OldSession
		want int
	}{
		"few":                   {of(3, 1, 1), 3},
		"many":                  {of(200, 1, 1), maxOlderSessions},
		"of many events":        {of(5, maxOlderEvents/2, 1), 2},
		"of very many events":   {of(5, 1<<40, 1), 1},
		"large":                 {of(5, 1, maxOlderBytes/2), 2},
		"very large":            {of(5, 1, 1<<40), 1},
		"a small one before it": {append(of(1, 1, 1), of(1, maxOlderEvents, 1)...), 1},
	} {
		if got := pieceOf(c.todo); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A page whose first pieces were removed, and the next was not, ends there; what a piece behind that has removed is counted, and
// the rest of it is met by the call that goes on.
func TestPageOfPiecesThatStops(t *testing.T) {
	t.Parallel()
	piece := func(last string, done uint32, refused *fault.Error) *olderPiece {
		left := []LeftSession{{OldSession: session.OldSession{ID: last}, Why: fault.TurnOpen.With("a turn")}}
		return &olderPiece{old: []session.OldSession{{ID: last}}, done: Removed{Done: done, Unchanged: 1, Sessions: left}, refused: refused}
	}
	page, before := Removed{Next: "ses_9"}, ""
	for _, p := range []*olderPiece{piece("ses_2", 2, nil), piece("ses_4", 1, fault.DiskFull.With("no space")), piece("ses_6", 3, fault.Unavailable.With("away"))} {
		page.add(p, before)
		before = p.old[0].ID
	}
	if page.Done != 6 || page.Unchanged != 2 || len(page.Sessions) != 2 || page.Next != "ses_2" || fault.CodeOf(page.Stopped) != fault.DiskFull {
		t.Errorf("%+v", page)
	}
}
