package outbox

// Group commit across the Boxes of one process on one Postgres. Batches and
// outcomes go out as statements that nothing waits for, and as a transaction
// they cost the database mostly what any transaction costs. So those that come
// while others run are gathered, and the next one takes all of them.
//
// Who comes while there is a place runs at once. With all places taken it waits
// until a transaction ends; then the first that waits leads: it runs one transaction
// of all that wait, in the order in which they came, and tells the others how that
// ended.
//
// Most of what a small transaction costs is the transaction. So where there was
// company in the last one, the next one waits a moment for twice as many, unless all
// have come that wrote lately. Who writes alone waits for nobody.
//
// What was gathered has nothing to do with each other, so it shares success and
// no failure: if the database undoes the transaction, each part is run again, by
// itself, as if there were no gathering.

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

// Bounds of gathering.
const (
	maxConcurrentTx = 2           // transactions at a time: one is made up while the other is made durable
	maxTxParts      = 128         // of a transaction
	maxTxBytes      = 4 << 20     // of a transaction, but for one part that is larger
	stallTimeout    = time.Second // so long others are held up by one of them

	groupDelay = 3 * time.Millisecond // so long company is waited for
	recentTx   = 8                    // transactions since when who wrote is expected again
)

// txBatchers are those of the Boxes that are open, by pool.
var txBatchers struct {
	sync.Mutex
	byPool map[*pgxpool.Pool]*txBatcher
}

// txBatcher runs transactions that wait for no result, of all Boxes of a pool.
type txBatcher struct {
	pool         *pgxpool.Pool
	sized        *pgtune.AdaptivePool // of pool, as acquire takes it
	refCount     int                  // guarded by txBatchers
	stallTimeout time.Duration        // the constant, but in tests
	groupDelay   time.Duration        // the constant, but in tests

	mu        sync.Mutex // guards what follows
	running   int        // places taken; while one is free nobody waits, but for company
	waiting   []*txPart
	lastParts int           // parts of the last transaction
	missing   int           // parts that are waited for, by one who has a place
	arrived   chan struct{} // closed when they have come; nil if none are

	txCount   int
	lastWrite map[*postgresDB]int // in which transaction, of those who did lately
}

// txPart is what one Box adds to a transaction.
type txPart struct {
	ctx    context.Context // ends what it runs by itself
	db     *postgresDB
	batch  *pgx.Batch
	bytes  int             // that its arguments have
	signal chan partSignal // gets one, if it waits
}

func newTxPart(ctx context.Context, of *postgresDB, b *pgx.Batch) *txPart {
	return &txPart{ctx: ctx, db: of, batch: b, bytes: pgtune.EstimateSize(b)}
}

// partSignal is what a part that waits is told: to lead these, of which it is the
// first, or how its transaction ended.
type partSignal struct {
	lead   []*txPart
	result txResult
}

// txResult is how a transaction ended. ambiguous says of a failure that it may have
// been committed; spoiled that it was undone, perhaps for another part's failure,
// and that this one is to be made anew and run alone.
type txResult struct {
	err       error
	ambiguous bool
	rerun     bool
}

// txResultOf is what an error of the commit, and of what was sent with it, means.
func txResultOf(err error) txResult {
	var e *pgconn.PgError // the server's word: it was rolled back
	return txResult{err: err, ambiguous: err != nil && !errors.As(err, &e) && !errors.Is(err, errUnique)}
}

// txBatcherOf gives a pool's batcher; release is called once, when nothing is
// written any more.
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

// write runs a batch as a transaction, or as a part of one, and returns when that
// has ended. The next one is led by one of those that wait for it.
func (g *txBatcher) write(ctx context.Context, of *postgresDB, b *pgx.Batch) txResult {
	p := newTxPart(ctx, of, b)
	parts := []*txPart{p}
	if !g.enter(p) {
		w := <-p.signal // from whoever leaves, and none stays longer than the pause
		if parts = w.lead; parts == nil {
			return w.result
		}
	}
	parts = g.awaitPeers(parts)
	late := time.AfterFunc(g.stallTimeout, g.leave) // one that hangs, on a lock or a connection, gives up its place
	end := g.run(parts)
	if late.Stop() {
		g.leave()
	}
	for _, other := range parts[1:] {
		other.signal <- partSignal{result: end}
	}
	return end
}

// enter takes a place; if there is none the part waits for word.
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

// awaitPeers waits a moment, with a place, until there are as many parts as are expected,
// unless somebody does already. It gives all that are to go together.
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

// awaitParts gives up mu until so many more parts have come, or a moment has gone by.
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

// expectedParts is how many parts the next transaction should have. mu is held.
func (g *txBatcher) expectedParts() int {
	maps.DeleteFunc(g.lastWrite, func(_ *postgresDB, last int) bool { return last <= g.txCount-recentTx })
	if g.lastParts < 2 {
		return 1
	}
	return min(2*g.lastParts, len(g.lastWrite), maxTxParts)
}

// wakeWaiting gives a place to those that wait. mu is held.
func (g *txBatcher) wakeWaiting() {
	lead := g.addWaiting(nil)
	lead[0].signal <- partSignal{lead: lead}
}

// addWaiting adds those that wait to a transaction's parts, as many as it may have. mu is held.
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

// leave gives a place to those that wait, or back.
func (g *txBatcher) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 || g.arrived != nil { // else they are somebody's company
		g.running--
		return
	}
	g.wakeWaiting()
}

const sqlLockTimeout = `SELECT set_config('lock_timeout', $1, true)` // ends with the transaction

// run runs parts as one transaction, in one round trip: the server commits a
// batch at its end. A part alone waits for a lock as long as writeTimeout lets it;
// several wait for the pause, so that none is held up long by what another waits
// for.
//
// These transactions can come to wait for each other in a circle. Other Boxes of
// the same outboxes, here or in other processes, have their parts in others of
// them, in any order, and each keeps its locks until all are through: with two
// takeovers between them that is enough. The database then undoes one, or the
// pause ends, and its parts are run alone, each with one outbox's locks.
func (g *txBatcher) run(parts []*txPart) txResult {
	defer fatal.OnPanic() // the others would wait for word for ever
	ctx := context.Background()
	if len(parts) == 1 { // else it would end what is not its Box's alone
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
	// A database that goes away would fail each of them as well.
	end.rerun = len(parts) > 1 && end.err != nil && !end.ambiguous && !conn.Conn().IsClosed()
	return end
}

// writeAlone runs a batch as a transaction of its own, whatever else runs.
func (g *txBatcher) writeAlone(ctx context.Context, of *postgresDB, b *pgx.Batch) txResult {
	return g.run([]*txPart{newTxPart(ctx, of, b)})
}
