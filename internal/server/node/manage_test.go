//go:build unix

// The right manage: a space's ref in the sessions of the space, whoever made them.

package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// openSession opens a session through a space, over the wire.
func (p *peer) openSession(space *rpc.Ref, id string) (*rpc.Ref, error) {
	p.t.Helper()
	_, promise, err := call(p.t, space, methods.SpaceOpen.Method, methods.SpaceOpen.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		return wire.Space_open_Params(s).SetSession(id)
	})
	if err != nil {
		return nil, err
	}
	return promise.Cap(0), nil
}

// held is the live capability of a ref, within the process.
func (r *rig) held(ref capability.Ref) *objects.Capability {
	r.t.Helper()
	h, err := r.server.Caller(r.t.Context(), "192.0.2.7:1").Restore(ref, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// spaceRef mints a ref of the space from its root.
func (r *rig) spaceRef(rights capability.Rights) capability.Ref {
	r.t.Helper()
	ref := r.owner.New(r.owner.Target())
	if err := r.held(r.owner).Share(r.t.Context(), capability.MintRequest{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: rights}); err != nil {
		r.t.Fatal(err)
	}
	return ref
}

// saving is the ref that a server saves for a live capability.
func (r *rig) saving(live *rpc.Ref) (capability.Ref, error) {
	r.t.Helper()
	s, _, err := call(r.t, live, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
	if err != nil {
		return capability.Ref{}, err
	}
	ptr, _ := s.Ptr(0)
	ref := wire.SturdyRef(ptr.Struct())
	id, _ := ref.Id()
	data, _ := ref.Secret()
	secret, err := capability.SecretFrom(data)
	return r.owner.With(id, secret), err
}

func putIntent(key string, value any) ledger.Intent {
	text, _ := json.Marshal(value)
	return ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Method: "put",
		Args: []ledger.Arg{{Name: "key", JSON: json.RawMessage(fmt.Sprintf("%q", key))}, {Name: "payload", JSON: text}}}
}

// Who may open a session of the space, and what may be done in it.
func TestManageTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		maker := r.spaceRef(capability.Create)
		manager := r.spaceRef(capability.Manage | capability.Share | capability.Revoke | capability.List)
		dead := r.spaceRef(capability.Manage)
		if _, err := r.held(r.owner).RevokeInSpace(t.Context(), dead.ID); err != nil {
			t.Fatal(err)
		}
		narrowed := func(ref capability.Ref, m capability.MintRequest) *objects.Capability {
			h, err := r.held(ref).Attenuate(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		type verb struct {
			name string
			do   func(live *objects.Capability, m *made, guest capability.Ref) error
		}
		mint := func(live *objects.Capability, rights capability.Rights) error {
			ref := r.owner.New(live.Target())
			return live.Share(t.Context(), capability.MintRequest{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: rights})
		}
		verbs := []verb{
			{"read", func(live *objects.Capability, _ *made, _ capability.Ref) error {
				_, err := live.Events(t.Context(), fanout.Position{}, nil, 10)
				return err
			}},
			{"write", func(live *objects.Capability, _ *made, _ capability.Ref) error {
				_, err := live.ApplyDirect(t.Context(), putIntent("message/m9", map[string]string{"role": "user"}))
				return err
			}},
			{"share", func(live *objects.Capability, _ *made, _ capability.Ref) error { return mint(live, capability.Read) }},
			{"list refs", func(live *objects.Capability, m *made, guest capability.Ref) error {
				var ids []string
				for q := (session.TreeQuery{Limit: 1}); ; {
					page, err := live.Refs(t.Context(), q)
					if err != nil {
						return err
					}
					for _, row := range page.Rows {
						ids = append(ids, row.Grant.ID)
					}
					if q.After = page.Next; page.Next == "" {
						break
					}
				}
				if len(ids) < 2 || ids[0] != m.owner.ID || !slices.Contains(ids, guest.ID) {
					return fmt.Errorf("the refs are %v", ids)
				}
				return nil
			}},
			{"audit", func(live *objects.Capability, _ *made, _ capability.Ref) error {
				_, err := live.Audit(t.Context(), 0, 10)
				return err
			}},
			{"revoke a guest's", func(live *objects.Capability, _ *made, guest capability.Ref) error {
				_, err := live.Revoke(t.Context(), guest.ID, false)
				return err
			}},
			{"revoke the owner's", func(live *objects.Capability, m *made, _ capability.Ref) error {
				_, err := live.Revoke(t.Context(), m.owner.ID, false)
				return err
			}},
			{"replace the owner's", func(live *objects.Capability, m *made, _ capability.Ref) error {
				to := r.owner.New(m.id)
				_, err := live.Rotate(t.Context(), decide.Rotation{ID: to.ID, Hash: to.Secret.Hash()}, false)
				return err
			}},
			{"take over", func(live *objects.Capability, m *made, _ capability.Ref) error {
				to := r.owner.New(m.id)
				cut, err := live.Rotate(t.Context(), decide.Rotation{ID: to.ID, Hash: to.Secret.Hash()}, true)
				if err != nil {
					return err
				}
				again, err := live.Rotate(t.Context(), decide.Rotation{ID: to.ID, Hash: to.Secret.Hash()}, true)
				if err != nil || again != cut {
					return fmt.Errorf("repeated: cut %d, was %d, %v", again, cut, err)
				}
				if _, err := r.held(to).Audit(t.Context(), 0, 1); err != nil {
					return fmt.Errorf("under the new ref: %w", err)
				}
				if _, err := r.held(m.owner).Audit(t.Context(), 0, 1); fault.CodeOf(err) != fault.Revoked {
					return fmt.Errorf("under the old ref: %w", err)
				}
				m.owner = to
				return nil
			}},
			{"revoke the owner's, taking over", func(live *objects.Capability, m *made, _ capability.Ref) error {
				_, err := live.Revoke(t.Context(), m.owner.ID, true)
				return err
			}},
		}
		all := func(code fault.Code) map[string]fault.Code {
			want := map[string]fault.Code{}
			for _, v := range verbs {
				want[v.name] = code
			}
			return want
		}
		owns := all(fault.None)
		owns["revoke the owner's"], owns["replace the owner's"] = fault.NotAnOwner, fault.NotAnOwner
		reads := all(fault.MissingRight)
		reads["read"], reads["audit"], reads["replace the owner's"], reads["take over"] = fault.None, fault.NotAnOwner, fault.NotAnOwner, fault.NotAnOwner
		for _, c := range []struct {
			name string
			live func() *objects.Capability
			open fault.Code
			less *capability.MintRequest // of the session, once it is open
			want map[string]fault.Code
		}{
			{name: "the root", live: func() *objects.Capability { return r.held(r.owner) }, want: owns},
			{name: "a ref with manage", live: func() *objects.Capability { return r.held(manager) }, want: owns},
			{name: "a ref with manage, attenuated to it", live: func() *objects.Capability {
				return narrowed(manager, capability.MintRequest{Rights: capability.Manage})
			}, want: owns},
			{name: "a ref with manage, whose session is attenuated", live: func() *objects.Capability { return r.held(manager) },
				less: &capability.MintRequest{Rights: capability.Read}, want: reads},
			{name: "a ref with manage, attenuated without", live: func() *objects.Capability {
				return narrowed(manager, capability.MintRequest{Rights: capability.List})
			}, open: fault.MissingRight},
			{name: "the root, attenuated without", live: func() *objects.Capability {
				return narrowed(r.owner, capability.MintRequest{Rights: capability.List | capability.Share | capability.Revoke | capability.Create})
			}, open: fault.MissingRight},
			{name: "all rights but manage", live: func() *objects.Capability {
				return r.held(r.spaceRef(capability.SpaceRights &^ capability.Manage))
			}, open: fault.MissingRight},
			{name: "a ref to create with", live: func() *objects.Capability { return r.held(maker) }, open: fault.MissingRight},
			{name: "a dead ref", live: func() *objects.Capability { return r.held(dead) }, open: fault.Revoked},
		} {
			m := r.under(maker).create(p)
			guest := p.share(m, "rights", []string{"read", "append"})
			live, err := c.live().Open(t.Context(), m.id)
			if fault.CodeOf(err) != c.open {
				t.Errorf("%s opens: %v, want %s", c.name, err, c.open)
			}
			if err != nil {
				continue
			}
			if c.less != nil {
				if live, err = live.Attenuate(t.Context(), *c.less); err != nil {
					t.Fatal(err)
				}
			}
			for _, v := range verbs {
				if err := v.do(live, m, guest); fault.CodeOf(err) != c.want[v.name] || err != nil && c.want[v.name] == fault.None {
					t.Errorf("%s, to %s: %v, want %s", c.name, v.name, err, c.want[v.name])
				}
			}
		}
		m := r.under(maker).create(p)
		for name, ref := range map[string]capability.Ref{"to create with": maker, "that is dead": dead} { // it learns nothing of sessions
			_, there := r.held(ref).Open(t.Context(), m.id)
			_, not := r.held(ref).Open(t.Context(), capability.SessionPrefix+ulid.Make().String())
			if there == nil || not == nil || there.Error() != not.Error() {
				t.Errorf("a ref %s opens a session: %v, and none: %v", name, there, not)
			}
		}
		for name, id := range map[string]string{"no session": capability.SessionPrefix + ulid.Make().String(), "no id": "ses_1"} {
			want := map[string]fault.Code{"no session": fault.NotFound, "no id": fault.BadArgument}[name]
			if _, err := r.held(manager).Open(t.Context(), id); fault.CodeOf(err) != want {
				t.Errorf("opening %s: %v", name, err)
			}
		}
	})
}

// Events and both audits name the space's ref, and the refs of whoever made the session go on.
func TestManageIsAudited(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		m := r.under(r.spaceRef(capability.Create)).create(p)
		space := p.restore(r.owner)
		sess, err := p.openSession(space, m.id)
		if err != nil {
			t.Fatal(err)
		}
		mine := &made{id: m.id, owner: r.owner, sess: sess, box: newBox()}
		stream := p.open(sess, mine.box)
		ack := p.must(stream, mine.batch(put(1), op("purge", "key", "message/msg_1")))
		if ack.outcomes[0].Status != ledger.Applied || ack.outcomes[1].Status != ledger.Applied {
			t.Fatalf("%+v", ack.outcomes)
		}
		if got := p.must(m.stream, m.batch(put(2))).outcomes[0]; got.Status != ledger.Applied {
			t.Errorf("the maker's own: %+v", got)
		}
		if _, err := p.openSession(space, m.id); err != nil { // again: no further rows
			t.Fatal(err)
		}
		page, err := st.ReadLog(t.Context(), m.id, 0, 1<<20, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		owner := &capability.Grant{Owner: true, Rights: capability.OwnerRights}
		for _, e := range page.Shown(owner).Events[1:3] {
			if e.Ref != r.owner.ID || e.Actor != "owner" {
				t.Errorf("event %d is under %s by %q", e.Cursor, e.Ref, e.Actor)
			}
		}
		acts := func(target, subject string) (found []string) {
			for _, row := range auditOf(t, st, target) {
				if row.Ref == r.owner.ID && (row.Act == capability.AuditManage || row.Act == capability.AuditPurge) && row.Subject == subject {
					found = append(found, row.Act.String())
				}
			}
			return found
		}
		if got := acts(r.owner.Target(), m.id); !slices.Equal(got, []string{"manage", "purge"}) {
			t.Errorf("the space's audit has %v", got)
		}
		if got := append(acts(m.id, ""), acts(m.id, "message/msg_1")...); !slices.Equal(got, []string{"manage", "purge"}) {
			t.Errorf("the session's audit has %v", got)
		}
	})
}

