//go:build unix

package node

import (
	"errors"
	"reflect"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/ledger"
)

// A session is made, appended to and forked by an outbox within the process; what comes
// again, there or over a wire, is a duplicate.
func TestAnOutboxAtTheDoor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		me := r.server.Caller(t.Context(), "127.0.0.1:1")
		space, err := me.Restore(r.owner, "")
		if err != nil {
			t.Fatal(err)
		}
		id, b := capability.SessionPrefix+ulid.Make().String(), newBox()
		owner := r.owner.New(id)
		making, err := space.CreateStream(t.Context(), id, owner.ID, b.id, b.secret, 1)
		if err != nil {
			t.Fatal(err)
		}
		create := b.batch(id, op("create", "ref", owner.ID, "hash", hashText(owner.Secret)))
		if a, err := making.Apply(t.Context(), *create); err != nil || a.Outcomes[0].Status != ledger.Applied || a.Cursor != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		live, err := me.Restore(owner, "")
		if err != nil {
			t.Fatal(err)
		}
		stream, err := live.OpenStream(t.Context(), b.id, b.secret, 1)
		if err != nil || stream.LastSeq != 1 || stream.AckedThrough != 0 {
			t.Fatalf("%+v, %v", stream, err)
		}
		if a, err := stream.Apply(t.Context(), *create); err != nil || !a.Duplicate {
			t.Errorf("made again: %+v, %v", a, err)
		}
		put := b.batch(id, op("put", "key", "message/m", "payload", object{"a": 1}))
		put.AckedThrough = 1
		first, err := stream.Apply(t.Context(), *put)
		if err != nil || first.Outcomes[0].Cursor != 2 {
			t.Fatalf("%+v, %v", first, err)
		}
		p, w := r.dial(), r.dialWeb()
		for _, again := range []*reply{p.apply(p.open(p.restore(owner), b), put), w.apply(w.open(w.restore(owner), b), put)} {
			first.Outcomes[0].Digest = ledger.Digest{}
			if again.refusal != nil || again.duplicates != 1 || !reflect.DeepEqual(again.outcomes, first.Outcomes) {
				t.Errorf("%+v", again)
			}
		}
		if s, err := live.OpenStream(t.Context(), b.id, b.secret, 2); err != nil || s.LastSeq != 2 || s.AckedThrough != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		if _, err := stream.Apply(t.Context(), *b.batch(id, op("remove", "key", "message/m"))); !errors.Is(err, fault.Fenced) {
			t.Errorf("an older incarnation: %v", err)
		}

		// A fork needs to hold its source, and all that its ref allows.
		narrow, err := live.Attenuate(t.Context(), capability.MintRequest{Label: "narrow"})
		if err != nil {
			t.Fatal(err)
		}
		for _, with := range [][]*objects.Capability{nil, {space}, {narrow}, {live}} {
			forked, c := capability.SessionPrefix+ulid.Make().String(), newBox()
			ref := r.owner.New(forked)
			s, err := space.CreateStream(t.Context(), forked, ref.ID, c.id, c.secret, 1)
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.Apply(t.Context(), *c.batch(forked, op("fork", "ref", ref.ID, "hash", hashText(ref.Secret), "source", id, "via", owner.ID)), with...)
			if holds := len(with) > 0 && with[0] == live; err != nil || (a.Outcomes[0].Status == ledger.Applied) != holds {
				t.Errorf("with %d: %+v, %v", len(with), a, err)
			}
		}
	})
}

func TestRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	m := r.create(r.dial())
	me := r.server.Caller(t.Context(), "127.0.0.1:1")
	space, live := me.Assume(r.owner.ID), me.Assume(m.owner.ID)
	stream, err := live.OpenStream(t.Context(), "o", make([]byte, 32), 1)
	if err != nil {
		t.Fatal(err)
	}
	open := func(h *objects.Capability, outbox string, secret []byte, incarnation uint64) error {
		_, err := h.OpenStream(t.Context(), outbox, secret, incarnation)
		return err
	}
	create := func(h *objects.Capability, id, owner string) error {
		_, err := h.CreateStream(t.Context(), id, owner, "o", make([]byte, 32), 1)
		return err
	}
	apply := func(b ledger.Batch, with ...*objects.Capability) error {
		_, err := stream.Apply(t.Context(), b, with...)
		return err
	}
	large := *newBox().batch(m.id, op("put"))
	large.Ops[0].Args = make([]ledger.Arg, 2001)
	deep := *newBox().batch(m.id, op("put"))
	deep.Ops[0].DependsOn = make([]string, 2001)
	for i, c := range []struct {
		err  error
		code fault.Code
	}{
		{open(space, "o", make([]byte, 32), 1), fault.BadArgument},
		{open(live, "", make([]byte, 32), 1), fault.BadArgument},
		{open(live, "o", make([]byte, 31), 1), fault.BadArgument},
		{open(live, "o", make([]byte, 32), 0), fault.BadArgument},
		{open(live, "o~", make([]byte, 32), 1), fault.BadArgument},
		{create(live, m.id, m.owner.ID), fault.BadArgument},
		{create(space, "x", m.owner.ID), fault.BadArgument},
		{create(space, m.id, r.owner.ID), fault.BadArgument},
		{space.Create(t.Context(), m.id, r.owner.ID, nil), fault.BadArgument},
		{apply(ledger.Batch{}), fault.Malformed},
		{apply(large), fault.TooLarge},
		{apply(deep), fault.TooLarge},
		{apply(*newBox().batch(m.id, op("put")), make([]*objects.Capability, 65)...), fault.TooLarge},
	} {
		if !errors.Is(c.err, c.code) {
			t.Errorf("%d: %v, want %s", i, c.err, c.code)
		}
	}
}
