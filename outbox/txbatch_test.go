package outbox

// Boxes of one pool whose transactions are gathered: what they share, and what
// they must not.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// boxGroup is Boxes of one pool. Each has a session whose stream seems open, so that
// a batch gets its seq as it is committed; nobody sends, and nothing is written
// but what the test commits.
type boxGroup struct {
	pool     *pgxpool.Pool
	batcher  *postgres.TxBatcher
	boxes    []*Box
	sessions []string
	conns    *connsOf
}

// connsOf are a pool's connections; it counts what is written to them.
type connsOf struct {
	mu     sync.Mutex
	all    []*countedConn
	dead   bool // so are those to come
	over   bool // there are to be no more
	writes atomic.Int64
}

type countedConn struct {
	net.Conn
	of   *connsOf
	gone atomic.Bool // nothing gets through any more, and neither end knows
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.of.writes.Add(1)
	if c.gone.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *countedConn) Read(p []byte) (n int, err error) {
	for n, err = c.Conn.Read(p); err == nil && c.gone.Load(); {
		n, err = c.Conn.Read(p)
	}
	return n, err
}

func (c *connsOf) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	counted := &countedConn{Conn: conn, of: c}
	counted.gone.Store(c.dead)
	c.all = append(c.all, counted)
	return counted, nil
}

// vanish has nothing get through over the connections there are, as when a router forgets them.
func (c *connsOf) vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		conn.gone.Store(true)
	}
}

// end breaks all connections, those to come too.
func (c *connsOf) end() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.cut()
}

// die has nothing get through any more, whatever connects.
func (c *connsOf) die() {
	c.vanish()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

// cut breaks all connections.
func (c *connsOf) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

// newBoxGroup opens n Boxes on a pool of at most so many connections. pause is the gatherer's.
func newBoxGroup(t *testing.T, n, conns int, pause time.Duration) *boxGroup {
	t.Helper()
	f := &boxGroup{conns: new(connsOf)}
	cfg, err := pgxpool.ParseConfig(shared.get(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = int32(conns)
	cfg.ConnConfig.DialFunc = f.conns.dial
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	if f.pool, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.pool.Close)
	t.Cleanup(func() {
		postgres.TxBatchers.Lock()
		defer postgres.TxBatchers.Unlock()
		if postgres.TxBatchers.ByPool[f.pool] != nil {
			t.Error("the gatherer outlives its Boxes")
		}
	})
	for range n {
		b, err := newPostgres(context.Background(), f.pool, newPlace(t, "postgres").name, quick())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		session := withSession(t, b)
		if tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1}); err != nil || tk == nil {
			t.Fatalf("the lease: %v, %v", tk, err)
		}
		b.w.Seqs.AddStream(session, 1)
		b.w.Seqs.SetOpen(session, true)
		f.boxes, f.sessions = append(f.boxes, b), append(f.sessions, session)
	}
	f.batcher = f.boxes[0].db.(*postgres.DB).Batcher
	f.batcher.StallTimeout = pause
	t.Cleanup(func() {
		eventually(t, "all places are free", func() bool { return f.waiting() == 0 && f.running() == 0 })
	})
	return f
}

func (f *boxGroup) waiting() int {
	f.batcher.Mu.Lock()
	defer f.batcher.Mu.Unlock()
	return len(f.batcher.Waiting)
}

func (f *boxGroup) running() int {
	f.batcher.Mu.Lock()
	defer f.batcher.Mu.Unlock()
	return f.batcher.Running
}

// batch is one for Box i.
func (f *boxGroup) batch(i int) Batch {
	return Batch{ID: opid.NewBatch(), Session: f.sessions[i], Ops: []Op{put(fmt.Sprint(i))}}
}

// commit commits in the background.
func (f *boxGroup) commit(t *testing.T, i int, batch Batch) (end chan error) {
	end = make(chan error, 1)
	ctx := limited(t)
	go func() {
		_, err := f.boxes[i].Commit(ctx, batch)
		end <- err
	}()
	return end
}

// together has a batch of every Box wait for a place, in order, and then gives
// them one: they are one transaction.
func (f *boxGroup) together(t *testing.T, batches []Batch) (ends []chan error) {
	t.Helper()
	for i, b := range f.boxes {
		if err := b.checkQuota(limited(t), nil, 0, 0); err != nil { // counts, which is not what is to be gathered
			t.Fatalf("box %d: %v", i, err)
		}
	}
	for range postgres.MaxConcurrentTx {
		if !f.batcher.Enter(&postgres.TxPart{Batch: new(pgx.Batch)}) {
			t.Fatal("a place is taken")
		}
	}
	free := sync.OnceFunc(func() {
		for range postgres.MaxConcurrentTx {
			f.batcher.Leave()
		}
	})
	t.Cleanup(free)
	for i := range f.boxes {
		ends = append(ends, f.commit(t, i, batches[i]))
		eventually(t, "it waits", func() bool { return f.waiting() == i+1 })
	}
	free()
	return ends
}

// batches are one for every Box.
func (f *boxGroup) batches() (all []Batch) {
	for i := range f.boxes {
		all = append(all, f.batch(i))
	}
	return all
}

