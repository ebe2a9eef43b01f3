package client_test

import (
	"context"
	"errors"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// giver is what one program serves another: a capability for whoever asks.
type giver struct{ cap *rpc.Ref }

func (g giver) Serve(c *rpc.Call) {
	c.Return(capnp.ObjectSize{PointerCount: 1}, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, g.cap) })
}

// between connects two programs and gives the second's view of what the first serves.
func between(t *testing.T, first rpc.Object) *rpc.Ref {
	near, far := rpc.Pipe()
	a, b := rpc.NewConn(near, rpc.Config{Bootstrap: first}), rpc.NewConn(far, rpc.Config{})
	for _, c := range []*rpc.Conn{a, b} {
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			_ = c.Run(context.Background())
		}()
		t.Cleanup(func() {
			c.Close("test")
			<-ran
		})
	}
	return b.Bootstrap(t.Context())
}

// One agent hands another a narrower capability in a call. The other reads with
// it, makes itself a durable ref of it, and loses both with the first one's ref.
func TestACapabilityIsHandedOnInACall(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner, alice, bob := r.open(t, "owner"), r.open(t, "alice"), r.open(t, "bob")
	s := r.newSession(t, owner)
	b := s.Batch()
	b.Put(message(1), map[string]int{"n": 1})
	b.Put(message(2), map[string]int{"n": 2})
	hers, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append | capability.Share, Actor: "owner/alice"})
	applied(t, b)

	hersSession, err := alice.Session(t.Context(), hers)
	if err != nil {
		t.Fatal(err)
	}
	given, err := hersSession.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Read | capability.Share, Message: "msg_0002", Actor: "owner/alice/bob"})
	if err != nil {
		t.Fatal(err)
	}
	defer given.Release()
	if _, err := given.Attenuate(t.Context(), client.AttenuateOptions{Message: "msg_0001"}); !errors.Is(err, fault.Widening) {
		t.Errorf("another message: %v", err)
	}
	answer := between(t, giver{given.Cap()}).Call(t.Context(), rpc.Method{Interface: 1}, capnp.ObjectSize{}, nil)
	defer answer.Release()
	his := client.LiveSession(answer.Cap(0))
	defer his.Release()

	d, err := his.Describe(t.Context())
	if err != nil || d.Session.ID != s.ID() || d.Grant.Rights != capability.Read|capability.Share || d.Grant.Message != "msg_0002" || d.Grant.Actor != "owner/alice/bob" {
		t.Fatalf("%+v, %v", d, err)
	}
	state, err := his.Snapshot(t.Context())
	if err != nil || len(state.Entries) != 1 || state.Entries[0].Key != message(2) {
		t.Errorf("the state: %+v, %v", state, err)
	}
	ref, err := his.Save(t.Context(), r.owner)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := bob.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	state, err = kept.Snapshot(t.Context())
	if err != nil || len(state.Entries) != 1 {
		t.Errorf("the state, by the ref: %+v, %v", state, err)
	}

	// What takes the right to share it cannot; what has that right shares live too.
	reading, err := s.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Read})
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Release()
	if _, err := reading.Share(t.Context(), r.owner, client.ShareOptions{Rights: capability.Read}); !errors.Is(err, fault.MissingRight) {
		t.Errorf("sharing without the right: %v", err)
	}
	if _, err := reading.Save(t.Context(), r.owner); !errors.Is(err, fault.MissingRight) {
		t.Errorf("saving without the right: %v", err)
	}
	whole, err := s.Attenuate(t.Context(), client.AttenuateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Release()
	shared, err := whole.Share(t.Context(), r.owner, client.ShareOptions{Rights: capability.Read, Label: "live"})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := bob.Session(t.Context(), shared)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := reader.Describe(t.Context()); err != nil || d.Grant.Label != "live" || d.Grant.Rights != capability.Read {
		t.Errorf("shared live: %+v, %v", d, err)
	}

	if _, err := s.Revoke(t.Context(), hers.ID); err != nil {
		t.Fatal(err)
	}
	_, err = his.Events(t.Context(), 0, 0)
	if !errors.Is(err, fault.Revoked) {
		t.Errorf("live, after the cut: %v", err)
	}
	if _, err = kept.Snapshot(t.Context()); !errors.Is(err, fault.Revoked) {
		t.Errorf("by the ref, after the cut: %v", err)
	}
}

func TestASpaceIsNarrowed(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "owner")
	sp := r.space(t, c)
	live, err := sp.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.List, Label: "clerk"})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Release()
	if d, err := live.Describe(t.Context()); err != nil || d.Grant.Rights != capability.List || d.Grant.Label != "clerk" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := live.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Create}); !errors.Is(err, fault.Widening) {
		t.Errorf("more rights: %v", err)
	}
}
