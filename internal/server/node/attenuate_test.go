//go:build unix

// Narrowed capabilities over the wire: what they show and let through, and that
// nothing handed out under a ref outlives it.

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// attenuating narrows a session to what set says; nothing is waited for.
func attenuating(t testing.TB, sess *rpc.Ref, set func(wire.Attenuation)) *rpc.Promise {
	return sess.Call(within(t), methods.SessionAttenuate.Method, methods.SessionAttenuate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		limits, err := wire.Session_attenuate_Params(s).NewLimits()
		if err == nil {
			set(limits)
		}
		return err
	})
}

// refusedAs is what a promise ends with, as a fault.
func refusedAs(t testing.TB, p *rpc.Promise) error {
	t.Helper()
	_, _, err := p.Wait(within(t))
	if f, ok := fault.ParseReason(reasonOf(err)); ok {
		return f
	}
	return err
}

// shoot asks for a snapshot.
func (k *recorder) shoot(t testing.TB, sess *rpc.Ref) *rpc.Promise {
	sink := rpc.NewLocal(k)
	defer sink.Release()
	return sess.Call(within(t), methods.SessionSnapshot.Method, methods.SessionSnapshot.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
		return caps.Set(s, 0, sink)
	})
}

// conversation makes two messages with parts, one of them in an open turn: the
// events 2 to 8, after the creation.
func conversation(p *peer, m *made) {
	p.t.Helper()
	ack := p.must(m.stream, m.batch(
		op("put", "key", "session", "payload", map[string]string{"title": "a secret title"}),
		op("put", "key", "message/m1", "payload", map[string]any{}),
		op("put", "key", "part/m1/p", "payload", map[string]string{"text": "one"}),
		op("put", "key", "message/m11", "payload", map[string]any{}),
		op("begin", "message", "m2", "payload", map[string]any{}),
		op("put", "key", "part/m2/p", "payload", map[string]string{"text": ""}),
		op("put", "key", "model/message/m1", "payload", map[string]any{}),
	))
	if ack.applied != 7 {
		p.t.Fatalf("%+v", ack.outcomes)
	}
}

func TestAViewOfOneMessage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		conversation(p, m)
		durable := p.share(m, "rights", []string{"read", "append", "share"}, "message", "m1", "actor", "owner/reader") // 9
		live := attenuating(t, m.sess, func(a wire.Attenuation) {
			a.SetRights(uint16(capability.Read | capability.Append | capability.Share))
			_ = a.SetMessage_("m1")
			_ = a.SetActor("owner/reader")
		})
		before := []string{"2 hidden", "3 put message/m1", "4 put part/m1/p"}
		for label, sess := range map[string]*rpc.Ref{"durable": p.restore(durable), "live": live.Cap(0)} {
			k, state := newRecorder(), newRecorder()
			defer p.subscribe(sess, k, 0).Release()
			if err := refusedAs(t, state.shoot(t, sess)); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(state.keys)), " "); got != "message/m1 part/m1/p" || state.turns != nil {
				t.Errorf("%s: the state shows %q, turns of %q", label, got, state.turns)
			}
			info, grant := describe(t, sess)
			title, _ := info.Title()
			message, _ := grant.Message_()
			if title != "" || message != "m1" || grant.Owner() || grant.Rights() != uint16(capability.Read|capability.Append|capability.Share) {
				t.Errorf("%s: title %q, message %q, owner %v, rights %v", label, title, message, grant.Owner(), grant.Rights())
			}
			s, _, err := call(t, sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
			if err != nil {
				t.Fatal(err)
			}
			list, _ := wire.Session_events_Results(s).Events()
			page, end := shownAs(list), list.At(list.Len()-1).Cursor()
			if !slices.Equal(page[:3], before) || !strings.HasSuffix(page[3], "hidden") || end != wire.Session_events_Results(s).Cursor() {
				t.Errorf("%s: a page shows %q", label, page)
			}
			b := newBox()
			ack := p.must(p.open(sess, b), b.batch(m.id,
				op("put", "key", "message/m1", "payload", map[string]string{"by": label}),
				op("put", "key", "message/m2", "payload", map[string]any{}),
				op("put", "key", "message/m11", "payload", map[string]any{}),
				op("put", "key", "session", "payload", map[string]any{}),
				op("appendText", "key", "part/m2/p", "offset", 0, "text", "x"),
				op("begin", "message", "m3", "payload", map[string]any{})))
			for i, o := range ack.outcomes {
				if want := ledger.Denied; i == 0 && o.Status != ledger.Applied || i > 0 && (o.Status != want || o.Reason != fault.MissingRight) {
					t.Errorf("%s: op %d: %+v", label, i, o)
				}
			}
			k.until(t, "its own event", func() bool {
				return slices.Contains(k.shown, fmt.Sprintf("%d put message/m1", ack.outcomes[0].Cursor))
			})
			p.must(m.stream, m.batch(op("put", "key", "part/m2/p", "payload", map[string]string{"by": label}), op("put", "key", "part/m1/p", "payload", map[string]string{"by": label})))
			k.until(t, "what the owner does to it", func() bool { return strings.HasSuffix(k.shown[len(k.shown)-1], "put part/m1/p") })
			k.mu.Lock()
			for i, text := range k.shown {
				if strings.Contains(text, "m2") || strings.Contains(text, "m11") || strings.Contains(text, "ref/") || i < 3 && text != before[i] {
					t.Errorf("%s: event %d is shown as %q", label, i, text)
				}
			}
			k.mu.Unlock()
			saved := refOfSave(t, m, sess)
			_, grant = describe(t, p.restore(saved))
			if message, _ := grant.Message_(); message != "m1" || grant.Owner() {
				t.Errorf("%s: saved for message %q, owner %v", label, message, grant.Owner())
			}
		}
	})
}

