// Connections and how statements run on them.

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/store"
)

// conn is one connection with its prepared statements. Whoever took it from
// its channel has it alone.
type conn struct {
	now      func() time.Time
	sql      *sql.Conn // nil until the first use
	prepared map[string]*sql.Stmt
}

func newConn(ctx context.Context, db *sql.DB, now func() time.Time) (*conn, error) {
	c := &conn{now: now}
	return c, c.open(ctx, db)
}

func (c *conn) open(ctx context.Context, db *sql.DB) (err error) {
	if c.sql != nil {
		return nil
	}
	c.prepared = map[string]*sql.Stmt{}
	c.sql, err = db.Conn(ctx)
	return err
}

// close closes the statements and gives the connection back to its pool.
func (c *conn) close() error {
	if c.sql == nil {
		return nil
	}
	var errs []error
	for _, s := range c.prepared {
		errs = append(errs, s.Close())
	}
	errs = append(errs, c.sql.Close())
	c.sql, c.prepared = nil, nil
	return errors.Join(errs...)
}

// statement is text prepared, from its first use on.
func (c *conn) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt := c.prepared[text]; stmt != nil {
		return stmt, nil
	}
	stmt, err := c.sql.PrepareContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	c.prepared[text] = stmt
	return stmt, nil
}

func (c *conn) exec(ctx context.Context, text string) error {
	stmt, err := c.statement(ctx, text)
	if err == nil {
		_, err = stmt.ExecContext(ctx)
	}
	return err
}

// runner runs statements on a connection that is inside a transaction.
type runner struct {
	conn  *conn
	queue []func(context.Context) error
	brief bool // statements are short and not interrupted; ctx is looked at between them
	erase bool // what is removed must leave the files
}

// Queue implements store.Runner.
func (r *runner) Queue(s *store.Statement, list [][]any, args []any, each func(store.Scanner) error) {
	if s.SQLite == (store.Forms{}) {
		return
	}
	r.queue = append(r.queue, func(ctx context.Context) error { return r.statement(ctx, s, list, args, each) })
}

// QueueNow implements store.Runner.
func (r *runner) QueueNow(each func(int64)) {
	r.queue = append(r.queue, func(context.Context) error {
		each(r.conn.now().UnixMilli())
		return nil
	})
}

// Erase implements store.Runner.
func (r *runner) Erase() { r.erase = true }

// Flush implements store.Runner.
func (r *runner) Flush(ctx context.Context) error {
	queue := r.queue
	r.queue = nil
	for _, run := range queue {
		// Asked before every statement, also of those that are not interrupted.
		if err := ctx.Err(); err != nil {
			return translate(ctx, err)
		}
		if err := run(ctx); err != nil {
			return translate(ctx, err)
		}
	}
	return nil
}

func (r *runner) statement(ctx context.Context, s *store.Statement, list [][]any, args []any, each func(store.Scanner) error) error {
	if r.brief {
		ctx = context.WithoutCancel(ctx)
	}
	text := s.SQLite.One
	switch {
	case len(list) == 1:
		args = append(slices.Clone(list[0]), args...)
	case len(s.Columns) > 0 && s.SQLite.Many == "":
		return r.insert(ctx, s, list)
	case len(s.Columns) > 0:
		values, err := json.Marshal(list)
		if err != nil {
			return fmt.Errorf("list of values: %w", err)
		}
		text, args = s.SQLite.Many, append([]any{string(values)}, args...)
	}
	return r.run(ctx, text, args, each)
}

// insert runs a statement row by row; an INSERT for many rows at once, as far
// as that goes.
func (r *runner) insert(ctx context.Context, s *store.Statement, list [][]any) error {
	var args []any
	for ; s.SQLite.Bulk != "" && len(list) >= store.BulkRows; list = list[store.BulkRows:] {
		args = args[:0]
		for _, row := range list[:store.BulkRows] {
			args = append(args, row...)
		}
		if err := r.run(ctx, s.SQLite.Bulk, args, nil); err != nil {
			return err
		}
	}
	for _, row := range list {
		if err := r.run(ctx, s.SQLite.One, row, nil); err != nil {
			return err
		}
	}
	return nil
}

// run runs one statement.
func (r *runner) run(ctx context.Context, text string, args []any, each func(store.Scanner) error) error {
	stmt, err := r.conn.statement(ctx, text)
	if err != nil {
		return err
	}
	if each == nil {
		_, err := stmt.ExecContext(ctx, args...)
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := each(rows); errors.Is(err, store.ErrEnough) {
			break
		} else if err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
