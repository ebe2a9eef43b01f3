package outbox

// What those who wait are told, and what is remembered for those who come late.

import (
	"strconv"
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
)

func TestOutcomesAreKeptAMoment(t *testing.T) {
	t.Parallel()
	var n notices
	here := func(batch string) bool {
		outs, ch, _ := n.add(batch)
		if ch != nil {
			n.remove(batch, ch)
		}
		return outs != nil
	}
	finish := func(batch string, ops int) {
		n.tell(batch, make([]ledger.Outcome, ops), false)
		n.stored(batch)
	}
	const each = 64
	for i := range 100 {
		finish(strconv.Itoa(i), each)
		if i%10 == 0 { // a new holder of the lease got the same answer again
			finish(strconv.Itoa(i), each)
		}
		for j := range i + 1 {
			if want := i-j < keepOutcomes/each; here(strconv.Itoa(j)) != want {
				t.Fatalf("after batch %d: batch %d is here: %t", i, j, !want)
			}
		}
	}
	n.tell("unstored", make([]ledger.Outcome, 1), false)
	finish("large", keepOutcomes+1)
	if here("large") || here("99") || !here("unstored") {
		t.Error("the bound is not kept, or what is not stored is forgotten")
	}
	for range 2 { // told of more than is kept, and told again of what is stored
		n.tell("twice", make([]ledger.Outcome, keepOutcomes+1), false)
		n.tell("twice", make([]ledger.Outcome, keepOutcomes+1), false)
		n.stored("twice")
		n.stored("twice")
	}
	finish("last", 1)
	n.tell("last", make([]ledger.Outcome, 2), false)
	n.swept()
	if here("last") || len(n.arrived) != 1 || len(n.lately) != 0 || n.kept != 0 {
		t.Errorf("after a sweep: %v, %v", n.arrived, n.lately)
	}
}
