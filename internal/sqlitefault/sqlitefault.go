// Package sqlitefault is SQLite's driver for tests, and has a statement fail with a result code of the test's choice.
package sqlitefault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // the driver
	lib "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

// Failure is how a statement fails.
type Failure struct {
	Code int // result code
	// Undone says that SQLite has rolled the transaction back by itself, as it may do after some codes.
	Undone bool
	// After says that a commit has done all the same what it is to do.
	After bool
}

// Failures are those of dbfault's table, in all ways in which statements fail with a code.
func Failures() (all []Failure) {
	for _, code := range dbfault.Results() {
		all = append(all, Failure{Code: code})
		switch code & 0xff {
		case lib.SQLITE_FULL, lib.SQLITE_NOMEM, lib.SQLITE_INTERRUPT, lib.SQLITE_IOERR: // https://sqlite.org/lang_transaction.html, "Response To Errors"
			all = append(all, Failure{Code: code, Undone: true})
		}
		if code == lib.SQLITE_IOERR {
			all = append(all, Failure{Code: lib.SQLITE_IOERR_FSYNC, After: true})
		}
	}
	return all
}

// Cause is what the failure means.
func (f Failure) Cause() dbfault.Cause { return dbfault.SQLite(f.Code) }

// String is the failure's name in what a test says.
func (f Failure) String() string {
	return fmt.Sprintf("%d", f.Code) + map[bool]string{true: " (undone)"}[f.Undone] + map[bool]string{true: " (after)"}[f.After]
}

// Driver is one test's. Its methods are for any number of goroutines.
type Driver struct {
	name   string
	inner  driver.Driver
	passes func(text string) bool

	mu      sync.Mutex // guards what follows
	seen    int        // statements, since Fail
	at      int        // which fails; 0 for none
	onwards bool
	fails   Failure
	failed  []string // statements
}

var drivers atomic.Int64

// New makes a driver and registers it. Statements that pass says yes to are not counted and do not fail; nil has none pass.
func New(tb testing.TB, pass func(text string) bool) *Driver {
	tb.Helper()
	db, err := sql.Open("sqlite", "")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	d := &Driver{name: fmt.Sprintf("sqlitefault-%d", drivers.Add(1)), inner: db.Driver(), passes: pass}
	sql.Register(d.name, d)
	return d
}

// Name is the driver's, in database/sql.
func (d *Driver) Name() string { return d.name }

// Fail has the at-th statement from now on fail, over all connections, and onwards all that come after it. With 0 none
// fails any more. Nothing keeps a connection from rolling back.
func (d *Driver) Fail(at int, onwards bool, f Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen, d.at, d.onwards, d.fails, d.failed = 0, at, onwards, f, nil
}

// Failed are the statements that have failed since Fail.
func (d *Driver) Failed() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Open implements driver.Driver.
func (d *Driver) Open(name string) (driver.Conn, error) {
	c, err := d.inner.Open(name)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, of: d}, nil
}

// now says whether a statement is to fail.
func (d *Driver) now(text string) (Failure, bool) {
	if strings.HasPrefix(text, "ROLLBACK") || d.passes != nil && d.passes(text) {
		return Failure{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen++
	if d.at == 0 || d.seen != d.at && !(d.onwards && d.seen > d.at) {
		return Failure{}, false
	}
	d.failed = append(d.failed, text)
	return d.fails, true
}

// codeError is as the driver's own error.
type codeError struct{ code int }

func (e *codeError) Error() string { return fmt.Sprintf("made up by a test (%d)", e.code) }
func (e *codeError) Code() int     { return e.code }

type conn struct {
	driver.Conn
	of *Driver
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(text string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(text)
	if err != nil {
		return nil, err
	}
	return &stmt{s.(inner), c, text}, nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (t driver.Tx, err error) {
	err = c.do("BEGIN", func() (err error) {
		t, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &tx{t, c}, nil
}

// do does what a statement does, or fails.
func (c *conn) do(text string, f func() error) error {
	fails, now := c.of.now(text)
	if !now {
		return f()
	}
	if fails.After && text == "COMMIT" {
		if err := f(); err != nil {
			return err
		}
	}
	if fails.Undone {
		if s, err := c.Conn.Prepare("ROLLBACK"); err == nil {
			_, _ = s.(driver.StmtExecContext).ExecContext(context.Background(), nil) // there may be no transaction
			_ = s.Close()
		}
	}
	return &codeError{fails.Code}
}

type tx struct {
	driver.Tx
	conn *conn
}

// Commit implements driver.Tx.
func (t *tx) Commit() error { return t.conn.do("COMMIT", t.Tx.Commit) }

// inner is what the driver's statements can do.
type inner interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type stmt struct {
	inner
	conn *conn
	text string
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.conn.do(s.text, func() (err error) {
		r, err = s.inner.ExecContext(ctx, args)
		return err
	})
	return r, err
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.conn.do(s.text, func() (err error) {
		r, err = s.inner.QueryContext(ctx, args)
		return err
	})
	if err != nil && r != nil {
		_ = r.Close()
		r = nil
	}
	return r, err
}