func result(t *testing.T, end chan error) error {
	t.Helper()
	select {
	case err := <-end:
		return err
	case <-limited(t).Done():
		t.Fatal("it never ends")
		return nil
	}
}

// stored is what is there of a Box, in order.
type stored struct {
	num   int64
	batch string
	seq   int64  // 0: none
	tx    string // which wrote it
}

func (f *boxGroup) stored(t *testing.T, i int) (rows []stored) {
	t.Helper()
	found, err := f.pool.Query(limited(t), `SELECT num, batch, COALESCE(first_seq, 0), xmin::text FROM mooring_outbox_batch WHERE box = $1 ORDER BY num`, f.boxes[i].t.Box)
	if err == nil {
		rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (s stored, err error) {
			return s, row.Scan(&s.num, &s.batch, &s.seq, &s.tx)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// check checks that a Box has exactly these batches, with the seqs from 1 on.
func (f *boxGroup) check(t *testing.T, i int, batches ...Batch) []stored {
	t.Helper()
	rows := f.stored(t, i)
	if len(rows) != len(batches) {
		t.Fatalf("box %d has %d batches, want %d", i, len(rows), len(batches))
	}
	for k, r := range rows {
		if r.batch != batches[k].ID || r.seq != int64(k+1) {
			t.Fatalf("box %d: row %d is %+v, want batch %s with seq %d", i, k, r, batches[k].ID, k+1)
		}
	}
	return rows
}

// locked keeps everybody from a Box's lease until unlock.
func (f *boxGroup) locked(t *testing.T, boxes ...int) (unlock func()) {
	t.Helper()
	conn, err := pgx.Connect(limited(t), shared.get(t))
	if err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() {
		if err := conn.Close(limited(t)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(unlock)
	for _, i := range boxes {
		if _, err := conn.Exec(limited(t), "SELECT pg_advisory_lock($1, $2)", postgres.LeaseLockSpace, int32(f.boxes[i].t.Box)); err != nil {
			t.Fatal(err)
		}
	}
	return unlock
}

// blocked waits until somebody waits for a Box's lease, and tells which backend that is.
func (f *boxGroup) blocked(t *testing.T, i int) (pid int32) {
	t.Helper()
	return blocked(t, f.pool, f.boxes[i])
}

func blocked(t *testing.T, pool *pgxpool.Pool, b *Box) (pid int32) {
	t.Helper()
	eventually(t, "it waits for the lease", func() bool {
		err := pool.QueryRow(limited(t), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND classid = $1 AND objid = $2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
			uint32(postgres.LeaseLockSpace), uint32(b.t.Box)).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return err == nil
	})
	return pid
}

func TestCommitsOfManyBoxesAreOneTransaction(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, 8, 8, postgres.StallTimeout)
	batches := f.batches()
	for _, end := range f.together(t, batches) {
		if err := result(t, end); err != nil {
			t.Error(err)
		}
	}
	first := f.check(t, 0, batches[0])[0]
	last := first.num
	for i := 1; i < len(f.boxes); i++ {
		r := f.check(t, i, batches[i])[0]
		if r.tx != first.tx || r.num <= last {
			t.Errorf("box %d's batch is number %d in transaction %s, want one after %d in %s", i, r.num, r.tx, last, first.tx)
		}
		last = r.num
	}

	// And as they come: every Box's batches, all of them, in order.
	const rounds = 30
	more := make([][]Batch, len(f.boxes))
	var all sync.WaitGroup
	for i := range f.boxes {
		more[i] = []Batch{batches[i]}
		for range rounds {
			more[i] = append(more[i], f.batch(i))
		}
		all.Go(func() {
			for _, b := range more[i][1:] {
				if _, err := f.boxes[i].Commit(limited(t), b); err != nil {
					t.Errorf("box %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	txs := make(map[string]bool)
	for i := range f.boxes {
		for _, r := range f.check(t, i, more[i]...) {
			txs[r.tx] = true
		}
	}
	if n := len(f.boxes) * (rounds + 1); len(txs) >= n {
		t.Errorf("%d batches took %d transactions", n, len(txs))
	}
	f.untouched(t)
}

// untouched checks that connections in the pool wait for locks as before.
func (f *boxGroup) untouched(t *testing.T) {
	t.Helper()
	conns := f.pool.AcquireAllIdle(limited(t))
	for _, c := range conns {
		var timeout string
		if err := c.QueryRow(limited(t), "SHOW lock_timeout").Scan(&timeout); err != nil || timeout != "0" {
			t.Errorf("a connection has lock_timeout %s, %v", timeout, err)
		}
		c.Release()
	}
	if len(conns) == 0 {
		t.Error("the pool has no connection")
	}
}

// TestOneOfManyFails has one Box commit another batch under an id that it has.
func TestOneOfManyFails(t *testing.T) {
	t.Parallel()
	const bad = 2
	f := newBoxGroup(t, 5, 8, postgres.StallTimeout)
	old := f.batch(bad)
	if err := result(t, f.commit(t, bad, old)); err != nil {
		t.Fatal(err)
	}
	batches := f.batches()
	batches[bad].ID, batches[bad].Ops = old.ID, []Op{put("1"), put("2")}
	for i, end := range f.together(t, batches) {
		if err := result(t, end); (i == bad) != errors.Is(err, fault.AlreadyExists) || i != bad && err != nil {
			t.Errorf("box %d: %v", i, err)
		}
	}
	batches[bad] = old
	next := f.batches()
	for _, end := range f.together(t, next) {
		if err := result(t, end); err != nil {
			t.Error(err)
		}
	}
	for i := range f.boxes {
		f.check(t, i, batches[i], next[i])
	}
	f.untouched(t)
}

// TestOneOfManyIsLockedOut has one Box meet a takeover that takes its time.
func TestOneOfManyIsLockedOut(t *testing.T) {
	t.Parallel()
	const out = 0
	f := newBoxGroup(t, 5, 8, 20*time.Millisecond)
	unlock := f.locked(t, out)
	batches := f.batches()
	ends := f.together(t, batches)
	for i, end := range ends {
		if i != out {
			if err := result(t, end); err != nil {
				t.Errorf("box %d: %v", i, err)
			}
		}
	}
	f.blocked(t, out)
	unlock()
	if err := result(t, ends[out]); err != nil {
		t.Error(err)
	}
	for i := range f.boxes {
		f.check(t, i, batches[i])
	}
	f.untouched(t)
}

// TestPlacesOfThoseThatHang has as many Boxes wait for a lock, each in a
// transaction of its own, as there are places.
func TestPlacesOfThoseThatHang(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, postgres.MaxConcurrentTx+3, postgres.MaxConcurrentTx+4, 20*time.Millisecond)
	batches := f.batches()
	var out []int
	for i := range postgres.MaxConcurrentTx {
		out = append(out, i)
	}
	unlock := f.locked(t, out...)
	ends := make([]chan error, len(f.boxes))
	for i := range f.boxes {
		ends[i] = f.commit(t, i, batches[i])
		if i < postgres.MaxConcurrentTx {
			f.blocked(t, i)
		}
	}
	for _, end := range ends[postgres.MaxConcurrentTx:] {
		if err := result(t, end); err != nil {
			t.Error(err)
		}
	}
	for _, i := range out {
		f.blocked(t, i)
	}
	unlock()
	for _, i := range out {
		if err := result(t, ends[i]); err != nil {
			t.Error(err)
		}
	}
	for i := range f.boxes {
		f.check(t, i, batches[i])
	}
}

// TestGatheredAndKilled has the database end the session: nothing was committed,
// and everybody is told so.
func TestGatheredAndKilled(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, 4, 4, time.Hour)
	unlock := f.locked(t, 3)
	batches := f.batches()
	ends := f.together(t, batches)
	if _, err := f.pool.Exec(limited(t), "SELECT pg_terminate_backend($1)", f.blocked(t, 3)); err != nil {
		t.Fatal(err)
	}
	for i, end := range ends {
		if err := result(t, end); !errors.Is(err, fault.Unavailable) || errors.Is(err, writer.ErrAmbiguous) {
			t.Errorf("box %d: %v", i, err)
		}
	}
	unlock()
	for i := range f.boxes {
		f.check(t, i)
		if err := result(t, f.commit(t, i, batches[i])); err != nil {
			t.Errorf("box %d: %v", i, err)
		}
		f.check(t, i, batches[i])
	}
}

// TestGatheredAndCutOff breaks the connection under a transaction that will be
// committed all the same.
func TestGatheredAndCutOff(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, 4, 4, time.Hour)
	unlock := f.locked(t, 3)
	batches := f.batches()
	ends := f.together(t, batches)
	f.blocked(t, 3)
	f.conns.cut()
	for i, end := range ends {
		if err := result(t, end); !errors.Is(err, fault.Unavailable) || !errors.Is(err, writer.ErrAmbiguous) {
			t.Errorf("box %d: %v", i, err)
		}
		if f.boxes[i].w.Seqs.IsLeading() {
			t.Errorf("box %d would give a seq again that it may have given", i)
		}
	}
	unlock()
	for i := range f.boxes {
		again := f.commit(t, i, batches[i])
		if err := result(t, again); err != nil {
			t.Errorf("box %d: %v", i, err)
		}
		if rows := f.stored(t, i); len(rows) != 1 || rows[0].batch != batches[i].ID {
			t.Errorf("box %d has %+v", i, rows)
		}
	}
}

// TestAloneIsOneRoundTrip counts what a Box that nobody else is beside sends.
func TestAloneIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := newBoxGroup(t, 1, 2, postgres.StallTimeout)
	other, err := f.pool.Acquire(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release() // which leaves one to commit on
	for range 3 {         // the connection learns the statements
		commit(t, f.boxes[0], f.batch(0))
	}
	const n = 5
	before := f.conns.writes.Load()
	for range n {
		commit(t, f.boxes[0], f.batch(0))
	}
	if got := f.conns.writes.Load() - before; got != n {
		t.Errorf("%d commits took %d writes", n, got)
	}
}
