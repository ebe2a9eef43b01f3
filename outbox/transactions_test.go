package outbox

// What transactions and readings see of others.

import (
	"context"
	"errors"
	"testing"
)

// TestAStandstillIsFoundInOneSnapshot: what a reading looks at again, before it says that
// something stands still, is as it was at one moment.
func TestAStandstillIsFoundInOneSnapshot(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		ctx := limited(t)
		changed := true
		err := b.db.read(ctx, func(q querier) error {
			var seen [2]int64
			for i := range seen {
				if i > 0 {
					commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
				}
				var err error
				if seen[i], _, err = b.t.usage(ctx, q); err != nil {
					return err
				}
			}
			if changed = seen[0] != seen[1]; changed {
				return &Standstill{Session: session}
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
		err := one.changeRef(ctx, "test", ref.ID, func(old refRow) (refRow, error) {
			go func() {
				ended <- two.changeRef(ctx, "test", ref.ID, func(old refRow) (refRow, error) {
					old.label = "two"
					return old, nil
				})
			}()
			if p.kind == "postgres" {
				eventually(t, "the other one waits, or is through", func() bool { return len(ended) > 0 || lockedOut(t, two) })
			}
			old.external = "one"
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
	err := b.db.(*postgresDB).pool.QueryRow(limited(tb), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
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
	err := b.w.do(ctx, func(ctx context.Context, q querier) (err error) {
		began, err = b.db.now(ctx, q)
		if err != nil {
			return err
		}
		if _, err := q.exec(ctx, "SELECT pg_sleep(0.002)"); err != nil {
			return err
		}
		ended, err = b.db.now(ctx, q)
		return err
	})
	if err != nil || ended <= began {
		t.Errorf("from %d to %d, %v", began, ended, err)
	}
}
