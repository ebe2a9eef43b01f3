package writer

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// TestLaneInUseIsKept has a stream be closed while seqs are given out.
func TestLaneInUseIsKept(t *testing.T) {
	t.Parallel()
	var l Seqs
	has := func(want bool, what string) {
		t.Helper()
		l.mu.Lock()
		_, have := l.streams["A"]
		l.mu.Unlock()
		if have != want {
			t.Fatal(what)
		}
	}
	l.SetLeading(true)
	l.SetOpen("A", true) // before it is known how far its seqs are
	l.BeginTx()
	la := l.AddStream("A", 5)
	if got, first := l.AllocateNow("A", 2, 10, nil, machine.Window{Batches: 1, Bytes: 100}); got != la || first != 5 {
		t.Fatalf("gave %d", first)
	}
	l.SetOpen("A", false)
	has(true, "closed while seqs were given")
	l.Confirm(la, 7, "A5", 10)
	l.BeginTx()
	has(true, "a batch with seqs is unfinished")
	l.MarkStored("A", "A5")
	has(true, "a transaction may have it in hand")
	l.BeginTx()
	has(false, "nothing needs it")
	l.SetOpen("A", true)
	l.AddStream("A", 7)
	l.SetOpen("A", false)
	l.SetOpen("A", true)
	l.BeginTx()
	has(true, "it is open again")
}

// opened is a lane of an open stream, whose next seq is 5.
func opened(l *Seqs) *StreamSeqs {
	l.SetLeading(true)
	l.SetOpen("A", true)
	return l.AddStream("A", 5)
}

// TestSeqsOfATransaction that fails, or of a batch that has to wait, are the next ones
// again.
func TestSeqsOfATransaction(t *testing.T) {
	t.Parallel()
	var l Seqs
	win := machine.Window{Batches: 10, Bytes: 1000}
	la := opened(&l)
	give := func(n int, want uint64) {
		t.Helper()
		if _, first := l.AllocateNow("A", n, 1, nil, win); first != want {
			t.Errorf("gave %d, want %d", first, want)
		}
	}
	give(2, 5)
	give(1, 7)
	if first := l.Allocate(la, 3); first != 8 {
		t.Errorf("gave %d", first)
	}
	l.BeginTx()
	give(2, 5)
	give(1, 7)
	l.Deallocate(la, 5)
	l.Deallocate(la, 7)
	give(1, 5)
	l.Confirm(la, 6, "A5", 1)
	l.BeginTx()
	give(1, 6)
	if again := l.AddStream("A", 100); again != la || la.Next != 6 {
		t.Errorf("learnt again: %+v", again)
	}
	if _, first := l.AllocateNow("B", 1, 1, nil, win); first != 0 {
		t.Errorf("gave %d of an unknown stream", first)
	}
	l.SetOpen("A", false)
	give(1, 0)
}

// TestSeqsAssignedAtOnce: what does not go beyond a few windows, and needs nothing but what
// is in flight.
func TestSeqsAssignedAtOnce(t *testing.T) {
	t.Parallel()
	var l Seqs
	win := machine.Window{Batches: 1, Bytes: 10}
	la := opened(&l)
	given := func(want bool, bytes int, near ...string) {
		t.Helper()
		if _, first := l.AllocateNow("A", 1, bytes, near, win); (first != 0) != want {
			t.Errorf("%d bytes, near %v: gave %d", bytes, near, first)
		}
		l.BeginTx()
	}
	l.Confirm(la, 6, "A5", 10)
	given(true, 30)
	given(false, 31)
	given(true, 1, "A5")
	given(false, 1, "A6")
	l.Confirm(la, 7, "A6", 10)
	given(true, 1, "A5", "A6")
	l.MarkStoring("A", "A5")
	l.MarkStoring("A", "A7")
	l.MarkStoring("B", "B1")
	given(false, 1, "A6", "A5")
	given(true, 1, "A6")
	l.MarkStored("A", "A7")
	l.MarkStored("A", "A5")
	given(true, 30)
	given(false, 31)
	for range 2 {
		l.Confirm(la, 8, "A7", 0)
		l.Confirm(la, 9, "A8", 0)
	}
	given(true, 1)
	l.Confirm(la, 10, "A9", 0)
	given(false, 1)
}

// TestOneTermOfSending knows nothing of another.
func TestOneTermOfSending(t *testing.T) {
	t.Parallel()
	var l Seqs
	if l.IsLeading() || l.LeadsTerm(0) || l.AddStream("A", 1) != nil {
		t.Error("before the first term")
	}
	l.SetOpen("A", true)
	first := l.SetLeading(true)
	l.AddStream("A", 5)
	if !l.IsLeading() || !l.LeadsTerm(first) {
		t.Error("in the first term")
	}
	ended := l.SetLeading(false)
	if l.IsLeading() || l.LeadsTerm(first) || l.LeadsTerm(ended) {
		t.Error("after the first term")
	}
	second := l.SetLeading(true)
	if l.LeadsTerm(first) || !l.LeadsTerm(second) || l.AddStream("A", 7).Next != 7 {
		t.Error("in the second term")
	}
}

// TestReadOncePerTransaction once for all its jobs: how far outcomes are stored, and what
// it does to find out whether the lease is its Box's.
func TestReadOncePerTransaction(t *testing.T) {
	t.Parallel()
	var l Seqs
	l.RaiseHighWater("A", HighWater{5, 1})
	l.BeginTx() // it failed
	l.RaiseHighWater("A", HighWater{4, 1})
	l.RaiseHighWater("A", HighWater{3, 1})
	l.RaiseHighWater("B", HighWater{9, 1}) // of the stream before
	l.RaiseHighWater("B", HighWater{1, 2})
	l.RaiseHighWater("B", HighWater{8, 1})
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
		l.BeginTx()
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