// refOfSave calls Persistent.save.
func refOfSave(t testing.TB, m *made, sess *rpc.Ref) capability.Ref {
	t.Helper()
	s, _, err := call(t, sess, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
	if err != nil {
		t.Fatalf("save: %v", err)
	}
	ptr, _ := s.Ptr(0)
	ref := wire.SturdyRef(ptr.Struct())
	id, _ := ref.Id()
	bytes, _ := ref.Secret()
	secret, err := capability.SecretFrom(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return m.owner.With(id, secret)
}

func TestNothingIsAttenuatedToMore(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	now := r.server.cfg.Now().UnixMilli()
	narrow := attenuating(t, m.sess, func(a wire.Attenuation) {
		a.SetRights(uint16(capability.Read | capability.Append))
		methods, _ := a.NewMethods(1)
		_ = methods.Set(0, "put")
		a.SetExpires(now + 60_000)
		a.SetFrom(5)
		_ = a.SetMessage_("m1")
		_ = a.SetActor("owner/a")
	}).Cap(0)
	for label, c := range map[string]struct {
		code fault.Code
		set  func(wire.Attenuation)
	}{
		"rights":      {fault.Widening, func(a wire.Attenuation) { a.SetRights(uint16(capability.Share)) }},
		"methods":     {fault.Widening, func(a wire.Attenuation) { l, _ := a.NewMethods(1); _ = l.Set(0, "begin") }},
		"expiry":      {fault.Widening, func(a wire.Attenuation) { a.SetExpires(now + 60_001) }},
		"from":        {fault.Widening, func(a wire.Attenuation) { a.SetFrom(4) }},
		"message":     {fault.Widening, func(a wire.Attenuation) { _ = a.SetMessage_("m2") }},
		"actor":       {fault.Widening, func(a wire.Attenuation) { _ = a.SetActor("owner") }},
		"other bits":  {fault.BadArgument, func(a wire.Attenuation) { a.SetRights(1 << 13) }},
		"a space's":   {fault.BadArgument, func(a wire.Attenuation) { a.SetRights(uint16(capability.Create)) }},
		"an actor's":  {fault.BadArgument, func(a wire.Attenuation) { _ = a.SetActor("owner/a/../b") }},
		"a message's": {fault.BadArgument, func(a wire.Attenuation) { _ = a.SetMessage_("\x01") }},
	} {
		wantCode(t, label, refusedAs(t, attenuating(t, narrow, c.set)), c.code)
	}
	// Asking for nothing changes nothing; and what is pipelined on it goes through.
	b := newBox()
	again := attenuating(t, attenuating(t, narrow, func(wire.Attenuation) {}).Cap(0), func(a wire.Attenuation) { _ = a.SetActor("owner/a/b") }).Cap(0)
	ack := p.must(p.open(again, b), b.batch(m.id, op("put", "key", "message/m1", "payload", map[string]any{}), op("remove", "key", "message/m1")))
	if ack.outcomes[0].Status != ledger.Applied || ack.outcomes[1].Reason != fault.MissingRight {
		t.Errorf("%+v", ack.outcomes)
	}
	s, _, _ := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
	list, _ := wire.Session_events_Results(s).Events()
	if actor, _ := list.At(list.Len() - 1).Actor(); actor != "owner/a/b" {
		t.Errorf("it was done by %q", actor)
	}
}

func TestANarrowedSpace(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	space := p.restore(r.owner)
	narrow := space.Call(within(t), methods.SpaceAttenuate.Method, methods.SpaceAttenuate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		limits, err := wire.Space_attenuate_Params(s).NewLimits()
		if err != nil {
			return err
		}
		limits.SetRights(uint16(capability.List))
		return limits.SetActor("clerk")
	})
	if err := refusedAs(t, narrow); err != nil {
		t.Fatal(err)
	}
	if _, _, err := call(t, narrow.Cap(0), methods.SpaceList.Method, methods.SpaceList.Params, nil); err != nil {
		t.Errorf("list: %v", err)
	}
	m := &made{id: r.create(p).id[:4] + "01J00000000000000000000000", box: newBox()}
	m.owner = r.owner.New(m.id)
	created := narrow.Cap(0).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		_ = wire.Space_create_Params(s).SetSession(m.id)
		return wire.Space_create_Params(s).SetOwner(m.owner.ID)
	}).Cap(0)
	ack := p.must(p.open(created, m.box), m.batch(op("create", "ref", m.owner.ID, "hash", hashText(m.owner.Secret))))
	if ack.outcomes[0].Status != ledger.Denied || ack.outcomes[0].Reason != fault.MissingRight {
		t.Errorf("create: %+v", ack.outcomes[0])
	}
}

