package outbox

// The SQLite dialect: one file, WAL, every commit synced. One connection writes; others read.
// Several processes may have the file open.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/migrations"
	outboxsql "github.com/mooring-rpc/mooring/migrations/outboxsql"
)

// busyTimeout is how long a transaction waits for another process's.
const busyTimeout = 10 * time.Second

// OpenSQLite opens the outbox in the file at path, creating it (mode 0600) if it is not there.
// Several processes may have it open. Its errors name no path.
func OpenSQLite(ctx context.Context, path string, cfg Config) (*Box, error) {
	cfg = cfg.withDefaults(100 * time.Millisecond)
	db, err := openSQLite(ctx, path, cfg)
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", withCode(fileFailure(err)))
	}
	return newBox(ctx, db, defaultName, cfg)
}

// sqliteDB is the SQLite dialect.
type sqliteDB struct {
	clock        func() time.Time
	poll         time.Duration
	livenessPath string // path of the file whose lock shows that a sender lives
	writerLock   *writerLock
	// blockingAfter is how long a transaction may be open before it counts as blocking:
	// busyTimeout.
	blockingAfter time.Duration

	pool      *sql.DB // for everything but writing
	writePool *sql.DB

	mu     sync.Mutex // guards writer during a transaction or a poll
	writer *sqliteConn

	readSlots chan struct{} // holds one for each reading transaction
	idle      idleConns
}

// maxReaders bounds concurrent reading transactions.
const maxReaders = 4

// sqliteConn is a connection with the statements it has prepared.
type sqliteConn struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newSQLiteConn(ctx context.Context, pool *sql.DB) (*sqliteConn, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &sqliteConn{conn: conn, stmts: make(map[string]*sql.Stmt)}, nil
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
	s, err := c.conn.PrepareContext(ctx, text)
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
	return errors.Join(append(errs, c.conn.Close())...)
}

// discard closes the connection, which would else go back to its pool in a bad state.
func (c *sqliteConn) discard() {
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
}

func openSQLite(ctx context.Context, path string, cfg Config) (_ *sqliteDB, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := privatedir.EnsureDatabase(path); err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("its file cannot be opened for writing: %w", err)
	}
	// The files beside it have the same names whatever name it was opened by, as SQLite's do.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, withoutPath(err)
	}
	pragmas := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "journal_mode(wal)", "synchronous(full)",
		"secure_delete(1)"}} // a dropped ref's secret is erased
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), RawQuery: pragmas.Encode()}).String()

	db := &sqliteDB{clock: cfg.Now, poll: cfg.Poll, livenessPath: path + ".sender", readSlots: make(chan struct{}, maxReaders),
		writerLock: openWriterLock(path + ".turn"), blockingAfter: busyTimeout}
	defer func() {
		if err != nil {
			_ = db.close()
		}
	}()
	if db.pool, err = sql.Open(cfg.driver, dsn); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, db.pool, outboxsql.SQLite); err != nil {
		return nil, sqliteFailure(err)
	}
	if db.writePool, err = sql.Open(cfg.driver, dsn); err != nil {
		return nil, err
	}
	if db.writer, err = newSQLiteConn(ctx, db.writePool); err != nil {
		return nil, sqliteFailure(err)
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

// withoutPath keeps the cause of a file error and leaves out the path.
func withoutPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

// sqliteError is a *sqlite.Error.
type sqliteError interface {
	error
	Code() int
}

// ambiguousCommit reports that COMMIT failed but the transaction may have been committed: it
// may be in the log, which could only not be synced, and be found there after a crash. A full
// disk is reported before the log is complete.
func ambiguousCommit(err error) bool {
	e, ok := errors.AsType[sqliteError](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_IOERR && !errors.Is(err, fault.DiskFull)
}

// errFileDamaged is in the error that found the database itself damaged.
var errFileDamaged = errors.New("outbox: the database is damaged")

// sqliteFailure gives an error its code.
func sqliteFailure(err error) error {
	e, ok := errors.AsType[sqliteError](err)
	if !ok {
		return err
	}
	code := e.Code()
	cause := dbfault.SQLite(code)
	switch {
	case code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return errUnique
	case cause == dbfault.DiskFull:
		return cause.Fault(err, "no space left where the outbox is, or a quota is used up: nothing was committed; free some and try again")
	case cause == dbfault.Locked:
		return cause.Fault(err, fmt.Sprintf("another process kept the outbox locked for %s", busyTimeout))
	// The statements are the program's own and the schema is at its newest version: if SQLite
	// does not understand one (ERROR), the schema's text was damaged.
	case cause == dbfault.Damaged, code == sqlite3.SQLITE_ERROR, code&0xff == sqlite3.SQLITE_MISMATCH:
		return fault.OutboxDamaged.Because(errors.Join(errFileDamaged, err), "the outbox's file is damaged or is none: keep a copy of it, and begin a new outbox")
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
func (d *sqliteDB) begin(ctx context.Context, q querier) error {
	wait, cancel := context.WithTimeout(ctx, busyTimeout/4)
	defer cancel()
	if leave, err := d.writerLock.acquire(wait); err == nil {
		defer leave()
	}
	_, err := q.exec(ctx, "BEGIN IMMEDIATE")
	if err != nil {
		return d.lockedBy(err)
	}
	d.writerLock.recordWriter()
	return nil
}

// lockedBy adds the blocking process to an error.
func (d *sqliteDB) lockedBy(err error) error {
	pid, since := d.writerLock.writer()
	if !errors.Is(err, fault.Unavailable) || pid == 0 || time.Since(since) < d.blockingAfter {
		return err
	}
	return fault.Unavailable.Because(err, "process %d has kept the outbox locked since %s: if it is stopped (Ctrl-Z, a debugger, a paused container) let it go on, or end it",
		pid, since.Format(time.TimeOnly))
}

// blockingWriter also tests whether the file is locked: a process that died in a transaction
// could not clear its record.
func (d *sqliteDB) blockingWriter(ctx context.Context) (pid int, since time.Time) {
	if pid, since = d.writerLock.writer(); pid == 0 || time.Since(since) < d.blockingAfter {
		return 0, time.Time{}
	}
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return 0, time.Time{}
	}
	defer conn.Close()
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout.Milliseconds()))
	}()
	_, _ = conn.ExecContext(ctx, "PRAGMA busy_timeout = 0")
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	}
	if dbfault.Of(sqliteFailure(err)) != dbfault.Locked {
		return 0, time.Time{}
	}
	return pid, since
}

