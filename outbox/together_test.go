package outbox

// Outcomes of many batches in one transaction.

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// storeMany commits batches and finishes, in one transaction, all but the last: with and without a
// body, without outcomes, and as many ops that failed as their place says. It gives their numbers.
func storeMany(t *testing.T, b *Box) (nums []int64) {
	t.Helper()
	const batches = 6
	session := withSession(t, b)
	was := make([]*batchRow, batches)
	read := func(i int, id string) *batchRow {
		t.Helper()
		var r *batchRow
		err := b.db.read(limited(t), func(q querier) (err error) {
			r, err = b.t.batch(limited(t), q, id, "")
			return err
		})
		if err != nil || r == nil {
			t.Fatalf("batch %d: %v, %v", i, r, err)
		}
		return r
	}
	for i := range was {
		was[i] = read(i, commit(t, b, Batch{Session: session, Ops: []Op{put(fmt.Sprint(i))}}).Batch)
		nums = append(nums, was[i].num)
	}
	body := func(i int) []byte {
		if i%2 == 0 {
			return nil
		}
		return fmt.Appendf(nil, "body %d", i)
	}
	outcomes := func(i int) []byte {
		if i == 2 {
			return nil
		}
		return fmt.Appendf(nil, "outcomes %d", i)
	}
	finish := func(places int, at int64) {
		t.Helper()
		err := b.w.do(limited(t), func(_ context.Context, q querier) error {
			for i := range places {
				b.t.finish(q, nums[i], at+int64(i), tally{failed: i, skipped: 2 * i, voided: 3 * i}, 4*i, outcomes(i), body(i))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	finish(batches-1, 100)
	finish(1, 200)         // which is finished already, alone
	finish(batches-1, 300) // and with others
	for i, before := range was {
		r := read(i, before.id)
		want := *before
		if i < batches-1 {
			want.state, want.finished, want.attempts, want.outcomes = rowFinished, 100+int64(i), 4*i, outcomes(i)
			want.body = before.body
			if slim := body(i); slim != nil {
				want.body = slim
			}
			want.first = new(int64)
		}
		if r.state != want.state || r.finished != want.finished || r.attempts != want.attempts || !bytes.Equal(r.outcomes, want.outcomes) ||
			!bytes.Equal(r.body, want.body) || (r.first == nil) != (want.first == nil) || r.bytes != want.bytes || r.ops != want.ops {
			t.Errorf("batch %d is %+v, want %+v", i, r, want)
		}
		var n tally
		err := b.db.read(limited(t), func(q querier) error {
			return q.query(limited(t), `SELECT failed, skipped, voided FROM mooring_outbox_batch WHERE num = $1`, []any{r.num},
				func(scan scanner) error { return scan(&n.failed, &n.skipped, &n.voided) })
		})
		if count := i % (batches - 1); err != nil || n != (tally{failed: count, skipped: 2 * count, voided: 3 * count}) {
			t.Errorf("batch %d counts %+v, %v", i, n, err)
		}
	}
	return nums
}

func TestOutcomesOfManyBatches(t *testing.T) {
	both(t, func(t *testing.T, p place) { storeMany(t, p.open(t, quick())) })
}

// TestOutcomesAreStoredTogether: by one statement, however pgx sends it.
func TestOutcomesAreStoredTogether(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(limited(t), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b, err := NewPostgres(limited(t), pool, "box", quick())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			nums := storeMany(t, b)
			var transactions, statements int
			err = pool.QueryRow(limited(t), `SELECT count(DISTINCT xmin::text), count(DISTINCT cmin::text) FROM mooring_outbox_batch WHERE num = ANY ($1)`, nums[:len(nums)-1]).
				Scan(&transactions, &statements)
			if err != nil || transactions != 1 || statements != 1 {
				t.Errorf("stored by %d statements in %d transactions, %v", statements, transactions, err)
			}
		})
	}
}
