package postgres

// Connections shared by the Boxes of one process: a pool for each URL, and for each pool one
// connection that listens for all of its Boxes.

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtune"
)

// The number of connections of a process to a database, unless its Config or URL sets it. One
// listens, once there is a sender; grouped transactions take two, and the last is for reads and
// for transactions that wait for results. Waiting for outcomes takes none.
const (
	defaultConns = 4
	minConns     = 3 // a migration takes two
)

// connIdleTime is how long an idle connection is kept: the server has few.
const connIdleTime = 3 * time.Second

// closeGrace bounds the wait for connections that do not answer while a pool is closed.
const closeGrace = 5 * time.Second

// pingTimeout bounds the test of an idle connection before it is used; after it another is
// taken.
const pingTimeout = 3 * time.Second

// pools are the shared pools, by URL.
var pools struct {
	sync.Mutex
	byURL map[string]*poolEntry
}

type poolEntry struct {
	Pool     *pgxpool.Pool
	sized    *pgtune.AdaptivePool // limits the use of pool
	refCount int
}

// acquireConn takes a connection of pool until release. If sized is not nil it waits for one of
// the connections that the database grants.
func acquireConn(ctx context.Context, pool *pgxpool.Pool, sized *pgtune.AdaptivePool) (conn *pgxpool.Conn, release func(), err error) {
	if sized != nil {
		return sized.Acquire(ctx)
	}
	if conn, err = pool.Acquire(ctx); err != nil {
		return nil, nil, err
	}
	return conn, conn.Release, nil
}

// sharedPool returns the process's pool for url; release is called once. conns bounds its
// connections, including the one that listens; 0 leaves that to the URL. A database that grants
// fewer is logged to log.
func sharedPool(ctx context.Context, url string, conns int, log *slog.Logger) (*poolEntry, func(), error) {
	pools.Lock()
	defer pools.Unlock()
	p := pools.byURL[url]
	if p == nil {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, nil, fault.Usage.With("the outbox's database URL cannot be read") // the URL may hold a password
		}
		switch {
		case conns > 0:
			cfg.MaxConns = int32(min(conns, 1<<15))
		case !strings.Contains(url, "pool_max_conns"):
			cfg.MaxConns = defaultConns
		}
		cfg.MaxConns = max(cfg.MaxConns, minConns) - 1 // the listener takes one out of the pool
		if !strings.Contains(url, "pool_max_conn_idle_time") {
			cfg.MaxConnIdleTime = connIdleTime
		}
		if !strings.Contains(url, "pool_health_check_period") {
			cfg.HealthCheckPeriod = min(cfg.MaxConnIdleTime, connIdleTime) / 3
		}
		pgtune.Config(cfg.ConnConfig)
		cfg.AfterConnect = prepareConn
		if cfg.PingTimeout == 0 {
			cfg.PingTimeout = pingTimeout
		}
		if err := pgtune.CheckPooler(ctx, cfg.ConnConfig); err != nil {
			return nil, nil, Failure(err)
		}
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		if pools.byURL == nil {
			pools.byURL = make(map[string]*poolEntry)
		}
		p = &poolEntry{Pool: pool, sized: pgtune.NewAdaptivePool(pool, func(size pgtune.Size) { logPoolSize(log, size) })}
		pools.byURL[url] = p
	}
	p.refCount++
	return p, sync.OnceFunc(func() {
		pools.Lock()
		p.refCount--
		last := p.refCount == 0
		if last {
			delete(pools.byURL, url)
		}
		pools.Unlock()
		if last {
			p.close()
		}
	}), nil
}

// logPoolSize logs that a pool has fewer connections than it may have, or has all again.
func logPoolSize(log *slog.Logger, size pgtune.Size) {
	if size.Short {
		log.Warn("the outbox's database, its role or a pooler in front of it allows fewer connections than the pool may use: transactions wait for each other",
			"have", size.Have, "wanted", size.Max)
		return
	}
	log.Info("the outbox's database has more connections again", "have", size.Have, "wanted", size.Max)
}

// sqlSendTimeout makes the server drop a connection whose client does not acknowledge data: a
// machine that vanishes in the middle of an answer would keep its locks for a quarter of an
// hour. It is set here, not at connecting, since poolers refuse parameters that they do not
// know, and older servers have no such setting. A value set elsewhere stays.
const sqlSendTimeout = `SELECT set_config(name, $1, false) FROM pg_settings WHERE name = 'tcp_user_timeout' AND setting = '0'`