// Only the root gives the right on.
func TestManageIsGivenByTheRoot(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		manager := r.held(r.spaceRef(capability.Manage | capability.Share | capability.List))
		give := func(live *objects.Capability, rights capability.Rights) fault.Code {
			ref := r.owner.New(r.owner.Target())
			return fault.CodeOf(live.Share(t.Context(), capability.MintRequest{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: rights}))
		}
		less, err := r.held(r.owner).Attenuate(t.Context(), capability.MintRequest{Rights: capability.Manage | capability.Share})
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]fault.Code{
			"with manage, by a ref that has it": give(manager, capability.Manage),
			"with manage, by a lesser root":     give(less, capability.Manage),
		} {
			if got != fault.Widening {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := give(manager, capability.List); got != fault.None {
			t.Errorf("without manage: %s", got)
		}
		p := r.dial()
		for name, want := range map[string]capability.Rights{"manager": capability.Share | capability.List, "root": capability.SpaceRights} {
			ref := map[string]capability.Ref{"manager": {ID: manager.Ref()}, "root": r.owner}[name]
			if name == "manager" {
				ref = r.spaceRef(capability.Manage | capability.Share | capability.List)
			}
			saved, err := r.saving(p.restore(ref))
			if err != nil {
				t.Fatal(err)
			}
			d, err := r.held(saved).Describe(t.Context())
			if err != nil || d.Grant.Rights != want {
				t.Errorf("what %s saves has %s, %v", name, d.Grant.Rights, err)
			}
		}
	})
}

