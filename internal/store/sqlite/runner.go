// Connections, and running statements on them. They are the driver's own connections: each has one
// user at a time, so the work that database/sql does for every statement is not needed.

package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// conn is one connection with its prepared statements. It is for the goroutine that took it from
// its channel.
type conn struct {
	now      func() time.Time
	driver   driver.Conn // nil until the first use
	prepared map[string]stmt
	args     []driver.NamedValue // of the running statement
}

// stmt is the interface of the driver's statements.
type stmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// open connects to source, unless that was done before.
func (c *conn) open(d driver.Driver, source string) (err error) {
	if c.driver == nil {
		c.prepared = map[string]stmt{}
		c.driver, err = d.Open(source)
	}
	return err
}

// close closes the statements and the connection.
func (c *conn) close() error {
	if c.driver == nil {
		return nil
	}
	var errs []error
	for _, s := range c.prepared {
		errs = append(errs, s.Close())
	}
	errs = append(errs, c.driver.Close())
	c.driver, c.prepared = nil, nil
	return errors.Join(errs...)
}

// statement returns the prepared statement for text, and prepares it at its first use.
func (c *conn) statement(text string) (stmt, error) {
	if s := c.prepared[text]; s != nil {
		return s, nil
	}
	s, err := c.driver.Prepare(text)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	c.prepared[text] = s.(stmt)
	return s.(stmt), nil
}

// exec runs a statement and ignores its rows.
func (c *conn) exec(ctx context.Context, text string, args ...any) error {
	s, err := c.statement(text)
	if err == nil {
		_, err = s.ExecContext(ctx, c.namedValues(args))
	}
	return err
}

// query runs a statement and calls each for every row of its result.
func (c *conn) query(ctx context.Context, text string, args []any, each func(dialect.Scanner) error) (err error) {
	s, err := c.statement(text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, c.namedValues(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	r := make(row, len(rows.Columns()))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch err := rows.Next(r); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		switch err := each(r); {
		case errors.Is(err, dialect.ErrStopRows):
			return nil
		case err != nil:
			return err
		}
	}
}

// namedValues returns args as the driver takes them; valid until the next call.
func (c *conn) namedValues(args []any) []driver.NamedValue {
	clear(c.args) // so that the values can be collected
	c.args = c.args[:0]
	for i, v := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: dialect.Value(v)})
	}
	return c.args
}

// row is a row of a result. Its bytes belong to the caller of Scan.
type row []driver.Value

// Scan implements dialect.Scanner.
func (r row) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("the row has %d columns, not %d", len(r), len(dest))
	}
	for i, v := range r {
		ok := false
		switch d := dest[i].(type) {
		case *string:
			*d, ok = v.(string)
		case *int64:
			*d, ok = v.(int64)
		case **int64: // may be NULL
			var n int64
			if n, ok = v.(int64); ok {
				*d = &n
			} else {
				*d, ok = nil, v == nil
			}
		case *uint8:
			var n int64
			n, ok = v.(int64)
			*d = uint8(n)
			ok = ok && int64(*d) == n
		case *[]byte:
			*d, ok = v.([]byte)
			ok = ok || v == nil
		}
		if !ok {
			return fmt.Errorf("column %d is %T and does not fit %T", i, v, dest[i])
		}
	}
	return nil
}

// runner runs statements on a connection that is inside a transaction.
type runner struct {
	conn          *conn
	queue         []func(context.Context) error
	uninterrupted bool // statements are short and not interrupted; ctx is checked between them
	erase         bool // removed rows must leave the files
}

// Queue implements dialect.Runner.
func (r *runner) Queue(s *dialect.Statement, list [][]any, args []any, each func(dialect.Scanner) error) {
	if s.SQLite == (dialect.Forms{}) {
		return
	}
	r.queue = append(r.queue, func(ctx context.Context) error { return r.statement(ctx, s, list, args, each) })
}

// QueueNow implements dialect.Runner.
func (r *runner) QueueNow(each func(now int64)) {
	r.queue = append(r.queue, func(context.Context) error {
		each(r.conn.now().UnixMilli())
		return nil
	})
}

// Erase implements dialect.Runner.
func (r *runner) Erase() { r.erase = true }

// Flush implements dialect.Runner.
func (r *runner) Flush(ctx context.Context) error {
	queue := r.queue
	r.queue = nil
	for _, run := range queue {
		// Checked before every statement, also before uninterrupted ones.
		if err := ctx.Err(); err != nil {
			return translate(ctx, err)
		}
		if err := run(ctx); err != nil {
			return translate(ctx, err)
		}
	}
	return nil
}

// runAll runs fn, and the statements it leaves in the queue.
func (r *runner) runAll(ctx context.Context, fn func(dialect.Runner) error) error {
	if err := fn(r); err != nil {
		return err
	}
	if err := r.Flush(ctx); err != nil {
		return err
	}
	return translate(ctx, ctx.Err())
}

func (r *runner) statement(ctx context.Context, s *dialect.Statement, list [][]any, args []any, each func(dialect.Scanner) error) error {
	if r.uninterrupted {
		ctx = context.WithoutCancel(ctx)
	}
	if len(s.Columns) == 0 {
		return r.run(ctx, s.SQLite.One, args, each)
	}
	room := make([]any, 0, min(len(list), dialect.BulkRows)*len(s.Columns)+len(args))
	for len(list) > 0 {
		text, values, rows := s.SQLite.One, append(room, list[0]...), 1
		bulk := s.SQLite.Bulk != "" && len(list) >= dialect.BulkRows
		switch {
		case bulk && s.SharesColumns(list[:dialect.BulkRows]):
			text, rows = s.SQLite.BulkShared, dialect.BulkRows
			for _, row := range list[1:rows] {
				values = append(values, row[s.SharedColumns:]...)
			}
		case bulk:
			text, rows = s.SQLite.Bulk, dialect.BulkRows
			for _, row := range list[1:rows] {
				values = append(values, row...)
			}
		case len(list) > 1 && s.SQLite.Many != "":
			whole, err := json.Marshal(list)
			if err != nil {
				return fmt.Errorf("list of values: %w", err)
			}
			text, rows = s.SQLite.Many, len(list)
			values = append(room, string(whole))
		}
		if err := r.run(ctx, text, append(values, args...), each); err != nil {
			return err
		}
		list = list[rows:]
	}
	return nil
}

// run runs one statement.
func (r *runner) run(ctx context.Context, text string, args []any, each func(dialect.Scanner) error) error {
	if each == nil {
		return r.conn.exec(ctx, text, args...)
	}
	return r.conn.query(ctx, text, args, each)
}