// Of a space's root with all its rights but narrowed: it shares within them, and is
// no root to audit or rotate, nor may it end the ref it stands on. The rows of what
// it did and was refused have the address they came from.
func TestANarrowedRootIsNoRoot(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	p := r.dial()
	narrowed := p.restore(r.owner).Call(within(t), methods.SpaceAttenuate.Method, methods.SpaceAttenuate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		limits, err := wire.Space_attenuate_Params(s).NewLimits()
		if err != nil {
			return err
		}
		limits.SetRights(uint16(capability.Share | capability.Revoke | capability.List))
		return limits.SetActor("clerk")
	}).Cap(0)
	_, _, err := call(t, narrowed, methods.SpaceAudit.Method, methods.SpaceAudit.Params, nil)
	wantCode(t, "audit", err, fault.MissingRight)
	_, refused := rotating(t, narrowed, methods.SpaceRotate.Method, r.owner.New(r.owner.Target()))
	refusedWith(t, "rotate", refused, fault.NotAnOwner)
	_, refused = cutting(t, narrowed, r.owner.ID)
	refusedWith(t, "revoke the ref it stands on", refused, fault.MissingRight)
	wide, narrower := r.owner.New(r.owner.Target()), r.owner.New(r.owner.Target())
	refusedWith(t, "share more", sharing(t, narrowed, wide, capability.Create, ""), fault.Widening)
	if refused := sharing(t, narrowed, narrower, capability.List, ""); refused != nil {
		t.Fatalf("share: %v", refused)
	}
	if died, refused := cutting(t, narrowed, narrower.ID); refused != nil || died != 1 {
		t.Errorf("revoke what it shared: %d, %v", died, refused)
	}
	if _, _, err := call(t, p.restore(r.owner), methods.SpaceList.Method, methods.SpaceList.Params, nil); err != nil {
		t.Errorf("the root, afterwards: %v", err)
	}
	saved := refOfSave(t, &made{owner: r.owner}, narrowed)
	s, _, err := call(t, p.restore(saved), methods.SpaceDescribe.Method, methods.SpaceDescribe.Params, nil)
	if err != nil {
		t.Fatal(err)
	}
	grant, _ := wire.Space_describe_Results(s).Info()
	if actor, _ := grant.Actor(); grant.Rights() != uint16(capability.Share|capability.Revoke|capability.List) || actor != "clerk" {
		t.Errorf("saved with %s as %q", capability.Rights(grant.Rights()), actor)
	}
	r.stop()
	page, err := st.ReadAudit(t.Context(), r.owner.Target(), 0, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]string{}
	for _, row := range page.Rows {
		if row.Actor == "clerk" {
			peers[fmt.Sprint(row.Act, " ", row.Subject)] = row.Peer
		}
	}
	for _, label := range []string{"denial audit", "denial rotate", "denial revoke", "share " + narrower.ID, "revoke " + narrower.ID, "use share", "use revoke"} {
		if peer, there := peers[label]; !there || peer == "" {
			t.Errorf("%s: from %q, of %v", label, peer, peers)
		}
	}
}

