//go:build unix

// What is left in the database by those who may change nothing.

package server

import (
	"fmt"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestSaveOfASessionThatIsNotThereLeavesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		id := capability.SessionPrefix + ulid.Make().String()
		sess := p.restore(r.owner).Call(within(t), spaceCreate, words(0, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
			params := wire.Space_create_Params(s)
			if err := params.SetSession(id); err != nil {
				return err
			}
			return params.SetOwner(r.owner.New(id).ID)
		}).Cap(0)
		_, _, err := call(t, sess, persistentSave, words(0, 1), nil)
		wantCode(t, "save", err, fault.NotFound)
		if rows, err := st.ReadRows(t.Context(), []string{id}); err != nil || len(rows) != 0 {
			t.Errorf("left behind: %v, %v", rows[id], err)
		}
	})
}

// A session that a ref cannot make is given a row, for the record of that. Whoever holds
// the ref can name ever new ones.
func TestRefsThatCannotCreateLeaveFewSessions(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.IdleStreams = 2 })
		p := r.dial()
		root := p.restore(r.owner)
		for want, rights := range map[fault.Code]capability.Rights{fault.MissingRight: capability.List, fault.Revoked: capability.Create} {
			ref := r.owner.New(r.owner.Target())
			if refused := sharing(t, root, ref, rights, ""); refused != nil {
				t.Fatal(refused)
			}
			if want == fault.Revoked {
				if _, refused := cutting(t, root, ref.ID); refused != nil {
					t.Fatal(refused)
				}
			}
			space := p.restore(ref)
			var ids []string
			for n := range 5 {
				id, b := capability.SessionPrefix+ulid.Make().String(), newBox()
				ids = append(ids, id)
				owner := r.owner.New(id)
				sess := naming(t, space, id, owner.ID)
				create := b.batch(id, op("create", "ref", owner.ID, "hash", hashText(owner.Secret)))
				if n < 2 { // who has made some offline is told of each what became of it
					wantRecorded(t, "create", p.must(p.open(sess, b), create).outcomes[0], ledger.Denied, want)
					wantRecorded(t, "create again", p.must(p.open(sess, b), create).outcomes[0], ledger.Denied, want)
					// Its writer has been told, and may have done something else: under no ref does it apply any more.
					wantRecorded(t, "create by who may", p.must(p.open(naming(t, root, id, owner.ID), b), create).outcomes[0], ledger.Denied, want)
					continue
				}
				_, _, err := p.opening(sess, b).Wait(within(t))
				if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.Overloaded {
					t.Errorf("one too many: %v, want overloaded", err)
				}
			}
			// Without an outbox nothing is recorded.
			held, err := r.server.Caller(within(t), "192.0.2.1:1").Restore(ref, "")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, capability.SessionPrefix+ulid.Make().String())
			owner, s, _ := newRefOf(ids[5])
			wantCode(t, "create without an outbox", held.Create(within(t), ids[5], owner,
				plainOp("create", "ref", owner, "hash", hashText(s)).Args...), want)
			if rows, err := st.ReadRows(t.Context(), ids); err != nil || len(rows) != 2 {
				t.Errorf("%d sessions that are not there have rows, %v", len(rows), err)
			}
		}
		if m := r.create(p); rowOf(t, st, m.id).Cursor != 1 {
			t.Error("the owner makes none")
		}
	})
}

func TestAllowanceFillsUp(t *testing.T) {
	t.Parallel()
	a := newAllowance(3, time.Minute)
	now := time.UnixMilli(0)
	takes := func(key string, want ...bool) {
		t.Helper()
		for i := range want {
			if got := a.take(key, now); got != want[i] {
				t.Errorf("at %v %s takes the %d. time: %v", now.UTC(), key, i+1, got)
			}
		}
	}
	takes("a", true, true, true, false)
	takes("b", true)
	now = now.Add(time.Minute)
	takes("a", true, false)
	now = now.Add(time.Hour)
	takes("a", true, true, true, false)
	for i := range 2 * allowances {
		a.take(fmt.Sprint(i), now)
	}
	if n := len(a.full); n > allowances+1 {
		t.Errorf("%d are kept", n)
	}
	now = now.Add(time.Hour)
	takes("c", true, true, true, false)
	if n := len(a.full); n != 1 {
		t.Errorf("%d are kept that are full again", n-1)
	}
}

func TestRefsThatCanDoNothingOpenFewStreams(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.IdleStreams = 4 })
		p := r.dial()
		m := r.create(p) // with the first stream
		idle := map[fault.Code]*rpc.Ref{
			fault.Revoked:      p.restore(p.share(m, "rights", []string{"append"})),
			fault.MissingRight: p.restore(p.share(m, "rights", []string{"read"})),
		}
		_, grant := describe(t, idle[fault.Revoked])
		id, _ := grant.Id()
		p.must(m.stream, m.batch(op("revoke", "ref", id)))
		opens := func(sess *rpc.Ref, b *box) error {
			t.Helper()
			promise := p.opening(sess, b)
			defer promise.Release()
			_, _, err := promise.Wait(within(t))
			if f, ok := fault.ParseReason(reasonOf(err)); ok {
				return f
			}
			return err
		}
		boxes := []*box{newBox(), newBox(), newBox()}
		for i, b := range boxes {
			if err := opens(idle[[]fault.Code{fault.Revoked, fault.MissingRight}[i%2]], b); err != nil {
				t.Errorf("stream %d: %v", i+2, err)
			}
		}
		for code, sess := range idle {
			wantCode(t, "one too many", opens(sess, newBox()), code)
			if err := opens(sess, boxes[0]); err != nil {
				t.Errorf("%s, coming back: %v", code, err)
			}
		}
		if err := opens(m.sess, newBox()); err != nil {
			t.Errorf("the owner: %v", err)
		}
	})
}
