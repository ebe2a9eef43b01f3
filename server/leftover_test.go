//go:build unix

// What is left in the database by those who may change nothing.

package server

import (
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
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
