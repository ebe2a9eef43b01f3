//go:build unix

// The objects, one by one, over the vat on a real database.

package node

import (
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestHelloAgreesOnAVersion(t *testing.T) {
	t.Parallel()
	p := start(t, sqliteStore(t), nil).dial()
	hello := func(version uint32) (capnp.Struct, error) {
		s, _, err := call(t, p.gateway, methods.GatewayHello.Method, methods.GatewayHello.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Gateway_hello_Params(s).SetVersion(version)
			return nil
		})
		return s, err
	}
	for _, version := range []uint32{1, 7} {
		s, err := hello(version)
		if err != nil {
			t.Fatal(err)
		}
		r := wire.Gateway_hello_Results(s)
		l, err := r.Limits()
		if err != nil || r.Version() != 1 || l.BatchOps() == 0 || l.PayloadBytes() == 0 || l.MessageBytes() == 0 || r.Now() == 0 {
			t.Errorf("version %d is answered %d, %v, %v", version, r.Version(), l, err)
		}
	}
	_, err := hello(0)
	wantCode(t, "version 0", err, fault.Incompatible)
}

func TestCreateAppendFollow(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		k := newRecorder()
		defer p.subscribe(m.sess, k, 0).Release()
		for n := range 20 {
			ack := p.must(m.stream, m.batch(put(n), put(n+100)))
			if ack.applied != 2 || ack.cursor != uint64(2*n+3) {
				t.Fatalf("ack %d: %+v", n, ack)
			}
		}
		k.untilCursor(t, 41)
		k.consecutive(t, 0)

		late := newRecorder()
		defer p.subscribe(p.restore(m.owner), late, 30).Release()
		late.untilCursor(t, 41)
		late.consecutive(t, 30)
	})
}

func TestRestoreOpenApplySubscribeLeaveTogether(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	m := r.create(r.dial())
	p := r.dial()
	b, k := newBox(), newRecorder()
	restored := p.restoring(m.owner, "once")
	sess := restored.Cap(0)
	opened := p.opening(sess, b)
	applied := applying(t, opened.Cap(0), b.batch(m.id, put(1)))
	subscribed := p.subscribing(sess, k, 0, 0, false)
	for label, promise := range map[string]*rpc.Promise{"restore": restored, "openStream": opened, "apply": applied, "subscribe": subscribed} {
		select {
		case <-promise.Done():
			if promise == applied {
				continue // slow test machines only
			}
		default:
		}
		if _, _, err := promise.Wait(within(t)); err != nil {
			t.Errorf("%s: %v", label, err)
		}
	}
	k.untilCursor(t, 2)
	k.consecutive(t, 0)
}

func TestRestoreRefusals(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		forged := m.owner.With(m.owner.ID, capability.NewSecret())
		unknown := r.owner.New(m.id)
		unmarked := unknown.With(m.id+".s01ARZ3NDEKTSV4RRFFQ69G5FAV", unknown.Secret)

		wrong, absent := p.restoreErr(forged, ""), p.restoreErr(unmarked, "")
		wantCode(t, "a wrong secret", wrong, fault.UnknownRef)
		wantCode(t, "an unknown ref", absent, fault.UnknownRef)
		if wrong.Error() != absent.Error() {
			t.Errorf("wrong and unknown can be told apart: %q, %q", wrong, absent)
		}
		wantCode(t, "an offline ref that has not arrived", p.restoreErr(unknown, ""), fault.NotYetKnown)

		limited := p.share(m, "rights", []string{"read"}, "redemptions", 2)
		for _, redemption := range []string{"a", "b", "a", "b"} {
			if err := p.restoreErr(limited, redemption); err != nil {
				t.Fatalf("redemption %s: %v", redemption, err)
			}
		}
		wantCode(t, "a third redemption", p.restoreErr(limited, "c"), fault.Exhausted)
		if err := p.restoreErr(limited, "a"); err != nil {
			t.Errorf("coming back: %v", err)
		}
	})
}

