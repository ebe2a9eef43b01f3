//go:build unix

// The reach of a ref: the sessions below its own, over both wires.

package node

import (
	"errors"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// openChild opens a session through one above, over the wire.
func (p *peer) openChild(above *rpc.Ref, id string) (*rpc.Ref, error) {
	p.t.Helper()
	_, promise, err := call(p.t, above, methods.SessionOpen.Method, methods.SessionOpen.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		return wire.Session_open_Params(s).SetSession(id)
	})
	if err != nil {
		return nil, err
	}
	return promise.Cap(0), nil
}

// bear makes a child.
func (r *rig) bear(p *peer, parent *made) *made {
	r.t.Helper()
	child := r.unmade(p)
	create := op("create", "ref", child.owner.ID, "hash", hashText(child.owner.Secret), "parent", parent.id, "via", parent.owner.ID)
	if got := p.must(child.stream, child.batch(create), p.restore(parent.owner)).outcomes[0]; got.Status != ledger.Applied {
		r.t.Fatalf("a child: %+v", got)
	}
	return child
}

// TestReach: what a ref that reaches children does in them, over either wire and in the process, and how it ends.
func TestReach(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		parent := r.create(p)
		child := r.bear(p, parent)
		grand := r.bear(p, child)
		p.must(child.stream, child.batch(put(1)))
		stranger := r.create(p)
		all := []string{"read", "append"}
		ref := p.share(parent, "rights", all, "children", all)
		plain := p.share(parent, "rights", all)
		reading := p.share(parent, "rights", all, "children", []string{"read"})
		late := r.bear(p, parent)

		w := r.dialWebIn(t)
		live := func(ref capability.Ref) *capnweb.Stub { return w.give(w.main, "restore", ref.Text()).(*capnweb.Stub) }
		open := func(ref capability.Ref, id string) *capnweb.Stub {
			return w.give(live(ref), "open", id).(*capnweb.Stub)
		}
		for _, m := range []*made{child, grand, late} {
			opened, err := p.openChild(p.restore(ref), m.id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.openChild(opened, grand.id); (err == nil) != (m == child) {
				t.Errorf("a grandchild through %s: %v", m.id, err)
			}
			info := w.give(open(ref, m.id), "info").(object)
			same(t, "the grant", []any{info["grant"].(object)["id"], info["grant"].(object)["target"], info["grant"].(object)["owner"]}, []any{ref.ID, m.id, false})
			same(t, "its rights", info["grant"].(object)["rights"], []any{"read", "append"})
		}
		same(t, "of the ref", w.give(live(ref), "info").(object)["grant"].(object)["children"], []any{"read", "append"})
		for name, c := range map[string]struct {
			ref  capability.Ref
			id   string
			want fault.Code
		}{
			"another session": {ref, stranger.id, fault.NotFound}, "itself": {ref, parent.id, fault.NotFound}, "no session": {ref, "ses_x", fault.BadArgument},
			"without reach": {plain, child.id, fault.MissingRight}, "the owner's": {parent.owner, child.id, fault.MissingRight},
			"without reach, another session": {plain, stranger.id, fault.MissingRight},
		} {
			_, err := p.openChild(p.restore(c.ref), c.id)
			wantCode(t, name, err, c.want)
			_, err = w.ask(live(c.ref), "open", c.id)
			wantCode(t, name+", over the web", err, c.want)
		}

		// a capability with less
		narrow := w.give(live(ref), "attenuate", object{"rights": []any{"read"}}).(*capnweb.Stub)
		_, err := w.ask(narrow, "open", child.id)
		wantCode(t, "attenuated, without a word of children", err, fault.MissingRight)
		narrow = w.give(live(ref), "attenuate", object{"rights": []any{"read"}, "children": []any{"read"}}).(*capnweb.Stub)
		same(t, "attenuated", w.give(w.give(narrow, "open", child.id).(*capnweb.Stub), "info").(object)["grant"].(object)["rights"], []any{"read"})
		_, err = w.ask(live(reading), "attenuate", object{"children": []any{"append"}})
		wantCode(t, "attenuated to more", err, fault.Widening)

		// writing, in the process
		held := func(ref capability.Ref) *objects.Capability {
			h, err := r.held(ref).OpenChild(t.Context(), child.id)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		if _, err := held(ref).ApplyDirect(t.Context(), putIntent("message/r", map[string]string{"role": "user"})); err != nil {
			t.Fatal(err)
		}
		_, err = held(reading).ApplyDirect(t.Context(), putIntent("message/r", map[string]string{"role": "agent"}))
		wantCode(t, "writing with read", err, fault.MissingRight)
		page, err := held(reading).Events(t.Context(), fanout.Position{}, nil, 10)
		if err != nil || page.Events[len(page.Events)-1].Ref != ref.ID {
			t.Errorf("the log: %+v, %v", page, err)
		}
		// a child's live capability proves nothing in the session above
		opened, _ := p.openChild(p.restore(ref), child.id)
		fork := r.unmade(p)
		if got := p.must(fork.stream, fork.batch(op("fork", "ref", fork.owner.ID, "hash", hashText(fork.owner.Secret), "source", parent.id, "via", ref.ID)), opened).outcomes[0]; got.Reason != fault.UnknownRef {
			t.Errorf("a fork of the parent, with a child's capability: %+v", got)
		}
		if _, err := r.saving(opened); fault.CodeOf(err) == fault.None {
			t.Error("a child's capability is saved")
		}
		if kept, err := r.saving(p.restore(p.share(parent, "rights", []string{"read", "share"}, "children", []string{"read"}))); err != nil {
			t.Error(err)
		} else if _, err := p.openChild(p.restore(kept), child.id); err != nil {
			t.Errorf("a saved one: %v", err)
		}

		// both audits
		r.server.operator.FlushAudit(true)
		for _, of := range []*made{parent, child} {
			page, err := r.held(of.owner).Audit(t.Context(), 0, 1000)
			if err != nil {
				t.Fatal(err)
			}
			used := false
			for _, row := range page.Rows {
				used = used || row.Act == capability.AuditUse && row.Ref == ref.ID && row.Subject == "put"
			}
			same(t, "the audit of "+of.id+" has the put", used, true)
		}

		// the end
		ended, following, begun := make(chan error, 1), held(ref), make(chan struct{}, 100)
		go func() {
			ended <- following.Follow(t.Context(), fanout.Position{}, nil, func([]*session.Event) error {
				begun <- struct{}{}
				return nil
			})
		}()
		<-begun
		before := rowOf(t, st, grand.id).Cursor
		cut := w.give(live(parent.owner), "revoke", ref.ID, false).(object)
		same(t, "the cuts", []any{len(cut["children"].([]any)), cut["childCount"]}, []any{3, 3.0})
		if err := <-ended; !errors.Is(err, fault.Revoked) {
			t.Errorf("a subscription ends with %v", err)
		}
		same(t, "the grandchild's cut", rowOf(t, st, grand.id).Cursor, before+1)
		dead := open(ref, grand.id) // it is opened, and permits nothing
		same(t, "dead", w.give(dead, "info").(object)["grant"].(object)["dead"].(object)["name"], any("revoked"))
		_, err = w.ask(dead, "events", 0, 10)
		wantCode(t, "reading", err, fault.Revoked)
		_, err = held(ref).ApplyDirect(t.Context(), putIntent("message/s", map[string]string{}))
		wantCode(t, "writing", err, fault.Revoked)
		if _, err := held(reading).Events(t.Context(), fanout.Position{}, nil, 10); err != nil {
			t.Errorf("another ref: %v", err)
		}
		if _, err := r.held(r.owner).RevokeInSpace(t.Context(), reading.ID); err != nil {
			t.Fatal(err)
		}
		same(t, "the cut by the space", rowOf(t, st, grand.id).Cursor, before+2)
		_, err = held(reading).Events(t.Context(), fanout.Position{}, nil, 10)
		wantCode(t, "reading", err, fault.Revoked)
	})
}

