package sqlite

// The SQLite dialect: one file, WAL, every commit synced. One connection writes; others read.
// Several processes may have the file open.

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// BusyTimeout is how long a transaction waits for another process's.
const BusyTimeout = 10 * time.Second

// DB is the SQLite dialect.
type DB struct {
	clock        func() time.Time
	poll         time.Duration
	LivenessPath string // path of the file whose lock shows that a sender lives
	WriterLock   *WriterLock
	// BlockingAfter is how long a transaction may be open before it counts as blocking:
	// BusyTimeout.
	BlockingAfter time.Duration

	pool      *sql.DB // for everything but writing
	writePool *sql.DB

	Mu     sync.Mutex // guards writer during a transaction or a poll
	Writer *sqliteConn

	readSlots chan struct{} // holds one for each reading transaction
	idle      idleConns
}

// maxReaders bounds concurrent reading transactions.
const maxReaders = 4

// sqliteConn is a connection with the statements it has prepared.
type sqliteConn struct {
	Conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newSQLiteConn(ctx context.Context, pool *sql.DB) (*sqliteConn, error) {
	conn, err := connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &sqliteConn{Conn: conn, stmts: make(map[string]*sql.Stmt)}, nil
}

// idleConns are the idle reading connections. It is safe for concurrent use.
type idleConns struct {
	mu    sync.Mutex
	conns []*sqliteConn
}

// take returns the one that was used last; nil if there is none.
func (i *idleConns) take() (c *sqliteConn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n := len(i.conns); n > 0 {
		c, i.conns = i.conns[n-1], i.conns[:n-1]
	}
	return c
}

func (i *idleConns) put(c *sqliteConn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns = append(i.conns, c)
}

// prepare prepares a statement, or returns it from the cache.
func (c *sqliteConn) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s := c.stmts[text]; s != nil {
		return s, nil
	}
	s, err := c.Conn.PrepareContext(ctx, text)
	if err == nil {
		c.stmts[text] = s
	}
	return s, err
}

func (c *sqliteConn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.Conn.Close())...)
}

// discard closes the connection, which would else go back to its pool in a bad state.
func (c *sqliteConn) discard() {
	_ = c.Conn.Raw(func(any) error { return driver.ErrBadConn })
}

// Options configure Open.
type Options struct {
	Now    func() time.Time
	Poll   time.Duration
	Driver string // the driver's name; "" for SQLite's own
}

// Open opens the file at path, creating it (mode 0600) if it is not there. Its errors name no
// path.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	db, err := openFile(ctx, path, o)
	if err != nil {
		return nil, fileFailure(err)
	}
	return db, nil
}

func openFile(ctx context.Context, path string, o Options) (_ *DB, err error) {
	// The files beside it have the same names whatever name it was opened by, as SQLite's do.
	if path, err = privatedir.EnsureDatabase(path); err != nil {
		return nil, fmt.Errorf("its file cannot be opened for writing: %w", newfile.Cause(err))
	}
	pragmas := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", BusyTimeout.Milliseconds()), "journal_mode(wal)", "synchronous(full)",
		"secure_delete(1)"}} // a dropped ref's secret is erased
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), RawQuery: pragmas.Encode()}).String()

	db := &DB{clock: o.Now, poll: o.Poll, LivenessPath: path + ".sender", readSlots: make(chan struct{}, maxReaders),
		WriterLock: OpenWriterLock(path + ".turn"), BlockingAfter: BusyTimeout}
	defer func() {
		if err != nil {
			_ = db.Close()
		}
	}()
	driver := cmp.Or(o.Driver, "sqlite")
	if db.pool, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	if err := migrate(ctx, db.pool, schema.Files); err != nil {
		return nil, migrateFailure(err)
	}
	if db.writePool, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	if db.Writer, err = newSQLiteConn(ctx, db.writePool); err != nil {
		return nil, Failure(err)
	}
	return db, nil
}

// fileFailure gives a file system error its code.
func fileFailure(err error) error {
	var number syscall.Errno
	switch {
	case !errors.As(err, &number) || fault.CodeOf(err) != fault.Internal:
		return err
	case number == syscall.ENOSPC:
		return fault.DiskFull.Because(err, "%v", err)
	}
	return fault.BadArgument.Because(err, "%v", err)
}

// Error is a *sqlite.Error.
type Error interface {
	error
	Code() int
}

