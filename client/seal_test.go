// Sealed refs against a real server.

package client_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/outbox"
)

func sealKey(t *testing.T) (ed25519.PublicKey, func(*client.Config)) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, func(c *client.Config) { c.SealKey = private }
}

// What is bound to a key works where the key is, over all that a ref does and
// over connections that break, and nowhere else.
func TestSealedRefWorksWhereItsKeyIs(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.open(t, "owner")
	s := r.newSession(t, owner)
	public, withKey := sealKey(t)
	_, withOther := sealKey(t)
	ref, ticket, err := s.Share(t.Context(), client.ShareOptions{
		Rights: capability.Read | capability.Append | capability.Share, Actor: "owner/agent", Seal: public, Redemptions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*client.Config){"keyless": func(*client.Config) {}, "other": withOther} {
		thief := r.open(t, name, change)
		if _, err := thief.Redeem(t.Context(), ref); fault.CodeOf(err) != fault.Sealed {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := thief.Outbox().Ref(t.Context(), ref.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s keeps the ref: %v", name, err)
		}
	}
	agent := r.open(t, "agent", withKey)
	d, err := agent.Redeem(t.Context(), ref)
	if err != nil || !d.Grant.Seal.Equal(public) || d.Grant.Redemptions != 1 {
		t.Fatalf("with the key: %+v, %v", d.Grant, err)
	}
	shared, err := agent.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		b := shared.Batch()
		b.Put(message(i), map[string]any{"n": i})
		applied(t, b)
		r.proxy.Cut() // the next comes over another connection
	}
	events := 0
	for _, err := range shared.Follow(t.Context(), client.SubscribeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if events++; events == 5 {
			break
		}
	}
	// What is passed along with a batch as proof of an authority may be sealed as well.
	sp := r.space(t, agent)
	_, b := sp.Fork(shared, 0, client.CreateOptions{})
	applied(t, b)
	if _, err := shared.Save(t.Context()); fault.CodeOf(err) != fault.Widening {
		t.Errorf("save: %v", err)
	}
}

// A sealed ref can be handed on and used before it is known, and says so.
func TestSealedRefBeforeItsMinting(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.open(t, "owner")
	s := r.newSession(t, owner)
	public, withKey := sealKey(t)
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append, Seal: public})
	agent := r.open(t, "agent", withKey, func(c *client.Config) { c.RetryTimeout = -1 })
	if _, err := agent.Redeem(t.Context(), ref); fault.CodeOf(err) != fault.NotYetKnown {
		t.Errorf("before: %v", err)
	}
	shared, err := agent.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	early := shared.Batch()
	early.Put(message(0), map[string]any{})
	ticket, err := early.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	applied(t, b)
	if err := waited(t, ticket).Err(); err != nil {
		t.Errorf("what waited for the ref: %v", err)
	}
}

// What is committed under a sealed ref without its key stands still and says why;
// a later process that has the key goes on.
func TestSealedOutboxStandsStillWithoutTheKey(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.open(t, "owner")
	s := r.newSession(t, owner)
	public, withKey := sealKey(t)
	_, withOther := sealKey(t)
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Append, Seal: public})
	applied(t, b)
	for name, change := range map[string]func(*client.Config){"keyless": func(*client.Config) {}, "other": withOther} {
		func() {
			c, err := client.Open(t.Context(), r.config(name, change))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			shared, err := c.Session(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			ticket, err := shared.Put(t.Context(), message(1), map[string]any{"by": name})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = ticket.Wait(ctx)
			var still *outbox.StreamStoppedError
			if !errors.As(err, &still) || still.Code != fault.Sealed || !strings.Contains(still.Error(), "public key of this place") {
				t.Errorf("%s: %v", name, err)
			}
		}()
		c := r.open(t, name, withKey)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Drain(ctx, nil); err != nil {
			t.Errorf("%s: with the key: %v", name, err)
		}
	}
}

// A server that does not know where it is reached says what is to be done.
func TestSealedRefNeedsAKnownAddress(t *testing.T) {
	t.Parallel()
	r := testRig(t, func(c *node.Config) { c.Audiences = []string{"elsewhere.example:7600"} })
	owner := r.open(t, "owner")
	s := r.newSession(t, owner)
	public, withKey := sealKey(t)
	b := s.Batch()
	ref, _ := b.Share(client.ShareOptions{Rights: capability.Read, Seal: public})
	applied(t, b)
	_, err := r.open(t, "agent", withKey).Redeem(t.Context(), ref)
	if fault.CodeOf(err) != fault.Sealed || !strings.Contains(err.Error(), "--advertise") {
		t.Errorf("got %v", err)
	}
}
