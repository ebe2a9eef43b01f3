package decide_test

// How many keys may be claimed, under which refs.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// claims claims n keys below a prefix, after putting them: one in eight as the first free one, which it is.
func (o *writer) claims(prefix string, n int) {
	o.w.Helper()
	var puts, claims []anOp
	for i := range n {
		key := fmt.Sprintf("%s%05d", prefix, i)
		puts = append(puts, op("put", "key", key, "payload", 1))
		if i%8 == 0 {
			claims = append(claims, claimFirst(prefix))
		} else {
			claims = append(claims, claim(key))
		}
	}
	for piece := range slices.Chunk(puts, 1000) {
		o.together(piece...)
	}
	for piece := range slices.Chunk(claims, 1000) {
		o.together(piece...)
	}
}

// mayClaim reports whether a claim under a ref applies, with other ops in its batch, which is undone then.
// One that waits consumes no seq and changes nothing.
func (o *writer) mayClaim(x anOp) bool {
	o.w.Helper()
	stream, cursor := o.w.store.Stream(o.session, o.outbox).LastSeq, o.w.store.Session(o.session).Cursor
	seq := o.seq
	answers, _ := o.w.commit(o.batch(true, x, op("remove", "key", "none", "expect", 7)))
	if o.w.store.Session(o.session).Cursor != cursor {
		o.w.Fatalf("a batch that was undone made events")
	}
	if answers[0].Err == nil {
		if out := answers[0].Outcomes[0]; out.Status != ledger.BatchAborted {
			o.w.Fatalf("%s: %+v", x.method, out)
		}
		return true
	}
	if o.seq = seq; answers[0].Err.Code != fault.Overloaded || o.w.store.Stream(o.session, o.outbox).LastSeq != stream {
		o.w.Fatalf("%s: %v", x.method, answers[0].Err)
	}
	return false
}

// What is claimed makes a claim wait: under the same ref, under those that it descends from, and under all
// that descend from these. What ends a claim makes room.
func TestClaimsOfARefAreBounded(t *testing.T) {
	t.Parallel()
	const full = session.MaxRefClaims
	for name, c := range map[string]struct {
		parent, child, sibling, owner int    // keys that are claimed
		waiting                       string // whose claim waits
	}{
		"room for one":                {100, full - 101, full - 1, full - 1, ""},
		"a ref's own":                 {full, 0, 0, 0, "parent child "},
		"a ref's with those below it": {100, full - 100, 0, 0, "parent child "},
		"one below it":                {0, full, 0, 0, "parent child "},
		"beside it":                   {0, 0, full, 0, "sibling "},
		"the owner's":                 {0, 0, 0, full, ""},
		"all refs but the owner's":    {0, full, full, 0, "parent child sibling "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := todos(t, "free/1", "free/2")
			parent, sibling := o.under(o.share(all)), o.under(o.share(all))
			child := o.under(parent.share(all))
			parent.claims("parent/", c.parent)
			child.claims("child/", c.child)
			sibling.claims("sibling/", c.sibling)
			o.claims("owner/", c.owner)
			waiting := ""
			for _, who := range []struct {
				name string
				*writer
			}{{"parent", parent}, {"child", child}, {"sibling", sibling}, {"owner", o}} {
				for _, x := range []anOp{claim("free/1"), claimFirst("free/")} {
					if other := who.under(who.ref); !other.mayClaim(x) && !strings.HasSuffix(waiting, who.name+" ") {
						waiting += who.name + " "
					}
				}
			}
			mustEqual(t, "whose claim waits", waiting, c.waiting)
			if c.parent < full {
				return
			}
			at := o.entryOf("parent/00000").Claim.Cursor
			parent.apply(claim("parent/00000")) // to renew is never refused
			for _, end := range []string{"release", "remove"} {
				outs := parent.try(op(end, "key", "parent/00000", "claim", at), claim("free/1")) // in its own batch
				mustEqual(t, "after a "+end, outs[1].Status, ledger.Applied)
				mustEqual(t, "when it is full again", parent.mayClaim(claim("free/2")), false)
				parent.apply(op("release", "key", "free/1", "claim", outs[1].Cursor))
				parent.claims("parent/", 1)
				at = o.entryOf("parent/00000").Claim.Cursor
			}
			o.apply(op("purge", "key", "parent/00000"))
			parent.apply(claim("free/1"))
			mustEqual(t, "when it is full again", child.mayClaim(claim("free/2")), false)
			o.apply(op("release", "key", "free/1", "claim", parent.last().Cursor)) // the owner breaks it
			parent.apply(claim("free/1"))
			o.apply(op("revoke", "ref", child.ref))
			mustEqual(t, "a dead one below it frees nothing", parent.mayClaim(claim("free/2")), false)
			o.w.store.Now += lease
			parent.apply(claim("free/2"))
		})
	}
}