func TestSpaceListsAndDescribes(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	want := map[string]bool{}
	for range 3 {
		want[r.create(p).id] = true
	}
	space := p.restore(r.owner)
	after, pages := "", 0
	for {
		s, _, err := call(t, space, methods.SpaceList.Method, methods.SpaceList.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Space_list_Params(s).SetLimit(2)
			return wire.Space_list_Params(s).SetAfter(after)
		})
		if err != nil {
			t.Fatal(err)
		}
		list, _ := wire.Space_list_Results(s).Sessions()
		for i := range list.Len() {
			after, _ = list.At(i).Id()
			if !want[after] || list.At(i).Cursor() != 1 {
				t.Errorf("listed %s at cursor %d", after, list.At(i).Cursor())
			}
			delete(want, after)
		}
		pages++
		if !wire.Space_list_Results(s).More() {
			break
		}
	}
	if len(want) != 0 || pages != 2 {
		t.Errorf("not listed: %v, in %d pages", want, pages)
	}
	s, _, err := call(t, space, methods.SpaceDescribe.Method, methods.SpaceDescribe.Params, nil)
	if err != nil {
		t.Fatal(err)
	}
	if now := wire.Space_describe_Results(s).Now(); now == 0 {
		t.Error("described without the server's clock")
	}
	info, _ := wire.Space_describe_Results(s).Info()
	if id, _ := info.Id(); id != r.owner.ID || capability.Rights(info.Rights()) != capability.SpaceRights || info.Dead() != 0 {
		t.Errorf("described as %v", info)
	}
}

func TestSpaceListsSessionsWithLongTitles(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.RPC.SendBytes = 64 << 10 })
	p := r.dial()
	for range 3 {
		m := r.create(p)
		p.must(m.stream, m.batch(op("put", "key", "session", "payload", map[string]string{"title": strings.Repeat("ö", 20<<10)})))
	}
	s, _, err := call(t, p.restore(r.owner), methods.SpaceList.Method, methods.SpaceList.Params, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := wire.Space_list_Results(s).Sessions()
	for i := range list.Len() {
		if title, _ := list.At(i).Title(); len(title) != 256 {
			t.Errorf("listed with %d bytes of title", len(title))
		}
	}
	if list.Len() != 3 {
		t.Errorf("%d sessions are listed", list.Len())
	}
}

// describe gives what a session tells of itself and of the ref.
func describe(t *testing.T, sess *rpc.Ref) (wire.SessionInfo, wire.GrantInfo) {
	t.Helper()
	s, _, err := call(t, sess, methods.SessionDescribe.Method, methods.SessionDescribe.Params, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := wire.Session_describe_Results(s).Info()
	if err != nil {
		t.Fatal(err)
	}
	grant, err := wire.Session_describe_Results(s).Grant()
	if err != nil {
		t.Fatal(err)
	}
	return info, grant
}

func TestSaveGivesARefThatDiesWithItsParent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		shared := p.share(m, "rights", []string{"read", "append", "share"}, "label", "peer", "actor", "owner/peer", "from", 1)
		save := func(sess *rpc.Ref) (capability.Ref, error) {
			s, _, err := call(t, sess, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
			if err != nil {
				return capability.Ref{}, err
			}
			ptr, err := s.Ptr(0)
			if err != nil {
				t.Fatal(err)
			}
			saved := wire.SturdyRef(ptr.Struct())
			id, _ := saved.Id()
			raw, _ := saved.Secret()
			secret, err := capability.SecretFrom(raw)
			if err != nil {
				t.Fatal(err)
			}
			return shared.With(id, secret), nil
		}
		saved, err := save(p.restore(shared))
		if err != nil {
			t.Fatal(err)
		}
		_, grant := describe(t, p.restore(saved))
		actor, _ := grant.Actor()
		if capability.Rights(grant.Rights()) != capability.Read|capability.Append|capability.Share || actor != "owner/peer" || grant.Dead() != 0 || grant.Owner() {
			t.Errorf("saved as %v", grant)
		}
		if _, err := save(m.sess); err != nil {
			t.Errorf("save the owner's: %v", err)
		}
		if _, err := save(p.restore(r.owner)); err != nil {
			t.Errorf("save the space: %v", err)
		}
		limited := p.share(m, "rights", []string{"read", "share"}, "redemptions", 1)
		once, err := save(p.restore(limited))
		if err != nil {
			t.Errorf("save a ref of one redemption: %v", err)
		}
		wantCode(t, "redeem what was saved of a ref that is used up", p.restoreErr(once, "another"), fault.Exhausted)

		// The same capability over the same connection is saved once, another one by itself.
		sess := p.restore(shared)
		narrow := attenuating(t, sess, func(a wire.Attenuation) { a.SetRights(uint16(capability.Read | capability.Share)) }).Cap(0)
		all := map[string]bool{}
		for i := range 12 {
			again, err := save([]*rpc.Ref{sess, p.restore(shared), narrow}[i%3])
			if err != nil {
				t.Fatal(err)
			}
			if all[again.ID] = true; (again.ID == saved.ID && again.Secret.Equal(saved.Secret)) != (i%3 != 2) {
				t.Errorf("save number %d gives %s, the first was %s", i, again.ID, saved.ID)
			}
		}
		other, err := save(r.dial().restore(shared))
		if err != nil || all[other.ID] || len(all) != 2 {
			t.Errorf("saved over another connection: %v, %v; before %v", other.ID, err, all)
		}
		page, err := st.ReadTree(t.Context(), m.id, session.TreeQuery{Under: shared.ID, Limit: 100}, nil)
		if err != nil || len(page.Rows) != 1+3 {
			t.Errorf("%d refs below the one that was saved, %v", len(page.Rows)-1, err)
		}
		if _, _, err := call(t, m.sess, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			return wire.Session_revoke_Params(s).SetRef(saved.ID)
		}); err != nil {
			t.Fatal(err)
		}
		if again, err := save(sess); err != nil || again.ID == saved.ID || p.restoreErr(again, "x") != nil {
			t.Errorf("saved again after the first was revoked: %s, %v", again.ID, err)
		}
		reader := p.share(m, "rights", []string{"read", "append", "revoke"})
		_, err = save(p.restore(reader))
		wantCode(t, "save without share", err, fault.MissingRight)
		_, err = save(attenuating(t, m.sess, func(a wire.Attenuation) { a.SetRights(uint16(capability.Read)) }).Cap(0))
		wantCode(t, "save what was narrowed to read", err, fault.MissingRight)
		lister := r.owner.New(r.owner.Target())
		if refused := sharing(t, p.restore(r.owner), lister, capability.List|capability.Create, ""); refused != nil {
			t.Fatal(refused)
		}
		_, err = save(p.restore(lister))
		wantCode(t, "save a space's without share", err, fault.MissingRight)

		p.must(m.stream, m.batch(op("revoke", "ref", shared.ID)))
		_, grant = describe(t, p.restore(saved))
		if fault.Code(grant.Dead()) != fault.Revoked {
			t.Errorf("the saved ref outlives the one it was saved from: %v", grant)
		}
		_, err = save(p.restore(shared))
		wantCode(t, "save a dead capability", err, fault.Revoked)
	})
}

