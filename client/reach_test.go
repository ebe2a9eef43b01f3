package client_test

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// TestReach: a ref that reaches children opens the sessions below its own, also in a later process, and ends in
// all of them at once.
func TestReach(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	agent := r.open(t, "agent")
	parent := r.newSession(t, agent)
	born := func(of *client.Session) *client.Session {
		child, batch := r.space(t, agent).Create(client.CreateOptions{Parent: of})
		applied(t, batch)
		return child
	}
	child := born(parent)
	grand := born(child)
	b := parent.Batch()
	all := capability.Read | capability.Append
	ref, _ := b.Share(client.ShareOptions{Rights: all, Children: all, Label: "team"})
	applied(t, b)
	late := born(child)

	c := r.open(t, "guest")
	reached, err := c.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	d, err := reached.Describe(t.Context())
	if err != nil || d.Grant.Children != all {
		t.Errorf("%+v, %v", d.Grant, err)
	}
	for _, id := range []string{child.ID(), grand.ID(), late.ID()} {
		s, err := reached.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		b := s.Batch()
		b.Put(message(1), object{"role": "user"})
		applied(t, b)
		page, err := s.Events(t.Context(), 1, 10)
		if err != nil || len(page.Events) != 1 || page.Events[0].Ref != ref.ID {
			t.Errorf("%+v, %v", page, err)
		}
		d, err := s.Describe(t.Context())
		if err != nil || d.Session.ID != id || d.Grant.Ref != ref.ID || d.Grant.Rights != all || d.Grant.Owner {
			t.Errorf("%+v, %v", d, err)
		}
		if _, _, err := s.Rotate(t.Context()); fault.CodeOf(err) != fault.NotAnOwner {
			t.Errorf("rotating: %v", err)
		}
		if _, _, err := s.TakeOver(t.Context()); fault.CodeOf(err) != fault.NotAnOwner {
			t.Errorf("taking over: %v", err)
		}
	}
	through, _ := reached.Open(child.ID())
	if deeper, err := through.Open(grand.ID()); err != nil {
		t.Error(err)
	} else if _, err := deeper.Describe(t.Context()); err != nil {
		t.Errorf("a grandchild through the child: %v", err)
	}
	if other, err := reached.Open(parent.ID()); err != nil {
		t.Error(err)
	} else if _, err := other.Snapshot(t.Context()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the session itself: %v", err)
	}
	if _, err := reached.Open("issue-17"); fault.CodeOf(err) != fault.BadArgument {
		t.Errorf("a session by another name: %v", err)
	}
	if _, err := r.space(t, agent).Share(t.Context(), client.ShareOptions{Rights: capability.List, Children: capability.Read}); fault.CodeOf(err) != fault.BadArgument {
		t.Errorf("a ref of the space: %v", err)
	}
	live, err := reached.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Read, Children: capability.Read})
	if err != nil {
		t.Fatal(err)
	}
	live.Release()
	for info, err := range parent.Refs(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if (info.Children == all) != (info.Ref == ref.ID) {
			t.Errorf("listed: %+v", info)
		}
	}

	cut, err := parent.Revoke(t.Context(), ref.ID)
	if err != nil || cut.ChildCount != 3 || len(cut.Children) != 3 || !slices.IsSortedFunc(cut.Children, func(a, b client.ChildCut) int {
		if a.Session < b.Session {
			return -1
		}
		return 1
	}) {
		t.Errorf("%+v, %v", cut, err)
	}
	for _, end := range cut.Children {
		s, _ := reached.Open(end.Session)
		if _, err := s.Snapshot(t.Context()); fault.CodeOf(err) != fault.Revoked {
			t.Errorf("after it: %v", err)
		}
		b := s.Batch()
		b.Put(message(2), object{})
		ticket, err := b.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(waited(t, ticket)); got != "denied/revoked" {
			t.Errorf("a batch after it: %s", got)
		}
	}
}

// TestReachAfterARestart: what was committed in a child while the server was away is sent by a later process,
// through the same ref; and a child whose owner has begun another epoch does not end the ref elsewhere.
func TestReachAfterARestart(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	agent := r.open(t, "agent")
	parent := r.newSession(t, agent)
	var children []*client.Session
	for range 2 {
		child, batch := r.space(t, agent).Create(client.CreateOptions{Parent: parent})
		applied(t, batch)
		children = append(children, child)
	}
	b := parent.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append, Children: capability.Append})
	applied(t, b)
	if _, err := children[0].BumpEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := r.open(t, "guest", func(cfg *client.Config) { cfg.Offline = true })
	reached, err := first.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	var tickets []client.Ticket
	for _, child := range children {
		s, err := reached.Open(child.ID())
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := s.Put(t.Context(), message(1), object{"role": "user"})
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c := r.open(t, "guest")
	for i, want := range []string{"denied/stale_epoch", "applied"} {
		if got := brief(waited(t, c.Ticket(tickets[i].Batch))); got != want {
			t.Errorf("in child %d: %s, want %s", i, got, want)
		}
	}
	saved, err := c.Outbox().Ref(t.Context(), ref.ID)
	if err != nil || saved.Dead != fault.None {
		t.Errorf("the ref is kept as %+v, %v", saved.Dead, err)
	}
}
