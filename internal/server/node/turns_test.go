//go:build unix

package node

// How many turns may be open, from outside.

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func beginTurn(message string) ledger.Intent {
	return op("begin", "message", message, "payload", map[string]string{"role": "assistant"})
}

// Who may append begins turns until there may be no more of that ref. The owner begins one all
// the same; others under that ref wait, and go on once it is dead or its turns have ended.
func TestAGuestsTurnsAreTheGuests(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		parent := p.share(m, "rights", []string{"append", "share"})
		guest := parent.New(m.id)
		pb, gb := newBox(), newBox()
		ps := p.open(p.restore(parent), pb)
		p.must(ps, pb.batch(m.id, op("share", "ref", guest.ID, "hash", hashText(guest.Secret), "rights", []string{"append"})))
		gs := p.open(p.restore(guest), gb)
		var ops []ledger.Intent
		for i := range session.MaxOpenTurns {
			ops = append(ops, beginTurn(fmt.Sprintf("e%d", i)))
		}
		if ack := p.must(gs, gb.batch(m.id, ops...)); ack.applied != session.MaxOpenTurns {
			t.Fatalf("%d turns were begun", ack.applied)
		}
		// One more is of the guest's own making, and recorded.
		if ack := p.must(gs, gb.batch(m.id, beginTurn("more"))); ack.outcomes[0].Status != ledger.Rejected || ack.outcomes[0].Reason != fault.TooLarge {
			t.Fatalf("%+v", ack.outcomes[0])
		}
		// Of others it is none, and keeps its seq.
		other := newBox()
		os := p.open(p.restore(guest), other)
		wantRefusal(t, "under the same ref", p.apply(os, other.batch(m.id, beginTurn("other"))), fault.Overloaded, 0)
		waits := pb.batch(m.id, beginTurn("parent"))
		wantRefusal(t, "under the ref above", p.apply(ps, waits), fault.Overloaded, 0)
		if ack := p.must(m.stream, m.batch(beginTurn("owner"))); ack.applied != 1 {
			t.Fatalf("the owner's: %+v", ack.outcomes)
		}
		if ack := p.must(m.stream, m.batch(op("finalize", "message", "e0", "status", "aborted"))); ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
		if ack := p.must(ps, waits); ack.applied != 1 {
			t.Fatalf("what waited: %+v", ack.outcomes)
		}
		waits = pb.batch(m.id, beginTurn("parent2"))
		wantRefusal(t, "when it is full again", p.apply(ps, waits), fault.Overloaded, 0)
		if ack := p.must(m.stream, m.batch(op("revoke", "ref", guest.ID))); ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
		if ack := p.must(ps, waits); ack.applied != 1 {
			t.Fatalf("when the guest is dead: %+v", ack.outcomes)
		}
	})
}
