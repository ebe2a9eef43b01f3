package outbox

// Group commit across the Boxes of one process on one Postgres. Batches and outcomes are
// written by statements whose results nothing waits for, and a transaction of these costs the
// database mostly the fixed cost of any. So transactions that arrive while others run are
// queued as parts, and the next transaction takes all of them.
//
// A part that arrives while a slot is free runs at once. With all maxConcurrentTx slots in use
// it waits until a transaction ends; then the first waiting part leads: it runs one transaction
// of all waiting parts, in the order of arrival, and signals the result to the others.
//
// Most of the cost of a small transaction is the transaction. So if the last one had several
// parts, the next waits up to groupDelay for twice as many, unless all recent writers have
// arrived. A lone writer does not wait.
//
// The parts of a transaction are independent, so they share success and no failure: if the
// database rolls back the transaction, each part is run again, by itself.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/internal/pgtune"
)

// Bounds of group commit.
const (
	maxConcurrentTx = 2           // transactions at a time: one is prepared while the other is made durable
	maxTxParts      = 128         // parts in a transaction
	maxTxBytes      = 4 << 20     // bytes in a transaction, but for one part that is larger
	stallTimeout    = time.Second // how long one transaction may hold up others

	groupDelay = 3 * time.Millisecond // how long to wait for more parts
	recentTx   = 8                    // a Box that wrote within this many transactions is expected to write again
)

// txBatchers are the batchers of the open Boxes, by pool.
var txBatchers struct {
	sync.Mutex
	byPool map[*pgxpool.Pool]*txBatcher
}

// txBatcher runs the transactions that wait for no result, for all Boxes of a pool.
type txBatcher struct {
	pool         *pgxpool.Pool
	sized        *pgtune.AdaptivePool // limits the use of pool, as for acquireConn
	refCount     int                  // guarded by txBatchers
	stallTimeout time.Duration        // the constant, except in tests
	groupDelay   time.Duration        // the constant, except in tests

	mu        sync.Mutex // guards the fields below
	running   int        // slots in use; while one is free no part waits, except in awaitPeers
	waiting   []*txPart
	lastParts int           // parts of the last transaction
	missing   int           // parts that a leader in awaitParts waits for
	arrived   chan struct{} // closed when they have arrived; nil if no leader waits

	txCount   int
	lastWrite map[*postgresDB]int // recent writers, with the number of their last transaction
}

// txPart is one Box's part of a transaction.
type txPart struct {
	ctx    context.Context // for a run by itself
	db     *postgresDB
	batch  *pgx.Batch
	bytes  int             // bytes of its arguments
	signal chan partSignal // gets one signal, if the part waits
}

func newTxPart(ctx context.Context, of *postgresDB, b *pgx.Batch) *txPart {
	return &txPart{ctx: ctx, db: of, batch: b, bytes: pgtune.EstimateSize(b)}
}

// partSignal wakes a waiting part: to lead the parts in lead, of which it is the first, or with
// the result of its transaction.
type partSignal struct {
	lead   []*txPart
	result txResult
}

// txResult is the result of a transaction. ambiguous: it failed but may have been committed;
// rerun: it was rolled back, perhaps for another part's failure, and this part is to be rebuilt
// and run alone.
type txResult struct {
	err       error
	ambiguous bool
	rerun     bool
}

// txResultOf returns the result for an error of the commit, and of the statements sent with it.
func txResultOf(err error) txResult {
	var e *pgconn.PgError // the server's answer: it was rolled back
	return txResult{err: err, ambiguous: err != nil && !errors.As(err, &e) && !errors.Is(err, errUnique)}
}

// txBatcherOf returns a pool's batcher; release is called once, after the last write.
func txBatcherOf(pool *pgxpool.Pool, sized *pgtune.AdaptivePool) (g *txBatcher, release func()) {
	txBatchers.Lock()
	defer txBatchers.Unlock()
	if g = txBatchers.byPool[pool]; g == nil {
		if txBatchers.byPool == nil {
			txBatchers.byPool = make(map[*pgxpool.Pool]*txBatcher)
		}
		g = &txBatcher{pool: pool, sized: sized, stallTimeout: stallTimeout, groupDelay: groupDelay, lastWrite: make(map[*postgresDB]int)}
		txBatchers.byPool[pool] = g
	}
	g.refCount++
	return g, func() {
		txBatchers.Lock()
		defer txBatchers.Unlock()
		if g.refCount--; g.refCount == 0 {
			delete(txBatchers.byPool, pool)
		}
	}
}

// write runs a batch as a transaction, or as a part of one, and returns when that has ended. A
// waiting part leads the next one.
func (g *txBatcher) write(ctx context.Context, of *postgresDB, b *pgx.Batch) txResult {
	p := newTxPart(ctx, of, b)
	parts := []*txPart{p}
	if !g.enter(p) {
		w := <-p.signal // from leave, within stallTimeout
		if parts = w.lead; parts == nil {
			return w.result
		}
	}
	parts = g.awaitPeers(parts)
	late := time.AfterFunc(g.stallTimeout, g.leave) // a transaction that hangs, on a lock or a connection, gives up its slot
	end := g.run(parts)
	if late.Stop() {
		g.leave()
	}
	for _, other := range parts[1:] {
		other.signal <- partSignal{result: end}
	}
	return end
}

