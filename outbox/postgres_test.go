package outbox

// What only Postgres can do: batches inside the caller's transaction, several
// outboxes in one database, senders that are told.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// pgBox opens an outbox on a pool and in a database of the test's own.
func pgBox(t *testing.T, cfg Config) (*Box, *pgxpool.Pool, place) {
	p := place{"postgres", pgtest.URL(t), "box"}
	pool, err := pgxpool.New(context.Background(), p.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b, err := newPostgres(context.Background(), pool, p.name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, pool, p
}

func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	tx, err := pool.Begin(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commitTx(t *testing.T, b *Box, tx pgx.Tx, batch Batch) Ticket {
	t.Helper()
	ticket, err := b.CommitTx(limited(t), tx, batch)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func end(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(limited(t)); err != nil {
		t.Fatal(err)
	}
}

func TestCommitInTransaction(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	ctx := limited(t)
	srv := newFakeServer()
	session := withSession(t, b)
	run(t, b, srv)
	if _, err := pool.Exec(ctx, "CREATE TABLE state (v INT)"); err != nil {
		t.Fatal(err)
	}

	// Rolled back: nothing is sent, and the transaction's own work is gone too.
	tx := begin(t, pool)
	if _, err := tx.Exec(ctx, "INSERT INTO state VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	gone := commitTx(t, b, tx, Batch{Session: session, Ops: []Op{put("1")}})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(ctx, gone.Batch); !errors.Is(err, fault.NotFound) {
		t.Fatalf("rolled back: %v", err)
	}

	// Refused batches leave the transaction usable, and references inside work.
	tx = begin(t, pool)
	if _, err := b.CommitTx(ctx, tx, Batch{Session: session}); !errors.Is(err, fault.Malformed) {
		t.Fatal(err)
	}
	if _, err := b.CommitTx(ctx, tx, Batch{Session: session, Ops: []Op{{Method: "put", DependsOn: gone.Ops}}}); !errors.Is(err, fault.BadReference) {
		t.Fatal(err)
	}
	x := commitTx(t, b, tx, Batch{Session: session, Ops: []Op{put("2")}})
	if again := commitTx(t, b, tx, Batch{ID: x.Batch, Session: session, Ops: []Op{put("2")}}); fmt.Sprint(again) != fmt.Sprint(x) {
		t.Errorf("again: %v", again)
	}
	y := commitTx(t, b, tx, Batch{Session: session, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: x.Ops[0], Path: "args.v"}}}}}})
	if n := len(srv.log(session)); n != 0 {
		t.Fatalf("%d events before the commit", n)
	}
	end(t, tx)
	if o := wait(t, b, y)[0]; string(o.Result) != `{"cursor":2,"args":{"v":2}}` {
		t.Errorf("%+v", o)
	}
	if _, err := p2(t).CommitTx(ctx, tx, Batch{}); !errors.Is(err, fault.Usage) {
		t.Errorf("on SQLite: %v", err)
	}
}

func p2(t *testing.T) *Box { return newPlace(t, "sqlite").open(t, quick()) }

// TestOverlappingTransactions has rows become visible in another order than
// their numbers: none is lost, and each committer's order stays.
func TestOverlappingTransactions(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	srv := newFakeServer()
	session := withSession(t, b)
	stop := run(t, b, srv)
	slow, fast := begin(t, pool), begin(t, pool)
	s1 := commitTx(t, b, slow, Batch{Session: session, Ops: []Op{put(`"s1"`)}})
	f1 := commitTx(t, b, fast, Batch{Session: session, Ops: []Op{put(`"f1"`)}})
	s2 := commitTx(t, b, slow, Batch{Session: session, Ops: []Op{put(`"s2"`)}})
	f2 := commitTx(t, b, fast, Batch{Session: session, Ops: []Op{put(`"f2"`)}})
	end(t, fast)
	wait(t, b, f2)
	own := commit(t, b, Batch{Session: session, Ops: []Op{put(`"own"`)}}) // does not wait for the slow one
	wait(t, b, own)
	b.raiseLowWaterNow(t)
	end(t, slow)
	next := commit(t, b, Batch{Session: session, Ops: []Op{put(`"next"`)}}) // after it, for the same committer
	wait(t, b, next)
	checkLog(t, srv.log(session), []Ticket{f1, f2, own, s1, s2, next})

	// The same with the sender gone in between: rows below the mark of what is
	// finished are found by the next one, with and without a seq.
	slow = begin(t, pool)
	s3 := commitTx(t, b, slow, Batch{Session: session, Ops: []Op{put(`"s3"`)}})
	last := commit(t, b, Batch{Session: session, Ops: []Op{put(`"last"`)}})
	wait(t, b, last)
	b.raiseLowWaterNow(t)
	srv.hold.Lock()
	end(t, slow)
	eventually(t, "it is sent", func() bool { return len(srv.log(session)) == 8 })
	stop()
	srv.hold.Unlock()
	run(t, b, srv)
	wait(t, b, s3)
	checkLog(t, srv.log(session), []Ticket{f1, f2, own, s1, s2, next, last, s3})
}