// What goes without an outbox goes by the limits too: an owner's capability that was
// narrowed to reading revokes nothing, and one that kept all rights is no owner's.
func TestANarrowedOwnerIsNoOwner(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	ref := p.share(m, "rights", []string{"read"})
	reads := attenuating(t, m.sess, func(a wire.Attenuation) { a.SetRights(uint16(capability.Read)) }).Cap(0)
	for _, ref := range []string{ref.ID, ""} { // a ref, and the epoch
		s, _, err := call(t, reads, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Session_revoke_Params(s).SetEpoch(ref == "")
			return wire.Session_revoke_Params(s).SetRef(ref)
		})
		r := wire.Session_revoke_Results(s)
		w, decoding := r.Refusal()
		if err != nil || decoding != nil || fault.Code(w.Code()) != fault.MissingRight {
			t.Errorf("revoke of %q: %v, %v", ref, readRefusal(w), err)
		}
	}
	all := attenuating(t, m.sess, func(wire.Attenuation) {}).Cap(0)
	_, refused := rotating(t, all, methods.SessionRotate.Method, m.owner.New(m.id))
	refusedWith(t, "rotate", refused, fault.NotAnOwner)
	_, _, err := call(t, all, methods.SessionAudit.Method, methods.SessionAudit.Params, nil)
	wantCode(t, "audit", err, fault.NotAnOwner)
	b := newBox()
	for _, o := range p.must(p.open(all, b), b.batch(m.id, op("delete"), op("purge", "key", "session"))).outcomes {
		wantRecorded(t, "an owner's op", o, ledger.Denied, fault.NotAnOwner)
	}
}

// A live capability for one message neither sees nor ends what was shared beside it.
func TestOneMessagesHolderHasNoTree(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	helper := p.share(m, "rights", []string{"read", "share", "revoke"})
	hm := &made{id: m.id, owner: m.owner, sess: p.restore(helper), box: newBox()}
	hm.stream = p.open(hm.sess, hm.box)
	below := p.share(hm, "rights", []string{"read"})
	one := attenuating(t, hm.sess, func(a wire.Attenuation) { _ = a.SetMessage_("m1") }).Cap(0)
	_, err := refsOf(t, one, methods.SessionRefs.Method, "", 0)
	wantCode(t, "the tree", err, fault.MissingRight)
	b := newBox()
	ack := p.must(p.open(one, b), b.batch(m.id, op("revoke", "ref", below.ID), op("bumpEpoch")))
	for _, o := range ack.outcomes {
		wantRecorded(t, "what is beside it", o, ledger.Denied, fault.MissingRight)
	}
	if got := tree(t, hm.sess, methods.SessionRefs.Method, "", 0); len(got) != 2 {
		t.Errorf("the whole capability's tree: %v", got)
	}
}

// giver hands a capability to whoever asks.
type giver struct{ cap *rpc.Ref }

func (g giver) Serve(c *rpc.Call) {
	c.Return(batchtest.StructSize(0, 1), func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, g.cap) })
}

// passedOn is a capability as a third party has it, over a connection of its own
// to whoever was given it: calls of it go through both.
func passedOn(t *testing.T, cap *rpc.Ref) *rpc.Ref {
	near, far := rpc.Pipe()
	second, ran := rpc.NewConn(far, rpc.Config{Bootstrap: giver{cap}}), make(chan struct{})
	go func() {
		defer close(ran)
		_ = second.Run(context.Background())
	}()
	t.Cleanup(func() {
		second.Close("test")
		<-ran
	})
	third := newPeer(t, near)
	return third.gateway.Call(within(t), rpc.Method{Interface: 1}, batchtest.StructSize(0, 0), nil).Cap(0)
}

