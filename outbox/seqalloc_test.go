package outbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
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
				b.w.seqs.mu.Lock()
				defer b.w.seqs.mu.Unlock()
				return len(b.w.seqs.streams) <= 6
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
	var l seqAllocator
	has := func(want bool, what string) {
		t.Helper()
		l.mu.Lock()
		_, have := l.streams["A"]
		l.mu.Unlock()
		if have != want {
			t.Fatal(what)
		}
	}
	l.setLeading(true)
	l.setOpen("A", true) // before it is known how far its seqs are
	l.beginTx()
	la := l.addStream("A", 5)
	if got, first := l.allocateNow("A", 2, 10, nil, Window{Batches: 1, Bytes: 100}); got != la || first != 5 {
		t.Fatalf("gave %d", first)
	}
	l.setOpen("A", false)
	has(true, "closed while seqs were given")
	l.confirm(la, 7, "A5", 10)
	l.beginTx()
	has(true, "a batch with seqs is unfinished")
	l.markStored("A", "A5")
	has(true, "a transaction may have it in hand")
	l.beginTx()
	has(false, "nothing needs it")
	l.setOpen("A", true)
	l.addStream("A", 7)
	l.setOpen("A", false)
	l.setOpen("A", true)
	l.beginTx()
	has(true, "it is open again")
}

