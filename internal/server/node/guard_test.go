//go:build unix

// What a guard has to keep back beside what it refuses: rows that nobody may
// make, and what a ref allows that another was only lent a part of.

package node

import (
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// naming gives the object that Space.create gives for a session and its owner's ref.
func naming(t testing.TB, space *rpc.Ref, id, owner string) *rpc.Ref {
	return space.Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Space_create_Params(s)
		if err := params.SetSession(id); err != nil {
			return err
		}
		return params.SetOwner(owner)
	}).Cap(0)
}

// Whoever has a space's ref, a dead one even, can name any session there could
// be. What it asks of one that is not there makes no row of it.
func TestNamingASessionLeavesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		root := p.restore(r.owner)
		dead := r.owner.New(r.owner.Target())
		if refused := sharing(t, root, dead, capability.List, ""); refused != nil {
			t.Fatal(refused)
		}
		space := p.restore(dead)
		if _, refused := cutting(t, root, dead.ID); refused != nil {
			t.Fatal(refused)
		}
		for label, ask := range map[string]func(sess *rpc.Ref, id string) *fault.Error{
			"revoke": func(sess *rpc.Ref, _ string) *fault.Error {
				s, _, err := call(t, sess, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
					wire.Session_revoke_Params(s).SetEpoch(true)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				res := wire.Session_revoke_Results(s)
				f, err := res.Refusal()
				return refusalOf(res.HasRefusal(), f, err)
			},
			"rotate": func(sess *rpc.Ref, id string) *fault.Error {
				_, refused := rotating(t, sess, methods.SessionRotate.Method, r.owner.New(id))
				return refused
			},
		} {
			id := capability.SessionPrefix + ulid.Make().String()
			if refused := ask(naming(t, space, id, r.owner.New(id).ID), id); refused == nil || refused.Code != fault.UnknownRef {
				t.Errorf("%s: %v", label, refused)
			}
			if rows, err := st.ReadRows(t.Context(), []string{id}); err != nil || len(rows) != 0 {
				t.Errorf("%s left behind: %v, %v", label, rows[id], err)
			}
		}
	})
}

// A capability that was narrowed shows what it allowed when its ref is dead, and
// not what that ref did.
func TestADeadRefShowsNoMoreThanItsNarrowedOne(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	ref := p.share(m, "rights", []string{"read", "append", "share"}, "actor", "owner/a")
	narrow := attenuating(t, p.restore(ref), func(a wire.Attenuation) {
		a.SetRights(uint16(capability.Read))
		_ = a.SetMessage_("m1")
		_ = a.SetActor("owner/a/b")
		_ = a.SetLabel("one message")
	}).Cap(0)
	look := func(when string, dead fault.Code, cut uint64) {
		t.Helper()
		_, grant := describe(t, narrow)
		message, _ := grant.Message_()
		actor, _ := grant.Actor()
		label, _ := grant.Label()
		if grant.Rights() != uint16(capability.Read) || message != "m1" || actor != "owner/a/b" || label != "one message" {
			t.Errorf("%s: rights %d, message %q, actor %q, label %q", when, grant.Rights(), message, actor, label)
		}
		if fault.Code(grant.Dead()) != dead || grant.Cut() != cut {
			t.Errorf("%s: dead %v at %d, want %v at %d", when, fault.Code(grant.Dead()), grant.Cut(), dead, cut)
		}
	}
	look("alive", fault.None, 0)
	cut, _ := revoking(t, m.sess, ref.ID)
	look("revoked", fault.Revoked, cut)
}

// The id of a new ref is the peer's own text: a database must not be asked for
// what it cannot hold, nor does a peer have what servers make for themselves.
func TestASpacesNewRefHasAnId(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		space := r.dial().restore(r.owner)
		for _, id := range []string{"", "x", r.owner.Target() + ".\x00", r.owner.Target() + ".\xff", "\x00.\xff", capability.FixedID(r.owner.Target(), "opencode shares")} {
			ref := r.owner.New(r.owner.Target())
			ref.ID = id
			if refused := sharing(t, space, ref, capability.List, ""); refused == nil || refused.Code != fault.BadArgument {
				t.Errorf("%q: %v", id, refused)
			}
			if _, refused := rotating(t, space, methods.SpaceRotate.Method, ref); refused == nil || refused.Code != fault.BadArgument {
				t.Errorf("rotating to %q: %v", id, refused)
			}
		}
	})
}