// AmbiguousCommit reports that COMMIT failed but the transaction may have been committed: it
// may be in the log, which could only not be synced, and be found there after a crash. A full
// disk is reported before the log is complete.
func AmbiguousCommit(err error) bool {
	e, ok := errors.AsType[Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_IOERR && !errors.Is(err, fault.DiskFull)
}

// Failure gives an error its code.
func Failure(err error) error {
	e, ok := errors.AsType[Error](err)
	if !ok {
		return err
	}
	code := e.Code()
	cause := dbfault.SQLite(code)
	switch {
	case code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return sqlstore.ErrUnique
	case cause == dbfault.DiskFull:
		return cause.Fault(err, "no space left where the outbox is, or a quota is used up: nothing was committed; free some and try again")
	case cause == dbfault.Locked:
		return cause.Fault(err, "another process keeps the outbox locked")
	// The statements are the program's own and the schema is at its newest version: if SQLite
	// does not understand one (ERROR), the schema's text was damaged.
	case cause == dbfault.Damaged, code == sqlite3.SQLITE_ERROR, code&0xff == sqlite3.SQLITE_MISMATCH:
		return fault.OutboxDamaged.Because(errors.Join(sqlstore.ErrFileDamaged, err), "the outbox's file is damaged or is none: keep a copy of it, and begin a new outbox")
	case cause == dbfault.ReadOnly, code&0xff == sqlite3.SQLITE_CANTOPEN:
		return fault.Usage.Because(err, "the outbox's file cannot be written: check its folder and who owns it")
	case cause == dbfault.DiskError:
		return cause.Fault(err, "the disk does not take or give the outbox's data: look at it, and at the system's log")
	case cause != dbfault.None:
		return cause.Fault(err, fmt.Sprintf("the outbox's file could not be used (%s): try again", cause))
	}
	return err
}

// begin starts the writing transaction when it is this process's turn. If the turn does not
// come for long, since a suspended process has it, begin goes on without.
func (d *DB) begin(ctx context.Context, q sqlstore.Querier) error {
	wait, cancel := context.WithTimeout(ctx, BusyTimeout/4)
	defer cancel()
	if leave, err := d.WriterLock.Acquire(wait); err == nil {
		defer leave()
	}
	_, err := q.Exec(ctx, "BEGIN IMMEDIATE")
	if err != nil {
		return d.LockedBy(err)
	}
	d.WriterLock.recordWriter()
	return nil
}

// LockedBy adds the blocking process to an error.
func (d *DB) LockedBy(err error) error {
	pid, since := d.WriterLock.writer()
	if !errors.Is(err, fault.Unavailable) || pid == 0 || time.Since(since) < d.BlockingAfter {
		return err
	}
	return fault.Unavailable.Because(err, "process %d has kept the outbox locked since %s: if it is stopped (Ctrl-Z, a debugger, a paused container) let it go on, or end it",
		pid, since.Format(time.TimeOnly))
}

// BlockingWriter also tests whether the file is locked: a process that died in a transaction
// could not clear its record.
func (d *DB) BlockingWriter(ctx context.Context) (pid int, since time.Time) {
	if pid, since = d.WriterLock.writer(); pid == 0 || time.Since(since) < d.BlockingAfter {
		return 0, time.Time{}
	}
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return 0, time.Time{}
	}
	defer conn.Close()
	steady := context.WithoutCancel(ctx) // a canceled BEGIN fails, and may have begun; none of these waits
	_, _ = conn.ExecContext(steady, "PRAGMA busy_timeout = 0")
	defer func() {
		_, _ = conn.ExecContext(steady, fmt.Sprintf("PRAGMA busy_timeout = %d", BusyTimeout.Milliseconds()))
	}()
	if _, err = conn.ExecContext(steady, "BEGIN IMMEDIATE"); err == nil {
		_, _ = conn.ExecContext(steady, "ROLLBACK")
	}
	if dbfault.Of(Failure(err)) != dbfault.Locked {
		return 0, time.Time{}
	}
	return pid, since
}

