package outbox

import (
	"fmt"
	"testing"
)

// TestLanesOfClosedStreamsAreLetGo sends to many sessions with few places: what
// is kept in memory follows the places, and the seqs go on where they were.
func TestLanesOfClosedStreamsAreLetGo(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Window.Streams = 2
		b := p.open(t, cfg)
		srv := newFakeServer()
		run(t, b, srv)
		var sessions []string
		for range 20 {
			sessions = append(sessions, withSession(t, b))
		}
		for round := range 3 {
			for _, s := range sessions {
				commit(t, b, Batch{Session: s, Ops: []Op{put(fmt.Sprint(round)), put("0")}})
			}
			if err := b.Drain(limited(t), nil); err != nil {
				t.Fatal(err)
			}
			eventually(t, "lanes are let go", func() bool {
				commit(t, b, Batch{Session: sessions[0], Ops: []Op{put("1")}}) // a transaction begins
				b.w.lanes.mu.Lock()
				defer b.w.lanes.mu.Unlock()
				return len(b.w.lanes.by) <= 6
			})
		}
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		for _, s := range sessions {
			rows, err := b.List(limited(t), Filter{Session: s})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range rows {
				if r.Seq != uint64(i+1) {
					t.Fatalf("row %d of %d has seq %d", i, len(rows), r.Seq)
				}
			}
		}
	})
}

// TestLaneInUseIsKept has a stream be closed while seqs are given out.
func TestLaneInUseIsKept(t *testing.T) {
	t.Parallel()
	var l lanes
	has := func(want bool, what string) {
		t.Helper()
		l.mu.Lock()
		_, have := l.by["A"]
		l.mu.Unlock()
		if have != want {
			t.Fatal(what)
		}
	}
	l.lead(true)
	l.setOpen("A", true) // before it is known how far its seqs are
	l.begin()
	la := l.learn("A", 5)
	if got, first := l.giveNow("A", 2, 10, nil, Window{Batches: 1, Bytes: 100}); got != la || first != 5 {
		t.Fatalf("gave %d", first)
	}
	l.setOpen("A", false)
	has(true, "closed while seqs were given")
	l.gave(la, 7, "A5", 10)
	l.begin()
	has(true, "a batch with seqs is unfinished")
	l.stored("A", "A5")
	has(true, "a transaction may have it in hand")
	l.begin()
	has(false, "nothing needs it")
	l.setOpen("A", true)
	l.learn("A", 7)
	l.setOpen("A", false)
	l.setOpen("A", true)
	l.begin()
	has(true, "it is open again")
}
