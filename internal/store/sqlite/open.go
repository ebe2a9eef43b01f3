// Package sqlite keeps a server's store in a data folder, in one SQLite file: write-ahead log,
// synchronous FULL, so commits are on the disk when they return.
//
// One connection writes, since SQLite has one writer anyway, and updates that wait for it share a
// transaction (groupcommit.go); a small pool of others reads, each read in a snapshot of its own
// that no writer waits for. Deleted rows are overwritten (secure_delete, whose cost to appends is
// not measurable), and erased rows leave the write-ahead log too (wal.go). The folder is locked for
// one process; the lock ends with the process, however it ends.
//
//	group         updates that share one transaction (groupcommit.go)
//	erase         remove rows so that no file of the folder still has their bytes
//	checkpoint    copy the write-ahead log into the database file
//	truncate      checkpoint, then cut the write-ahead log to length 0
//	oversized     a write-ahead log over maxWALBytes: checkpointed concurrently with commits
//	generation    the reads that began between two drains (readtracker.go)
//	drain         hold back new reads until the running ones have ended
//
// # Lock order
//
// The folder's lock; the writing connection, which is taken from its channel; then SQLite's own
// locks. The mutexes of updateQueue, readTracker and readPool are held for a few instructions, never across a
// statement. A drain is never waited for while holding the writing connection.
//
// # Bounds
//
// At most Config.Readers reads run at once, and at most maxGroup updates share a transaction. The
// write-ahead log is truncated above maxWALBytes, as soon as no read prevents it. A statement waits
// at most 10 s for another program's lock (busyTimeout).
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/migrations"
)

// FileName is the name of the database's file in the data folder.
const FileName = fileName

// File names in the data folder.
const (
	fileName = "mooring.db"
	lockName = "mooring.lock"
)

// Config configures the store.
type Config struct {
	// Dir is the data folder; if it does not exist it is created with access for its owner alone.
	Dir string
	// Now is the database's clock; time.Now if nil.
	Now func() time.Time
	// Readers is the maximum number of concurrent reads. If 0, it is twice the processors, and at
	// least six: more than a server sends snapshots at once (objects.Config).
	Readers int
	// Driver is the name of SQLite's driver in database/sql, "sqlite" if empty; tests use another.
	Driver string

	maxWALBytes      int64         // for tests, instead of maxWALBytes
	truncateInterval time.Duration // for tests, instead of truncateInterval
}

// Open locks the folder, migrates the schema to its newest version and opens the store. It fails
// with fault.InUse if another process has the folder open.
func Open(ctx context.Context, cfg Config) (*store.Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Readers <= 0 {
		cfg.Readers = max(6, 2*runtime.GOMAXPROCS(0))
	}
	b, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return store.New(b), nil
}

func open(ctx context.Context, cfg Config) (*backend, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	file, err := privatedir.EnsureDatabase(filepath.Join(cfg.Dir, fileName))
	if err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	lock, err := lockDatabase(cfg.Dir, file)
	if err != nil {
		return nil, err
	}
	b, err := openFile(ctx, cfg, file)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	b.lock = lock
	return b, nil
}

// openFile opens a database's file, which is locked.
func openFile(ctx context.Context, cfg Config, file string) (_ *backend, err error) {
	writer := dsn(file, false)
	db, err := sql.Open(cmp.Or(cfg.Driver, "sqlite"), writer)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", translate(ctx, err))
	}
	db.SetMaxOpenConns(1)
	b := &backend{file: file, now: cfg.Now, driver: db.Driver(), writeDSN: writer, readDSN: dsn(file, true), writeConn: make(chan *conn, 1),
		readers: newReadPool(cfg.Readers, cfg.Now), reads: newReadTracker(), wal: newWALTruncator(file, cfg.maxWALBytes, cfg.truncateInterval)}
	if err := errors.Join(migrations.Up(ctx, db, migrations.SQLite), db.Close()); err != nil {
		return nil, translate(ctx, err)
	}
	w := &conn{now: b.now}
	if err := w.open(b.driver, writer); err != nil {
		return nil, fmt.Errorf("open database: %w", translate(ctx, err))
	}
	if err := checkWAL(ctx, w); err != nil {
		return nil, errors.Join(translate(ctx, err), w.close())
	}
	b.writeConn <- w
	b.wal.request() // a killed server may have left it pending
	go b.truncateLoop()
	return b, nil
}

// checkWAL returns an error where SQLite cannot use a write-ahead log, which it does not report
// when asked to: without one reads and commits wait for each other, and purged values stay in the
// files.
func checkWAL(ctx context.Context, c *conn) error {
	var mode string
	if err := c.query(ctx, "PRAGMA journal_mode", nil, func(row dialect.Scanner) error { return row.Scan(&mode) }); err != nil {
		return fmt.Errorf("read the journal mode: %w", err)
	}
	if mode != "wal" {
		return fault.UnsafeStore.With("SQLite cannot keep a write-ahead log in the data folder (its journal mode is %s), as on some network "+
			"drives: give a folder on a disk of this machine with --data", mode)
	}
	return nil
}

// busyTimeout is how long to wait for another program's lock, in ms.
const busyTimeout = "busy_timeout(10000)"

// dsn returns the driver's name of the file with the settings of every connection. fullfsync has an
// effect on macOS only, where fsync alone does not reach the disk.
func dsn(file string, reader bool) string {
	q := url.Values{"_pragma": {
		busyTimeout,
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"fullfsync(1)",
		"checkpoint_fullfsync(1)",
		"journal_size_limit(" + strconv.Itoa(maxWALBytes) + ")",
		"temp_store(MEMORY)",
		"cache_size(-16384)",
	}}
	if reader {
		q.Add("_pragma", "query_only(1)")
	} else {
		q.Set("_txlock", "immediate")
		// A value that is purged later may have been copied between pages before.
		q.Add("_pragma", "secure_delete(1)")
	}
	return dsnURL(file, q)
}

// dsnURL returns the driver's name of the file with a connection's settings.
func dsnURL(file string, q url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// openConn opens a single connection that belongs to no store.
func openConn(ctx context.Context, source string) (*conn, error) {
	db, err := sql.Open("sqlite", source) // does not connect yet
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	c := &conn{now: time.Now}
	if err := errors.Join(db.Close(), c.open(db.Driver(), source)); err != nil {
		return nil, fmt.Errorf("open database: %w", translate(ctx, err))
	}
	return c, nil
}
