package main

// The bare program on SQLite: a file for each outbox and one for the server, as
// the whole path has them, written with prepared statements in WAL mode with
// synchronous FULL. The server's file has one writer, since SQLite has no more.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite", as the whole path uses it

	"github.com/mooring-rpc/mooring/migrations"
	schema "github.com/mooring-rpc/mooring/migrations/outboxsql/sqlite"
)

// bareSQLite implements bareTarget in a folder of its own.
type bareSQLite struct {
	dir    string
	server *liteFile
	boxes  map[*writerRows]*liteFile
}

func newBareSQLite(parent string) (bareTarget, error) {
	dir, err := os.MkdirTemp(parent, "bare-")
	if err != nil {
		return nil, err
	}
	return &bareSQLite{dir: dir, boxes: map[*writerRows]*liteFile{}}, nil
}

func (b *bareSQLite) close(context.Context) error { return os.RemoveAll(b.dir) }

func (b *bareSQLite) prepare(ctx context.Context, writers []*writerRows) (err error) {
	if b.server, err = openLite(ctx, filepath.Join(b.dir, "server.db"), migrations.SQLite); err != nil {
		return err
	}
	if err := b.server.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i, w := range writers {
		for _, s := range serverSetup(w) {
			if err := b.server.exec(ctx, s.sql, s.args...); err != nil {
				return err
			}
		}
		box, err := openLite(ctx, filepath.Join(b.dir, fmt.Sprintf("outbox%d.db", i)), migrations.Schema{Name: "outbox", Dialect: goose.DialectSQLite3, Table: schema.Table, Files: schema.Files})
		if err != nil {
			return err
		}
		b.boxes[w] = box
		err = errors.Join(
			box.exec(ctx, `INSERT INTO mooring_outbox (box, name, id, secret) VALUES (1, 'default', $1, $2)`, w.outbox, make([]byte, 32)),
			box.exec(ctx, `INSERT INTO mooring_outbox_stream (box, session, last_seq) VALUES (1, $1, 1)`, w.session))
		if err != nil {
			return err
		}
	}
	return b.server.exec(ctx, "COMMIT")
}

func (b *bareSQLite) clients(_ context.Context, writers []*writerRows, t technique) ([]share, error) {
	var shares []share
	for _, hand := range partition(writers, t.conns) {
		c := &liteClient{files: map[*writerRows]*liteFile{}}
		for _, w := range hand {
			c.files[w] = b.boxes[w]
		}
		shares = append(shares, share{c, hand})
	}
	return shares, nil
}

func (b *bareSQLite) servers(_ context.Context, writers []*writerRows, t technique) ([]share, error) {
	return []share{{&liteServer{file: b.server, many: t.bulk == "values"}, writers}}, nil
}

