// Package sqlite keeps a server's store in a data folder, in one SQLite file:
// write-ahead log, synchronous FULL, so that what is committed is on the disk.
//
// One connection writes, since SQLite has one writer anyway, and updates that wait for
// it share a transaction (groupcommit.go); a small pool of others reads, each read in a
// snapshot of its own that no writer waits for.
// What is deleted is overwritten (secure_delete, which costs appends nothing that
// can be measured), and what a transaction is told to erase leaves the write-ahead
// log too (wal.go). The folder is locked for one process; the lock ends with it, however it ends.
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
	"github.com/mooring-rpc/mooring/migrations"
	"github.com/mooring-rpc/mooring/store"
)

// FileName is the name of the database's file in the data folder.
const FileName = fileName

// File names in the data folder.
const (
	fileName = "mooring.db"
	lockName = "mooring.lock"
)

// Config says where the store is.
type Config struct {
	// Dir is the data folder; it is made, for its owner alone, if it is not there.
	Dir string
	// Now is the database's clock; time.Now if nil.
	Now func() time.Time
	// Readers is how many reads run at once; twice the processors, but
	// six at least, if 0: more than a server sends snapshots at once (server.Config).
	Readers int
	// Driver is the name of SQLite's in database/sql, "sqlite" if empty: another is a test's.
	Driver string

	maxWALBytes      int64         // other than maxWALBytes, for tests
	truncateInterval time.Duration // other than truncateInterval, for tests
}

// Open locks the folder, brings the schema to its newest version and opens the
// store. It fails with fault.InUse if another process has the folder open.
func Open(ctx context.Context, cfg Config) (*store.Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Readers <= 0 {
		cfg.Readers = max(6, 2*runtime.GOMAXPROCS(0))
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, unlockFile(lock))
	}
	b.lock = lock
	return store.New(b), nil
}

func open(ctx context.Context, cfg Config) (_ *backend, err error) {
	file := filepath.Join(cfg.Dir, fileName)
	if err := privatedir.EnsureDatabase(file); err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	writer := dsn(file, false)
	db, err := sql.Open(cmp.Or(cfg.Driver, "sqlite"), writer)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", translate(ctx, err))
	}
	db.SetMaxOpenConns(1)
	b := &backend{now: cfg.Now, driver: db.Driver(), writeDSN: writer, readDSN: dsn(file, true), writeConn: make(chan *conn, 1),
		readConns: make(chan *conn, cfg.Readers), reads: newReadTracker(), wal: newWALTruncator(file, cfg.maxWALBytes, cfg.truncateInterval)}
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
	for range cfg.Readers {
		b.readConns <- &conn{now: b.now} // opened by its first use
	}
	b.wal.request() // a server that was killed may not have come to it
	go b.truncateLoop()
	return b, nil
}

// checkWAL fails where SQLite cannot have a write-ahead log, of which it says nothing when
// it is told to: without one reads and commits wait for each other, and what is purged stays.
func checkWAL(ctx context.Context, c *conn) error {
	var mode string
	if err := c.query(ctx, "PRAGMA journal_mode", nil, func(row store.Scanner) error { return row.Scan(&mode) }); err != nil {
		return fmt.Errorf("read the journal mode: %w", err)
	}
	if mode != "wal" {
		return fault.UnsafeStore.With("SQLite cannot keep a write-ahead log in the data folder (its journal mode is %s), as on some network "+
			"drives: give a folder on a disk of this machine with --data", mode)
	}
	return nil
}

// busyTimeout is how long another program's lock is waited for, in ms.
const busyTimeout = "busy_timeout(10000)"

// dsn is the driver's name of the file with what every connection sets.
// fullfsync counts on macOS only, where fsync alone does not reach the disk.
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
		// What is purged later has perhaps been copied from page to page before.
		q.Add("_pragma", "secure_delete(1)")
	}
	return dsnURL(file, q)
}

// dsnURL is the driver's name of the file with what a connection sets.
func dsnURL(file string, q url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// openConn opens one connection, of no store's.
func openConn(ctx context.Context, source string) (*conn, error) {
	db, err := sql.Open("sqlite", source) // which connects to nothing yet
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	c := &conn{now: time.Now}
	if err := errors.Join(db.Close(), c.open(db.Driver(), source)); err != nil {
		return nil, fmt.Errorf("open database: %w", translate(ctx, err))
	}
	return c, nil
}