// TestLaneOfALookInVain: a look for a stream that was closed meanwhile, and which finds
// nothing, leaves no lane behind for ever.
func TestLaneOfALookInVain(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		tk, _, err := b.tryAcquireLease(limited(t), &leaseWaiter{step: 1})
		if err != nil || tk == nil {
			t.Fatal(tk, err)
		}
		b.w.seqs.setOpen(session, true)
		b.w.seqs.setOpen(session, false)
		looked := make(chan error, 1)
		b.load(tk.term, session, 8, 1000, nil, func(ld loadResult, err error) {
			if ld.seqs == nil || len(ld.rows) > 0 {
				t.Errorf("%+v", ld)
			}
			looked <- err
		})
		if err := <-looked; err != nil {
			t.Fatal(err)
		}
		if err := b.w.do(limited(t), func(context.Context, sqlstore.Querier) error { return nil }); err != nil { // a transaction begins
			t.Fatal(err)
		}
		b.w.seqs.mu.Lock()
		defer b.w.seqs.mu.Unlock()
		if n := len(b.w.seqs.streams); n > 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

// opened is a lane of an open stream, whose next seq is 5.
func opened(l *seqAllocator) *streamSeqs {
	l.setLeading(true)
	l.setOpen("A", true)
	return l.addStream("A", 5)
}

// TestSeqsOfATransaction that fails, or of a batch that has to wait, are the next ones
// again.
func TestSeqsOfATransaction(t *testing.T) {
	t.Parallel()
	var l seqAllocator
	win := Window{Batches: 10, Bytes: 1000}
	la := opened(&l)
	give := func(n int, want uint64) {
		t.Helper()
		if _, first := l.allocateNow("A", n, 1, nil, win); first != want {
			t.Errorf("gave %d, want %d", first, want)
		}
	}
	give(2, 5)
	give(1, 7)
	if first := l.allocate(la, 3); first != 8 {
		t.Errorf("gave %d", first)
	}
	l.beginTx()
	give(2, 5)
	give(1, 7)
	l.deallocate(la, 5)
	l.deallocate(la, 7)
	give(1, 5)
	l.confirm(la, 6, "A5", 1)
	l.beginTx()
	give(1, 6)
	if again := l.addStream("A", 100); again != la || la.next != 6 {
		t.Errorf("learnt again: %+v", again)
	}
	if _, first := l.allocateNow("B", 1, 1, nil, win); first != 0 {
		t.Errorf("gave %d of an unknown stream", first)
	}
	l.setOpen("A", false)
	give(1, 0)
}

// TestWhoGetsSeqsAtOnce: what does not go beyond a few windows, and needs nothing but what
// is in flight.
func TestWhoGetsSeqsAtOnce(t *testing.T) {
	t.Parallel()
	var l seqAllocator
	win := Window{Batches: 1, Bytes: 10}
	la := opened(&l)
	given := func(want bool, bytes int, near ...string) {
		t.Helper()
		if _, first := l.allocateNow("A", 1, bytes, near, win); (first != 0) != want {
			t.Errorf("%d bytes, near %v: gave %d", bytes, near, first)
		}
		l.beginTx()
	}
	l.confirm(la, 6, "A5", 10)
	given(true, 30)
	given(false, 31)
	given(true, 1, "A5")
	given(false, 1, "A6")
	l.confirm(la, 7, "A6", 10)
	given(true, 1, "A5", "A6")
	l.markStoring("A", "A5")
	l.markStoring("A", "A7")
	l.markStoring("B", "B1")
	given(false, 1, "A6", "A5")
	given(true, 1, "A6")
	l.markStored("A", "A7")
	l.markStored("A", "A5")
	given(true, 30)
	given(false, 31)
	for range 2 {
		l.confirm(la, 8, "A7", 0)
		l.confirm(la, 9, "A8", 0)
	}
	given(true, 1)
	l.confirm(la, 10, "A9", 0)
	given(false, 1)
}

// TestOneTermOfSending knows nothing of another.
func TestOneTermOfSending(t *testing.T) {
	t.Parallel()
	var l seqAllocator
	if l.isLeading() || l.leadsTerm(0) || l.addStream("A", 1) != nil {
		t.Error("before the first term")
	}
	l.setOpen("A", true)
	first := l.setLeading(true)
	l.addStream("A", 5)
	if !l.isLeading() || !l.leadsTerm(first) {
		t.Error("in the first term")
	}
	ended := l.setLeading(false)
	if l.isLeading() || l.leadsTerm(first) || l.leadsTerm(ended) {
		t.Error("after the first term")
	}
	second := l.setLeading(true)
	if l.leadsTerm(first) || !l.leadsTerm(second) || l.addStream("A", 7).next != 7 {
		t.Error("in the second term")
	}
}

// TestWhatATransactionKeeps once for all its jobs: how far outcomes are stored, and what
// it does to find out whether the lease is its Box's.
func TestWhatATransactionKeeps(t *testing.T) {
	t.Parallel()
	var l seqAllocator
	l.raiseHighWater("A", highWaterMark{5, 1})
	l.beginTx() // it failed
	l.raiseHighWater("A", highWaterMark{4, 1})
	l.raiseHighWater("A", highWaterMark{3, 1})
	l.raiseHighWater("B", highWaterMark{9, 1}) // of the stream before
	l.raiseHighWater("B", highWaterMark{1, 2})
	l.raiseHighWater("B", highWaterMark{8, 1})
	if got := fmt.Sprint(l.takeHighWater()); got != "map[A:{4 1} B:{1 2}]" {
		t.Errorf("reached %s", got)
	}
	if got := l.takeHighWater(); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
	for _, c := range []struct {
		tells []bool
		asks  bool // a statement of its own
	}{
		{nil, false}, {[]bool{true}, false}, {[]bool{false}, true}, {[]bool{true, false}, false}, {[]bool{false, true}, false},
		{[]bool{false, false}, true}, {[]bool{true, true, false}, false},
	} {
		l.beginTx()
		var held *bool
		for i, tells := range c.tells {
			one, first := l.probeLease(tells)
			if first != (i == 0) || i > 0 && one != held {
				t.Errorf("%v: the %d. is told %p, the first before %p", c.tells, i+1, one, held)
			}
			held = one
		}
		if got := l.unansweredProbe(); (got != nil) != c.asks || got != nil && got != held {
			t.Errorf("%v: it asks into %p", c.tells, got)
		}
	}
}
