package outbox

import (
	"context"
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

// TestLaneOfALookInVain: a look for a stream that was closed meanwhile, and which finds
// nothing, leaves no lane behind for ever.
func TestLaneOfALookInVain(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		tk, _, err := b.acquire(limited(t), &waiter{step: 1})
		if err != nil || tk == nil {
			t.Fatal(tk, err)
		}
		b.w.lanes.setOpen(session, true)
		b.w.lanes.setOpen(session, false)
		looked := make(chan error, 1)
		b.load(tk.term, session, 8, 1000, nil, func(ld loaded, err error) {
			if ld.lane == nil || len(ld.rows) > 0 {
				t.Errorf("%+v", ld)
			}
			looked <- err
		})
		if err := <-looked; err != nil {
			t.Fatal(err)
		}
		if err := b.w.do(limited(t), func(context.Context, querier) error { return nil }); err != nil { // a transaction begins
			t.Fatal(err)
		}
		b.w.lanes.mu.Lock()
		defer b.w.lanes.mu.Unlock()
		if n := len(b.w.lanes.by); n > 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

// opened is a lane of an open stream, whose next seq is 5.
func opened(l *lanes) *lane {
	l.lead(true)
	l.setOpen("A", true)
	return l.learn("A", 5)
}

// TestSeqsOfATransaction that fails, or of a batch that has to wait, are the next ones
// again.
func TestSeqsOfATransaction(t *testing.T) {
	t.Parallel()
	var l lanes
	win := Window{Batches: 10, Bytes: 1000}
	la := opened(&l)
	give := func(n int, want uint64) {
		t.Helper()
		if _, first := l.giveNow("A", n, 1, nil, win); first != want {
			t.Errorf("gave %d, want %d", first, want)
		}
	}
	give(2, 5)
	give(1, 7)
	if first := l.give(la, 3); first != 8 {
		t.Errorf("gave %d", first)
	}
	l.begin()
	give(2, 5)
	give(1, 7)
	l.takeBack(la, 5)
	l.takeBack(la, 7)
	give(1, 5)
	l.gave(la, 6, "A5", 1)
	l.begin()
	give(1, 6)
	if again := l.learn("A", 100); again != la || la.next != 6 {
		t.Errorf("learnt again: %+v", again)
	}
	if _, first := l.giveNow("B", 1, 1, nil, win); first != 0 {
		t.Errorf("gave %d of an unknown stream", first)
	}
	l.setOpen("A", false)
	give(1, 0)
}

// TestWhoGetsSeqsAtOnce: what does not go beyond a few windows, and needs nothing but what
// is in flight.
func TestWhoGetsSeqsAtOnce(t *testing.T) {
	t.Parallel()
	var l lanes
	win := Window{Batches: 1, Bytes: 10}
	la := opened(&l)
	given := func(want bool, bytes int, near ...string) {
		t.Helper()
		if _, first := l.giveNow("A", 1, bytes, near, win); (first != 0) != want {
			t.Errorf("%d bytes, near %v: gave %d", bytes, near, first)
		}
		l.begin()
	}
	l.gave(la, 6, "A5", 10)
	given(true, 30)
	given(false, 31)
	given(true, 1, "A5")
	given(false, 1, "A6")
	l.gave(la, 7, "A6", 10)
	given(true, 1, "A5", "A6")
	l.storing("A", "A5")
	l.storing("A", "A7")
	l.storing("B", "B1")
	given(false, 1, "A6", "A5")
	given(true, 1, "A6")
	l.stored("A", "A7")
	l.stored("A", "A5")
	given(true, 30)
	given(false, 31)
	for range 2 {
		l.gave(la, 8, "A7", 0)
		l.gave(la, 9, "A8", 0)
	}
	given(true, 1)
	l.gave(la, 10, "A9", 0)
	given(false, 1)
}

// TestOneTermOfSending knows nothing of another.
func TestOneTermOfSending(t *testing.T) {
	t.Parallel()
	var l lanes
	if l.sends() || l.leads(0) || l.learn("A", 1) != nil {
		t.Error("before the first term")
	}
	l.setOpen("A", true)
	first := l.lead(true)
	l.learn("A", 5)
	if !l.sends() || !l.leads(first) {
		t.Error("in the first term")
	}
	ended := l.lead(false)
	if l.sends() || l.leads(first) || l.leads(ended) {
		t.Error("after the first term")
	}
	second := l.lead(true)
	if l.leads(first) || !l.leads(second) || l.learn("A", 7).next != 7 {
		t.Error("in the second term")
	}
}

// TestWhatATransactionKeeps once for all its jobs: how far outcomes are stored, and what
// it does to find out whether the lease is its Box's.
func TestWhatATransactionKeeps(t *testing.T) {
	t.Parallel()
	var l lanes
	l.reach("A", reach{5, 1})
	l.begin() // it failed
	l.reach("A", reach{4, 1})
	l.reach("A", reach{3, 1})
	l.reach("B", reach{9, 1}) // of the stream before
	l.reach("B", reach{1, 2})
	l.reach("B", reach{8, 1})
	if got := fmt.Sprint(l.takeReached()); got != "map[A:{4 1} B:{1 2}]" {
		t.Errorf("reached %s", got)
	}
	if got := l.takeReached(); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
	for _, c := range []struct {
		tells []bool
		asks  bool // a statement of its own
	}{
		{nil, false}, {[]bool{true}, false}, {[]bool{false}, true}, {[]bool{true, false}, false}, {[]bool{false, true}, false},
		{[]bool{false, false}, true}, {[]bool{true, true, false}, false},
	} {
		l.begin()
		var held *bool
		for i, tells := range c.tells {
			one, first := l.sharing(tells)
			if first != (i == 0) || i > 0 && one != held {
				t.Errorf("%v: the %d. is told %p, the first before %p", c.tells, i+1, one, held)
			}
			held = one
		}
		if got := l.untold(); (got != nil) != c.asks || got != nil && got != held {
			t.Errorf("%v: it asks into %p", c.tells, got)
		}
	}
}