// TestOverlappingTransactionsOnTheirWay has a batch with a lower number be sent after another,
// and the sender go before either is answered: the next one sends them in the order of their seqs.
func TestOverlappingTransactionsOnTheirWay(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	srv := newFakeServer()
	session := withSession(t, b)
	stop := run(t, b, srv)
	slow := begin(t, pool)
	late := commitTx(t, b, slow, Batch{Session: session, Ops: []Op{put(`"late"`)}})
	srv.hold.Lock()
	soon := commit(t, b, Batch{Session: session, Ops: []Op{put(`"soon"`)}})
	eventually(t, "it is with the server", func() bool { return len(srv.log(session)) == 1 })
	end(t, slow)
	eventually(t, "the late one has its seq", func() bool {
		rows, err := b.List(limited(t), Filter{Batch: late.Batch})
		return err == nil && rows[0].Seq == 2
	})
	stop()
	srv.hold.Unlock()
	run(t, b, srv)
	wait(t, b, soon)
	wait(t, b, late)
	checkLog(t, srv.log(session), []Ticket{soon, late})
}

// raiseLowWaterNow moves the mark below which all is finished as far as it goes.
func (b *Box) raiseLowWaterNow(t *testing.T) {
	t.Helper()
	eventually(t, "outcomes are stored", func() bool {
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			b.t.RaiseLowWater(q)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var row sqlstore.BoxRow
		var open int64
		err = b.db.Read(limited(t), func(q sqlstore.Querier) error {
			if row, err = b.t.ReadBox(limited(t), q, ""); err != nil {
				return err
			}
			open, _, err = b.t.Usage(limited(t), q)
			return err
		})
		return err == nil && row.LowWater > 1 && open == 0
	})
}

