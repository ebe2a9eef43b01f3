package postgres

// Group commit across the Boxes of one process on one Postgres. Batches and outcomes are
// written by statements whose results nothing waits for, and a transaction of these costs the
// database mostly the fixed cost of any. So transactions that arrive while others run are
// queued as parts, and the next transaction takes all of them.
//
// A part that arrives while a slot is free runs at once. With all MaxConcurrentTx slots in use
// it waits until a transaction ends; then the first waiting part leads: it runs one transaction
// of all waiting parts, in the order of arrival, and signals the result to the others.
//
// The parts of a transaction are independent, so they share success and no failure: if the
// database rolls back the transaction, each part is run again, by itself.

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Bounds of group commit.
const (
	MaxConcurrentTx = 2           // transactions at a time: one is prepared while the other is made durable
	MaxTxParts      = 128         // parts in a transaction
	MaxTxBytes      = 4 << 20     // bytes in a transaction, but for one part that is larger
	StallTimeout    = time.Second // how long one transaction may hold up others
)

// TxBatchers are the batchers of the open Boxes, by pool.
var TxBatchers struct {
	sync.Mutex
	ByPool map[*pgxpool.Pool]*TxBatcher
}

// TxBatcher runs the transactions that wait for no result, for all Boxes of a pool.
type TxBatcher struct {
	pool         *pgxpool.Pool
	sized        *pgtune.AdaptivePool // limits the use of pool, as for acquireConn
	refCount     int                  // guarded by TxBatchers
	StallTimeout time.Duration        // the constant, except in tests

	Mu      sync.Mutex // guards the fields below
	Running int        // slots in use; while one is free no part waits
	Waiting []*TxPart
}

// TxPart is one Box's part of a transaction.
type TxPart struct {
	ctx    context.Context // for a run by itself
	Batch  *pgx.Batch
	Bytes  int             // bytes of its arguments
	signal chan partSignal // gets one signal, if the part waits
}

func newTxPart(ctx context.Context, b *pgx.Batch) *TxPart {
	return &TxPart{ctx: ctx, Batch: b, Bytes: pgtune.EstimateSize(b)}
}

// partSignal wakes a waiting part: to lead the parts in lead, of which it is the first, or with
// the result of its transaction.
type partSignal struct {
	lead   []*TxPart
	result txResult
}

// txResult is the result of a transaction. ambiguous: it failed but may have been committed;
// rerun: it was rolled back, perhaps for another part's failure, and this part is to be rebuilt
// and run alone.
type txResult struct {
	Err       error
	Ambiguous bool
	Rerun     bool
}

// TxResultOf returns the result for an error of the commit, and of the statements sent with it.
func TxResultOf(err error) txResult {
	var e *pgconn.PgError // the server's answer: it was rolled back
	return txResult{Err: err, Ambiguous: err != nil && !errors.As(err, &e) && !errors.Is(err, sqlstore.ErrUnique)}
}

// txBatcherOf returns a pool's batcher; release is called once, after the last write.
func txBatcherOf(pool *pgxpool.Pool, sized *pgtune.AdaptivePool) (g *TxBatcher, release func()) {
	TxBatchers.Lock()
	defer TxBatchers.Unlock()
	if g = TxBatchers.ByPool[pool]; g == nil {
		if TxBatchers.ByPool == nil {
			TxBatchers.ByPool = make(map[*pgxpool.Pool]*TxBatcher)
		}
		g = &TxBatcher{pool: pool, sized: sized, StallTimeout: StallTimeout}
		TxBatchers.ByPool[pool] = g
	}
	g.refCount++
	return g, func() {
		TxBatchers.Lock()
		defer TxBatchers.Unlock()
		if g.refCount--; g.refCount == 0 {
			delete(TxBatchers.ByPool, pool)
		}
	}
}

