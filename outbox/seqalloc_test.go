package outbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestLanesOfClosedStreamsAreLetGo sends to many sessions with few places: what
// is kept in memory follows the places, and the seqs go on where they were.
func TestLanesOfClosedStreamsAreLetGo(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Window.Streams = 2
		b := p.open(t, cfg)
		srv := newFakeServer()
		run(t, b, srv)
		var sessions []string
		for range 20 {
			sessions = append(sessions, withSession(t, b))
		}
		for round := range 3 {
			for _, s := range sessions {
				commit(t, b, Batch{Session: s, Ops: []Op{put(fmt.Sprint(round)), put("0")}})
			}
			if err := b.Drain(limited(t), nil); err != nil {
				t.Fatal(err)
			}
			eventually(t, "lanes are let go", func() bool {
				commit(t, b, Batch{Session: sessions[0], Ops: []Op{put("1")}}) // a transaction begins
				return b.w.Seqs.Len() <= 6
			})
		}
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		for _, s := range sessions {
			rows, err := b.List(limited(t), Filter{Session: s})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range rows {
				if r.Seq != uint64(i+1) {
					t.Fatalf("row %d of %d has seq %d", i, len(rows), r.Seq)
				}
			}
		}
	})
}

// TestLaneOfALookInVain: a look for a stream that was closed meanwhile, and which finds
// nothing, leaves no lane behind for ever.
func TestLaneOfALookInVain(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1})
		if err != nil || tk == nil {
			t.Fatal(tk, err)
		}
		b.w.Seqs.SetOpen(session, true)
		b.w.Seqs.SetOpen(session, false)
		err = b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			_, leads, err := b.lease.Confirm(ctx, q, tk.Term)
			if b.w.Seqs.AddStream(session, 1) == nil || !leads {
				t.Error("it does not lead")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.w.Do(limited(t), func(context.Context, sqlstore.Querier) error { return nil }); err != nil { // a transaction begins
			t.Fatal(err)
		}
		if n := b.w.Seqs.Len(); n > 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}