func (d *DB) Write(ctx context.Context, f func(sqlstore.Querier) error) (ambiguous bool, err error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	q := &sqliteTx{ctx: ctx, conn: d.Writer}
	if err := d.begin(ctx, q); err != nil {
		return false, err
	}
	defer d.WriterLock.clearWriter()
	if err = f(q); err == nil {
		err = q.err
	}
	if err == nil {
		_, err = q.Exec(ctx, "COMMIT")
		ambiguous = AmbiguousCommit(err)
	}
	if err != nil {
		// After a full disk SQLite may have rolled back by itself.
		_, _ = q.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return ambiguous, err
}

func (d *DB) Read(ctx context.Context, f func(sqlstore.Querier) error) (err error) {
	select {
	case d.readSlots <- struct{}{}:
		defer func() { <-d.readSlots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c := d.idle.take()
	if c == nil {
		if c, err = newSQLiteConn(ctx, d.pool); err != nil {
			return Failure(err)
		}
	}
	q := &sqliteRead{sqliteTx{ctx: ctx, conn: c}}
	err, clean := f(q), true
	if _, again := errors.AsType[sqlstore.SnapshotError](err); again {
		steady := context.WithoutCancel(ctx) // a canceled BEGIN fails, and may have begun
		if _, err = q.sqliteTx.Exec(steady, "BEGIN"); err == nil {
			err = f(q)
			_, ended := q.sqliteTx.Exec(steady, "ROLLBACK") // it changed nothing
			clean = ended == nil
		} else {
			clean = false
		}
	}
	if !clean {
		c.discard()
	} else {
		d.idle.put(c)
	}
	return err
}

func (d *DB) ShareLease(sqlstore.Querier, int64)                       {}
func (d *DB) TakeLease(context.Context, sqlstore.Querier, int64) error { return nil }
func (d *DB) Now(context.Context, sqlstore.Querier) (int64, error) {
	return d.clock().UnixMilli(), nil
}
func (d *DB) Notify(sqlstore.Querier, string) {}
func (d *DB) HolderDead(context.Context, sqlstore.Querier, int64) (bool, error) {
	return false, nil
}

// CheckIntegrity also finds rows and indexes that do not match, which no statement notices: it
// follows the index, and never reads some rows.
func (d *DB) CheckIntegrity(ctx context.Context, q sqlstore.Querier) error {
	return q.Query(ctx, `PRAGMA integrity_check(1)`, nil, func(scan sqlstore.Scanner) error {
		var found string
		if err := scan(&found); err != nil || found == "ok" {
			return err
		}
		return fault.OutboxDamaged.Because(sqlstore.ErrFileDamaged, "the outbox's file is damaged (%s): keep a copy of it, and begin a new outbox", found)
	})
}

func (d *DB) InClause(column, placeholder string, ids []string) (clause string, arg any) {
	list, _ := json.Marshal(ids) // of strings: it cannot fail
	return column + " IN (SELECT value FROM json_each(" + placeholder + "))", string(list)
}

// InTx has no transactions of callers.
func (d *DB) InTx(context.Context, any) (sqlstore.CallerTx, error) {
	return nil, fault.Usage.With("commit in a transaction: the outbox is not in Postgres")
}

func (d *DB) LockRows() string       { return "" }
func (d *DB) Refs() *sqlstore.RefSQL { return sqlstore.SQLiteRefs }
func (d *DB) TryLivenessLock(int64) (release func(), locked, known bool) {
	return LockFile(d.LivenessPath)
}

// Watch asks SQLite whether the file has changed, which costs next to nothing. It asks on the
// writer's connection: there, this Box's own commits do not count as a change. Nothing may be
// written there meanwhile: a transaction that begins beside an open statement has that
// statement's snapshot, and is refused at once (SQLITE_BUSY_SNAPSHOT) if another process has
// committed since.
func (d *DB) Watch(ctx context.Context, _ string, changed func(), _ func(int64)) {
	tick := time.NewTicker(d.poll)
	defer tick.Stop()
	steady := context.WithoutCancel(ctx) // an interrupt would hit the writer's statement
	last := int64(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		version := last + 1 // on failure, report a change
		d.Mu.Lock()
		if s, err := d.Writer.prepare(steady, "PRAGMA data_version"); err == nil {
			_ = s.QueryRowContext(steady).Scan(&version)
		}
		d.Mu.Unlock()
		if version != last {
			last = version
			changed()
		}
	}
}

func (d *DB) Close() error {
	var errs []error
	if d.Writer != nil {
		errs = append(errs, d.Writer.close())
	}
	for c := d.idle.take(); c != nil; c = d.idle.take() {
		errs = append(errs, c.close())
	}
	for _, p := range []*sql.DB{d.writePool, d.pool} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	d.WriterLock.Close()
	return errors.Join(errs...)
}
