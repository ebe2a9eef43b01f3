package outbox

// What is swept, what stays, and what that costs.

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func TestTicketsAreSwept(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		b := p.open(t, cfg)
		srv := newFakeServer()
		session := withSession(t, b)
		stop := run(t, b, srv)
		var tickets []Ticket
		for range 3 {
			tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: []Op{{ID: opid.NewBatch(), Method: "put"}}}))
		}
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		stop()
		ctx := limited(t)
		if n, err := b.sender.Sweep(ctx, time.Now().Add(time.Hour).UnixMilli(), 100); n != 2 || err != nil {
			t.Fatalf("swept %d rows, want all but the newest: %v", n, err)
		}
		if _, err := b.Wait(ctx, tickets[0].Batch); !errors.Is(err, fault.NotFound) {
			t.Errorf("swept: %v", err)
		}
		wait(t, b, tickets[2])
		run(t, b, srv) // the stream's seqs go on where they were
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))[0]; o.Cursor != 4 {
			t.Errorf("%+v", o)
		}
	})
}

// inAMonth is a time before which all is old by now.
func inAMonth() int64 { return time.Now().Add(30 * 24 * time.Hour).UnixMilli() }

func count(t *testing.T, b *Box, table string) (n int) {
	t.Helper()
	err := b.db.Read(limited(t), func(q sqlstore.Querier) error {
		return q.Query(limited(t), "SELECT count(*) FROM "+table+" WHERE box = $1", []any{b.t.Box}, func(scan sqlstore.Scanner) error { return scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOpsAreSweptWithTheirBatches: what is known of ops with ids of their own, and which op stands for which.
func TestOpsAreSweptWithTheirBatches(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		stop := run(t, b, newFakeServer())
		x := commit(t, b, Batch{Session: session, Ops: []Op{{Method: "reject"}, {ID: opid.NewBatch(), Method: "reject"}}})
		failed(t, b, x)
		for _, op := range x.Ops {
			again, err := b.Retry(limited(t), op)
			if err != nil {
				t.Fatal(err)
			}
			failed(t, b, again)
		}
		stop()
		if ops, retries := count(t, b, "mooring_outbox_op"), count(t, b, "mooring_outbox_retry"); ops != 1 || retries != 2 {
			t.Fatalf("%d ops and %d retries are known by name", ops, retries)
		}
		if n, err := b.sender.Sweep(limited(t), inAMonth(), 1); n != 2 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if ops, retries := count(t, b, "mooring_outbox_op"), count(t, b, "mooring_outbox_retry"); ops != 0 || retries != 0 {
			t.Errorf("%d ops and %d retries are left", ops, retries)
		}
	})
}

// TestReferredRowsAreNotSwept: an op whose value a batch still has to get, through retries or by a name of its own.
func TestReferredRowsAreNotSwept(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		srv := newFakeServer()
		one, two := withSession(t, b), withSession(t, b)
		link := srv.awayFor(two)
		named := put("7")
		named.ID = opid.NewBatch()
		v := commit(t, b, Batch{Session: one, Ops: []Op{put("0")}})
		w := commit(t, b, Batch{Session: one, Ops: []Op{{Method: "reject"}}})
		x := commit(t, b, Batch{Session: one, Ops: []Op{named}})
		commit(t, b, Batch{Session: two, Ops: []Op{put("1")}})
		value := Op{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "args.v"}}}}
		y := commit(t, b, Batch{Session: two, Ops: []Op{value, depends(w)}})
		run(t, b, link)
		failed(t, b, w)
		again, err := b.Retry(limited(t), w.Ops[0])
		if err != nil {
			t.Fatal(err)
		}
		last := commit(t, b, Batch{Session: one, Ops: []Op{put("2")}})
		wait(t, b, last)
		eventually(t, "all but the waiting ones have ended", func() bool {
			st, err := b.Status(limited(t))
			return err == nil && st.Unfinished() == 3
		})
		if n, err := b.sender.Sweep(limited(t), inAMonth(), 1); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if _, err := b.Wait(limited(t), v.Batch); !errors.Is(err, fault.NotFound) {
			t.Errorf("what nobody refers to: %v", err)
		}
		wait(t, b, again)
		link.down.Store(false)
		if outs := wait(t, b, y); outs[0].Status != ledger.Applied || outs[1].Status != ledger.Skipped || outs[1].Cause != again.Ops[0] {
			t.Errorf("%+v", outs)
		}
	})
}

