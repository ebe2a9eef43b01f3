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
	gatherPlaces = 2           // transactions at a time: one is made up while the other is made durable
	gatherParts  = 128         // of a transaction
	gatherBytes  = 4 << 20     // of a transaction, but for one part that is larger
	gatherPause  = time.Second // so long others are held up by one of them

	gatherMoment = 3 * time.Millisecond // so long company is waited for
	gatherLately = 8                    // transactions since when who wrote is expected again
)

// gatherers are those of the Boxes that are open, by pool.
var gatherers struct {
	sync.Mutex
	byPool map[*pgxpool.Pool]*gatherer
}

// gatherer runs transactions that wait for no result, of all Boxes of a pool.
type gatherer struct {
	pool   *pgxpool.Pool
	sized  *pgtune.Sized // of pool, as acquire takes it
	users  int           // guarded by gatherers
	pause  time.Duration // gatherPause
	moment time.Duration // gatherMoment

	mu      sync.Mutex // guards what follows
	running int        // places taken; while one is free nobody waits, but for company
	waiting []*part
	last    int           // parts of the last transaction
	missing int           // parts that are waited for, by one who has a place
	come    chan struct{} // closed when they have come; nil if none are

	transactions int
	wrote        map[*postgresDB]int // in which transaction, of those who did lately
}

// part is what one Box adds to a transaction.
type part struct {
	ctx   context.Context // ends what it runs by itself
	of    *postgresDB
	batch *pgx.Batch
	bytes int       // that its arguments have
	word  chan word // gets one, if it waits
}

func newPart(ctx context.Context, of *postgresDB, b *pgx.Batch) *part {
	return &part{ctx: ctx, of: of, batch: b, bytes: pgtune.Weigh(b)}
}

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
func gathererOf(pool *pgxpool.Pool, sized *pgtune.Sized) (g *gatherer, release func()) {
	gatherers.Lock()
	defer gatherers.Unlock()
	if g = gatherers.byPool[pool]; g == nil {
		if gatherers.byPool == nil {
			gatherers.byPool = make(map[*pgxpool.Pool]*gatherer)
		}
		g = &gatherer{pool: pool, sized: sized, pause: gatherPause, moment: gatherMoment, wrote: make(map[*postgresDB]int)}
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
func (g *gatherer) write(ctx context.Context, of *postgresDB, b *pgx.Batch) ending {
	p := newPart(ctx, of, b)
	parts := []*part{p}
	if !g.enter(p) {
		w := <-p.word // from whoever leaves, and none stays longer than the pause
		if parts = w.lead; parts == nil {
			return w.end
		}
	}
	parts = g.company(parts)
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
	if g.running < gatherPlaces && g.come == nil {
		g.running++
		return true
	}
	p.word = make(chan word, 1)
	g.waiting = append(g.waiting, p)
	if g.come != nil {
		if g.missing--; g.missing == 0 {
			close(g.come)
		}
	}
	return false
}

// company waits a moment, with a place, until there are as many parts as are expected,
// unless somebody does already. It gives all that are to go together.
func (g *gatherer) company(parts []*part) []*part {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.come == nil {
		if missing := g.expected() - len(parts); missing > 0 {
			parts = g.await(parts, missing)
		}
		g.last = len(parts)
	}
	g.transactions++
	for _, p := range parts {
		g.wrote[p.of] = g.transactions
	}
	return parts
}

// await gives up mu until so many more parts have come, or a moment has gone by.
func (g *gatherer) await(parts []*part, missing int) []*part {
	come := make(chan struct{})
	g.missing, g.come = missing, come
	g.mu.Unlock()
	timer := time.NewTimer(g.moment)
	select {
	case <-come:
	case <-timer.C:
	}
	timer.Stop()
	g.mu.Lock()
	g.come = nil
	parts = g.join(parts)
	if len(g.waiting) > 0 && g.running < gatherPlaces { // too many, or too large
		g.running++
		g.lead()
	}
	return parts
}

// expected is how many parts the next transaction should have. mu is held.
func (g *gatherer) expected() int {
	maps.DeleteFunc(g.wrote, func(_ *postgresDB, last int) bool { return last <= g.transactions-gatherLately })
	if g.last < 2 {
		return 1
	}
	return min(2*g.last, len(g.wrote), gatherParts)
}

// lead gives a place to those that wait. mu is held.
func (g *gatherer) lead() {
	lead := g.join(nil)
	lead[0].word <- word{lead: lead}
}

// join adds those that wait to a transaction's parts, as many as it may have. mu is held.
func (g *gatherer) join(parts []*part) []*part {
	parts, bytes := slices.Clip(parts), 0
	for _, p := range parts {
		bytes += p.bytes
	}
	for len(g.waiting) > 0 && len(parts) < gatherParts && (len(parts) == 0 || bytes+g.waiting[0].bytes <= gatherBytes) {
		bytes += g.waiting[0].bytes
		parts, g.waiting = append(parts, g.waiting[0]), g.waiting[1:]
	}
	if len(g.waiting) == 0 {
		g.waiting = nil
	}
	return parts
}

// leave gives a place to those that wait, or back.
func (g *gatherer) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 || g.come != nil { // else they are somebody's company
		g.running--
		return
	}
	g.lead()
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
	ctx := context.Background()
	if len(parts) == 1 { // else it would end what is not its Box's alone
		ctx = parts[0].ctx
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	conn, release, err := acquire(ctx, g.pool, g.sized)
	if err != nil {
		return ending{err: err}
	}
	defer release()
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
func (g *gatherer) alone(ctx context.Context, of *postgresDB, b *pgx.Batch) ending {
	return g.run([]*part{newPart(ctx, of, b)})
}