func (d *sqliteDB) write(ctx context.Context, f func(querier) error) (ambiguous bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := &sqliteTx{ctx: ctx, conn: d.writer}
	if err := d.begin(ctx, q); err != nil {
		return false, err
	}
	defer d.writerLock.clearWriter()
	if err = f(q); err == nil {
		err = q.err
	}
	if err == nil {
		_, err = q.exec(ctx, "COMMIT")
		ambiguous = ambiguousCommit(err)
	}
	if err != nil {
		// After a full disk SQLite may have rolled back by itself.
		_, _ = q.exec(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return ambiguous, err
}

func (d *sqliteDB) read(ctx context.Context, f func(querier) error) (err error) {
	select {
	case d.readSlots <- struct{}{}:
		defer func() { <-d.readSlots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c := d.idle.take()
	if c == nil {
		if c, err = newSQLiteConn(ctx, d.pool); err != nil {
			return sqliteFailure(err)
		}
	}
	q := &sqliteRead{sqliteTx{ctx: ctx, conn: c}}
	err, ended := f(q), error(nil)
	if _, still := errors.AsType[*StreamStoppedError](err); still {
		if _, err = q.sqliteTx.exec(ctx, "BEGIN"); err == nil {
			err = f(q)
			_, ended = q.sqliteTx.exec(context.WithoutCancel(ctx), "ROLLBACK") // it changed nothing
		}
	}
	if ended != nil {
		c.discard()
	} else {
		d.idle.put(c)
	}
	return err
}

func (d *sqliteDB) shareLease(querier, int64)                                {}
func (d *sqliteDB) takeLease(context.Context, querier, int64) error          { return nil }
func (d *sqliteDB) now(context.Context, querier) (int64, error)              { return d.clock().UnixMilli(), nil }
func (d *sqliteDB) notify(querier, string)                                   {}
func (d *sqliteDB) holderDead(context.Context, querier, int64) (bool, error) { return false, nil }

// checkIntegrity also finds rows and indexes that do not match, which no statement notices: it
// follows the index, and never reads some rows.
func (d *sqliteDB) checkIntegrity(ctx context.Context, q querier) error {
	return q.query(ctx, `PRAGMA integrity_check(1)`, nil, func(scan scanner) error {
		var found string
		if err := scan(&found); err != nil || found == "ok" {
			return err
		}
		return fault.OutboxDamaged.Because(errFileDamaged, "the outbox's file is damaged (%s): keep a copy of it, and begin a new outbox", found)
	})
}

func (d *sqliteDB) inClause(column, placeholder string, ids []string) (clause string, arg any) {
	list, _ := json.Marshal(ids) // of strings: it cannot fail
	return column + " IN (SELECT value FROM json_each(" + placeholder + "))", string(list)
}

func (d *sqliteDB) lockRows() string { return "" }
func (d *sqliteDB) refs() *refSQL    { return sqliteRefs }
func (d *sqliteDB) tryLivenessLock(int64) (release func(), held, known bool) {
	return lockFile(d.livenessPath)
}

// watch asks SQLite whether the file has changed, which costs next to nothing. It asks on the
// writer's connection: there, this Box's own commits do not count as a change. Nothing may be
// written there meanwhile: a transaction that begins beside an open statement has that
// statement's snapshot, and is refused at once (SQLITE_BUSY_SNAPSHOT) if another process has
// committed since.
func (d *sqliteDB) watch(ctx context.Context, _ string, changed func(), _ func(int64)) {
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
		d.mu.Lock()
		if s, err := d.writer.prepare(steady, "PRAGMA data_version"); err == nil {
			_ = s.QueryRowContext(steady).Scan(&version)
		}
		d.mu.Unlock()
		if version != last {
			last = version
			changed()
		}
	}
}

func (d *sqliteDB) close() error {
	var errs []error
	if d.writer != nil {
		errs = append(errs, d.writer.close())
	}
	for c := d.idle.take(); c != nil; c = d.idle.take() {
		errs = append(errs, c.close())
	}
	for _, p := range []*sql.DB{d.writePool, d.pool} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	d.writerLock.close()
	return errors.Join(errs...)
}

// sqliteTx runs all statements at once, also enqueued ones.
type sqliteTx struct {
	ctx  context.Context
	conn *sqliteConn
	err  error // the first of enqueue
}

func (q *sqliteTx) enqueue(text string, args []any, one func(scanner) error) {
	if q.err != nil {
		return
	}
	if one == nil {
		_, q.err = q.exec(q.ctx, text, args...)
		return
	}
	s, err := q.conn.prepare(q.ctx, text)
	if err == nil {
		err = one(s.QueryRowContext(q.ctx, args...).Scan)
	}
	q.err = sqliteFailure(err)
}

func (q *sqliteTx) exec(ctx context.Context, text string, args ...any) (int64, error) {
	s, err := q.conn.prepare(ctx, text)
	if err != nil {
		return 0, sqliteFailure(err)
	}
	res, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, sqliteFailure(err)
	}
	return res.RowsAffected()
}

func (q *sqliteTx) query(ctx context.Context, text string, args []any, each func(scanner) error) error {
	s, err := q.conn.prepare(ctx, text)
	if err != nil {
		return sqliteFailure(err)
	}
	rows, err := s.QueryContext(ctx, args...)
	return eachRow(rows, err, each)
}

// sqliteRead runs statements in a reading transaction.
type sqliteRead struct{ sqliteTx }

func (q *sqliteRead) enqueue(string, []any, func(scanner) error) {
	panic("outbox: a write while reading")
}

func (q *sqliteRead) exec(context.Context, string, ...any) (int64, error) {
	panic("outbox: a write while reading")
}

func eachRow(rows *sql.Rows, err error, each func(scanner) error) error {
	if err != nil {
		return sqliteFailure(err)
	}
	scan := func(into ...any) error {
		if err := rows.Scan(into...); err != nil { // a value of another type than the schema's
			return fault.OutboxDamaged.Because(errors.Join(errFileDamaged, err), "a row of the outbox is damaged: keep a copy of its file, and begin a new outbox")
		}
		return nil
	}
	for err == nil && rows.Next() {
		err = each(scan)
	}
	return sqliteFailure(errors.Join(err, rows.Err(), rows.Close()))
}
