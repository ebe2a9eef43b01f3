package outbox

// Group commit across the Boxes of one process on one Postgres. Batches and
// outcomes go out as statements that nothing waits for, and as a transaction
// they cost the database mostly what any transaction costs. So those that come
// while others run are gathered, and the next one takes all of them.
//
// Nothing waits for company: who comes while there is a place runs at once, and
// alone. With all places taken it waits until a transaction ends; then the first
// that waits leads: it runs one transaction of all that wait, in the order in
// which they came, and tells the others how that ended.
//
// What was gathered has nothing to do with each other, so it shares success and
// no failure: if the database undoes the transaction, each part is run again, by
// itself, as if there were no gathering.

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
)

// Bounds of gathering.
const (
	gatherPlaces = 2           // transactions at a time: one is made up while the other is made durable
	gatherParts  = 128         // of a transaction
	gatherBytes  = 4 << 20     // of a transaction, but for one part that is larger
	gatherPause  = time.Second // so long others are held up by one of them
)

// gatherers are those of the Boxes that are open, by pool.
var gatherers struct {
	sync.Mutex
	byPool map[*pgxpool.Pool]*gatherer
}

// gatherer runs transactions that wait for no result, of all Boxes of a pool.
type gatherer struct {
	pool  *pgxpool.Pool
	users int           // guarded by gatherers
	pause time.Duration // gatherPause

	mu      sync.Mutex // guards what follows
	running int        // places taken; while one is free nobody waits
	waiting []*part
}

// part is what one Box adds to a transaction.
type part struct {
	batch *pgx.Batch
	bytes int       // that its arguments have
	word  chan word // gets one, if it waits
}

func newPart(b *pgx.Batch) *part { return &part{batch: b, bytes: pgtune.Weigh(b)} }

// word is what a part that waits is told: to lead these, of which it is the
// first, or how its transaction ended.
type word struct {
	lead []*part
	end  ending
}

// ending is how a transaction ended. ambiguous says of a failure that it may have
// been committed; spoiled that it was undone, perhaps for another part's failure,
// and that this one is to be made anew and run alone.
type ending struct {
	err       error
	ambiguous bool
	spoiled   bool
}

// ended is what an error of the commit, and of what was sent with it, means.
func ended(err error) ending {
	var e *pgconn.PgError // the server's word: it was rolled back
	return ending{err: err, ambiguous: err != nil && !errors.As(err, &e) && !errors.Is(err, errUnique)}
}

// gathererOf gives a pool's gatherer; release is called once, when nothing is
// written any more.
func gathererOf(pool *pgxpool.Pool) (g *gatherer, release func()) {
	gatherers.Lock()
	defer gatherers.Unlock()
	if g = gatherers.byPool[pool]; g == nil {
		if gatherers.byPool == nil {
			gatherers.byPool = make(map[*pgxpool.Pool]*gatherer)
		}
		g = &gatherer{pool: pool, pause: gatherPause}
		gatherers.byPool[pool] = g
	}
	g.users++
	return g, func() {
		gatherers.Lock()
		defer gatherers.Unlock()
		if g.users--; g.users == 0 {
			delete(gatherers.byPool, pool)
		}
	}
}

// write runs a batch as a transaction, or as a part of one, and returns when that
// has ended. The next one is led by one of those that wait for it.
func (g *gatherer) write(b *pgx.Batch) ending {
	p := newPart(b)
	parts := []*part{p}
	if !g.enter(p) {
		w := <-p.word // from whoever leaves, and none stays longer than the pause
		if parts = w.lead; parts == nil {
			return w.end
		}
	}
	late := time.AfterFunc(g.pause, g.leave) // one that hangs, on a lock or a connection, gives up its place
	end := g.run(parts)
	if late.Stop() {
		g.leave()
	}
	for _, other := range parts[1:] {
		other.word <- word{end: end}
	}
	return end
}

// enter takes a place; if there is none the part waits for word.
func (g *gatherer) enter(p *part) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running < gatherPlaces {
		g.running++
		return true
	}
	p.word = make(chan word, 1)
	g.waiting = append(g.waiting, p)
	return false
}

// leave gives a place to those that wait, or back.
func (g *gatherer) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.running--
		return
	}
	n, bytes := 1, g.waiting[0].bytes
	for n < min(len(g.waiting), gatherParts) && bytes+g.waiting[n].bytes <= gatherBytes {
		bytes += g.waiting[n].bytes
		n++
	}
	lead := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	lead[0].word <- word{lead: lead}
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
func (g *gatherer) run(parts []*part) ending {
	defer fatal.OnPanic() // the others would wait for word for ever
	// No caller's context: it would end what is not that caller's alone.
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return ending{err: err}
	}
	defer conn.Release()
	batch, bytes := parts[0].batch, parts[0].bytes
	if len(parts) > 1 {
		batch = new(pgx.Batch)
		batch.Queue(sqlLockTimeout, strconv.FormatInt(g.pause.Milliseconds(), 10))
		bytes = 0
		for _, p := range parts {
			batch.QueuedQueries = append(batch.QueuedQueries, p.batch.QueuedQueries...)
			bytes += p.bytes
		}
	}
	end := ended(pgtune.Send(ctx, conn.Conn(), batch, bytes))
	// A database that goes away would fail each of them as well.
	end.spoiled = len(parts) > 1 && end.err != nil && !end.ambiguous && !conn.Conn().IsClosed()
	return end
}

// alone runs a batch as a transaction of its own, whatever else runs.
func (g *gatherer) alone(b *pgx.Batch) ending { return g.run([]*part{newPart(b)}) }