// TestReachTellsNothing: a session that is not reached is refused with the same words as one that is not there.
func TestReachTellsNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		parent := r.create(p)
		child, sibling := r.bear(p, parent), r.bear(p, parent)
		stranger, gone, absent := r.create(p), r.create(p), r.unmade(p)
		p.must(gone.stream, gone.batch(op("delete")))
		ref := p.share(parent, "rights", []string{"read"}, "children", []string{"read"})
		dead := p.share(parent, "rights", []string{"read"}, "children", []string{"read"})
		holder := r.held(dead)
		if _, err := r.held(parent.owner).Revoke(t.Context(), dead.ID, false); err != nil {
			t.Fatal(err)
		}
		less, err := r.held(ref).Attenuate(t.Context(), capability.MintRequest{Rights: capability.Read})
		if err != nil {
			t.Fatal(err)
		}
		inChild, err := r.held(ref).OpenChild(t.Context(), child.id)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			live   *objects.Capability
			want   fault.Code
			hidden []string // beside the sessions elsewhere
		}{
			"reaching":          {r.held(ref), fault.NotFound, []string{parent.id}},
			"in a child":        {inChild, fault.NotFound, []string{parent.id, sibling.id, child.id}},
			"without reach":     {r.held(p.share(parent, "rights", []string{"read"})), fault.MissingRight, []string{parent.id, child.id}},
			"the owner's":       {r.held(parent.owner), fault.MissingRight, []string{parent.id, child.id}},
			"with less":         {less, fault.MissingRight, []string{parent.id, child.id}},
			"revoked":           {holder, fault.Revoked, []string{parent.id}},
			"the child's owner": {r.held(child.owner), fault.MissingRight, []string{parent.id, sibling.id}},
		} {
			_, want := c.live.OpenChild(t.Context(), absent.id)
			wantCode(t, name, want, c.want)
			for _, id := range append(c.hidden, stranger.id, gone.id) {
				if _, err := c.live.OpenChild(t.Context(), id); err == nil || err.Error() != want.Error() {
					t.Errorf("%s: %v; where nothing is: %v", name, err, want)
				}
			}
		}
	})
}

