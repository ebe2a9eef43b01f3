package outbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestFormerHolderStoredTheAnswer has a former holder of the lease store and
// acknowledge a create's outcome when its successor has the row in hand: what
// the server no longer knows is in the row.
func TestFormerHolderStoredTheAnswer(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		ctx := limited(t)
		space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		session := newSession()
		owner := testRef(t, b, session, RefMeta{Role: SessionOwner})
		srv.session(session).managed = true
		x := commit(t, b, Batch{Session: session, Via: space.ID,
			Ops: []Op{{Method: "create", Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}}}, {Method: "reject"}}})
		srv.hold.Lock()
		stop := run(t, b, srv)
		eventually(t, "the server has it", func() bool { return len(srv.log(session)) == 1 })
		stop() // the answer is under way
		srv.hold.Unlock()

		want := []ledger.Outcome{{OpID: x.Ops[0], Status: ledger.Applied, Cursor: 1, Result: []byte(`{"cursor":1}`)},
			{OpID: x.Ops[1], Status: ledger.Rejected, Message: "on request"}}
		srv.before = func(batch *ledger.Batch) (error, bool) {
			if batch.BatchID != x.Batch {
				return nil, false
			}
			err := b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
				row, err := b.t.Batch(ctx, q, x.Batch, "")
				if err != nil {
					return err
				}
				bd, err := intent.Decode(row.Session, row.ID, row.Body)
				if err == nil {
					b.t.Finish(q, row.Num, 1, bd.Count(want), 1, intent.EncodeOutcomes(want, bd.Ops), nil)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			srv.mu.Lock()
			defer srv.mu.Unlock()
			s := srv.streams[session+b.ID()]
			if _, err := ledger.AckThrough(&s.row, 2, s.history.Record); err != nil {
				t.Error(err)
			}
			s.history.Prune(2)
			return nil, false
		}
		_, notified, _ := b.hub.Subscribe(x.Batch)
		run(t, b, srv)
		select {
		case outs := <-notified:
			if len(outs) != 2 || outs[0].Status != ledger.Applied || outs[0].Cursor != 1 || outs[1].Status != ledger.Rejected || outs[1].Message != "on request" {
				t.Errorf("told %+v", outs)
			}
		case <-ctx.Done():
			t.Fatal("nothing was told")
		}
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		err := b.db.Read(ctx, func(q sqlstore.Querier) error {
			st, err := b.t.Stream(ctx, q, session)
			if err == nil && st.SpaceRef != "" {
				t.Errorf("the session counts as not made: %+v", st)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