// Every live capability that was handed out under a ref is behind the same guard:
// whatever ends the ref ends them at their next call, and what follows at once.
func TestNothingOutlivesItsRef(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		for how, want := range map[string]fault.Code{"the ref": fault.Revoked, "the ref above it": fault.Revoked, "the epoch": fault.StaleEpoch, "its time": fault.Expired} {
			t.Run(how, func(t *testing.T) {
				owner, guest := r.dialIn(t), r.dialIn(t)
				m := r.create(owner)
				conversation(owner, m)
				above := owner.share(m, "rights", []string{"read", "append", "share"})
				am := &made{id: m.id, owner: m.owner, box: newBox()}
				am.stream = guest.open(guest.restore(above), am.box)
				args := []any{"rights", []string{"read", "append", "share"}}
				if how == "its time" {
					args = append(args, "expires_at", r.server.cfg.Now().UnixMilli()+5000)
				}
				ref := guest.share(am, args...)

				sess := guest.restore(ref)
				once := attenuating(t, sess, func(a wire.Attenuation) { _ = a.SetMessage_("m1") }).Cap(0)
				live := map[string]*rpc.Ref{
					"restored":          sess,
					"narrowed":          once,
					"narrowed twice":    attenuating(t, once, func(a wire.Attenuation) { a.SetRights(uint16(capability.Read | capability.Append | capability.Share)) }).Cap(0),
					"passed on":         passedOn(t, sess),
					"passed on, narrow": passedOn(t, once),
				}
				saved := guest.restore(refOfSave(t, m, sess))
				live["saved"] = saved
				type handed struct {
					stream *rpc.Ref
					box    *box
					k      *recorder
				}
				all := map[string]*handed{}
				for label, s := range live {
					h := &handed{box: newBox(), k: newRecorder()}
					h.stream = guest.open(s, h.box)
					if ack := guest.must(h.stream, h.box.batch(m.id, op("put", "key", "message/m1", "payload", map[string]string{"by": label}))); ack.applied != 1 {
						t.Fatalf("%s: %+v", label, ack.outcomes)
					}
					defer guest.subscribe(s, h.k, 0).Release()
					all[label] = h
				}
				// A snapshot whose taker does not answer is still on its way at the cut.
				slow := newRecorder()
				slow.hold = true
				shot := slow.shoot(t, sess)
				slow.until(t, "a piece", func() bool { return len(slow.held) > 0 })

				var at uint64
				switch how {
				case "the ref":
					at, _ = revoking(t, m.sess, ref.ID)
				case "the ref above it":
					at, _ = revoking(t, m.sess, above.ID)
				case "the epoch":
					_, at = revoking(t, m.sess, "")
				}
				for label, h := range all {
					h.k.until(t, label+"'s end", func() bool { return h.k.ended != nil })
					if h.k.ended.Code != want {
						t.Errorf("%s: the subscription ended with %v", label, h.k.ended)
					}
				}
				owner.must(m.stream, m.batch(op("put", "key", "message/m1", "payload", map[string]string{"by": "the owner, after"})))
				for label, h := range all {
					ack := guest.must(h.stream, h.box.batch(m.id, op("put", "key", "message/m1", "payload", map[string]any{})))
					if o := ack.outcomes[0]; o.Status != ledger.Denied || o.Reason != want {
						t.Errorf("%s: append: %+v", label, o)
					}
					if ack.cursor != 0 {
						t.Errorf("%s was told of cursor %d", label, ack.cursor)
					}
					for method, make := range map[string]func() *rpc.Promise{
						"events": func() *rpc.Promise {
							return live[label].Call(within(t), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
						},
						"attenuate": func() *rpc.Promise { return attenuating(t, live[label], func(wire.Attenuation) {}) },
						"save": func() *rpc.Promise {
							return live[label].Call(within(t), methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
						},
						"snapshot": func() *rpc.Promise { return newRecorder().shoot(t, live[label]) },
					} {
						err := refusedAs(t, make())
						wantCode(t, label+", "+method, err, want)
						if f, _ := err.(*fault.Error); f != nil && at != 0 && f.At != at {
							t.Errorf("%s, %s: at %d, want %d: %v", label, method, f.At, at, f)
						}
					}
				}
				slow.free()
				_ = refusedAs(t, shot) // all of it may have been sent before the cut
			})
		}
	})
}

// A snapshot that takes long ends when its ref does, and when something is purged
// that may be in what is left of it.
func TestALongSnapshotEnds(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	r := start(t, sqliteStore(t), func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	t.Run("with its ref", func(t *testing.T) {
		t.Parallel()
		longSnapshot(t, r, &later, fault.Revoked, func(p *peer, m *made, ref capability.Ref) { revoking(t, m.sess, ref.ID) })
	})
	t.Run("with a purge", func(t *testing.T) {
		t.Parallel()
		longSnapshot(t, r, &later, fault.Overloaded, func(p *peer, m *made, _ capability.Ref) {
			p.must(m.stream, m.batch(op("purge", "key", "message/m11")))
		})
	})
}

func longSnapshot(t *testing.T, r *rig, later *atomic.Int64, want fault.Code, meanwhile func(p *peer, m *made, ref capability.Ref)) {
	p, guest := r.dialIn(t), r.dialIn(t)
	m := r.create(p)
	large := strings.Repeat("x", 300<<10)
	for n := range 12 {
		p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/m%d", n), "payload", map[string]string{"text": large})))
	}
	ref := p.share(m, "rights", []string{"read"})
	k := newRecorder()
	k.hold = true
	shot := k.shoot(t, guest.restore(ref))
	k.until(t, "a piece", func() bool { return len(k.held) > 0 })
	meanwhile(p, m, ref)
	later.Add(int64(time.Second)) // it is looked at again no earlier
	k.free()
	wantCode(t, "the snapshot", refusedAs(t, shot), want)
}