// TestReachOfWhatIsForgotten: a child that was removed, and one whose parent was, say so to who reached them.
func TestReachOfWhatIsForgotten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		parent := r.create(p)
		child, other := r.bear(p, parent), r.bear(p, parent)
		above := r.held(p.share(parent, "rights", []string{"read"}, "children", []string{"read"}))
		inChild, err := above.OpenChild(t.Context(), child.id)
		if err != nil {
			t.Fatal(err)
		}
		inOther, err := above.OpenChild(t.Context(), other.id)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			gone *made
			in   *objects.Capability
			id   string
		}{{child, inChild, child.id}, {parent, inOther, other.id}} {
			p.must(step.gone.stream, step.gone.batch(op("delete")))
			for _, state := range []string{"deleted", "forgotten"} {
				_, err := step.in.Events(t.Context(), fanout.Position{}, nil, 10)
				wantCode(t, state, err, fault.SessionDeleted)
				if opened, err := above.OpenChild(t.Context(), step.id); err == nil {
					_, err = opened.Events(t.Context(), fanout.Position{}, nil, 10)
					wantCode(t, state+", opened again", err, fault.SessionDeleted)
				} else {
					wantCode(t, state+", opened again", err, fault.SessionDeleted)
				}
				if more, err := st.Forget(t.Context(), step.gone.id, -time.Hour, 100); more || err != nil {
					t.Fatalf("forgetting: %v, %v", more, err)
				}
			}
		}
	})
}

// TestReachOnReplicas: a revoke at one server ends what is read and written below under the ref at another.
func TestReachOnReplicas(t *testing.T) {
	t.Parallel()
	for how, change := range map[string]func(*Config){
		"notifications alone": func(c *Config) { c.PollInterval = 0 },
		"polling alone":       func(c *Config) { c.PollInterval, c.IgnoreNotify = 20*time.Millisecond, true },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			st := postgresStore(t, url)
			one, two := start(t, st, change), start(t, postgresStore(t, url), change)
			one.untilInUse(session.AllFeatures)
			two.untilInUse(session.AllFeatures)
			p, q := one.dial(), two.dial()
			parent := one.create(p)
			child := one.bear(p, parent)
			rights := []string{"read", "append"}
			ref := p.share(parent, "rights", rights, "children", rights)
			opened, err := q.openChild(q.restore(ref), child.id)
			if err != nil {
				t.Fatal(err)
			}
			k, guest := newRecorder(), newBox()
			defer q.subscribe(opened, k, 0).Release()
			stream := q.open(opened, guest)
			last := q.must(stream, guest.batch(child.id, put(1))).cursor
			k.untilCursor(t, last)
			late := one.bear(p, parent) // made at the one, reached at the other

			cut, _ := revoking(t, parent.sess, ref.ID)
			if cut == 0 {
				t.Fatal("there is no cut")
			}
			k.until(t, "the end", func() bool { return k.ended != nil })
			at := rowOf(t, st, child.id).Cursor
			if got := k.cursors[len(k.cursors)-1]; got > at || k.ended.Code != fault.Revoked {
				t.Errorf("delivered up to %d, the cut is at %d; ended with %v", got, at, k.ended)
			}
			ack := q.must(stream, guest.batch(child.id, put(2)))
			wantRecorded(t, "append on the other replica", ack.outcomes[0], ledger.Denied, fault.Revoked)
			if in, err := q.openChild(q.restore(ref), late.id); err == nil {
				_, promise, err := call(t, in, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
				promise.Release()
				wantCode(t, "the late one", err, fault.Revoked)
			}
		})
	}
}
