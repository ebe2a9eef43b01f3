package main

// The bare program on Postgres: a transaction is one round trip of pipelined
// statements, whose rows come in arrays, or in COPY streams.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/migrations"
	outboxsql "github.com/mooring-rpc/mooring/migrations/outboxsql"
)

// maxConns is how many connections a database gets at most: beyond 32 Postgres
// gains nothing (measured: its own group commit ends there).
const maxConns = 32

// pgPair is a client's and a server's database of their own on one Postgres.
// They are made once and emptied for every use, since dropping a database makes
// Postgres write out all others too.
type pgPair struct {
	admin          string // URL of the database to make others from
	client, server string // URLs
	names          []string
}

var databases atomic.Int64

// pgPair gives the pair of a name ("path", "bare"), empty.
func (b *bench) pgPair(ctx context.Context, name string) (*pgPair, error) {
	p := b.pairs[name]
	if p == nil {
		var err error
		if p, err = newPair(ctx, b.opts.postgres); err != nil {
			return nil, err
		}
		if b.pairs == nil {
			b.pairs = map[string]*pgPair{}
		}
		b.pairs[name] = p
	}
	for _, url := range []string{p.client, p.server} {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		_, err = conn.Exec(ctx, "DROP SCHEMA public CASCADE; CREATE SCHEMA public", pgx.QueryExecModeSimpleProtocol)
		if err = errors.Join(err, conn.Close(ctx)); err != nil {
			return nil, fmt.Errorf("empty a database: %w", err)
		}
	}
	return p, nil
}

// close drops the databases that were made.
func (b *bench) close(ctx context.Context) error {
	var errs []error
	for _, p := range b.pairs {
		errs = append(errs, p.drop(ctx))
	}
	b.pairs = nil
	return errors.Join(errs...)
}

// newPair makes two databases.
func newPair(ctx context.Context, admin string) (*pgPair, error) {
	p := &pgPair{admin: admin}
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, u := range []*string{&p.client, &p.server} {
		name := fmt.Sprintf("mooring_bench_%d_%d", os.Getpid(), databases.Add(1))
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
			return nil, errors.Join(fmt.Errorf("create database: %w", err), p.drop(ctx))
		}
		p.names = append(p.names, name)
		at, err := url.Parse(admin)
		if err != nil {
			return nil, errors.Join(err, p.drop(ctx))
		}
		at.Path = "/" + name
		*u = at.String()
	}
	return p, nil
}

