//go:build unix

// More of the ledger's table, from outside: refusals repeated word for word, and
// the answers of a server that is busy or does not know yet, on either database.

package node

import (
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestRowsOfTheTableAgain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		for name, row := range map[string]row{
			"skipped":          skippedAgain,
			"denied expired":   expiredAgain,
			"not yet known":    notYetKnown,
			"under a dead ref": appliedAgainUnderADeadRef,
		} {
			t.Run(name, func(t *testing.T) {
				p := r.dialIn(t)
				row(t, r, p, r.create(p))
			})
		}
	})
}

func skippedAgain(t *testing.T, r *rig, p *peer, m *made) {
	bad := op("nosuch")
	depends, refers := put(1), op("put", "key", "message/msg_2", "payload", ledger.Ref{Op: bad.OpID, Path: "cursor"})
	depends.DependsOn = []string{bad.OpID}
	b := m.batch(bad, depends, refers, put(3))
	first := p.must(m.stream, b)
	wantRecorded(t, "depends_on", first.outcomes[1], ledger.Skipped, fault.UnknownMethod)
	wantRecorded(t, "a reference", first.outcomes[2], ledger.Skipped, fault.UnknownMethod)
	wantAgain(t, p, m.stream, b, first)
	later := put(4)
	later.DependsOn = []string{bad.OpID}
	b2 := m.batch(later)
	second := p.must(m.stream, b2)
	wantRecorded(t, "in a later batch", second.outcomes[0], ledger.Skipped, fault.UnknownMethod)
	other := r.dialIn(t)
	stream := other.open(other.restore(m.owner), m.box)
	wantAgain(t, other, stream, b2, second)
	wantAgain(t, other, stream, b, first)
}

func expiredAgain(t *testing.T, r *rig, p *peer, m *made) {
	ref := p.share(m, "rights", []string{"append"}, "expires_at", r.server.cfg.Now().UnixMilli()+400)
	box := newBox()
	stream := p.open(p.restore(ref), box)
	var applied *ledger.Batch
	var was *reply
	for n := 0; ; n++ {
		b := box.batch(m.id, put(n))
		ack := p.must(stream, b)
		if ack.outcomes[0].Status == ledger.Applied {
			applied, was = b, ack
			continue
		}
		wantRecorded(t, "an expired ref", ack.outcomes[0], ledger.Denied, fault.Expired)
		wantAgain(t, p, stream, b, ack)
		break
	}
	if applied != nil { // what had applied before is repeated as such
		wantAgain(t, p, stream, applied, was)
	}
}

func notYetKnown(t *testing.T, _ *rig, p *peer, m *made) {
	ref := m.owner.New(m.id)
	wantCode(t, "before its share has arrived", p.restoreErr(ref, ""), fault.NotYetKnown)
	b := newBox()
	_, _, err := p.opening(p.restore(ref), b).Wait(within(t))
	if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.NotYetKnown {
		t.Errorf("a stream under it: %v", err)
	}
	p.must(m.stream, m.batch(op("share", "ref", ref.ID, "hash", hashText(ref.Secret), "rights", []string{"read", "append"})))
	if err := p.restoreErr(ref, ""); err != nil {
		t.Errorf("after it: %v", err)
	}
	if ack := p.must(p.open(p.restore(ref), b), b.batch(m.id, put(1))); ack.applied != 1 {
		t.Errorf("the batch, now: %+v", ack)
	}
}

// A dead ref with the right secret repeats what was recorded while it lived, also
// over a new connection, and denies everything else. That goes for a refusal too.
func appliedAgainUnderADeadRef(t *testing.T, r *rig, p *peer, m *made) {
	ref, box := p.share(m, "rights", []string{"read", "append"}), newBox()
	b := box.batch(m.id, put(1), op("nosuch"), put(2))
	first := p.must(p.open(p.restore(ref), box), b)
	if first.applied != 2 || first.rejected != 1 {
		t.Fatalf("at first: %+v", first)
	}
	p.must(m.stream, m.batch(op("revoke", "ref", ref.ID)))
	other := r.dialIn(t)
	stream := other.open(other.restore(ref), box)
	again := other.must(stream, b)
	for i := range again.outcomes {
		if again.outcomes[i].Status != first.outcomes[i].Status || string(again.outcomes[i].Result) != string(first.outcomes[i].Result) ||
			again.outcomes[i].Message != first.outcomes[i].Message || again.outcomes[i].Cursor != first.outcomes[i].Cursor {
			t.Errorf("op %d is repeated as %+v, was %+v", i, again.outcomes[i], first.outcomes[i])
		}
	}
	wantAgain(t, other, stream, b, first)
	late := other.must(stream, box.batch(m.id, put(3)))
	wantRecorded(t, "what was not recorded", late.outcomes[0], ledger.Denied, fault.Revoked)
	if row := rowOf(t, r.server.cfg.Store, m.id); row.Cursor != 5 { // create, share, two puts, revoke
		t.Errorf("the session is at cursor %d", row.Cursor)
	}
}