func TestUnknownMethodsAndGarbage(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	for label, ref := range map[string]*rpc.Ref{"gateway": p.gateway, "space": p.restore(r.owner), "session": m.sess, "stream": m.stream} {
		for _, method := range []rpc.Method{{Interface: 1, ID: 0}, {Interface: wire.Session_TypeID, ID: 99}} {
			_, _, err := call(t, ref, method, batchtest.StructSize(0, 0), nil)
			if !rpc.IsUnimplemented(err) {
				t.Errorf("%s, method %v: %v", label, method, err)
			}
		}
	}
	// Every known method with no parameters at all: refused or answered, never a crash.
	for _, method := range []rpc.Method{methods.GatewayHello.Method, methods.GatewayRestore.Method} {
		_, _, _ = call(t, p.gateway, method, batchtest.StructSize(0, 0), nil)
	}
	for _, method := range []rpc.Method{methods.SessionOpenStream.Method, methods.SessionSnapshot.Method, methods.SessionSubscribe.Method, methods.SessionRevoke.Method} {
		s, _, err := call(t, m.sess, method, batchtest.StructSize(0, 0), nil)
		if method == methods.SessionRevoke.Method {
			refusal, _ := wire.Session_revoke_Results(s).Refusal()
			err = readRefusal(refusal)
		}
		wantCode(t, "no parameters", err, fault.BadArgument)
	}
	if r := p.apply(m.stream, &ledger.Batch{}); r.refusal == nil || r.refusal.Code != fault.Malformed {
		t.Errorf("an empty batch: %+v", r)
	}
	if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("after all that: %+v", ack)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		for n := range 50 {
			p.must(m.stream, m.batch(put(n)))
		}
		hidden := p.share(m, "rights", []string{"read"}, "from", 40)
		snapshot := func(sess *rpc.Ref, at uint64) (*recorder, uint64, error) {
			k := newRecorder()
			sink := rpc.NewLocal(k)
			defer sink.Release()
			s, _, err := call(t, sess, methods.SessionSnapshot.Method, methods.SessionSnapshot.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
				wire.Session_snapshot_Params(s).SetAt(at)
				return caps.Set(s, 0, sink)
			})
			if err != nil {
				return nil, 0, err
			}
			return k, wire.Session_snapshot_Results(s).Cursor(), nil
		}
		k, at, err := snapshot(m.sess, 0)
		if err != nil || at != 52 || k.stateAt != 52 || !k.last || len(k.keys) != 50 || k.keys["message/msg_7"] != `{"n":7}` {
			t.Fatalf("now: %v at %d, %+v", err, at, k)
		}
		if k, at, err = snapshot(m.sess, 11); err != nil || at != 11 || len(k.keys) != 10 || !k.last {
			t.Fatalf("at 11: %v at %d, %+v", err, at, k)
		}
		if k, at, err = snapshot(p.restore(hidden), 0); err != nil || at != 52 || len(k.keys) != 12 || k.keys["message/msg_0"] != "" {
			t.Fatalf("from 40: %v at %d, %d keys", err, at, len(k.keys))
		}
		_, _, err = snapshot(m.sess, 99)
		wantCode(t, "beyond the log", err, fault.ServerBehind)

		follow := newRecorder()
		promise := p.subscribing(m.sess, follow, 0, 0, true)
		defer promise.Release()
		follow.until(t, "the state", func() bool { return follow.last })
		p.must(m.stream, m.batch(put(60)))
		follow.untilCursor(t, 53)
		follow.consecutive(t, 52)
	})
}

