//go:build unix

// What is left in the database by those who may change nothing.

package node

import (
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestSaveOfASessionThatIsNotThereLeavesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		id := capability.SessionPrefix + ulid.Make().String()
		sess := p.restore(r.owner).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			params := wire.Space_create_Params(s)
			if err := params.SetSession(id); err != nil {
				return err
			}
			return params.SetOwner(r.owner.New(id).ID)
		}).Cap(0)
		_, _, err := call(t, sess, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
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
		r := start(t, st, func(c *Config) { c.ReadOnlyStreams = 2 })
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
			var last func()
			for n := range 5 {
				id, b := capability.SessionPrefix+ulid.Make().String(), newBox()
				ids = append(ids, id)
				owner := r.owner.New(id)
				sess := naming(t, space, id, owner.ID)
				create := b.batch(id, op("create", "ref", owner.ID, "hash", hashText(owner.Secret)))
				if n < 2 { // who has made some offline is told of each what became of it
					wantRecorded(t, "create", p.must(p.open(sess, b), create).outcomes[0], ledger.Denied, want)
					wantRecorded(t, "create again", p.must(p.open(sess, b), create).outcomes[0], ledger.Denied, want)
					last = func() {
						// Its writer has been told, and may have done something else: under no ref does it apply any more.
						wantRecorded(t, "create by who may", p.must(p.open(naming(t, root, id, owner.ID), b), create).outcomes[0], ledger.Denied, want)
					}
					continue
				}
				_, _, err := p.opening(sess, b).Wait(within(t))
				if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != want {
					t.Errorf("one too many: %v, want %s", err, want)
				}
			}
			last()
			// Without an outbox nothing is recorded.
			live, err := r.server.Caller(within(t), "192.0.2.1:1").Restore(ref, "")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, capability.SessionPrefix+ulid.Make().String())
			owner, s, _ := newRefOf(ids[5])
			wantCode(t, "create without an outbox", live.Create(within(t), ids[5], owner, nil,
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

// Who can do nothing makes few streams, and leaves few outcomes in each; what is there goes on.
func TestRefsThatCanDoNothingMakeFewStreams(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		const most = 3
		r := start(t, st, func(c *Config) { c.ReadOnlyStreams = most })
		p := r.dial()
		m := r.create(p)
		writer := p.share(m, "rights", []string{"append"})
		lasting := newBox()
		p.must(p.open(p.restore(writer), lasting), lasting.batch(m.id, put(1)))
		gone := p.share(m, "rights", []string{"append"})
		p.must(m.stream, m.batch(op("revoke", "ref", gone.ID), op("revoke", "ref", writer.ID)))
		opens := func(sess *rpc.Ref, b *box) error {
			t.Helper()
			promise := p.opening(sess, b)
			defer promise.Release()
			return plainFault(t, promise)
		}
		remove := func() ledger.Intent { return op("remove", "key", "message/none") }
		for code, sess := range map[fault.Code]*rpc.Ref{
			fault.Revoked:      p.restore(gone),
			fault.MissingRight: p.restore(p.share(m, "rights", []string{"read"})),
		} {
			var first *box
			for range most {
				b := newBox()
				if first == nil {
					first = b
				}
				ack := p.must(p.open(sess, b), b.batch(m.id, remove(), remove()))
				wantRecorded(t, "a stream of few", ack.outcomes[0], ledger.Denied, code)
			}
			for range 3 {
				wantCode(t, "one too many", opens(sess, newBox()), code)
			}
			// What is there goes on, up to a bound for what is not acknowledged.
			stream := p.open(sess, first)
			many := make([]ledger.Intent, session.MaxReadOnlyUnacked-2)
			for i := range many {
				many[i] = remove()
			}
			if ack := p.must(stream, first.batch(m.id, many...)); len(ack.outcomes) != len(many) {
				t.Fatalf("%d outcomes", len(ack.outcomes))
			}
			next := first.batch(m.id, remove())
			wantRefusal(t, "beyond the bound", p.apply(stream, next), fault.Overloaded, 0)
			next.AckedThrough = first.seq - 1
			wantRecorded(t, "acknowledged", p.must(stream, next).outcomes[0], ledger.Denied, code)

			// Under a ref that may, the stream is like any other, and counts no more.
			first.incarnation++
			if ack := p.must(p.open(p.restore(m.owner), first), first.batch(m.id, put(2))); ack.applied != 1 {
				t.Errorf("%+v", ack.outcomes)
			}
			if err := opens(sess, newBox()); err != nil {
				t.Errorf("in the place of one that counts no more: %v", err)
			}
			wantCode(t, "one too many again", opens(sess, newBox()), code)
		}
		// A stream that was made while its ref was alive goes on recording, and is not counted.
		wantRecorded(t, "a stream of before", p.must(p.open(p.restore(writer), lasting), lasting.batch(m.id, put(3))).outcomes[0], ledger.Denied, fault.Revoked)
		if err := opens(p.restore(m.owner), newBox()); err != nil {
			t.Errorf("the owner: %v", err)
		}
		// Of a deleted session too.
		p.must(m.stream, m.batch(op("delete")))
		sess := p.restore(m.owner)
		for range most {
			if err := opens(sess, newBox()); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, "of a deleted session", opens(sess, newBox()), fault.SessionDeleted)
	})
}