// TestSenderIsNotified polls so rarely that only NOTIFY can be what wakes it.
func TestSenderIsNotified(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Poll = time.Hour
	b, pool, p := pgBox(t, cfg)
	other := p.open(t, cfg)
	srv := newFakeServer()
	session := withSession(t, b)
	run(t, b, srv)
	wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
	eventually(t, "it listens", func() bool {
		var n int
		err := pool.QueryRow(limited(t), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()").Scan(&n)
		return err == nil && n == 1
	})
	wait(t, other, commit(t, other, Batch{Session: session, Ops: []Op{put("2")}}))
	tx := begin(t, pool)
	x := commitTx(t, other, tx, Batch{Session: session, Ops: []Op{put("3")}})
	end(t, tx)
	wait(t, other, x)
}

func TestOutboxesOfOneDatabase(t *testing.T) {
	t.Parallel()
	b, _, p := pgBox(t, quick())
	other := place{p.kind, p.at, p.name + " other"}.open(t, quick())
	same := p.open(t, quick())
	if same.ID() != b.ID() || other.ID() == b.ID() {
		t.Fatalf("ids %s %s %s", b.ID(), same.ID(), other.ID())
	}
	session := withSession(t, b)
	if err := other.PutRef(limited(t), testAddress.New(session), RefMeta{}); err != nil {
		t.Fatal(err)
	}
	one, two := newFakeServer(), newFakeServer()
	x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	y := commit(t, other, Batch{Session: session, Ops: []Op{put("2")}})
	run(t, b, one)
	run(t, other, two)
	wait(t, b, x)
	wait(t, other, y)
	if _, err := b.Wait(limited(t), y.Batch); !errors.Is(err, fault.NotFound) {
		t.Errorf("another outbox's batch: %v", err)
	}
	checkLog(t, one.log(session), []Ticket{x})
	checkLog(t, two.log(session), []Ticket{y})
}

// TestDeadSenderIsNotWaitedOut kills a sending process whose lease has an hour
// to go: the next sees that nobody listens any more.
func TestDeadSenderIsNotWaitedOut(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		kill, _, lines := startChild(t, p, session, neverReached)
		eventually(t, "it sends and says that it lives", func() bool {
			var row sqlstore.BoxRow
			err := b.db.Read(limited(t), func(q sqlstore.Querier) (err error) {
				row, err = b.t.ReadBox(limited(t), q, "")
				return err
			})
			return err == nil && row.Incarnation == 1 && (row.HolderPID != 0 || p.kind == "sqlite") && len(lines()) > 0
		})
		kill()
		if p.kind == "postgres" { // what was on its way there is done nevertheless
			eventually(t, "its connections are gone", func() bool {
				var n int
				err := b.db.(*postgres.DB).Pool.QueryRow(limited(t), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", childOf(p)).Scan(&n)
				return err == nil && n == 0
			})
		}
		committed := lines()
		srv := newFakeServer()
		acked, err := b.List(limited(t), Filter{States: []State{Acked}})
		if err != nil {
			t.Fatal(err)
		}
		srv.streams[session+b.ID()] = &fakeStreamRow{row: ledger.Stream{Session: session, Outbox: b.ID(), Incarnation: 1,
			LastSeq: uint64(len(acked)), AckedThrough: uint64(len(acked))}, history: ledger.NewHistory(nil), hash: b.sender.Secret.StreamSecret(session).Hash()}
		run(t, b, srv)
		if _, err := b.Wait(limited(t), committed[len(committed)-1]); err != nil {
			st, _ := b.Status(limited(t))
			t.Fatalf("%v: %+v", err, st)
		}
	})
}

// renewing has a lease be renewed while another is about to take it.
type renewing struct {
	sqlstore.Database
	renew func()
}

func (d renewing) TakeLease(ctx context.Context, q sqlstore.Querier, box int64) error {
	d.renew()
	return d.Database.TakeLease(ctx, q, box)
}

// TestLeaseThatIsRenewedAfterAll: a holder that is late keeps it, if nobody has it yet.
func TestLeaseThatIsRenewedAfterAll(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "postgres")
	one, two := p.open(t, quick()), p.open(t, quick())
	if tk, _, err := one.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1}); err != nil || tk == nil {
		t.Fatal(tk, err)
	}
	lapse(t, one)
	db := two.db
	for what, change := range map[string]func(context.Context) (bool, error){"raised": one.lease.RaiseIncarnation, "renewed": one.lease.Renew} {
		useDB(two, renewing{db, func() {
			if held, err := change(limited(t)); err != nil || !held {
				t.Error(held, err)
			}
		}})
		if tk, _, err := two.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1}); err != nil || tk != nil {
			t.Errorf("taken from a living holder, which has %s: %+v, %v", what, tk, err)
		}
		lapse(t, one)
	}
}

// TestPoolOfRepeatableReads has a former holder's commit wait while another takes the lease, on a pool whose transactions
// see what was there when they began: it gives out no seq.
func TestPoolOfRepeatableReads(t *testing.T) {
	t.Parallel()
	at := pgtest.URL(t)
	cfg, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	own := quick()
	own.Lease, own.Poll = time.Hour, time.Hour
	b, err := newPostgres(limited(t), pool, "box", own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	session := withSession(t, b)
	run(t, b, newFakeServer())
	wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})) // its stream is open

	conn, err := pgx.Connect(limited(t), at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(limited(t)) // another's takeover
	if err == nil {
		_, err = tx.Exec(limited(t), "SELECT pg_advisory_xact_lock($1, $2)", postgres.LeaseLockSpace, int32(b.t.Box))
	}
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan Ticket, 1)
	go func() { late <- commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}) }()
	blocked(t, pool, b)
	_, err = tx.Exec(limited(t), "UPDATE mooring_outbox SET holder = 'other', incarnation = incarnation + 1")
	if err = errors.Join(err, tx.Commit(limited(t))); err != nil {
		t.Fatal(err)
	}
	rows, err := b.List(limited(t), Filter{Batch: (<-late).Batch})
	if err != nil || rows[0].Seq != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestSenderStoppedInATransaction has a sender be stopped between two statements of a transaction that shares the lease:
