// Package postgres keeps servers' stores in a Postgres database, which any number of servers may
// share.
//
// Isolation is READ COMMITTED with row locks: a transaction locks its sessions' rows in id order
// and reads all else after that. Statements of a transaction are sent together (pipelined), so that
// a group of batches takes two round trips: one that locks and reads, one that writes and commits.
// Commits are announced by NOTIFY afterwards.
//
//	announce   NOTIFY of sessions' cursors, in batches after the commits (announce.go)
//	column     one column of a list, sent as an array (arrays.go)
//	cause      the reason of a database error (package dbfault)
//
// # Lock order
//
// Rows are locked in the order that package store describes. The mutex of announcer is held for a
// few instructions, never across a statement.
//
// # Bounds
//
// Config.MaxConns bounds the pool; Listen uses one connection more. A commit that was sent is
// waited for at least endTimeout, even if its caller gives up. Announcements wait at least
// announceEvery between two, and merge in one entry per session.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/migrations"
)

// Config configures the store.
type Config struct {
	// URL is the database's, postgres://…, or a key=value connection string.
	URL string
	// MaxConns bounds the pool's connections; one more listens. If 0, it is pool_max_conns of the
	// URL, or else four for each processor, and at least eight.
	MaxConns int
	// Reserve keeps MaxConns connections open, used or not, so that other clients cannot take
	// them.
	Reserve bool
	// Wait makes Open wait while the database has no free connection, takes no writes, or starts or
	// stops, and log the reason.
	Wait bool
	// AllowUnsafe opens a database that is set to lose commits.
	AllowUnsafe bool
	// Log logs lost connections; slog.Default() if nil.
	Log *slog.Logger
}

const (
	connectTimeout = 10 * time.Second
	// endTimeout is for how long commits that were sent, and rollbacks, continue after their caller
	// has given up.
	endTimeout = 10 * time.Second
)

// Open connects, migrates the schema to its newest version and opens the store. It fails with
// fault.UnsafeStore on a database that is set to lose commits, and with fault.Unavailable if it
// cannot be reached.
func Open(ctx context.Context, cfg Config) (*store.Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if !cfg.Wait {
		return open(ctx, cfg)
	}
	return waitFor(ctx, cfg.Log, waitNoticeDelay, func() (*store.Store, error) { return open(ctx, cfg) })
}

func open(ctx context.Context, cfg Config) (*store.Store, error) {
	pc, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	if err := pgtune.CheckPooler(ctx, pc.ConnConfig); err != nil {
		return nil, translate(ctx, err)
	}
	if err := migrate(ctx, pc.ConnConfig, cfg.AllowUnsafe); err != nil {
		return nil, translate(ctx, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, translate(ctx, err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, translate(ctx, err)
	}
	b := &backend{pool: pool, log: cfg.Log, endTimeout: endTimeout, allowUnsafe: cfg.AllowUnsafe, announcer: newAnnouncer()}
	b.sizedPool = pgtune.NewAdaptivePool(pool, b.sizeChanged)
	go b.announce()
	return store.New(b), nil
}

// poolConfig returns the configuration of the store's connections.
func poolConfig(cfg Config) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		// The parser's error repeats the URL, which may hold a password.
		return nil, fault.Usage.With("the database URL cannot be read: give postgres://USER@HOST:PORT/DATABASE")
	}
	if mode := pc.ConnConfig.DefaultQueryExecMode; mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol {
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec // lists need known types
	}
	pgtune.Config(pc.ConnConfig)
	switch {
	case cfg.MaxConns > 0:
		pc.MaxConns = int32(min(cfg.MaxConns, 1<<15))
	case !strings.Contains(cfg.URL, "pool_max_conns"):
		pc.MaxConns = int32(max(8, 4*runtime.GOMAXPROCS(0)))
	}
	if cfg.Reserve {
		pc.MinConns = pc.MaxConns
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectTimeout
	}
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout) // a pooler without a free connection makes clients wait for one
		defer cancel()
		return prepareConn(ctx, conn, cfg.AllowUnsafe)
	}
	return pc, nil
}

// migrate uses connections of its own, and closes them.
func migrate(ctx context.Context, cc *pgx.ConnConfig, allowUnsafe bool) (err error) {
	db := stdlib.OpenDB(*cc, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		return checkSafe(ctx, conn, allowUnsafe)
	}))
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(2)
	if err := ping(ctx, db); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err = conn.Raw(func(c any) error { return checkWrites(ctx, c.(*stdlib.Conn).Conn()) })
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	return migrations.Up(ctx, db, migrations.Postgres)
}

func ping(ctx context.Context, db *sql.DB) error {
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// prepareConn sets up a new connection.
func prepareConn(ctx context.Context, conn *pgx.Conn, allowUnsafe bool) error {
	if err := checkSafe(ctx, conn, allowUnsafe); err != nil {
		return err
	}
	// Plan a statement once, and not for each set of values: all statements use keys.
	if _, err := conn.Exec(ctx, "SET plan_cache_mode = force_generic_plan", pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("prepare connection: %w", err)
	}
	registerArrays(conn.TypeMap())
	return pgtune.Connection(ctx, conn)
}

// safetyQuery reads the settings that make a commit durable. They may be changed while servers run,
// so every new connection reads them, and fixes the one that can be set per connection; Ping reads
// the others again.
const safetyQuery = `SELECT current_setting('fsync'), set_config('synchronous_commit', current_setting('synchronous_commit'), false),
	current_setting('full_page_writes')`

func checkSafe(ctx context.Context, conn *pgx.Conn, allowUnsafe bool) error {
	if allowUnsafe {
		return nil
	}
	var fsync, commit, pages string
	if err := conn.QueryRow(ctx, safetyQuery).Scan(&fsync, &commit, &pages); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	off := turnedOff(map[string]string{"fsync": fsync, "synchronous_commit": commit, "full_page_writes": pages})
	if len(off) == 0 {
		return nil
	}
	return fault.UnsafeStore.With("the database's settings can lose commits (off: %s): turn them on, "+
		"or allow it with --allow-unsafe-database", strings.Join(off, ", "))
}

// checkWrites refuses a database in recovery: a standby serves reads, and takes no writes.
func checkWrites(ctx context.Context, conn *pgx.Conn) error {
	var recovering bool
	if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&recovering); err != nil {
		return fmt.Errorf("ask for recovery: %w", err)
	}
	if recovering {
		return dbfault.ReadOnly.Fault(errRecovering, messages[dbfault.ReadOnly])
	}
	return nil
}

var errRecovering = errors.New("the database is in recovery")

// turnedOff returns the names of the settings that are off.
func turnedOff(settings map[string]string) (off []string) {
	for name, value := range settings {
		if value == "off" {
			off = append(off, name)
		}
	}
	slices.Sort(off)
	return off
}