// A revoked or rotated ref of the space ends in each session that it has opened, at a cut: nothing under it
// commits after that, its subscribers are told, and what was recorded before is repeated.
func TestManageEndsWithACut(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		for name, end := range map[string]struct {
			under func() capability.Ref
			end   func(ref capability.Ref)
		}{
			"revoked": {func() capability.Ref { return r.spaceRef(capability.Manage) }, func(ref capability.Ref) {
				if _, err := r.held(r.owner).RevokeInSpace(t.Context(), ref.ID); err != nil {
					t.Fatal(err)
				}
			}},
			"rotated": {func() capability.Ref { return r.owner }, func(ref capability.Ref) {
				to := r.owner.New(r.owner.Target())
				if _, err := r.held(r.owner).Rotate(t.Context(), decide.Rotation{ID: to.ID, Hash: to.Secret.Hash()}, false); err != nil {
					t.Fatal(err)
				}
				r.owner = to
			}},
		} {
			m, other := r.create(p), r.create(p)
			ref := end.under()
			space := p.restore(ref)
			sess, err := p.openSession(space, m.id)
			if err != nil {
				t.Fatal(err)
			}
			k := newRecorder()
			mine := &made{id: m.id, owner: ref, sess: sess, box: newBox()}
			sub := p.subscribe(sess, k, 0)
			stream := p.open(sess, mine.box)
			done := mine.batch(op("begin", "message", "m1", "payload", map[string]string{"role": "assistant"}), op("claim", "key", "todo/1", "lease", 60_000))
			first := p.must(stream, done)
			if first.outcomes[0].Status != ledger.Applied {
				t.Fatalf("%+v", first.outcomes[0])
			}
			held, err := r.held(ref).Open(t.Context(), m.id)
			if err != nil {
				t.Fatal(err)
			}
			given := r.owner.New(m.id) // goes on under the new root, and else ends at the cut
			if err := held.Share(t.Context(), capability.MintRequest{ID: given.ID, Hash: given.Secret.Hash(), Rights: capability.Read}); err != nil {
				t.Fatal(err)
			}
			before := rowOf(t, st, other.id).Cursor
			end.end(ref)
			cut := rowOf(t, st, m.id).Cursor
			grants, err := st.ReadAccess(t.Context(), m.id, []string{given.ID})
			if err != nil {
				t.Fatal(err)
			}
			if g := grants.Grants[given.ID]; name == "revoked" && g.Cut != cut || name == "rotated" && (g.Revoked != 0 || g.Parent != r.owner.ID) {
				t.Errorf("%s at %d: what was made in the session is %+v", name, cut, g)
			}
			k.until(t, name+": the end of the subscription", func() bool { return k.ended != nil })
			if k.ended.Code != fault.Revoked {
				t.Errorf("%s: the subscriber was told %v", name, k.ended)
			}
			sub.Release()
			if got := p.must(stream, mine.batch(put(5))).outcomes[0]; got.Status != ledger.Denied || got.Reason != fault.Revoked {
				t.Errorf("%s: a later op: %+v", name, got)
			}
			wantAgain(t, p, stream, done, first)
			again, err := p.openSession(space, m.id)
			if err != nil {
				t.Errorf("%s: opening it again: %v", name, err)
			} else if got := p.must(p.open(again, mine.box), mine.batch(put(6))).outcomes[0]; got.Reason != fault.Revoked {
				t.Errorf("%s: an op after opening it again: %+v", name, got)
			}
			if _, err := p.openSession(space, other.id); fault.CodeOf(err) != fault.Revoked {
				t.Errorf("%s: opening another session: %v", name, err)
			}
			if row := rowOf(t, st, other.id); row.Cursor != before {
				t.Errorf("%s: the other session is at %d, was at %d", name, row.Cursor, before)
			}
			page, err := st.ReadLog(t.Context(), m.id, cut-1, 1<<20, 100, nil)
			if err != nil {
				t.Fatal(err)
			}
			events := page.Shown(&capability.Grant{Owner: true, Rights: capability.OwnerRights}).Events
			if len(events) != 1 || events[0].Method != "revoke" || events[0].Key != "ref/"+ref.ID {
				t.Errorf("%s: the log ends with %+v", name, events)
			}
		}
	})
}