// What one batch of a group does is counted for the next, and what was undone is not.
func TestClaimsAreCountedWithinAGroup(t *testing.T) {
	t.Parallel()
	o, _ := todos(t, "free/1", "free/2", "free/3")
	guest := o.under(o.share(all))
	guest.claims("todo/", session.MaxRefClaims-1)
	undone := op("remove", "key", "none", "expect", 7)
	a, b, c := guest.under(guest.ref), guest.under(guest.ref), guest.under(guest.ref)
	answers, _ := o.w.commit(a.batch(true, claim("free/1"), undone), b.batch(false, claim("free/2")), c.batch(false, claim("free/3")))
	mustEqual(t, "after one that was undone", answers[1].Err == nil && answers[1].Outcomes[0].Status == ledger.Applied, true)
	mustEqual(t, "after one that was not", answers[2].Err != nil && answers[2].Err.Code == fault.Overloaded, true)
	at := o.entryOf("free/2").Claim.Cursor
	c = guest.under(guest.ref)
	answers, _ = o.w.commit(b.batch(true, op("release", "key", "free/2", "claim", at), undone), c.batch(false, claim("free/3")))
	mustEqual(t, "after a release that was undone", answers[1].Err != nil && answers[1].Err.Code == fault.Overloaded, true)
}

// A claim that is renewed under another ref counts for that, and is refused there if there is no room.
func TestRenewedClaimsCountForTheirRef(t *testing.T) {
	t.Parallel()
	o, _ := todos(t, "free/1", "free/2", "free/3")
	parent := o.under(o.share(all))
	a, b := parent.under(parent.share(all)), parent.share(all)
	under := func(ref string, x anOp) (decide.Answer, bool) { // of a's stream
		seq := a.seq
		sub := a.batch(false, x)
		sub.Ref = ref
		answers, _ := o.w.commit(sub)
		if answers[0].Err != nil {
			a.seq = seq
		}
		return answers[0], answers[0].Err == nil && answers[0].Outcomes[0].Status == ledger.Applied
	}
	a.apply(claim("free/1"))
	sibling := o.under(o.share(all))
	parent.claims("todo/", session.MaxRefClaims-1)
	if answer, ok := under(b, claim("free/1")); !ok {
		t.Errorf("renewed beside it, below a ref that has no room for another: %+v", answer)
	}
	mustEqual(t, "counts there", a.mayClaim(claim("free/2")), false)
	sibling.claims("other/", session.MaxRefClaims)
	if answer, _ := under(sibling.ref, claim("free/1")); answer.Err == nil || answer.Err.Code != fault.Overloaded {
		t.Errorf("renewed where there is no room: %+v", answer)
	}
	if answer, ok := under(o.ref, claim("free/1")); !ok {
		t.Errorf("renewed under the owner's: %+v", answer)
	}
	a.apply(claim("free/2"))
	mustEqual(t, "no more than that", a.mayClaim(claim("free/3")), false)
}

// A session's claims have a bound that an owner's ref has too, and whatever is claimed, the first free key is
// found.
func TestClaimsOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	o, _ := todos(t)
	o.claims("todo/", session.MaxSessionClaims-1)
	o.apply(op("put", "key", "todo/x", "payload", 1))
	o.apply(op("put", "key", "todo/y", "payload", 1))
	guest := o.under(o.share(all))
	last := guest.apply(claimFirst("todo/"))
	mustEqual(t, "behind all others", last["key"], any("todo/x"))
	for _, who := range []*writer{o, guest} {
		mustEqual(t, "one more", who.mayClaim(claimFirst("todo/")), false)
	}
	guest.apply(claim("todo/x"))
	guest.together(op("release", "key", "todo/x", "claim", last["claim"]), claim("todo/y"))
}