// the next one gets the lease all the same.
func TestSenderStoppedInATransaction(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "postgres")
	cfg := quick()
	cfg.Lease = 200 * time.Millisecond
	one, two := p.open(t, cfg), p.open(t, cfg)
	if db := one.db.(*postgres.DB); db.TxIdleTimeout != postgres.MinTxIdleTimeout {
		t.Errorf("it may be idle for %v", db.TxIdleTimeout)
	} else {
		db.TxIdleTimeout = cfg.Lease
	}
	session := withSession(t, one)
	x := commit(t, two, Batch{Session: session, Ops: []Op{put("1")}})
	tk, _, err := one.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1})
	if err != nil || tk == nil {
		t.Fatal(tk, err)
	}
	stopped, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	one.w.Submit(&writer.Job{Done: func(err error, ambiguous bool) { ended <- err }, Run: func(ctx context.Context, q sqlstore.Querier) error {
		if _, leads, err := one.lease.Confirm(ctx, q, tk.Term); err != nil || !leads {
			t.Errorf("it does not lead: %v", err)
		}
		close(stopped)
		<-goOn
		_, err := one.t.ReadBox(ctx, q, "")
		return err
	}})
	<-stopped
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	run(t, two, newFakeServer())
	wait(t, two, x)
	release()
	if err := <-ended; !errors.Is(err, fault.Unavailable) {
		t.Errorf("the transaction that was undone: %v", err)
	}
}

// Two transactions that wait for each other: the database undoes one, and what it
// was to do is done all the same. It is a drop that meets a taking of the lease,
// which goes about the outbox's rows the other way round.
func TestADropGivesWayAndIsDone(t *testing.T) {
	t.Parallel()
	p := place{"postgres", pgtest.URL(t), "box"}
	ctx := limited(t)
	b := p.open(t, quick())
	srv := newFakeServer()
	srv.before = func(*ledger.Batch) (error, bool) { return fault.Overloaded.With("on request"), false }
	stop := run(t, b, srv)
	session := withSession(t, b)
	const tries = 8
	var tickets []Ticket
	for range tries {
		tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
	}
	eventually(t, "they have a seq", func() bool {
		rows, err := b.List(ctx, Filter{Batch: tickets[tries-1].Batch})
		return err == nil && len(rows) == 1 && rows[0].Seq > 0
	})
	stop() // nobody else writes

	other, err := pgx.Connect(ctx, p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	watch, err := pgx.Connect(ctx, p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(ctx)
	for _, ticket := range tickets {
		tx, err := other.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT 1 FROM mooring_outbox FOR UPDATE`)
		}
		if err != nil {
			t.Fatal(err)
		}
		dropped := make(chan error, 1)
		go func() { dropped <- b.Drop(ctx, ticket.Ops[0]) }()
		eventually(t, "the drop waits", func() bool {
			var n int
			err := watch.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
			return err == nil && n > 0
		})
		// Who has waited for the deadlock timeout looks for one, once. That is the drop, if it has not waited so long already.
		_, err = tx.Exec(ctx, `SELECT 1 FROM mooring_outbox_batch FOR UPDATE`)
		var refused *pgconn.PgError
		tooLate := errors.As(err, &refused) && refused.Code == "40P01"
		if tooLate {
			err = tx.Rollback(ctx)
		} else if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			t.Fatalf("the other one: %v", err)
		}
		if err := <-dropped; err != nil {
			t.Errorf("the drop: %v", err)
		}
		if !tooLate {
			return
		}
	}
	t.Error("the drop was never the one that gave way")
}