// write runs a batch as a transaction, or as a part of one, and returns when that has ended. A
// waiting part leads the next one.
func (g *TxBatcher) write(ctx context.Context, b *pgx.Batch) txResult {
	p := newTxPart(ctx, b)
	parts := []*TxPart{p}
	if !g.Enter(p) {
		w := <-p.signal // from leave, within StallTimeout
		if parts = w.lead; parts == nil {
			return w.result
		}
	}
	late := time.AfterFunc(g.StallTimeout, g.Leave) // a transaction that hangs, on a lock or a connection, gives up its slot
	end := g.run(parts)
	if late.Stop() {
		g.Leave()
	}
	for _, other := range parts[1:] {
		other.signal <- partSignal{result: end}
	}
	return end
}

// Enter takes a slot; if there is none the part waits for a signal.
func (g *TxBatcher) Enter(p *TxPart) bool {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	if g.Running < MaxConcurrentTx {
		g.Running++
		return true
	}
	p.signal = make(chan partSignal, 1)
	g.Waiting = append(g.Waiting, p)
	return false
}

// takeWaiting takes the parts of the next transaction, within its bounds. mu is held.
func (g *TxBatcher) takeWaiting() (parts []*TxPart) {
	bytes := 0
	for len(g.Waiting) > 0 && len(parts) < MaxTxParts && (len(parts) == 0 || bytes+g.Waiting[0].Bytes <= MaxTxBytes) {
		bytes += g.Waiting[0].Bytes
		parts, g.Waiting = append(parts, g.Waiting[0]), g.Waiting[1:]
	}
	if len(g.Waiting) == 0 {
		g.Waiting = nil
	}
	return parts
}

// Leave gives the slot to the waiting parts, or back.
func (g *TxBatcher) Leave() {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	if len(g.Waiting) == 0 {
		g.Running--
		return
	}
	lead := g.takeWaiting()
	lead[0].signal <- partSignal{lead: lead}
}

const sqlLockTimeout = `SELECT set_config('lock_timeout', $1, true)` // ends with the transaction

// run runs parts as one transaction, in one round trip: the server commits a batch at its end.
// A single part waits for a lock up to WriteTimeout; several wait up to StallTimeout, so that a
// lock which one part waits for does not hold up the others for long.
//
// These transactions can deadlock. Other Boxes of the same outboxes, here or in other
// processes, have their parts in other transactions, in any order, and each holds its locks
// until all parts are through: with two takeovers between them that is enough. The database
// then rolls one back, or StallTimeout ends, and its parts are run alone, each with one
// outbox's locks.
func (g *TxBatcher) run(parts []*TxPart) txResult {
	defer fatal.OnPanic() // the others would wait for a signal for ever
	ctx := context.Background()
	if len(parts) == 1 { // else it would end other Boxes' parts too
		ctx = parts[0].ctx
	}
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	conn, release, err := acquireConn(ctx, g.pool, g.sized)
	if err != nil {
		return txResult{Err: err}
	}
	defer release()
	batch, bytes := parts[0].Batch, parts[0].Bytes
	if len(parts) > 1 {
		batch = new(pgx.Batch)
		batch.Queue(sqlLockTimeout, strconv.FormatInt(g.StallTimeout.Milliseconds(), 10))
		bytes = 0
		for _, p := range parts {
			batch.QueuedQueries = append(batch.QueuedQueries, p.Batch.QueuedQueries...)
			bytes += p.Bytes
		}
	}
	end := TxResultOf(pgtune.Send(ctx, conn.Conn(), batch, bytes))
	// If the connection is gone, each part would fail as well.
	end.Rerun = len(parts) > 1 && end.Err != nil && !end.Ambiguous && !conn.Conn().IsClosed()
	return end
}

// writeAlone runs a batch as a transaction of its own, whatever else runs.
func (g *TxBatcher) writeAlone(ctx context.Context, b *pgx.Batch) txResult {
	return g.run([]*TxPart{newTxPart(ctx, b)})
}