// seen tells which statements a database is given.
type seen struct {
	sqlstore.Database
	reads, writes []string
}

type seenQuerier struct {
	sqlstore.Querier
	list *[]string
}

func (s *seen) Read(ctx context.Context, f func(sqlstore.Querier) error) error {
	return s.Database.Read(ctx, func(q sqlstore.Querier) error { return f(seenQuerier{q, &s.reads}) })
}

func (s *seen) Write(ctx context.Context, f func(sqlstore.Querier) error) (bool, error) {
	return s.Database.Write(ctx, func(q sqlstore.Querier) error { return f(seenQuerier{q, &s.writes}) })
}

func (q seenQuerier) Enqueue(sql string, args []any, one func(sqlstore.Scanner) error) {
	*q.list = append(*q.list, sql)
	q.Querier.Enqueue(sql, args, one)
}

func (q seenQuerier) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	*q.list = append(*q.list, sql)
	return q.Querier.Exec(ctx, sql, args...)
}

func (q seenQuerier) Query(ctx context.Context, sql string, args []any, each func(sqlstore.Scanner) error) error {
	*q.list = append(*q.list, sql)
	return q.Querier.Query(ctx, sql, args, each)
}

// TestSweepingCostsLittle: no more statements for a batch of many ops, no row of which all is young, and nothing is
// looked for while the writer is held up.
func TestSweepingCostsLittle(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		ops := make([]Op, 1000)
		for i := range ops {
			ops[i] = put("1")
		}
		commit(t, b, Batch{Session: session, Ops: ops[:1]})
		commit(t, b, Batch{Session: session, Ops: ops})
		now := time.Now().UnixMilli()
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			if _, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET state = 2, created_at = 1, finished_at = 1, first_seq = num WHERE box = $1", b.t.Box); err != nil {
				return err
			}
			_, err := q.Exec(ctx, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3)
				INSERT INTO mooring_outbox_batch (box, batch, session, state, first_seq, ops, bytes, created_at, finished_at, body, outcomes)
				SELECT $1, 'b' || i, 's', 2, i, 1, 1, CAST($2 AS BIGINT), CAST($2 AS BIGINT), '', '' FROM n`, b.t.Box, now, 3*sqlstore.SweepRows)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		db := &seen{Database: b.db}
		useDB(b, db)
		if n, err := b.sender.Sweep(limited(t), now, 100); n != 2 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		each := []string{sqlstore.SQLDeleteRetries, sqlstore.SQLDeleteNamed, sqlstore.SQLDeleteOps, sqlstore.SQLDeleteBatch}
		if !slices.Equal(db.writes, append(each, each...)) {
			t.Errorf("written: %q", db.writes)
		}
		if want := []string{sqlstore.SQLNewest, sqlstore.SQLPage, sqlstore.SQLOldUnfinished, sqlstore.SQLNewest, sqlstore.SQLPage, sqlstore.SQLOldRefs}; !slices.Equal(db.reads, want) {
			t.Errorf("read: %q", db.reads)
		}
		db.writes, db.reads = nil, nil
		if n, err := b.sender.Sweep(limited(t), now, 100); n != 0 || err != nil || len(db.writes) > 0 {
			t.Errorf("with nothing to sweep: %d, %v, %q", n, err, db.writes)
		}
		if want := []string{sqlstore.SQLNewest, sqlstore.SQLPage, sqlstore.SQLOldRefs}; !slices.Equal(db.reads, want) {
			t.Errorf("with nothing to sweep, read: %q", db.reads)
		}
	})
}

// TestSweptInPieces: what is removed in one transaction is bounded in bytes.
func TestSweptInPieces(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		for range 6 {
			commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		}
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			_, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET state = 2, finished_at = 1, first_seq = num, bytes = $2 WHERE box = $1", b.t.Box, 2<<20)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		transactions := 0
		useDB(b, begun{b.db, func() { transactions++ }})
		if n, err := b.sender.Sweep(limited(t), inAMonth(), 1); n != 5 || err != nil || transactions != 3 {
			t.Errorf("%d rows in %d transactions, %v", n, transactions, err)
		}
	})
}

// begun is told of every transaction that begins.
type begun struct {
	sqlstore.Database
	f func()
}

func (d begun) Write(ctx context.Context, f func(sqlstore.Querier) error) (bool, error) {
	d.f()
	return d.Database.Write(ctx, f)
}

// TestSendersThatLiveShort sweep too, as commands do.
func TestSendersThatLiveShort(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Retention = time.Millisecond
		session, srv := "", newFakeServer()
		for range 4 {
			b, err := p.tryOpen(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if session == "" {
				session = withSession(t, b)
			}
			stop := run(t, b, srv)
			eventually(t, "what is older is swept", func() bool { return count(t, b, "mooring_outbox_batch") <= 1 })
			failed(t, b, commit(t, b, Batch{Session: session, Ops: []Op{{Method: "reject"}}}))
			stop()
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDroppedRefsAreSwept, but for the row that was written last.
func TestDroppedRefsAreSwept(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		for range 3 {
			ref := testRef(t, b, newSession(), RefMeta{})
			if err := b.DropRef(limited(t), ref.ID, false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.sender.Sweep(limited(t), inAMonth(), 1); err != nil {
			t.Fatal(err)
		}
		if n := count(t, b, "mooring_outbox_ref"); n != 1 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestClocksOfTwoProcesses: by the clock of who committed it, what refers to a
// batch may be younger than that batch's end.
func TestClocksOfTwoProcesses(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		one, two := withSession(t, b), withSession(t, b)
		x := commit(t, b, Batch{Session: one, Ops: []Op{put("1")}})
		commit(t, b, Batch{Session: two, Ops: []Op{depends(x)}})
		before := time.Now().UnixMilli()
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			if _, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET state = 2, first_seq = 1, finished_at = $2 WHERE batch = $1", x.Batch, before-1); err != nil {
				return err
			}
			_, err := q.Exec(ctx, "UPDATE mooring_outbox_batch SET created_at = $2 WHERE box = $1", b.t.Box, before+sqlstore.MaxClockSkew.Milliseconds()-1)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := b.sender.Sweep(limited(t), before, 1); n != 0 || err != nil {
			t.Errorf("%d swept, %v", n, err)
		}
	})
}

// TestTheLastOpOfABatchIsSwept: a retry of the last op that a batch has room for goes
// with it, and none of the next batch's.
func TestTheLastOpOfABatchIsSwept(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		id := opid.NewBatch()
		last := opid.DerivedFrom(id).Last()
		next := last[:len(last)-1] + "~" // greater than all that the batch has
		err := b.w.Do(limited(t), func(_ context.Context, q sqlstore.Querier) error {
			for _, op := range []string{opid.Of(id, 0), last, next} {
				b.t.InsertRetry(q, op, "another")
			}
			b.t.Remove(q, sqlstore.SweepRow{Num: 1, Batch: id})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		err = b.db.Read(limited(t), func(q sqlstore.Querier) error {
			for op, want := range map[string]string{opid.Of(id, 0): "", last: "", next: "another"} {
				if got, err := b.t.RetriedAs(limited(t), q, op); err != nil || got != want {
					t.Errorf("what stands for %s: %q, %v", op, got, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
