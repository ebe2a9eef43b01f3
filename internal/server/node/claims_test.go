//go:build unix

package node

// Claims from outside: of others, that are broken, and how many there may be.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// TestBreaksOverBothWires: what is applied and refused is the same, with the same words, and the events say
// under which ref a claim was broken.
func TestBreaksOverBothWires(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p, w := r.dial(), r.dialWeb()
		m := r.create(p)
		p.must(m.stream, m.batch(op("put", "key", "todo/1", "payload", 1), op("put", "key", "todo/2", "payload", 2)))
		claim := func(key string) (at uint64) { // by the owner
			var c struct{ Claim uint64 }
			out := p.must(m.stream, m.batch(op("claim", "key", key, "lease", 3_600_000)))
			if err := json.Unmarshal(out.outcomes[0].Result, &c); err != nil || c.Claim == 0 {
				t.Fatalf("claimed: %s, %v", out.outcomes[0].Result, err)
			}
			return c.Claim
		}
		at := map[string]uint64{"todo/1": claim("todo/1"), "todo/2": claim("todo/2")}
		guest, breaker := p.share(m, "rights", []string{"append"}), p.share(m, "rights", []string{"break"})
		for _, c := range []struct {
			name    string
			breaker bool
			args    []any
			status  ledger.Status
			reason  fault.Code
			words   string
		}{
			{"no claim", true, []any{"key", "todo/1"}, ledger.Rejected, fault.BadArgument, "claim"},
			{"no key", true, []any{"claim", 7}, ledger.Rejected, fault.BadArgument, "key"},
			{"a text", true, []any{"key", "todo/1", "claim", "7"}, ledger.Rejected, fault.BadArgument, "whole number"},
			{"a negative cursor", true, []any{"key", "todo/1", "claim", -1}, ledger.Rejected, fault.BadArgument, "whole number"},
			{"a known kind", true, []any{"key", "message/m", "claim", 7}, ledger.Rejected, fault.BadKey, "your own kinds"},
			{"a prefix", true, []any{"key", "todo/", "claim", 7}, ledger.Rejected, fault.BadKey, "is not a key"},
			{"one more argument", true, []any{"key", "todo/1", "claim", 7, "force", true}, ledger.Rejected, fault.BadArgument, "no argument"},
			{"another cursor", true, []any{"key", "todo/1", "claim", 1}, ledger.Conflict, fault.Conflict, "todo/1 is claimed by another"},
			{"no such key", true, []any{"key", "todo/9", "claim", 7}, ledger.Conflict, fault.Conflict, "todo/9 is not claimed any more"},
			{"without the right", false, []any{"key", "todo/1", "claim", "at"}, ledger.Conflict, fault.Conflict, "the right break"},
			{"with it", true, []any{"key", "KEY", "claim", "at"}, ledger.Applied, fault.None, ""},
			{"again", true, []any{"key", "KEY", "claim", "at"}, ledger.Conflict, fault.Conflict, "is not claimed any more"},
		} {
			release := func(key string) ledger.Intent {
				in := append([]any{}, c.args...)
				for i, v := range in {
					switch v {
					case "KEY":
						in[i] = key
					case "at":
						in[i] = at[in[1].(string)]
					}
				}
				return op("release", in...)
			}
			ref := guest
			if c.breaker {
				ref = breaker
			}
			b, b2 := newBox(), newBox()
			plain := p.apply(p.open(p.restore(ref), b), b.batch(m.id, release("todo/1"))).outcomes[0]
			web := w.apply(w.open(w.restore(ref), b2), b2.batch(m.id, release("todo/2"))).outcomes[0]
			if plain.Status != c.status || plain.Reason != c.reason || !strings.Contains(plain.Message, c.words) {
				t.Errorf("%s: %+v", c.name, plain)
			}
			words := plain.Message
			if c.args[1] == "KEY" {
				words = strings.NewReplacer("todo/1", "todo/2", fmt.Sprint(at["todo/1"]), fmt.Sprint(at["todo/2"])).Replace(words)
			}
			if web.Status != plain.Status || web.Reason != plain.Reason || web.Message != words {
				t.Errorf("%s: over Cap'n Web %+v, over Cap'n Proto %+v", c.name, web, plain)
			}
		}
		var got []string
		for _, e := range w.give(w.restore(m.owner), "events", at["todo/2"], 0, nil, []any{"keys"}).(object)["events"].([]any) {
			if e := e.(object); e["key"] == "todo/1" || e["key"] == "todo/2" {
				got = append(got, fmt.Sprint(e["method"], " ", e["key"], e["payload"], e["ref"] == breaker.ID))
			}
		}
		want := []string{fmt.Sprintf(`release todo/1{"claim":%d,"broken":true}true`, at["todo/1"]), fmt.Sprintf(`release todo/2{"claim":%d,"broken":true}true`, at["todo/2"])}
		if !slices.Equal(got, want) {
			t.Errorf("the events are %q, want %q", got, want)
		}
	})
}

// Who may claim keys claims until there may be no more of that ref. The owner claims one all the same, as do
// others; those under that ref wait, keep their seqs, and go on when a claim has ended.
func TestAGuestsClaimsAreTheGuests(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		parent, sibling := p.share(m, "rights", []string{"read", "append", "share"}), p.share(m, "rights", []string{"append"})
		guest := parent.New(m.id)
		pb, gb, sb := newBox(), newBox(), newBox()
		ps, ss := p.open(p.restore(parent), pb), p.open(p.restore(sibling), sb)
		p.must(ps, pb.batch(m.id, op("share", "ref", guest.ID, "hash", hashText(guest.Secret), "rights", []string{"append"})))
		gs := p.open(p.restore(guest), gb)
		p.must(m.stream, m.batch(op("put", "key", "free/1", "payload", 1), op("put", "key", "free/2", "payload", 1), op("put", "key", "free/3", "payload", 1)))
		var puts, claims []ledger.Intent
		for i := range session.MaxRefClaims {
			key := fmt.Sprintf("todo/%04d", i)
			puts, claims = append(puts, op("put", "key", key, "payload", 1)), append(claims, op("claim", "key", key, "lease", 3_600_000))
		}
		for _, ops := range [][]ledger.Intent{puts, claims} {
			for piece := range slices.Chunk(ops, 512) {
				if ack := p.must(gs, gb.batch(m.id, piece...)); ack.applied != 512 {
					t.Fatalf("%d applied", ack.applied)
				}
			}
		}
		more := op("claim", "key", "free/1", "lease", 3_600_000)
		again := gb.batch(m.id, more)
		wantRefusal(t, "one more", p.apply(gs, again), fault.Overloaded, 0)
		wantRefusal(t, "under the ref above", p.apply(ps, pb.batch(m.id, op("claim", "prefix", "free/", "lease", 3_600_000))), fault.Overloaded, 0)
		for _, ack := range []*reply{p.must(m.stream, m.batch(op("claim", "key", "free/2", "lease", 3_600_000))), p.must(ss, sb.batch(m.id, op("claim", "key", "free/3", "lease", 3_600_000)))} {
			if ack.applied != 1 {
				t.Fatalf("another's: %+v", ack.outcomes)
			}
		}
		if ack := p.must(m.stream, m.batch(op("purge", "key", "todo/0007"))); ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
		if ack := p.must(gs, again); ack.applied != 1 {
			t.Fatalf("what waited: %+v", ack.outcomes)
		}
	})
}
