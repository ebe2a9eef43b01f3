//go:build unix

package node

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// plainFault is what a call over Cap'n Proto ends with, as the server's fault.
func plainFault(t testing.TB, p *rpc.Promise) error {
	t.Helper()
	_, _, err := p.Wait(within(t))
	if f, ok := fault.ParseReason(reasonOf(err)); ok {
		return f
	}
	return err
}

// asError keeps a nil refusal nil.
func asError(f *fault.Error) error {
	if f == nil {
		return nil
	}
	return f
}

// ago is what an expiry's text says of how long ago it was.
var ago = regexp.MustCompile(`expired [^:]* ago`)

// TestRefusalsAreTheSameOverBothWires asks for what is refused over each, and
// compares code, text and position.
func TestRefusalsAreTheSameOverBothWires(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.WrongTries = 1000 })
		p, w := r.dial(), r.dialWeb()
		m := r.create(p)
		p.must(m.stream, m.batch(put(1)))
		share := func(rights []string, more ...any) capability.Ref {
			return p.share(m, append([]any{"rights", rights}, more...)...)
		}
		revoked, stale := share([]string{"read", "append"}), share([]string{"read"})
		revoking(t, p.restore(m.owner), revoked.ID)
		revoking(t, p.restore(m.owner), "")
		fresh, again := m.owner.New(m.id), share([]string{"read"})
		reader, blind, sharer := share([]string{"read"}), share([]string{"append"}), share([]string{"read", "share", "revoke"}, "actor", "owner/sharer")
		limited, sealed := share([]string{"read"}, "redemptions", 1), p.shareSealed(m, newKey(t), "rights", []string{"read"})
		expires := r.server.cfg.Now().UnixMilli() + 300 // one that is past when it is made is refused
		expired := share([]string{"read"}, "expires_at", expires)
		until.True(t, "it has expired", func() bool { return r.server.cfg.Now().UnixMilli() > expires })
		if err := p.restoreErr(limited, "one"); err != nil {
			t.Fatal(err)
		}
		team := r.owner.New(r.owner.Target())
		if refused := sharing(t, p.restore(r.owner), team, capability.Create, "team"); refused != nil {
			t.Fatal(refused)
		}
		other := r.create(p)

		restoring := func(ref capability.Ref, redemption string) [2]func() error {
			return [2]func() error{
				func() error { return p.restoreErr(ref, redemption) },
				func() error { _, err := w.ask(w.main, "restore", ref.Text(), redemption); return err },
			}
		}
		// calling calls a method of a restored ref.
		calling := func(ref capability.Ref, method rpc.Method, sz capnp.ObjectSize, place func(capnp.Struct, *rpc.CapTable) error, name string, args ...any) [2]func() error {
			return [2]func() error{
				func() error {
					return plainFault(t, p.restore(ref).Call(within(t), method, sz, place))
				},
				func() error { _, err := w.ask(w.restore(ref), name, args...); return err },
			}
		}
		events := func(ref capability.Ref) [2]func() error {
			return calling(ref, methods.SessionEvents.Method, methods.SessionEvents.Params, nil, "events")
		}
		opening := func(ref capability.Ref, b *box) [2]func() error {
			return [2]func() error{
				func() error { return plainFault(t, p.opening(p.restore(ref), b)) },
				func() error { _, err := awaitWeb(t, w.open(w.restore(ref), b)); return err },
			}
		}
		applyingTo := func(ref capability.Ref, b *box, batch *ledger.Batch) [2]func() error {
			return [2]func() error{
				func() error { return asError(p.apply(p.open(p.restore(ref), b), batch).refusal) },
				func() error { return asError(w.apply(w.open(w.restore(ref), b), batch).refusal) },
			}
		}
		minting := func(by, ref capability.Ref, m capability.MintRequest, limits object) [2]func() error {
			hash := ref.Secret.Hash()
			return [2]func() error{
				func() error { return asError(sharingSession(t, p.restore(by), ref, m)) },
				func() error {
					_, err := w.ask(w.restore(by), "share", object{"id": ref.ID, "hash": hash[:], "limits": limits})
					return err
				},
			}
		}
		cuttingRef := func(by capability.Ref, ref string) [2]func() error {
			return [2]func() error{
				func() error {
					s, _, err := call(t, p.restore(by), methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
						return wire.Session_revoke_Params(s).SetRef(ref)
					})
					if err != nil {
						return err
					}
					res := wire.Session_revoke_Results(s)
					f, err := res.Refusal()
					return asError(refusalOf(res.HasRefusal(), f, err))
				},
				func() error { _, err := w.ask(w.restore(by), "revoke", ref); return err },
			}
		}
		used := newBox()
		stream := p.open(p.restore(m.owner), used)
		first := used.batch(m.id, put(7))
		p.must(stream, first)
		diverged := *first
		diverged.Ops = []ledger.Intent{put(8)}
		diverged.Ops[0].Seq = 1
		gap := *first
		gap.Ops = []ledger.Intent{put(9)}
		gap.Ops[0].Seq = 5
		behind := &ledger.Batch{Session: m.id, BatchID: ulid.Make().String(), AckedThrough: 40, Ops: []ledger.Intent{put(3)}}
		behind.Ops[0].Seq = 2
		zero, newer := *used, newBox()
		older, marked := newBox(), newBox()
		own, _ := capability.SecretFrom(older.secret)
		older.secret = own.StreamSecret(m.id).Reveal()
		p.must(p.open(p.restore(m.owner), older), older.batch(m.id, put(10)))
		older.secret, zero.incarnation = own.Reveal(), 0
		marked.id += session.FallbackSep
		newer.incarnation = 9
		p.must(p.open(p.restore(m.owner), newer), newer.batch(m.id, put(11)))
		former := *newer
		former.incarnation = 3
		short := *used
		short.secret = []byte("short")

		for name, c := range map[string]struct {
			want fault.Code
			by   [2]func() error
		}{
			"an unknown ref":        {fault.UnknownRef, restoring(m.owner.With(capability.ServerID(m.id, ulid.Make()), capability.NewSecret()), "")},
			"a wrong secret":        {fault.UnknownRef, restoring(m.owner.With(m.owner.ID, capability.NewSecret()), "")},
			"not yet known":         {fault.NotYetKnown, restoring(fresh, "")},
			"exhausted":             {fault.Exhausted, restoring(limited, "another")},
			"sealed":                {fault.Sealed, restoring(sealed, "")},
			"revoked":               {fault.Revoked, events(revoked)},
			"stale epoch":           {fault.StaleEpoch, events(stale)},
			"expired":               {fault.Expired, events(expired)},
			"without read":          {fault.MissingRight, events(blind)},
			"an older client":       {fault.WrongOutbox, opening(m.owner, older)},
			"a mark in a new id":    {fault.BadArgument, opening(m.owner, marked)},
			"no incarnation":        {fault.BadArgument, opening(m.owner, &zero)},
			"a short secret":        {fault.BadArgument, opening(m.owner, &short)},
			"fenced":                {fault.Fenced, opening(m.owner, &former)},
			"gap":                   {fault.Gap, applyingTo(m.owner, used, &gap)},
			"diverged":              {fault.OutboxDiverged, applyingTo(m.owner, used, &diverged)},
			"server behind":         {fault.ServerBehind, applyingTo(m.owner, used, behind)},
			"revoking nothing":      {fault.BadArgument, cuttingRef(m.owner, "")},
			"revoking what is not":  {fault.NotFound, cuttingRef(m.owner, "nonsense")},
			"revoking beside":       {fault.MissingRight, cuttingRef(sharer, again.ID)},
			"revoking without":      {fault.MissingRight, cuttingRef(reader, reader.ID)},
			"sharing what is there": {fault.AlreadyExists, minting(m.owner, again, capability.MintRequest{Rights: capability.Append}, object{"rights": []any{"append"}})},
			"sharing more":          {fault.Widening, minting(sharer, fresh, capability.MintRequest{Rights: capability.Append}, object{"rights": []any{"append"}})},
			"sharing without":       {fault.MissingRight, minting(reader, fresh, capability.MintRequest{Rights: capability.Read}, object{"rights": []any{"read"}})},
			"sharing nothing":       {fault.BadArgument, minting(m.owner, fresh, capability.MintRequest{}, nil)},
			"sharing for another":   {fault.BadArgument, minting(m.owner, other.owner.New(other.id), capability.MintRequest{Rights: capability.Read}, object{"rights": []any{"read"}})},
			"the audit":             {fault.NotAnOwner, calling(reader, methods.SessionAudit.Method, methods.SessionAudit.Params, nil, "audit")},
			"the tree":              {fault.MissingRight, calling(reader, methods.SessionRefs.Method, methods.SessionRefs.Params, nil, "refs")},
			"a future state": {fault.ServerBehind, [2]func() error{
				func() error {
					sink := rpc.NewLocal(newRecorder())
					defer sink.Release()
					return plainFault(t, p.restore(m.owner).Call(within(t), methods.SessionSnapshot.Method, methods.SessionSnapshot.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
						wire.Session_snapshot_Params(s).SetAt(999)
						return caps.Set(s, 0, sink)
					}))
				},
				func() error { _, err := w.ask(w.restore(m.owner), "snapshot", 999); return err },
			}},
			"a snapshot without read": {fault.MissingRight, [2]func() error{
				func() error { return plainFault(t, newRecorder().shoot(t, p.restore(blind))) },
				func() error { _, err := w.ask(w.restore(blind), "snapshot"); return err },
			}},
			"subscribing without read": {fault.MissingRight, [2]func() error{
				func() error { return plainFault(t, p.subscribing(p.restore(blind), newRecorder(), 0, 0, false)) },
				func() error { _, err := w.ask(w.restore(blind), "subscribe", 0, func(object) {}); return err },
			}},
			"subscribing beyond": {fault.ServerBehind, [2]func() error{
				func() error { return plainFault(t, p.subscribing(p.restore(m.owner), newRecorder(), 999, 0, false)) },
				func() error { _, err := w.ask(w.restore(m.owner), "subscribe", 999, func(object) {}); return err },
			}},
			"subscribing with nothing": {fault.BadArgument, calling(m.owner, methods.SessionSubscribe.Method, methods.SessionSubscribe.Params, nil, "subscribe")},
			"attenuating to more": {fault.Widening, [2]func() error{
				func() error {
					return plainFault(t, attenuating(t, p.restore(reader), func(a wire.Attenuation) { a.SetRights(uint16(capability.Append)) }))
				},
				func() error {
					_, err := w.ask(w.restore(reader), "attenuate", object{"rights": []any{"append"}})
					return err
				},
			}},
			"rotating no owner": {fault.NotAnOwner, [2]func() error{
				func() error {
					_, refused := rotating(t, p.restore(reader), methods.SessionRotate.Method, fresh)
					return asError(refused)
				},
				func() error { _, err := w.ask(w.restore(reader), "rotate", newHash(fresh)...); return err },
			}},
			"listing without": {fault.MissingRight, calling(team, methods.SpaceList.Method, methods.SpaceList.Params, nil, "list")},
			"a bad session":   {fault.BadArgument, calling(r.owner, methods.SpaceCreate.Method, methods.SpaceCreate.Params, nil, "create")},
			"revoking in a space": {fault.NotFound, [2]func() error{
				func() error { _, refused := cutting(t, p.restore(r.owner), "nonsense"); return asError(refused) },
				func() error { _, err := w.ask(w.restore(r.owner), "revoke", "nonsense"); return err },
			}},
			"no version": {fault.Incompatible, [2]func() error{
				func() error {
					return plainFault(t, p.gateway.Call(within(t), methods.GatewayHello.Method, methods.GatewayHello.Params, nil))
				},
				func() error { _, err := w.ask(w.main, "hello"); return err },
			}},
		} {
			overCapnp, overWeb := c.by[0](), c.by[1]()
			var a, b *fault.Error
			switch {
			case !errors.As(overCapnp, &a) || a.Code != c.want:
				t.Errorf("%s: %v, want %s", name, overCapnp, c.want)
			case !errors.As(overWeb, &b):
				t.Errorf("%s: over the web %v, want %v", name, overWeb, overCapnp)
			case a.Code != b.Code || ago.ReplaceAllString(a.Message, "") != ago.ReplaceAllString(b.Message, "") || a.At != b.At:
				t.Errorf("%s: %q at %d, over the web %q at %d", name, a, a.At, b, b.At)
			}
		}
	})
}

