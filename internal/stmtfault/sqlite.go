package stmtfault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // the driver
	lib "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

func sqliteFailures() (all []Failure) {
	for _, code := range dbfault.Results() {
		all = append(all, Failure{Code: code})
		switch code & 0xff {
		case lib.SQLITE_FULL, lib.SQLITE_NOMEM, lib.SQLITE_INTERRUPT, lib.SQLITE_IOERR: // https://sqlite.org/lang_transaction.html, "Response To Errors"
			all = append(all, Failure{Code: code, RolledBack: true})
		}
		if code == lib.SQLITE_IOERR {
			all = append(all, Failure{Code: lib.SQLITE_IOERR_FSYNC, AfterCommit: true})
		}
	}
	return all
}

// Driver is SQLite's, for one test. Nothing keeps a connection from rolling back. Its methods are for any number of goroutines.
type Driver struct {
	Statements
	name  string
	inner driver.Driver
}

var drivers atomic.Int64

// SQLite makes a driver and registers it. Statements that pass says yes to are not counted and do not fail; nil has none pass.
func SQLite(tb testing.TB, pass func(text string) bool) *Driver {
	tb.Helper()
	db, err := sql.Open("sqlite", "")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	aside := func(sql string) bool { return strings.HasPrefix(sql, "ROLLBACK") || pass != nil && pass(sql) }
	d := &Driver{
		Statements: Statements{Failures: sqliteFailures(), passes: aside}, name: fmt.Sprintf("stmtfault-%d", drivers.Add(1)), inner: db.Driver(),
	}
	sql.Register(d.name, d)
	return d
}

// Name is the driver's, in database/sql.
func (d *Driver) Name() string { return d.name }

// Open implements driver.Driver.
func (d *Driver) Open(name string) (driver.Conn, error) {
	c, err := d.inner.Open(name)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, of: d}, nil
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
	if fails.AfterCommit && text == "COMMIT" {
		if err := f(); err != nil {
			return err
		}
	}
	if fails.RolledBack {
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
