// The refs that a home keeps, and which of them it uses.

package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/outbox"
)

// savedRef is a ref that a server minted: its id does not tell whether a secret fits.
func savedRef(t *testing.T, r *rig) capability.Ref {
	t.Helper()
	ref, err := r.newSession(t, r.open(t, "maker")).Save(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func mistyped(ref capability.Ref) capability.Ref {
	return ref.With(ref.ID, capability.NewSecret())
}

// TestARefsIDAloneOpensNothing: one user of a program has restored a ref on the
// connection that all use; another knows only its id.
func TestARefsIDAloneOpensNothing(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	ref := savedRef(t, r)
	c := r.open(t, "a")
	if _, err := c.Redeem(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(t.Context(), mistyped(ref))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a snapshot: %v", err)
	}
	if _, err := s.Put(t.Context(), message(1), object{}); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a put: %v", err)
	}
	sp := r.space(t, c)
	_, fork := sp.Fork(s, 0, client.CreateOptions{})
	if _, err := fork.Commit(t.Context()); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a fork: %v", err)
	}
	if s, err = c.Session(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{})
	applied(t, b) // the one who has the ref goes on
}

// TestAMistypedRefDisplacesNothing: it is refused, and the right one stays.
func TestAMistypedRefDisplacesNothing(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	ref := savedRef(t, r)
	c := r.open(t, "a")
	if _, err := c.Redeem(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Redeem(t.Context(), mistyped(ref)); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("redeemed: %v", err)
	}
	if kept, err := c.Outbox().Ref(t.Context(), ref.ID); err != nil || !kept.Secret.Equal(ref.Secret) || kept.Dead != fault.None {
		t.Errorf("the ref that is kept: %+v, %v", kept.RefMeta, err)
	}
	s, err := c.SessionByID(t.Context(), ref.Target())
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{})
	applied(t, b)
}

// TestTheRightRefReplacesAMistypedOne: which came first, and nobody has confirmed.
func TestTheRightRefReplacesAMistypedOne(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	ref := savedRef(t, r)
	c := r.open(t, "a")
	wrong, err := c.Session(t.Context(), mistyped(ref))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Put(t.Context(), message(1), object{}); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a put under the mistyped one: %v", err)
	}
	b := s.Batch()
	b.Put(message(1), object{})
	applied(t, b)
}