func TestEventsPages(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	for n := range 9 {
		p.must(m.stream, m.batch(put(n)))
	}
	page := func(sess *rpc.Ref, from uint64, limit uint32) ([]uint64, uint64, error) {
		s, _, err := call(t, sess, methods.SessionEvents.Method, methods.SessionEvents.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			wire.Session_events_Params(s).SetFrom(from)
			wire.Session_events_Params(s).SetLimit(limit)
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		list, _ := wire.Session_events_Results(s).Events()
		var cursors []uint64
		for i := range list.Len() {
			cursors = append(cursors, list.At(i).Cursor())
		}
		return cursors, wire.Session_events_Results(s).Cursor(), nil
	}
	if got, at, err := page(m.sess, 4, 3); err != nil || at != 10 || len(got) != 3 || got[0] != 5 {
		t.Errorf("after 4: %v at %d, %v", got, at, err)
	}
	if got, _, err := page(m.sess, 10, 0); err != nil || len(got) != 0 {
		t.Errorf("at the end: %v, %v", got, err)
	}
	hidden := p.restore(p.share(m, "rights", []string{"read"}, "from", 8))
	if got, _, err := page(hidden, 0, 0); err != nil || len(got) != 4 || got[0] != 8 {
		t.Errorf("from 8: %v, %v", got, err)
	}
	blind := p.restore(p.share(m, "rights", []string{"append"}))
	_, _, err := page(blind, 0, 0)
	wantCode(t, "without read", err, fault.MissingRight)
}

func TestDescribeTellsNoMoreThanTheRefMaySee(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		p.must(m.stream, m.batch(op("put", "key", "session", "payload", map[string]string{"title": "Plans"})))
		reader := p.share(m, "rights", []string{"read"})
		late := p.share(m, "rights", []string{"read"}, "from", 3)
		blind := p.share(m, "rights", []string{"append"})
		for label, c := range map[string]struct {
			ref    capability.Ref
			title  string
			cursor uint64
		}{
			"the owner":    {m.owner, "Plans", 5},
			"a reader":     {reader, "Plans", 5},
			"a later view": {late, "", 5},
			"without read": {blind, "", 5},
		} {
			info, grant := describe(t, p.restore(c.ref))
			if title, _ := info.Title(); title != c.title || info.Cursor() != c.cursor || grant.Dead() != 0 {
				t.Errorf("%s: %v, %v", label, info, grant)
			}
		}
		p.must(m.stream, m.batch(op("revoke", "ref", reader.ID)))
		info, grant := describe(t, p.restore(reader))
		if title, _ := info.Title(); title != "" || info.Cursor() != 0 || fault.Code(grant.Dead()) != fault.Revoked || grant.Cut() != 6 {
			t.Errorf("a revoked ref: %v, %v", info, grant)
		}
	})
}
