//go:build unix

package node

import (
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// sharingSession mints ref from a live session, without an outbox.
func sharingSession(t testing.TB, live *rpc.Ref, ref capability.Ref, m capability.MintRequest) *fault.Error {
	t.Helper()
	s, _, err := call(t, live, methods.SessionShare.Method, methods.SessionShare.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		w, err := wire.Session_share_Params(s).NewRef()
		if err != nil {
			return err
		}
		limits, err := w.NewLimits()
		if err != nil {
			return err
		}
		limits.SetRights(uint16(m.Rights))
		limits.SetExpires(m.Expires)
		w.SetRedemptions(m.MaxRedemptions)
		hash := ref.Secret.Hash()
		var out fieldWriter
		out.text(limits.SetActor, m.Actor)
		out.text(limits.SetMessage_, m.Message)
		out.data(w.SetHash, hash[:])
		out.text(w.SetId, ref.ID)
		if m.Methods != nil {
			out.do(setNames(limits.NewMethods, m.Methods))
		}
		if m.ReadKeys != nil {
			out.do(setNames(limits.NewReadKeys, m.ReadKeys))
		}
		return out.err
	})
	if err != nil {
		t.Fatalf("share: %v", err)
	}
	r := wire.Session_share_Results(s)
	f, err := r.Refusal()
	return refusalOf(r.HasRefusal(), f, err)
}

// setNames sets a list of texts.
func setNames(list func(int32) (capnp.TextList, error), names []string) error {
	l, err := list(int32(len(names)))
	for i, name := range names {
		if err == nil {
			err = l.Set(i, name)
		}
	}
	return err
}

// Session.share mints by the rules of the op share, without an outbox.
func TestSessionShareMintsWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		whole := p.restore(m.owner)
		ref, wish := m.owner.New(m.id), capability.MintRequest{Rights: capability.Read | capability.Append, Methods: []string{"put"}, Actor: "owner/helper", MaxRedemptions: 3}
		k := newRecorder()
		defer p.subscribe(m.sess, k, 0).Release()
		for i := range 2 { // the same again changes nothing
			if refused := sharingSession(t, whole, ref, wish); refused != nil {
				t.Fatalf("share %d: %v", i, refused)
			}
		}
		if at := rowOf(t, st, m.id).Cursor; at != 2 {
			t.Errorf("the session is at %d: a share is one event", at)
		}
		k.untilCursor(t, 2)
		if k.shown[1] != "2 share ref/"+ref.ID {
			t.Errorf("the event: %q", k.shown[1])
		}
		b := newBox()
		helper := p.restore(ref)
		ack := p.must(p.open(helper, b), b.batch(m.id, put(1)))
		if ack.applied != 1 {
			t.Errorf("the helper appends: %+v", ack)
		}

		other := m.owner.New(m.id)
		for name, c := range map[string]struct {
			live *rpc.Ref
			ref  capability.Ref
			m    capability.MintRequest
			want fault.Code
		}{
			"the same id, another wish":  {whole, ref, capability.MintRequest{Rights: capability.Read}, fault.AlreadyExists},
			"without the right to share": {helper, other, capability.MintRequest{Rights: capability.Read}, fault.MissingRight},
			"for another session":        {whole, m.owner.New(r.create(p).id), capability.MintRequest{Rights: capability.Read}, fault.BadArgument},
			"without rights":             {whole, other, capability.MintRequest{}, fault.BadArgument},
			"no method":                  {whole, other, capability.MintRequest{Rights: capability.Append, Methods: []string{}}, fault.BadArgument},
			"an unknown method":          {whole, other, capability.MintRequest{Rights: capability.Append, Methods: []string{"share"}}, fault.BadArgument},
			"a bad message":              {whole, other, capability.MintRequest{Rights: capability.Read, Message: "no/id"}, fault.BadArgument},
			"too many redemptions":       {whole, other, capability.MintRequest{Rights: capability.Read, MaxRedemptions: 1<<31 + 1}, fault.BadArgument},
			"an actor beside its own":    {whole, other, capability.MintRequest{Rights: capability.Read, Actor: "somebody"}, fault.Widening},
		} {
			if refused := sharingSession(t, c.live, c.ref, c.m); refused == nil || refused.Code != c.want {
				t.Errorf("%s: %v, want %s", name, refused, c.want)
			}
		}

		// A retry tells of the minting, whatever has become of the ref.
		if _, _, err := call(t, whole, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Session_revoke_Params(s).SetEpoch(true)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if refused := sharingSession(t, whole, ref, wish); refused != nil {
			t.Errorf("the same, under a later epoch: %v", refused)
		}
		if refused := sharingSession(t, helper, ref, wish); refused == nil || refused.Code != fault.StaleEpoch {
			t.Errorf("through a dead ref: %v", refused)
		}
	})
}
