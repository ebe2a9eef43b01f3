package sqlite

// A transaction's statements, and a reading's.

import (
	"context"
	"database/sql"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// sqliteTx runs all statements at once, also enqueued ones.
type sqliteTx struct {
	ctx  context.Context
	conn *sqliteConn
	err  error // the first of enqueue
}

func (q *sqliteTx) Enqueue(text string, args []any, one func(sqlstore.Scanner) error) {
	if q.err != nil {
		return
	}
	if one == nil {
		_, q.err = q.Exec(q.ctx, text, args...)
		return
	}
	s, err := q.conn.prepare(q.ctx, text)
	if err == nil {
		err = one(s.QueryRowContext(q.ctx, args...).Scan)
	}
	q.err = Failure(err)
}

func (q *sqliteTx) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	s, err := q.conn.prepare(ctx, text)
	if err != nil {
		return 0, Failure(err)
	}
	res, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, Failure(err)
	}
	return res.RowsAffected()
}

func (q *sqliteTx) Query(ctx context.Context, text string, args []any, each func(sqlstore.Scanner) error) error {
	s, err := q.conn.prepare(ctx, text)
	if err != nil {
		return Failure(err)
	}
	rows, err := s.QueryContext(ctx, args...)
	return eachRow(rows, err, each)
}

// sqliteRead runs statements in a reading transaction.
type sqliteRead struct{ sqliteTx }

func (q *sqliteRead) Enqueue(string, []any, func(sqlstore.Scanner) error) {
	panic("outbox: a write while reading")
}

func (q *sqliteRead) Exec(context.Context, string, ...any) (int64, error) {
	panic("outbox: a write while reading")
}

func eachRow(rows *sql.Rows, err error, each func(sqlstore.Scanner) error) error {
	if err != nil {
		return Failure(err)
	}
	scan := func(into ...any) error {
		if err := rows.Scan(into...); err != nil { // a value of another type than the schema's
			return fault.OutboxDamaged.Because(errors.Join(sqlstore.ErrFileDamaged, err), "a row of the outbox is damaged: keep a copy of its file, and begin a new outbox")
		}
		return nil
	}
	for err == nil && rows.Next() {
		err = each(scan)
	}
	return Failure(errors.Join(err, rows.Err(), rows.Close()))
}