// drop removes the databases.
func (p *pgPair) drop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	conn, err := pgx.Connect(ctx, p.admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var errs []error
	for _, name := range p.names {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// barePostgres implements bareTarget.
type barePostgres struct{ pair *pgPair }

func (b *barePostgres) close(context.Context) error { return nil } // emptied by the next use

func (b *barePostgres) prepare(ctx context.Context, writers []*writerRows) error {
	for _, db := range []struct {
		url string
		set migrations.Schema
	}{{b.pair.client, outboxsql.Postgres}, {b.pair.server, migrations.Postgres}} {
		conf, err := pgx.ParseConfig(db.url)
		if err != nil {
			return err
		}
		std := stdlib.OpenDB(*conf)
		err = migrations.Up(ctx, std, db.set)
		if err := errors.Join(err, std.Close()); err != nil {
			return err
		}
	}
	client, err := barePgConn(ctx, b.pair.client)
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	server, err := barePgConn(ctx, b.pair.server)
	if err != nil {
		return err
	}
	defer server.Close(ctx)
	var cb, sb pgx.Batch
	for _, w := range writers {
		cb.Queue(`INSERT INTO mooring_outbox (name, id, secret) VALUES ($1, $2, $3)`, w.outbox, w.outbox, make([]byte, 32))
		cb.Queue(`INSERT INTO mooring_outbox_stream (box, session, last_seq) VALUES ($1, $2, 1)`, w.box, w.session)
		for _, s := range serverSetup(w) {
			sb.Queue(s.sql, s.args...)
		}
	}
	return errors.Join(client.SendBatch(ctx, &cb).Close(), server.SendBatch(ctx, &sb).Close())
}

// setup is a statement that both databases understand.
type setup struct {
	sql  string
	args []any
}

// serverSetup makes a writer's session and stream.
func serverSetup(w *writerRows) []setup {
	zero := make([]byte, 32)
	return []setup{
		{`INSERT INTO sessions (id, space, external, life, cursor, base, head, epoch, auth_gen, created, updated, creator)
			VALUES ($1, $2, '', 1, 1, 0, $3, 1, 1, $4, $4, $5)`, []any{w.session, w.space, zero, now(), w.creator}},
		{`INSERT INTO streams (session, outbox, incarnation, last_seq, acked_through, acked_op, acked_digest, secret_hash)
			VALUES ($1, $2, 1, 1, 0, '', $3, $3)`, []any{w.session, w.outbox, zero}},
	}
}

func now() int64 { return time.Now().UnixMilli() }

// barePgConn is one connection with all that the server's has: plans that go by keys, lz4, a socket read directly.
func barePgConn(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	pgtune.Config(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `SET plan_cache_mode = force_generic_plan`, pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		err = pgtune.Connection(ctx, conn)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

func (b *barePostgres) clients(ctx context.Context, writers []*writerRows, t technique) ([]share, error) {
	return pgShares(ctx, b.pair.client, writers, t, func(c *pgx.Conn) sink { return &pgClient{pgConn{c}, t.bulk == "copy"} })
}

func (b *barePostgres) servers(ctx context.Context, writers []*writerRows, t technique) ([]share, error) {
	return pgShares(ctx, b.pair.server, writers, t, func(c *pgx.Conn) sink { return &pgServer{pgConn{c}, t.bulk == "copy"} })
}

func pgShares(ctx context.Context, url string, writers []*writerRows, t technique, open func(*pgx.Conn) sink) ([]share, error) {
	var shares []share
	for _, hand := range partition(writers, min(t.conns, maxConns)) {
		conn, err := barePgConn(ctx, url)
		if err != nil {
			return nil, err
		}
		shares = append(shares, share{open(conn), hand})
	}
	return shares, nil
}

// pgConn is one connection.
type pgConn struct{ conn *pgx.Conn }

func (c *pgConn) close() error { return c.conn.Close(context.Background()) }

// transact sends statements as one transaction: in one round trip, unless
// there is something to copy.
func (c *pgConn) transact(ctx context.Context, b *pgx.Batch, copies ...copyRows) error {
	if len(copies) > 0 {
		begin := &pgx.Batch{}
		begin.BeginTx(pgx.TxOptions{})
		b.QueuedQueries = append(begin.QueuedQueries, b.QueuedQueries...)
	}
	if err := pgtune.Send(ctx, c.conn, b, pgtune.EstimateSize(b)); err != nil || len(copies) == 0 {
		return err // the batch's end commits
	}
	for _, rows := range copies {
		if err := rows.run(ctx, c.conn); err != nil {
			return err
		}
	}
	_, err := c.conn.Exec(ctx, "commit")
	return err
}

// copyRows are rows for a table's columns.
type copyRows struct {
	table   string
	columns []string
	len     int
	row     func(buf []byte, i int) []byte
}

func (c *copyRows) run(ctx context.Context, conn *pgx.Conn) error {
	return copyInto(ctx, conn, c.table+" ("+strings.Join(c.columns, ", ")+")", rowSource{Columns: len(c.columns), Len: c.len,
		Row: func(buf []byte, i int) ([]byte, error) { return c.row(buf, i), nil }})
}

// pgClient writes outbox rows.
type pgClient struct {
	pgConn
	copying bool
}

var outboxColumns = []string{"num", "created_at", "first_seq", "bytes", "box", "ops", "state", "batch", "session", "via", "body"}

func (c *pgClient) write(ctx context.Context, t *chunk) error {
	var b pgx.Batch
	w, at := t.writer, now()
	if n := len(t.acked); n > 0 {
		nums, results, slims := make([]int64, n), make([][]byte, n), make([][]byte, n)
		for i, r := range t.acked {
			nums[i], results[i], slims[i] = r.num, r.results, r.slim
		}
		b.Queue(`UPDATE mooring_outbox_batch b SET state = 2, finished_at = $2, attempts = 1, outcomes = w.o, body = w.s
			FROM unnest($3::bigint[], $4::bytea[], $5::bytea[]) AS w(n, o, s) WHERE b.box = $1 AND b.num = w.n`,
			w.box, at, nums, results, slims)
		b.Queue(`UPDATE mooring_outbox_stream SET last_seq = $3 WHERE box = $1 AND session = $2`, w.box, w.session, t.acked[n-1].last())
		b.Queue(`UPDATE mooring_outbox SET low = $2 WHERE box = $1`, w.box, t.acked[n-1].num+1)
	}
	switch n := len(t.new); {
	case n == 0:
	case c.copying:
		return c.transact(ctx, &b, copyRows{"mooring_outbox_batch", outboxColumns, n, func(buf []byte, i int) []byte {
			r := t.new[i]
			buf = pgtune.PutInt(pgtune.PutInt(pgtune.PutInt(pgtune.PutInt(buf, r.num), at), r.first), int64(len(r.body)))
			for _, n := range []int{int(w.box), len(r.events)} {
				buf = binary.BigEndian.AppendUint32(append(buf, 0, 0, 0, 4), uint32(n))
			}
			buf = append(buf, 0, 0, 0, 2, 0, 1)
			buf = pgtune.PutValue(pgtune.PutValue(pgtune.PutValue(buf, r.id), w.session), r.via)
			return pgtune.PutValue(buf, r.body)
		}})
	default:
		nums, firsts, sizes := make([]int64, n), make([]int64, n), make([]int64, n)
		ids, vias, bodies := make([]string, n), make([]string, n), make([][]byte, n)
		for i, r := range t.new {
			nums[i], firsts[i], sizes[i], ids[i], vias[i], bodies[i] = r.num, r.first, int64(len(r.body)), r.id, r.via, r.body
		}
		b.Queue(`INSERT INTO mooring_outbox_batch (num, created_at, first_seq, bytes, box, ops, state, batch, session, via, body)
			OVERRIDING SYSTEM VALUE
			SELECT unnest($5::bigint[]), $2, unnest($6::bigint[]), unnest($7::bigint[]), $1, $3, 1, unnest($8::text[]), $4,
				unnest($9::text[]), unnest($10::bytea[])`,
			w.box, at, len(t.new[0].events), w.session, nums, firsts, sizes, ids, vias, bodies)
	}
	return c.transact(ctx, &b)
}

// pgServer writes the server's rows.
type pgServer struct {
	pgConn
	copying bool
}

var (
	eventColumns = []string{"session", "cursor", "at", "schema", "method", "key", "ref", "actor", "outbox", "op", "batch", "sum", "hash", "payload"}
	entryColumns = []string{"session", "key", "cursor", "schema", "text_len", "grown", "sum", "payload"}
)

func (s *pgServer) write(ctx context.Context, t *chunk) error {
	var b pgx.Batch
	w, at := t.writer, now()
	if n := len(t.acked); n > 0 {
		last := t.acked[n-1]
		b.Queue(`DELETE FROM records WHERE session = $1 AND outbox = $2 AND first_seq <= $3`, w.session, w.outbox, last.last())
		if len(t.new) == 0 {
			b.Queue(`UPDATE streams SET acked_through = $3, acked_op = $4, acked_digest = $5 WHERE session = $1 AND outbox = $2`,
				w.session, w.outbox, last.last(), last.lastOp, last.digest)
			return s.transact(ctx, &b)
		}
		b.Queue(`UPDATE streams SET last_seq = $3, acked_through = $4, acked_op = $5, acked_digest = $6 WHERE session = $1 AND outbox = $2`,
			w.session, w.outbox, t.new[len(t.new)-1].last(), last.last(), last.lastOp, last.digest)
	} else {
		b.Queue(`UPDATE streams SET last_seq = $3 WHERE session = $1 AND outbox = $2`, w.session, w.outbox, t.new[len(t.new)-1].last())
	}
	newest := t.new[len(t.new)-1]
	b.Queue(`UPDATE sessions SET cursor = $2, head = $3, updated = $4 WHERE id = $1`, w.session, newest.cursor(), newest.head(), at)
	n := len(t.new)
	firsts, lasts, records := make([]int64, n), make([]int64, n), make([][]byte, n)
	for i, r := range t.new {
		firsts[i], lasts[i], records[i] = r.first, r.last(), r.record
	}
	b.Queue(`INSERT INTO records (session, outbox, first_seq, last_seq, outcomes)
		SELECT $1, $2, unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bytea[])`,
		w.session, w.outbox, firsts, lasts, records)
	if s.copying {
		return s.transact(ctx, &b, copyEvents(t), copyEntries(t))
	}
	queueEvents(&b, t)
	return s.transact(ctx, &b)
}

// copyEvents and copyEntries are a transaction's rows.
func copyEvents(t *chunk) copyRows {
	return copyRows{"events", eventColumns, t.ops(), each(t, func(buf []byte, r *batchRows, i int) []byte {
		e := &r.events[i]
		buf = pgtune.PutValue(buf, e.Session)
		buf = pgtune.PutInt(pgtune.PutInt(pgtune.PutInt(buf, int64(e.Cursor)), e.At), int64(e.Schema))
		for _, text := range [...]string{e.Method, e.Key, e.Ref, e.Actor, e.Outbox, e.Op, e.Batch} {
			buf = pgtune.PutValue(buf, text)
		}
		return pgtune.PutValue(pgtune.PutValue(pgtune.PutValue(buf, e.Sum[:]), e.Hash[:]), e.Payload)
	})}
}

func copyEntries(t *chunk) copyRows {
	return copyRows{"entries", entryColumns, t.ops(), each(t, func(buf []byte, r *batchRows, i int) []byte {
		e := &r.entries[i]
		buf = pgtune.PutValue(pgtune.PutValue(buf, e.Session), e.Key)
		for _, n := range [...]int64{int64(e.Cursor), int64(e.Schema), int64(e.TextLen), 0} {
			buf = pgtune.PutInt(buf, n)
		}
		return pgtune.PutNull(pgtune.PutValue(buf, e.Sum[:]))
	})}
}

// each goes over a transaction's ops.
func each(t *chunk, row func(buf []byte, r *batchRows, i int) []byte) func(buf []byte, i int) []byte {
	size := len(t.new[0].events)
	return func(buf []byte, i int) []byte { return row(buf, t.new[i/size], i%size) }
}

// queueEvents inserts a transaction's events and entries from arrays; what all
// rows share is sent once.
func queueEvents(b *pgx.Batch, t *chunk) {
	n := t.ops()
	cursors, ats := make([]int64, 0, n), make([]int64, 0, n)
	keys, ops, batches := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	sums, hashes, payloads := make([][]byte, 0, n), make([][]byte, 0, n), make([][]byte, 0, n)
	var first *session.Event
	for _, r := range t.new {
		for i := range r.events {
			e := &r.events[i]
			if first == nil {
				first = e
			}
			cursors, ats, keys = append(cursors, int64(e.Cursor)), append(ats, e.At), append(keys, e.Key)
			ops, batches = append(ops, e.Op), append(batches, e.Batch)
			sums, hashes, payloads = append(sums, e.Sum[:]), append(hashes, e.Hash[:]), append(payloads, e.Payload)
		}
	}
	b.Queue(`INSERT INTO events (session, cursor, at, schema, method, key, ref, actor, outbox, op, batch, sum, hash, payload)
		SELECT $1, unnest($7::bigint[]), unnest($8::bigint[]), $2, $3, unnest($9::text[]), $4, $5, $6,
			unnest($10::text[]), unnest($11::text[]), unnest($12::bytea[]), unnest($13::bytea[]), unnest($14::bytea[])`,
		first.Session, int64(first.Schema), first.Method, first.Ref, first.Actor, first.Outbox,
		cursors, ats, keys, ops, batches, sums, hashes, payloads)
	b.Queue(`INSERT INTO entries (session, key, cursor, schema, text_len, grown, sum)
		SELECT $1, unnest($4::text[]), unnest($5::bigint[]), $2, $3, 0, unnest($6::bytea[])`,
		first.Session, int64(first.Schema), int64(t.new[0].entries[0].TextLen), keys, cursors, sums)
}
