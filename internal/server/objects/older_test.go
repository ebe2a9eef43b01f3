package objects

import (
	"slices"
	"testing"

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