// enter takes a slot; if there is none the part waits for a signal.
func (g *txBatcher) enter(p *txPart) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running < maxConcurrentTx && g.arrived == nil {
		g.running++
		return true
	}
	p.signal = make(chan partSignal, 1)
	g.waiting = append(g.waiting, p)
	if g.arrived != nil {
		if g.missing--; g.missing == 0 {
			close(g.arrived)
		}
	}
	return false
}

// awaitPeers waits, holding a slot, until the expected number of parts has arrived or
// groupDelay has passed, unless another part does already. It returns all parts of the
// transaction.
func (g *txBatcher) awaitPeers(parts []*txPart) []*txPart {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.arrived == nil {
		if missing := g.expectedParts() - len(parts); missing > 0 {
			parts = g.awaitParts(parts, missing)
		}
		g.lastParts = len(parts)
	}
	g.txCount++
	for _, p := range parts {
		g.lastWrite[p.db] = g.txCount
	}
	return parts
}

// awaitParts releases mu until missing more parts have arrived, or groupDelay has passed.
func (g *txBatcher) awaitParts(parts []*txPart, missing int) []*txPart {
	come := make(chan struct{})
	g.missing, g.arrived = missing, come
	g.mu.Unlock()
	timer := time.NewTimer(g.groupDelay)
	select {
	case <-come:
	case <-timer.C:
	}
	timer.Stop()
	g.mu.Lock()
	g.arrived = nil
	parts = g.addWaiting(parts)
	if len(g.waiting) > 0 && g.running < maxConcurrentTx { // too many, or too large
		g.running++
		g.wakeWaiting()
	}
	return parts
}

// expectedParts returns how many parts the next transaction should have. mu is held.
func (g *txBatcher) expectedParts() int {
	maps.DeleteFunc(g.lastWrite, func(_ *postgresDB, last int) bool { return last <= g.txCount-recentTx })
	if g.lastParts < 2 {
		return 1
	}
	return min(2*g.lastParts, len(g.lastWrite), maxTxParts)
}

// wakeWaiting gives a slot to the waiting parts. mu is held.
func (g *txBatcher) wakeWaiting() {
	lead := g.addWaiting(nil)
	lead[0].signal <- partSignal{lead: lead}
}

// addWaiting adds waiting parts to a transaction, within its bounds. mu is held.
func (g *txBatcher) addWaiting(parts []*txPart) []*txPart {
	parts, bytes := slices.Clip(parts), 0
	for _, p := range parts {
		bytes += p.bytes
	}
	for len(g.waiting) > 0 && len(parts) < maxTxParts && (len(parts) == 0 || bytes+g.waiting[0].bytes <= maxTxBytes) {
		bytes += g.waiting[0].bytes
		parts, g.waiting = append(parts, g.waiting[0]), g.waiting[1:]
	}
	if len(g.waiting) == 0 {
		g.waiting = nil
	}
	return parts
}

// leave gives the slot to the waiting parts, or back.
func (g *txBatcher) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 || g.arrived != nil { // the waiting parts join the leader in awaitParts
		g.running--
		return
	}
	g.wakeWaiting()
}

const sqlLockTimeout = `SELECT set_config('lock_timeout', $1, true)` // ends with the transaction

// run runs parts as one transaction, in one round trip: the server commits a batch at its end.
// A single part waits for a lock up to writeTimeout; several wait up to stallTimeout, so that a
// lock which one part waits for does not hold up the others for long.
//
// These transactions can deadlock. Other Boxes of the same outboxes, here or in other
// processes, have their parts in other transactions, in any order, and each holds its locks
// until all parts are through: with two takeovers between them that is enough. The database
// then rolls one back, or stallTimeout ends, and its parts are run alone, each with one
// outbox's locks.
func (g *txBatcher) run(parts []*txPart) txResult {
	defer fatal.OnPanic() // the others would wait for a signal for ever
	ctx := context.Background()
	if len(parts) == 1 { // else it would end other Boxes' parts too
		ctx = parts[0].ctx
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	conn, release, err := acquireConn(ctx, g.pool, g.sized)
	if err != nil {
		return txResult{err: err}
	}
	defer release()
	batch, bytes := parts[0].batch, parts[0].bytes
	if len(parts) > 1 {
		batch = new(pgx.Batch)
		batch.Queue(sqlLockTimeout, strconv.FormatInt(g.stallTimeout.Milliseconds(), 10))
		bytes = 0
		for _, p := range parts {
			batch.QueuedQueries = append(batch.QueuedQueries, p.batch.QueuedQueries...)
			bytes += p.bytes
		}
	}
	end := txResultOf(pgtune.Send(ctx, conn.Conn(), batch, bytes))
	// If the connection is gone, each part would fail as well.
	end.rerun = len(parts) > 1 && end.err != nil && !end.ambiguous && !conn.Conn().IsClosed()
	return end
}

// writeAlone runs a batch as a transaction of its own, whatever else runs.
func (g *txBatcher) writeAlone(ctx context.Context, of *postgresDB, b *pgx.Batch) txResult {
	return g.run([]*txPart{newTxPart(ctx, of, b)})
}