// prepareConn prepares a new connection of a shared pool.
func prepareConn(ctx context.Context, conn *pgx.Conn) error {
	if err := pgtune.Connection(ctx, conn); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, sqlSendTimeout, pgx.QueryExecModeExec, strconv.FormatInt(WriteTimeout.Milliseconds(), 10))
	return err
}

// close closes the pool, and does not wait long for connections that do not answer.
func (p *poolEntry) close() {
	p.sized.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Pool.Close()
	}()
	late := time.NewTimer(closeGrace)
	defer late.Stop()
	select {
	case <-closed:
	case <-late.C:
	}
}

// Listeners are the listeners of watch, by pool.
var Listeners struct {
	sync.Mutex
	ByPool map[*pgxpool.Pool]*Listener
}

// Listener has one connection and wakes the subscribers of an outbox's name.
type Listener struct {
	Pool        *pgxpool.Pool
	Stop        context.CancelFunc
	Ended       chan struct{}
	PID         atomic.Int64               // of its backend
	subscribers map[*subscription]struct{} // guarded by listeners
}

type subscription struct {
	Outbox string
	Wake   chan struct{}
}

// debounce is the pause after a wake-up: others may commit thousands of batches a second.
const debounce = 5 * time.Millisecond

// listen calls changed soon after every notification about outbox, and every poll interval,
// until ctx ends. alive gets the pid of the backend that listens, whenever it changes. Both are
// called from one goroutine.
func listen(ctx context.Context, pool *pgxpool.Pool, outbox string, poll time.Duration, changed func(), alive func(pid int64)) {
	w := &subscription{outbox, make(chan struct{}, 1)}
	w.Wake <- struct{}{} // the listener may be connected already, so check once
	Listeners.Lock()
	l := Listeners.ByPool[pool]
	if l == nil {
		if Listeners.ByPool == nil {
			Listeners.ByPool = make(map[*pgxpool.Pool]*Listener)
		}
		run, stop := context.WithCancel(context.Background())
		l = &Listener{Pool: pool, Stop: stop, Ended: make(chan struct{}), subscribers: make(map[*subscription]struct{})}
		Listeners.ByPool[pool] = l
		go l.run(run)
	}
	l.subscribers[w] = struct{}{}
	Listeners.Unlock()

	pid := int64(0)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	breath := time.NewTimer(time.Hour)
	defer breath.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			changed()
		case <-w.Wake:
			if now := l.PID.Load(); now != pid {
				pid = now
				alive(pid)
			}
			changed()
			breath.Reset(debounce)
			select {
			case <-ctx.Done():
			case <-breath.C:
			}
		}
	}
	Listeners.Lock()
	delete(l.subscribers, w)
	last := len(l.subscribers) == 0
	if last {
		delete(Listeners.ByPool, pool)
	}
	Listeners.Unlock()
	if last {
		l.Stop()
		<-l.Ended
	}
}

// run listens, reconnecting, until it is stopped.
func (l *Listener) run(ctx context.Context) {
	defer close(l.Ended)
	for ctx.Err() == nil {
		l.listenOnce(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // polling goes on meanwhile
		}
	}
}

// listenOnce listens on one connection until it breaks.
func (l *Listener) listenOnce(ctx context.Context) {
	held, err := l.Pool.Acquire(ctx)
	if err != nil {
		return
	}
	conn := held.Hijack() // its LISTEN must not get back into the pool
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	var pid int64
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return
	}
	if pid != int64(conn.PgConn().PID()) {
		pid = 0 // behind a pooler, whose backends come and go, the pid says nothing
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{NotifyChannel}.Sanitize()); err != nil {
		return
	}
	l.PID.Store(pid)
	l.Notify("") // notifications before the LISTEN were missed
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		l.Notify(n.Payload)
	}
}

// Notify wakes the subscribers of outbox; "" is all.
func (l *Listener) Notify(outbox string) {
	Listeners.Lock()
	defer Listeners.Unlock()
	for w := range l.subscribers {
		if outbox == "" || w.Outbox == outbox {
			select {
			case w.Wake <- struct{}{}:
			default:
			}
		}
	}
}
