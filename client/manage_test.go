package client_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// TestManagedSession: an owner of the space does in another's session what its owner does, under the ref of
// the space, and takes it over only by a call of its own.
func TestManagedSession(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	agent := r.open(t, "agent")
	theirs := r.newSession(t, agent)
	c := r.open(t, "owner")
	s, err := r.space(t, c).Open(theirs.ID())
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{"role": "user"})
	guest, _ := b.Share(client.ShareOptions{Rights: capability.Read})
	b.Do("purge", client.Arg{Name: "key", Value: message(1)})
	applied(t, b)
	d, err := s.Describe(t.Context())
	if err != nil || d.Session.ID != s.ID() || d.Grant.Ref != r.owner.ID || !d.Grant.Owner {
		t.Errorf("%+v, %v", d, err)
	}
	page, err := s.Events(t.Context(), 1, 10)
	if err != nil || len(page.Events) != 3 || page.Events[0].Ref != r.owner.ID {
		t.Errorf("%+v, %v", page, err)
	}
	var refs []string
	for ref, err := range s.Refs(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref.Ref)
	}
	if len(refs) != 2 || refs[0] != theirs.Ref().ID || refs[1] != guest.ID {
		t.Errorf("the refs are %v", refs)
	}
	if _, err := s.Revoke(t.Context(), theirs.Ref().ID); fault.CodeOf(err) != fault.NotAnOwner {
		t.Errorf("the owner's ref, without a word: %v", err)
	}
	if _, _, err := s.Rotate(t.Context()); fault.CodeOf(err) != fault.NotAnOwner {
		t.Errorf("rotating: %v", err)
	}
	if _, _, err := theirs.TakeOver(t.Context()); fault.CodeOf(err) != fault.NotAnOwner {
		t.Errorf("the owner takes over: %v", err)
	}
	if _, err := theirs.Put(t.Context(), message(2), object{}); err != nil { // in the agent's outbox
		t.Fatal(err)
	}
	mine, cut, err := s.TakeOver(t.Context())
	if err != nil || cut.Cursor == 0 {
		t.Fatal(cut, err)
	}
	if _, err := mine.Audit(t.Context(), 0, 10); err != nil {
		t.Errorf("under the new ref: %v", err)
	}
	if _, err := theirs.Audit(t.Context(), 0, 10); fault.CodeOf(err) != fault.Revoked {
		t.Errorf("under the old one: %v", err)
	}
	if _, err := s.RevokeOwner(t.Context(), mine.Ref().ID); err != nil {
		t.Error(err)
	}
	if _, err := mine.Audit(t.Context(), 0, 10); fault.CodeOf(err) != fault.Revoked {
		t.Errorf("under the revoked one: %v", err)
	}
	_, forked := r.space(t, c).Fork(s, 0, client.CreateOptions{})
	_, borne := r.space(t, c).Create(client.CreateOptions{Parent: s})
	for _, b := range []*client.Batch{forked, borne} { // the server would refuse it for good
		if _, err := b.Commit(t.Context()); fault.CodeOf(err) != fault.BadArgument {
			t.Errorf("a fork or child of an opened session: %v", err)
		}
	}
	if _, err := r.space(t, c).Open("issue-17"); fault.CodeOf(err) != fault.BadArgument {
		t.Errorf("a session by another name: %v", err)
	}
}

// TestManagedSessionAfterARestart: what was committed by manage while the server was away is sent by a later
// process, through the same ref of the space, also after that was rotated; and a ref that died meanwhile ends
// the ops as denied.
func TestManagedSessionAfterARestart(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "rotated", "revoked"} {
		r := testRig(t)
		agent := r.open(t, "agent")
		theirs := r.newSession(t, agent)
		ref, err := r.space(t, agent).Share(t.Context(), client.ShareOptions{Rights: capability.Manage})
		if err != nil {
			t.Fatal(err)
		}
		if end == "rotated" {
			ref = r.owner
		}
		away := func(cfg *client.Config) { cfg.Offline = true }
		first, err := client.Open(t.Context(), r.config("owner", away))
		if err != nil {
			t.Fatal(err)
		}
		space := func(c *client.Client) *client.Space {
			sp, err := c.Space(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			return sp
		}
		s, err := space(first).Open(theirs.ID())
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := s.Put(t.Context(), message(1), object{"role": "user"})
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		want := "applied"
		switch end {
		case "rotated":
			box, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(r.home("owner"))})
			if err != nil {
				t.Fatal(err)
			}
			sp, err := space(box).Rotate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ref = sp.Ref()
			if err := box.Close(); err != nil {
				t.Fatal(err)
			}
		case "revoked":
			if _, err := r.space(t, agent).Revoke(t.Context(), ref.ID); err != nil {
				t.Fatal(err)
			}
			want = "denied/revoked"
		}
		later := r.open(t, "owner")
		if got := brief(waited(t, later.Ticket(ticket.Batch))); got != want {
			t.Errorf("%s: the outcome is %s, want %s", end, got, want)
		}
	}
}