// While a ref is revoked, others append under it in several sessions: none of their events comes after
// its cut.
func TestNothingOfManageAfterTheCut(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		for range 5 {
			ref := r.spaceRef(capability.Manage)
			space := p.restore(ref)
			var ids []string
			var all sync.WaitGroup
			busy := make(chan struct{}, 100)
			for range 3 {
				m := r.create(p)
				ids = append(ids, m.id)
				sess, err := p.openSession(space, m.id)
				if err != nil {
					t.Fatal(err)
				}
				mine := &made{id: m.id, owner: ref, sess: sess, box: newBox()}
				stream := p.open(sess, mine.box)
				all.Go(func() {
					for n := 1; ; n++ {
						if p.must(stream, mine.batch(put(n))).outcomes[0].Status != ledger.Applied {
							return
						}
						select {
						case busy <- struct{}{}:
						default:
						}
					}
				})
			}
			<-busy
			if _, err := r.held(r.owner).RevokeInSpace(t.Context(), ref.ID); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			for _, id := range ids {
				page, err := st.ReadLog(t.Context(), id, 0, 1<<24, 10_000, nil)
				if err != nil {
					t.Fatal(err)
				}
				events := page.Shown(&capability.Grant{Owner: true, Rights: capability.OwnerRights}).Events
				if last := events[len(events)-1]; last.Method != "revoke" || last.Key != "ref/"+ref.ID {
					t.Errorf("the log of %s ends with %s of %s", id, last.Method, last.Key)
				}
			}
		}
	})
}

