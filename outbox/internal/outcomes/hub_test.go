package outcomes

import (
	"strconv"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/ledger"
)

func TestOutcomesAreKeptAMoment(t *testing.T) {
	t.Parallel()
	var n Hub
	here := func(batch string) bool {
		outs, ch, _ := n.Subscribe(batch)
		if ch != nil {
			n.Unsubscribe(batch, ch)
		}
		return outs != nil
	}
	finish := func(batch string, ops int) {
		n.Publish(batch, make([]ledger.Outcome, ops), false)
		n.MarkStored(batch)
	}
	const each = 64
	for i := range 100 {
		finish(strconv.Itoa(i), each)
		if i%10 == 0 { // a new holder of the lease got the same answer again
			finish(strconv.Itoa(i), each)
		}
		for j := range i + 1 {
			if want := i-j < maxStoredOutcomes/each; here(strconv.Itoa(j)) != want {
				t.Fatalf("after batch %d: batch %d is here: %t", i, j, !want)
			}
		}
	}
	n.Publish("unstored", make([]ledger.Outcome, 1), false)
	finish("large", maxStoredOutcomes+1)
	if here("large") || here("99") || !here("unstored") {
		t.Error("the bound is not kept, or what is not stored is forgotten")
	}
	n.Publish("another's", make([]ledger.Outcome, 1), true)
	if here("another's") {
		t.Error("what is stored already, whoever did, is kept and never forgotten")
	}
	for range 2 { // told of more than is kept, and told again of what is stored
		n.Publish("twice", make([]ledger.Outcome, maxStoredOutcomes+1), false)
		n.Publish("twice", make([]ledger.Outcome, maxStoredOutcomes+1), false)
		n.MarkStored("twice")
		n.MarkStored("twice")
	}
	finish("last", 1)
	n.Publish("last", make([]ledger.Outcome, 2), false)
	n.DropStored()
	if here("last") || len(n.received) != 1 || len(n.storedOrder) != 0 || n.storedOutcomes != 0 {
		t.Errorf("after a sweep: %v, %v", n.received, n.storedOrder)
	}
}

// TestSubscriberIsWokenOnce: RecheckAll wakes each subscriber, and what is published afterwards does not wake it again.
func TestSubscriberIsWokenOnce(t *testing.T) {
	t.Parallel()
	var n Hub
	_, first, _ := n.Subscribe("a")
	_, second, _ := n.Subscribe("a")
	n.RecheckAll()
	if len(first) != 1 || len(second) != 1 || len(n.waiting) != 0 {
		t.Fatalf("%d and %d words, and %d batches are waited for", len(first), len(second), len(n.waiting))
	}
	n.Publish("a", make([]ledger.Outcome, 1), false)
	if outs := <-first; outs != nil {
		t.Errorf("received %v", outs)
	}
}

func TestNearness(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		near        Source
		pause, next time.Duration
		look        bool
	}{
		{FromDatabase, PollMin, PollMin, true},
		{FromDatabase, PollMax, PollMax, true},
		{FromQueue, PollMin, 50 * time.Millisecond, false},
		{FromQueue, 2 * PollMin, PollMax, true},
		{FromQueue, PollMax, PollMax, true},
		{FromSender, PollMin, pollSent, false},
		{FromSender, PollMax, pollSent, true},
	} {
		if look, next := c.near.Poll(c.pause); look != c.look || next != c.next {
			t.Errorf("%d after %v: %t, then in %v", c.near, c.pause, look, next)
		}
	}
	var n Hub
	near := func(batch string) Source {
		_, ch, near := n.Subscribe(batch)
		n.Unsubscribe(batch, ch)
		return near
	}
	n.SenderStarted()
	n.NoteQueued("a")
	if got := near("a"); got != FromQueue {
		t.Errorf("queued: %d", got)
	}
	n.NoteSent("a")
	n.NoteQueued("a")
	if got := near("a"); got != FromSender {
		t.Errorf("sent: %d", got)
	}
	n.Publish("a", nil, true)
	if got := near("a"); got != FromDatabase {
		t.Errorf("told: %d", got)
	}
	n.NoteSent("b")
	n.RecheckAll()
	if got := near("b"); got != FromDatabase {
		t.Errorf("a stream has stopped: %d", got)
	}
	for i := range maxQueued + 1 {
		n.NoteQueued(strconv.Itoa(i))
	}
	if near(strconv.Itoa(maxQueued-1)) != FromQueue || near(strconv.Itoa(maxQueued)) != FromDatabase {
		t.Error("the bound is not kept")
	}
	n.SenderStopped()
	n.NoteQueued("0") // its committer has found that this process sends, a moment before
	if got := near("0"); got != FromDatabase {
		t.Errorf("nobody sends any more: %d", got)
	}
}
