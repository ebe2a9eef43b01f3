package outbox

// What transactions and readings see of others.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// TestStoppedStreamIsFoundInOneSnapshot: what a reading looks at again, before it says that
// something stands still, is as it was at one moment.
func TestStoppedStreamIsFoundInOneSnapshot(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		ctx := limited(t)
		changed := true
		err := b.db.Read(ctx, func(q sqlstore.Querier) error {
			var seen [2]int64
			for i := range seen {
				if i > 0 {
					commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
				}
				var err error
				if seen[i], _, err = b.t.Usage(ctx, q); err != nil {
					return err
				}
			}
			if changed = seen[0] != seen[1]; changed {
				return sqlstore.SnapshotError{Err: &StreamStoppedError{Session: session}}
			}
			return nil
		})
		if changed || err != nil {
			t.Errorf("the last reading saw what came meanwhile (%t), %v", changed, err)
		}
	})
}

// TestTwoChangesOfARef: who changes a ref while another process does loses nothing of
// what that one writes.
func TestTwoChangesOfARef(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		one, two := p.open(t, quick()), p.open(t, quick())
		ctx := limited(t)
		ref := testRef(t, one, newSession(), RefMeta{Role: Shared})
		ended := make(chan error, 1)
		err := one.changeRef(ctx, "test", ref.ID, func(old refs.Row) (refs.Row, error) {
			go func() {
				ended <- two.changeRef(ctx, "test", ref.ID, func(old refs.Row) (refs.Row, error) {
					old.Label = "two"
					return old, nil
				})
			}()
			if p.kind == "postgres" {
				eventually(t, "the other one waits, or is through", func() bool { return len(ended) > 0 || lockedOut(t, two) })
			}
			old.External = "one"
			return old, nil
		})
		if err = errors.Join(err, <-ended); err != nil {
			t.Fatal(err)
		}
		if got, err := two.Ref(ctx, ref.ID); err != nil || got.Label != "two" || got.External != "one" {
			t.Errorf("%q and %q, %v", got.External, got.Label, err)
		}
	})
}

// lockedOut says whether a transaction of the Box's database waits for another one's
// row.
func lockedOut(tb testing.TB, b *Box) (waits bool) {
	err := b.db.(*postgres.DB).Pool.QueryRow(limited(tb), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event = 'transactionid' AND query LIKE '%mooring_outbox_ref%FOR UPDATE')`).Scan(&waits)
	if err != nil {
		tb.Error(err)
	}
	return waits
}

// TestTimeGoesOnInATransaction: a lease lasts from when it is written, and not from when
// its transaction began, which may have waited for long.
func TestTimeGoesOnInATransaction(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "postgres").open(t, quick())
	ctx := limited(t)
	var began, ended int64
	err := b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) (err error) {
		began, err = b.db.Now(ctx, q)
		if err != nil {
			return err
		}
		if _, err := q.Exec(ctx, "SELECT pg_sleep(0.002)"); err != nil {
			return err
		}
		ended, err = b.db.Now(ctx, q)
		return err
	})
	if err != nil || ended <= began {
		t.Errorf("from %d to %d, %v", began, ended, err)
	}
}

// TestAgainInATransaction: a batch that is there is not committed again, and no other one
// under its id.
func TestAgainInATransaction(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	tx := begin(t, pool)
	batch := Batch{ID: opid.NewBatch(), Session: withSession(t, b), Ops: []Op{put("1"), put("2")}}
	first := commitTx(t, b, tx, batch)
	if again := commitTx(t, b, tx, batch); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("%v, want %v", again, first)
	}
	batch.Ops = batch.Ops[:1]
	if ticket, err := b.CommitTx(limited(t), tx, batch); !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("another batch under the id: %v, %v", ticket, err)
	}
	end(t, tx)
}

// TestDecidedInATransaction: a batch all of whose ops are skipped when it is committed is
// unfinished until the sender has finished it.
func TestDecidedInATransaction(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	session := withSession(t, b)
	stop := run(t, b, newFakeServer())
	x := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "reject"}}})
	if err := b.Drain(limited(t), nil); err != nil {
		t.Fatal(err)
	}
	stop()
	tx := begin(t, pool)
	y := commitTx(t, b, tx, Batch{Session: session, Ops: []Op{depends(x)}})
	end(t, tx)
	if st, err := b.Status(limited(t)); err != nil || st.Unfinished() != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	run(t, b, newFakeServer())
	if o := wait(t, b, y)[0]; o.Status != ledger.Skipped || o.Cause != x.Ops[0] {
		t.Errorf("%+v", o)
	}
}

// TestATransactionInWhichNothingHappens is undone by the database when a lease would have
// lapsed, and not at once.
func TestATransactionInWhichNothingHappens(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "postgres")
	for lease, want := range map[time.Duration]string{time.Second: "2s", 7 * time.Second: "7s"} {
		cfg := quick()
		cfg.Lease = lease
		b, got := p.open(t, cfg), ""
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			return q.Query(ctx, "SELECT current_setting('idle_in_transaction_session_timeout')", nil, func(scan sqlstore.Scanner) error { return scan(&got) })
		})
		if err != nil || got != want {
			t.Errorf("with a lease of %v: after %s, %v", lease, got, err)
		}
	}
}

// TestOpsPendingOnAnotherSessionGetNoSeq when it is committed, though its own stream is
// open.
func TestOpsPendingOnAnotherSessionGetNoSeq(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		away, near := withSession(t, b), withSession(t, b)
		link := srv.awayFor(away)
		run(t, b, link)
		wait(t, b, commit(t, b, Batch{Session: near, Ops: []Op{put("1")}})) // its stream is open
		x := commit(t, b, Batch{Session: away, Ops: []Op{put("2")}})
		y := commit(t, b, Batch{Session: near, Ops: []Op{depends(x)}})
		rows, err := b.List(limited(t), Filter{Batch: y.Batch})
		if err != nil || rows[0].Seq != 0 {
			t.Errorf("%+v, %v", rows, err)
		}
		link.down.Store(false)
		if o := wait(t, b, y)[0]; o.Status != ledger.Applied {
			t.Errorf("%+v", o)
		}
	})
}

// TestATransactionThatGivesWay is run again.
func TestATransactionThatGivesWay(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		times := 0
		err := b.w.Do(limited(t), func(context.Context, sqlstore.Querier) error {
			if times++; times < writer.MaxTxConflicts {
				return sqlstore.ErrTxConflict
			}
			return nil
		})
		if err != nil || times != writer.MaxTxConflicts {
			t.Errorf("after %d times: %v", times, err)
		}
	})
}