// While a ref is revoked, sessions are opened under it: each that was opened in time gets the cut, and nothing under the
// ref commits after that; the others are not opened.
func TestNothingIsOpenedAfterTheCut(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		for range 5 {
			var all []*made
			for range 24 {
				all = append(all, r.create(p))
			}
			ref := r.spaceRef(capability.Manage)
			var opening sync.WaitGroup
			begun := make(chan struct{}, len(all))
			for _, m := range all {
				space := r.held(ref)
				opening.Go(func() {
					live, err := space.Open(t.Context(), m.id)
					begun <- struct{}{}
					if err == nil {
						_, err = live.ApplyDirect(t.Context(), putIntent("message/m9", map[string]string{"role": "user"}))
					}
					if err != nil && fault.CodeOf(err) != fault.Revoked {
						t.Errorf("opened: %v", err)
					}
				})
			}
			<-begun
			if _, err := r.held(r.owner).RevokeInSpace(t.Context(), ref.ID); err != nil {
				t.Fatal(err)
			}
			opening.Wait()
			for _, m := range all {
				page, err := st.ReadLog(t.Context(), m.id, 0, 1<<20, 100, nil)
				if err != nil {
					t.Fatal(err)
				}
				opened := false
				for _, row := range auditOf(t, st, m.id) {
					opened = opened || row.Act == capability.AuditManage
				}
				ended := false
				for _, e := range page.Shown(&capability.Grant{Owner: true, Rights: capability.OwnerRights}).Events {
					if ended && e.Ref == ref.ID {
						t.Errorf("%s at %d is under the ref, after its cut", e.Method, e.Cursor)
					}
					ended = ended || e.Method == "revoke" && e.Key == "ref/"+ref.ID
				}
				if ended != opened {
					t.Errorf("opened %v, and ended there %v", opened, ended)
				}
			}
		}
	})
}

// A page of a session's refs goes on from one tree to the next: that of the owner's ref that lives first, then the
// ones that it replaced, then what was made under the right manage.
func TestManageListsAllTrees(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		m := r.create(p)
		guest := p.share(m, "rights", []string{"read"})
		replaced := m.owner
		m.owner = r.owner.New(m.id)
		if _, err := r.held(replaced).Rotate(t.Context(), decide.Rotation{ID: m.owner.ID, Hash: m.owner.Secret.Hash()}, false); err != nil {
			t.Fatal(err)
		}
		want := []string{m.owner.ID, guest.ID, replaced.ID}
		managed, err := r.held(r.spaceRef(capability.Manage)).Open(t.Context(), m.id)
		if err != nil {
			t.Fatal(err)
		}
		var others []string
		for range 70 {
			ref := r.owner.New(m.id)
			if err := managed.Share(t.Context(), capability.MintRequest{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: capability.Read}); err != nil {
				t.Fatal(err)
			}
			others = append(others, ref.ID)
		}
		for limit, pages := range map[int]int{0: 2, 2: 37, 10: 8} {
			var got []string
			n := 0
			for q := (session.TreeQuery{Limit: limit}); n == 0 || q.After != ""; n++ {
				page, err := managed.Refs(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if limit > 0 && len(page.Rows) > limit {
					t.Errorf("a page of %d refs, not %d", len(page.Rows), limit)
				}
				for _, row := range page.Rows {
					got = append(got, row.Grant.ID)
				}
				q.After = page.Next
			}
			if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || !slices.Equal(slices.Sorted(slices.Values(got[len(want):])), slices.Sorted(slices.Values(others))) {
				t.Errorf("by %d: %v, want %v and %v", limit, got, want, others)
			}
			if n != pages {
				t.Errorf("by %d: %d pages, not %d", limit, n, pages)
			}
		}
	})
}
