//go:build unix

package node

// Features: clients of the version before, and servers of it on the same database.

import (
	"slices"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/rpc"
)

// untilInUse waits until features, and no others, are in use at the server.
func (r *rig) untilInUse(want session.Features) {
	r.t.Helper()
	for end := time.Now().Add(patience); r.server.operator.Features() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%b are in use, want %b", r.server.operator.Features(), want)
		}
	}
}

// helloFeatures is what hello names.
func (p *peer) helloFeatures() (names []string) {
	p.t.Helper()
	s, promise, err := call(p.t, p.gateway, methods.GatewayHello.Method, methods.GatewayHello.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Gateway_hello_Params(s).SetVersion(1)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	defer promise.Release()
	list, err := wire.Gateway_hello_Results(s).Features()
	if err != nil {
		p.t.Fatal(err)
	}
	for i := range list.Len() {
		name, _ := list.At(i)
		names = append(names, name)
	}
	return names
}

// understanding is subscribing, for a client that names the features it knows.
func (p *peer) understanding(sess *rpc.Ref, k *recorder, names ...string) *rpc.Promise {
	sink := rpc.NewLocal(k)
	defer sink.Release()
	return sess.Call(within(p.t), methods.SessionSubscribe.Method, methods.SessionSubscribe.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
		o, err := wire.Session_subscribe_Params(s).NewOptions()
		if err != nil {
			return err
		}
		list, err := o.NewUnderstands(int32(len(names)))
		if err != nil {
			return err
		}
		for i, name := range names {
			if err := list.Set(i, name); err != nil {
				return err
			}
		}
		return caps.Set(s, 1, sink)
	})
}

// TestOlderReadersAreRefusedWhatTheyWouldMisread: a subscriber that does not know keys is ended before the first
// event that needs it, and is refused afterwards, over each method; one that does goes on, and so does
// one of a single message, which needs none.
func TestOlderReadersAreRefusedWhatTheyWouldMisread(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		m := r.create(p)
		p.must(m.stream, m.batch(op("put", "key", "message/m", "payload", map[string]int{"n": 1})))
		ofMessage := p.restore(p.share(m, "rights", []string{"read"}, "message", "m"))
		older, newer, limited := newRecorder(), newRecorder(), newRecorder()
		live := p.subscribe(m.sess, older, 0)
		defer live.Release()
		narrow := p.subscribe(ofMessage, limited, 0)
		defer narrow.Release()
		promise := p.understanding(m.sess, newer, "keys", "what is to come")
		defer promise.Release()
		if _, _, err := promise.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
		last := p.must(m.stream, m.batch(op("put", "key", "todo/1", "payload", 7), op("put", "key", "message/m", "payload", map[string]int{"n": 2}))).cursor
		newer.untilCursor(t, last)
		limited.untilCursor(t, last)
		older.until(t, "the end of the older one", func() bool { return older.ended != nil })
		if older.ended.Code != fault.Incompatible || slices.ContainsFunc(older.cursors, func(c uint64) bool { return c >= last-1 }) {
			t.Errorf("the older one got %v and ended with %v", older.shown, older.ended)
		}
		if want := []string{"put todo/1", "put message/m"}; len(newer.shown) < 2 || newer.shown[len(newer.shown)-2][2:] != want[0] {
			t.Errorf("the newer one got %v", newer.shown)
		}
		again := p.subscribing(m.sess, newRecorder(), 0, 0, false)
		defer again.Release()
		wantCode(t, "subscribed again", refusedAs(t, again), fault.Incompatible)
		_, _, err := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
		wantCode(t, "events", err, fault.Incompatible)
		sink := rpc.NewLocal(newRecorder())
		defer sink.Release()
		_, _, err = call(t, m.sess, methods.SessionSnapshot.Method, methods.SessionSnapshot.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
			return caps.Set(s, 0, sink)
		})
		wantCode(t, "a snapshot", err, fault.Incompatible)
	})
}

// TestFeaturesComeIntoUseWhenEveryServerKnowsThem: hello names them then, and what was answered until then applies.
func TestFeaturesComeIntoUseWhenEveryServerKnowsThem(t *testing.T) {
	t.Parallel()
	st := teststore.Postgres(t, teststore.PostgresURL(t))
	if _, err := st.RecordReplica(t.Context(), "of the version before", 0, time.Hour); err != nil {
		t.Fatal(err)
	}
	r := start(t, st, func(c *Config) { c.replicaInterval = 10 * time.Millisecond })
	p := r.dial()
	m := r.create(p)
	own := m.batch(op("put", "key", "todo/1", "payload", 7))
	reply := p.apply(m.stream, own)
	if reply.refusal == nil || reply.refusal.Code != fault.Unsupported {
		t.Fatalf("while a server does not know it: %+v", reply)
	}
	if names := p.helloFeatures(); slices.Contains(names, "keys") || !slices.Contains(names, "resume") || !slices.Contains(names, "understands") {
		t.Errorf("hello names %v", names)
	}
	search := func() error {
		_, _, err := call(t, m.sess, methods.SessionSearch.Method, methods.SessionSearch.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			return wire.Session_search_Params(s).SetQuery("words")
		})
		return err
	}
	wantCode(t, "a search, whose index the older server would leave what is purged in", search(), fault.Unsupported)
	// What the older server does not know is not minted by a call either, nor attenuated to.
	later := map[string]capability.MintRequest{
		"some keys":       {Rights: capability.Read, ReadKeys: []string{"todo/"}},
		"the right break": {Rights: capability.Read | capability.Break},
		"the method add":  {Rights: capability.Append, Methods: []string{"put", "add"}},
	}
	narrow := func(wish capability.MintRequest) error {
		promise := attenuating(t, m.sess, func(limits wire.Attenuation) {
			limits.SetRights(uint16(wish.Rights))
			if wish.Methods != nil {
				_ = setNames(limits.NewMethods, wish.Methods)
			}
			if wish.ReadKeys != nil {
				_ = setNames(limits.NewReadKeys, wish.ReadKeys)
			}
		})
		defer promise.Release()
		return refusedAs(t, promise)
	}
	for name, limits := range later {
		if refused := sharingSession(t, m.sess, m.owner.New(m.id), limits); refused == nil || refused.Code != fault.Unsupported {
			t.Errorf("a share of %s: %v", name, refused)
		}
		wantCode(t, "attenuated to "+name, narrow(limits), fault.Unsupported)
	}
	if err := narrow(capability.MintRequest{}); err != nil {
		t.Errorf("attenuated to what is known: %v", err)
	}
	if err := st.ForgetReplica(t.Context(), "of the version before"); err != nil {
		t.Fatal(err)
	}
	r.untilInUse(session.AllFeatures)
	p.must(m.stream, own)
	if err := search(); err != nil {
		t.Errorf("a search: %v", err)
	}
	for name, limits := range later {
		if refused := sharingSession(t, m.sess, m.owner.New(m.id), limits); refused != nil {
			t.Errorf("a share of %s: %v", name, refused)
		}
		if err := narrow(limits); err != nil {
			t.Errorf("attenuated to %s: %v", name, err)
		}
	}
	if names := p.helloFeatures(); !slices.Contains(names, "keys") || !slices.Contains(names, "search") {
		t.Errorf("hello names %v", names)
	}
	r.stop()
	if inUse, err := st.RecordReplica(t.Context(), "another", 0b1000, time.Hour); err != nil || inUse != 0b1000 {
		t.Errorf("a server that has stopped counts: %b, %v", inUse, err)
	}
}
