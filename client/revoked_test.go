// What a revocation ends, and what it does not.

package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
)

func TestRevokeEndsWhatItShould(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "a"))
	ref, ticket, err := owner.Share(t.Context(), client.ShareOptions{Rights: capability.Read | capability.Append, Actor: "owner/helper"})
	if err != nil {
		t.Fatal(err)
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	other := r.open(t, "b")
	helper, err := other.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	b := helper.Batch()
	b.Put(message(1), object{})
	applied(t, b)
	seen := make(chan uint64, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- helper.Subscribe(t.Context(), client.SubscribeOptions{}, func(e client.Event) error {
			seen <- e.Cursor
			return nil
		})
	}()
	<-seen
	cut, err := owner.Revoke(t.Context(), ref.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, fault.Revoked) {
		t.Errorf("the subscription ended with %v", err)
	}
	again, err := owner.Revoke(t.Context(), ref.ID)
	if err != nil || again.Cursor != cut.Cursor {
		t.Errorf("revoked again: cut %d (%v), before %d", again.Cursor, err, cut.Cursor)
	}
	late := helper.Batch()
	late.Put(message(2), object{})
	if got := brief(outcomes(t, late)); got != "denied/revoked" {
		t.Errorf("after the cut: %s", got)
	}
	d, err := other.Redeem(t.Context(), ref)
	if err != nil || d.Grant.Dead != fault.Revoked || d.Grant.Cut != cut.Cursor {
		t.Errorf("redeemed: %+v (%v)", d.Grant, err)
	}
	if _, err := helper.Snapshot(t.Context()); !errors.Is(err, fault.Revoked) {
		t.Errorf("a snapshot after the cut: %v", err)
	}
	bumped, err := owner.BumpEpoch(t.Context())
	if err != nil || bumped.Epoch != 2 || bumped.Cursor != cut.Cursor+1 {
		t.Errorf("bumped: %+v (%v)", bumped, err)
	}
}

// What a holder has committed when its ref is revoked: what had arrived keeps its
// first answer, what waits under the ref is denied with the reason, what depends
// on that is skipped, and what waits under another ref goes on.
func TestPendingOpsOfARevokedRef(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "owner"))
	shared := owner.Batch()
	first, _ := shared.Share(client.ShareOptions{Rights: capability.Read | capability.Append, Actor: "owner/first"})
	second, _ := shared.Share(client.ShareOptions{Rights: capability.Append, Actor: "owner/second"})
	applied(t, shared)

	link, err := faultproxy.Listen(r.proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	first.Hosts, second.Hosts = []string{link.Addr()}, []string{link.Addr()}
	helper := r.open(t, "helper")
	under := func(ref capability.Ref) *client.Session {
		s, err := helper.Session(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := under(first), under(second)
	commit := func(b *client.Batch) client.Ticket {
		ticket, err := b.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	begun := one.Batch()
	begun.Put(message(1), object{})
	applied(t, begun)

	link.Blackhole(faultproxy.ToClient, 0) // the answer is lost
	arrived := one.Batch()
	arrived.Put(message(2), object{})
	before := commit(arrived)
	for e, err := range owner.Follow(t.Context(), client.SubscribeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Key == message(2) {
			break
		}
	}
	link.Refuse(true)
	link.Cut()
	waiting := one.Batch()
	put := waiting.Put(message(3), object{})
	denied := commit(waiting)
	needs := one.Batch()
	needs.Put(message(4), object{}).DependsOn(put)
	skipped := commit(needs)
	other := two.Batch()
	other.Put(message(5), object{})
	independent := commit(other)
	cut, err := owner.Revoke(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	link.Refuse(false)

	for _, c := range []struct {
		what   string
		ticket client.Ticket
		want   string
	}{
		{"what had arrived", before, "applied"},
		{"what waited", denied, "denied/revoked"},
		{"what depends on it", skipped, "skipped/revoked"},
		{"what waited under another ref", independent, "applied"},
	} {
		results := waited(t, c.ticket)
		if got := brief(results); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if c.want == "denied/revoked" && !strings.Contains(results.Err().Error(), fmt.Sprintf("at cursor %d", cut.Cursor)) {
			t.Errorf("%s: %v, which does not name the cut at %d", c.what, results.Err(), cut.Cursor)
		}
	}
}