// liteFile is one file on one connection with its prepared statements.
type liteFile struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func openLite(ctx context.Context, path string, set migrations.Schema) (*liteFile, error) {
	pragmas := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)",
		"checkpoint_fullfsync(1)", "temp_store(MEMORY)", "cache_size(-16384)"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := migrations.Up(ctx, db, set); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &liteFile{db: db, conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (f *liteFile) exec(ctx context.Context, text string, args ...any) error {
	s := f.stmts[text]
	if s == nil {
		var err error
		if s, err = f.conn.PrepareContext(ctx, text); err != nil {
			return err
		}
		f.stmts[text] = s
	}
	_, err := s.ExecContext(ctx, args...)
	return err
}

func (f *liteFile) close() error {
	for _, s := range f.stmts {
		_ = s.Close()
	}
	return errors.Join(f.conn.Close(), f.db.Close())
}

// liteClient writes outbox rows to the files of its writers.
type liteClient struct{ files map[*writerRows]*liteFile }

func (c *liteClient) close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

func (c *liteClient) write(ctx context.Context, t *chunk) error {
	f, w, at := c.files[t.writer], t.writer, now()
	if err := f.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, r := range t.acked {
		if err := f.exec(ctx, `UPDATE mooring_outbox_batch SET state = 2, finished_at = $2, attempts = 1, outcomes = $3, body = $4
			WHERE num = $1`, r.num, at, r.results, r.slim); err != nil {
			return err
		}
	}
	if n := len(t.acked); n > 0 {
		err := errors.Join(
			f.exec(ctx, `UPDATE mooring_outbox_stream SET last_seq = $2 WHERE box = 1 AND session = $1`, w.session, t.acked[n-1].last()),
			f.exec(ctx, `UPDATE mooring_outbox SET low = $1 WHERE box = 1`, t.acked[n-1].num+1))
		if err != nil {
			return err
		}
	}
	for _, r := range t.new {
		if err := f.exec(ctx, `INSERT INTO mooring_outbox_batch (num, box, batch, session, state, first_seq, ops, bytes, created_at, via, body)
			VALUES ($1, 1, $2, $3, 1, $4, $5, $6, $7, $8, $9)`,
			r.num, r.id, w.session, r.first, len(r.events), len(r.body), at, r.via, r.body); err != nil {
			return err
		}
	}
	return f.exec(ctx, "COMMIT")
}

// liteServer writes the server's rows: one by one, or many to a statement.
type liteServer struct {
	file *liteFile
	many bool
	ev   bulkInsert
	en   bulkInsert
}

func (s *liteServer) close() error { return s.file.close() }

func (s *liteServer) write(ctx context.Context, t *chunk) error {
	f, w, at := s.file, t.writer, now()
	if err := f.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if n := len(t.acked); n > 0 {
		last := t.acked[n-1]
		err := errors.Join(
			f.exec(ctx, `DELETE FROM records WHERE session = $1 AND outbox = $2 AND first_seq <= $3`, w.session, w.outbox, last.last()),
			f.exec(ctx, `UPDATE streams SET acked_through = $3, acked_op = $4, acked_digest = $5 WHERE session = $1 AND outbox = $2`,
				w.session, w.outbox, last.last(), last.lastOp, last.digest))
		if err != nil {
			return err
		}
	}
	if n := len(t.new); n > 0 {
		newest := t.new[n-1]
		err := errors.Join(
			f.exec(ctx, `UPDATE streams SET last_seq = $3 WHERE session = $1 AND outbox = $2`, w.session, w.outbox, newest.last()),
			f.exec(ctx, `UPDATE sessions SET cursor = $2, head = $3, updated = $4 WHERE id = $1`, w.session, newest.cursor(), newest.head(), at))
		if err != nil {
			return err
		}
	}
	if err := s.rows(ctx, t); err != nil {
		return err
	}
	return f.exec(ctx, "COMMIT")
}

// valuesRows is how many rows go into one statement.
const valuesRows = 16

func (s *liteServer) rows(ctx context.Context, t *chunk) error {
	per := 1
	if s.many {
		per = valuesRows
	}
	s.ev = bulkInsert{s.file, "events", eventColumns, per, s.ev.args[:0]}
	s.en = bulkInsert{s.file, "entries", entryColumns[:7], per, s.en.args[:0]} // the payload stays NULL
	for _, r := range t.new {
		if err := s.file.exec(ctx, `INSERT INTO records (session, outbox, first_seq, last_seq, outcomes) VALUES ($1, $2, $3, $4, $5)`,
			t.writer.session, t.writer.outbox, r.first, r.last(), r.record); err != nil {
			return err
		}
		for i := range r.events {
			e, n := &r.events[i], &r.entries[i]
			if err := s.ev.add(ctx, e.Session, int64(e.Cursor), e.At, int64(e.Schema), e.Method, e.Key, e.Ref, e.Actor, e.Outbox, e.Op, e.Batch, e.Sum[:], e.Hash[:], e.Payload); err != nil {
				return err
			}
			if err := s.en.add(ctx, n.Session, n.Key, int64(n.Cursor), int64(n.Schema), int64(n.TextLen), int64(0), n.Sum[:]); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.ev.flush(ctx), s.en.flush(ctx))
}

// bulkInsert gathers rows for statements of a fixed number of them.
type bulkInsert struct {
	file    *liteFile
	table   string
	columns []string
	per     int
	args    []any
}

func (b *bulkInsert) add(ctx context.Context, values ...any) error {
	b.args = append(b.args, values...)
	if len(b.args) < b.per*len(b.columns) {
		return nil
	}
	return b.insert(ctx, b.args)
}

func (b *bulkInsert) insert(ctx context.Context, args []any) error {
	row := "(" + strings.Repeat("?,", len(b.columns)-1) + "?)"
	rows := len(args) / len(b.columns)
	text := "INSERT INTO " + b.table + " (" + strings.Join(b.columns, ", ") + ") VALUES " + strings.Repeat(row+",", rows-1) + row
	b.args = b.args[:0]
	return b.file.exec(ctx, text, args...)
}

// flush inserts the remaining rows, one by one.
func (b *bulkInsert) flush(ctx context.Context) error {
	rest := b.args
	for len(rest) > 0 {
		n := len(b.columns)
		if err := b.insert(ctx, rest[:n:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	b.args = b.args[:0]
	return nil
}