// TestRefsThatLeadNowhereAreRefused: a ref made by hand, or with a live capability at
// no address, stops nothing else.
func TestRefsThatLeadNowhereAreRefused(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a", func(c *client.Config) { c.AllowPlaintext = true })
	s := r.newSession(t, c)
	live, err := s.Attenuate(t.Context(), client.AttenuateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Release()
	if _, err := live.Save(t.Context(), capability.Ref{}); !errors.Is(err, fault.BadRefText) {
		t.Errorf("saved at no address: %v", err)
	}
	if _, err := live.Share(t.Context(), capability.Ref{}, client.ShareOptions{Rights: capability.Read}); !errors.Is(err, fault.BadRefText) {
		t.Errorf("shared at no address: %v", err)
	}
	for _, hosts := range [][]string{nil, {"Bad host"}, {"example.com:99999"}} {
		if _, err := c.Session(t.Context(), capability.Ref{Hosts: hosts}.New(s.ID())); !errors.Is(err, fault.BadRefText) {
			t.Errorf("the session of a ref at %q: %v", hosts, err)
		}
	}
	if _, err := c.SessionByID(t.Context(), s.ID()); err != nil {
		t.Errorf("the session is not found any more: %v", err)
	}
	b := s.Batch()
	b.Put(message(1), object{})
	applied(t, b)
}

// TestARefThatNoServerKnowsYetShadowsNone: another one to the session works.
func TestARefThatNoServerKnowsYetShadowsNone(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "owner"))
	b := s.Batch()
	good, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append})
	applied(t, b)
	early, _ := s.Batch().Share(client.ShareOptions{Rights: capability.Read | capability.Append}) // handed on, and not committed
	c := r.open(t, "a", func(c *client.Config) { c.RetryTimeout = -1 })
	if _, err := c.Redeem(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Redeem(t.Context(), early); !errors.Is(err, fault.NotYetKnown) {
		t.Fatalf("redeemed early: %v", err)
	}
	mine, err := c.SessionByID(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Snapshot(t.Context()); err != nil {
		t.Errorf("a snapshot: %v", err)
	}
	b = mine.Batch()
	b.Put(message(1), object{})
	applied(t, b)
}

// TestTheRefForALaterRightIsUsed: a schema is put, and another's claim is ended, under the ref that may.
func TestTheRefForALaterRightIsUsed(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "owner"))
	b := s.Batch()
	schema, _ := b.Share(client.ShareOptions{Rights: capability.Schema, Actor: "owner/schema"})
	breaks, _ := b.Share(client.ShareOptions{Rights: capability.Break, Actor: "owner/break"})
	appends, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append, Actor: "owner/append"})
	b.Put("todo/1", 1)
	b.Claim("todo/1", time.Hour, "")
	applied(t, b)
	c := r.open(t, "a")
	for _, ref := range []capability.Ref{schema, breaks, appends} {
		if _, err := c.Redeem(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := c.SessionByID(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	page, err := mine.Get(t.Context(), "todo/1")
	if err != nil {
		t.Fatal(err)
	}
	for want, op := range map[string]func(*client.Batch){
		"owner/schema put schema/todo": func(b *client.Batch) { b.Put("schema/todo", object{}) },
		"owner/break release todo/1":   func(b *client.Batch) { b.Release("todo/1", page.Entries[0].Claim.Cursor) },
		"owner/append put todo/2":      func(b *client.Batch) { b.Put("todo/2", 2) },
		"owner/append release todo/own": func(b *client.Batch) {
			b.Put("todo/own", 2)
			b.Release("todo/own", b.Claim("todo/own", time.Hour, "").Field("claim"))
		},
	} {
		b := mine.Batch()
		op(b)
		applied(t, b)
		log, err := s.Events(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if e := log.Events[len(log.Events)-1]; e.Actor+" "+e.Method+" "+e.Key != want {
			t.Errorf("the event is %s's, %s %s, want %q", e.Actor, e.Method, e.Key, want)
		}
	}
}

// TestTheRefWithTheRightIsUsed: of several to one session, whichever was redeemed last.
func TestTheRefWithTheRightIsUsed(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "owner"))
	b := s.Batch()
	strong, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append | capability.Share, Actor: "owner/strong"})
	weak, _ := b.Share(client.ShareOptions{Rights: capability.Read, Actor: "owner/weak"})
	applied(t, b)
	c := r.open(t, "a")
	for _, ref := range []capability.Ref{strong, weak} {
		if _, err := c.Redeem(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := c.SessionByID(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	b = mine.Batch()
	b.Put(message(1), object{})
	applied(t, b)
	if _, ticket, err := mine.Share(t.Context(), client.ShareOptions{Rights: capability.Read, Actor: "owner/strong/x"}); err != nil || waited(t, ticket).Err() != nil {
		t.Errorf("shared: %v", err)
	}
	if d, err := mine.Describe(t.Context()); err != nil || d.Grant.Ref != weak.ID {
		t.Errorf("reading is through %s, %v, not what was redeemed last", d.Grant.Ref, err)
	}
	// None has the right to revoke, and the refusal says which was used.
	if _, err := mine.Revoke(t.Context(), weak.ID); !errors.Is(err, fault.MissingRight) || !strings.Contains(err.Error(), weak.ID) {
		t.Errorf("revoked: %v", err)
	}
	// Once it is known to be dead the other is used, for what it has.
	if _, err := s.Revoke(t.Context(), weak.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Snapshot(t.Context()); !errors.Is(err, fault.Revoked) {
		t.Errorf("through the revoked one: %v", err)
	}
	if _, err := mine.Snapshot(t.Context()); err != nil {
		t.Errorf("through the other one: %v", err)
	}
}

// TestASubscriptionTellsOfADeadRef as any other verb does: the next one takes another.
func TestASubscriptionTellsOfADeadRef(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "owner"))
	b := s.Batch()
	first, _ := b.Share(client.ShareOptions{Rights: capability.Read, Actor: "owner/first"})
	second, _ := b.Share(client.ShareOptions{Rights: capability.Read, Actor: "owner/second"})
	applied(t, b)
	c := r.open(t, "a")
	for _, ref := range []capability.Ref{first, second} {
		if _, err := c.Redeem(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := c.SessionByID(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Revoke(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	if err := mine.Subscribe(t.Context(), client.SubscribeOptions{}, func(client.Event) error { return nil }); !errors.Is(err, fault.Revoked) {
		t.Errorf("through the revoked one: %v", err)
	}
	if _, err := mine.Snapshot(t.Context()); err != nil {
		t.Errorf("through the other one: %v", err)
	}
}

// TestARefThatWasForgottenIsConfirmedAnew when it is kept and used again.
func TestARefThatWasForgottenIsConfirmedAnew(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	ref := savedRef(t, r)
	c := r.open(t, "a", func(c *client.Config) { c.Offline = true })
	for range 2 {
		s, err := c.Session(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Events(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
		if kept, err := c.Outbox().Ref(t.Context(), ref.ID); err != nil || kept.Confirmed.IsZero() {
			t.Errorf("the ref that was used is kept as %+v, %v", kept.RefMeta, err)
		}
		if err := c.Forget(t.Context(), ref.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMissingRightIsLearned: one that was never described, and is refused something.
func TestMissingRightIsLearned(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.open(t, "owner")
	sp := r.space(t, owner)
	maker, err := sp.Share(t.Context(), client.ShareOptions{Rights: capability.Create})
	if err != nil {
		t.Fatal(err)
	}
	c := r.open(t, "a")
	weak, err := c.Space(t.Context(), maker)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range weak.List(t.Context(), client.ListOptions{}) {
		if !errors.Is(err, fault.MissingRight) {
			t.Errorf("listed: %v", err)
		}
	}
	if kept, err := c.Outbox().Ref(t.Context(), maker.ID); err != nil || kept.Rights != capability.Create || kept.Confirmed.IsZero() {
		t.Errorf("what is known of it: %+v, %v", kept.RefMeta, err)
	}
}

// TestAnAddressIsKeptWhenAServerAnsweredThere: a copy of a ref with a wrong port
// changes nothing; when a server has moved, what was committed goes there.
func TestAnAddressIsKeptWhenAServerAnsweredThere(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "owner"))
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append})
	applied(t, b)
	c := r.open(t, "a", func(c *client.Config) { c.RetryTimeout = -1 })
	mine, err := c.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	b = mine.Batch()
	b.Put(message(1), object{})
	applied(t, b) // through the outbox alone, which is enough
	kept := func() outbox.SavedRef {
		got, err := c.Outbox().Ref(t.Context(), ref.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	until.True(t, "the ref is confirmed", func() bool { return !kept().Confirmed.IsZero() })

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	wrong := ref
	wrong.Hosts = []string{elsewhere}
	away, err := c.Session(t.Context(), wrong)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := away.Snapshot(t.Context()); !errors.Is(err, fault.Unavailable) {
		t.Errorf("where nobody is: %v", err)
	}
	if got := kept().Hosts[0]; got != ref.Hosts[0] {
		t.Fatalf("the address that is kept is %s", got)
	}

	moved := ref
	moved.Hosts = []string{strings.Replace(r.proxy.Addr(), "127.0.0.1", "localhost", 1)}
	there, err := c.Session(t.Context(), moved)
	if err != nil {
		t.Fatal(err)
	}
	b = there.Batch()
	b.Put(message(2), object{})
	applied(t, b)
	until.True(t, "the new address is kept", func() bool { return kept().Hosts[0] == moved.Hosts[0] })
}

// TestExternalIDsWorkWhereARefWasRedeemed: the name that another system has for a
// session is as good as its id. Those that were given here go before.
func TestExternalIDsWorkWhereARefWasRedeemed(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.open(t, "owner")
	sp := r.space(t, owner)
	s, b := sp.Create(client.CreateOptions{External: "their-name"})
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read})
	applied(t, b)
	c := r.open(t, "a")
	if _, err := c.Redeem(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if got, err := c.SessionByID(t.Context(), "their-name"); err != nil || got.ID() != s.ID() {
		t.Errorf("by the name: %v", err)
	}

	other := testRig(t)
	own, b := other.space(t, c).Create(client.CreateOptions{External: "their-name"})
	applied(t, b)
	if got, err := c.SessionByID(t.Context(), "their-name"); err != nil || got.ID() != own.ID() {
		t.Errorf("a name that was given here: %v", err)
	}
}

// TestARefusedCreationLeavesNoName: the program that creates a session under a name
// is run twice.
func TestARefusedCreationLeavesNoName(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	sp := r.space(t, c)
	s, b := sp.Create(client.CreateOptions{External: "my-id"})
	applied(t, b)
	again, b := sp.Create(client.CreateOptions{External: "my-id"})
	b.Put(message(1), object{})
	if got := brief(outcomes(t, b)); got != "rejected/already_exists skipped/already_exists" && got != "rejected/already_exists rejected/not_found" {
		t.Errorf("outcomes %s", got)
	}
	if got, err := c.SessionByID(t.Context(), "my-id"); err != nil || got.ID() != s.ID() {
		t.Errorf("by its name: %v", err)
	}
	if kept, err := c.Outbox().Ref(t.Context(), again.Ref().ID); err != nil || kept.Dead != fault.AlreadyExists {
		t.Errorf("the ref of the refused one: %+v, %v", kept.RefMeta, err)
	}
	// Its creation can be tried again when the first one is gone, and then counts.
	gone := s.Batch()
	gone.Delete()
	applied(t, gone)
	rows, err := c.Outbox().List(t.Context(), outbox.Filter{Batch: b.ID()})
	if err != nil {
		t.Fatal(err)
	}
	retried, err := c.Outbox().Retry(t.Context(), rows[0].Op)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, err := c.Ticket(retried.Batch).Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if results.Err() != nil { // a deleted session gives its name back
		t.Fatal(results.Err())
	}
	if d, err := again.Describe(t.Context()); err != nil || !d.Grant.Owner {
		t.Errorf("after the retry: %+v, %v", d.Grant, err)
	}
}