// What does not fit the schema is a TypeError that names the field, without a
// word of what was in it.
func TestTypeErrorsNameTheField(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	w := r.dialWeb()
	m := r.createWeb(w)
	const secret = "a secret that is none of anybody's business"
	for name, c := range map[string]struct {
		to interface {
			Call(context.Context, string, ...any) *capnweb.Promise
		}
		method string
		args   []any
		want   string
	}{
		"an unknown method":      {w.main, "describe", nil, `Gateway has no method "describe"`},
		"an unknown name":        {m.sess, "rows", nil, `Session has no method "rows"`},
		"a number for a ref":     {w.main, "restore", []any{5}, "ref: want an object, got a number"},
		"a field that is not":    {w.main, "restore", []any{object{"id": "x", "sceret": secret}}, "ref.sceret: there is no such field: there are id, secret"},
		"no base64":              {w.main, "restore", []any{object{"id": "x", "secret": secret}}, "ref.secret: not base64url"},
		"too many":               {m.sess, "events", []any{1, 2, nil, nil, nil, 3}, "Session.events takes at most 5 arguments, got 6"},
		"half a cursor":          {m.sess, "events", []any{1.5}, "from: want a whole number from 0 to 2^64-1, got a number that is not whole"},
		"a negative limit":       {m.sess, "events", []any{0, -1}, "limit: out of range: a whole number from 0 to 4294967295"},
		"a secret of a stream":   {m.sess, "openStream", []any{"obx", 7, 1}, "secret: want a Uint8Array, got a number"},
		"a name of a stream":     {m.sess, "openStream", []any{object{"outbox": "obx", "secrets": secret}}, "secrets: there is no such field: there are outbox, secret, incarnation"},
		"deep in a batch":        {m.stream, "apply", []any{object{"ops": []any{object{}, object{"args": []any{object{"json": object{"a": secret}}}}}}}, "batch.ops[1].args[0].json: want a string, got an object"},
		"two of a union":         {m.stream, "apply", []any{object{"ops": []any{object{"args": []any{object{"json": "1", "ref": object{}}}}}}}, "batch.ops[0].args[0]: json and ref: only one of them can be given"},
		"what is expected":       {m.stream, "apply", []any{object{"ops": []any{object{"expected": object{"cursor": "1"}}}}}, "batch.ops[0].expected.cursor: want a whole number from 0 to 2^64-1, got a string"},
		"rights as a number":     {m.sess, "attenuate", []any{object{"rights": 3}}, "limits.rights: want an array of the names of rights"},
		"no function":            {m.sess, "subscribe", []any{0, "callback"}, "sink: want a function, got a string"},
		"an object for a sink":   {m.sess, "subscribe", []any{0, w.restore(r.owner)}, "sink: want an object of EventSink, got one of Space"},
		"a property as a method": {m.stream.Get("lastSeq"), "foo", nil, "'foo' is not a function."},
	} {
		_, err := w.ask(c.to, c.method, c.args...)
		var e *capnweb.Error
		if !errors.As(err, &e) || e.Name != "TypeError" || e.Message != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if ack := w.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("after all that: %+v", ack)
	}
}
