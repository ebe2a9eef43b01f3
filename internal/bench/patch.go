package main

// What a patch of one member of a large value costs beside a put of that member alone: bytes sent, received and stored.

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mooring-rpc/mooring/client"
)

// patchRow is one line of the table: bytes for each change. Aim is 0 where there is none.
type patchRow struct {
	db, what   string
	put, patch float64
	aim        float64
}

// largeMembers members of largeText bytes make a value of about 100 KB.
const (
	largeMembers = 1000
	largeText    = 85
	patchAim     = 2
)

// noise is text of n bytes that no database compresses much.
func noise(n int) string {
	text := ""
	for len(text) < n {
		text += rand.Text()
	}
	return text[:n]
}

// change is a member: what is put alone, and the patch. Its length varies, since SQLite spares itself most of writing a
// value that keeps its length.
func change(member, n int) json.RawMessage {
	return fmt.Appendf(nil, `{"member%04d":%q}`, member, noise(largeText-5+n%11))
}

// patchCost is what some changes took.
type patchCost struct{ sent, received, log, stored, written int64 }

func (b *bench) patch(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	space, err := b.openCounted(ctx, rig, "patcher")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, space.client.Close()) }()
	home, err := space.client.Space(ctx, rig.owner)
	if err != nil {
		return err
	}
	s, batch := home.Create(client.CreateOptions{})
	value := []byte{'{'}
	for i := range largeMembers {
		value = fmt.Appendf(value, `"member%04d":%q,`, i, noise(largeText))
	}
	value[len(value)-1] = '}'
	batch.Put("small/1", change(42, 0))
	batch.Put("large/1", json.RawMessage(value))
	batch.Patch("large/1", change(42, 1)) // from now on the value is in its entry
	if _, err := batch.CommitWait(ctx); err != nil {
		return err
	}
	other, err := b.openCounted(ctx, rig, "follower")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.client.Close()) }()
	follower, err := other.client.Session(ctx, s.Ref())
	if err != nil {
		return err
	}
	put, err := b.patchCost(ctx, rig, s, follower, space, other, func(b *client.Batch, n int) { b.Put("small/1", change(42, n)) })
	if err != nil {
		return err
	}
	patch, err := b.patchCost(ctx, rig, s, follower, space, other, func(b *client.Batch, n int) { b.Patch("large/1", change(42, n)) })
	if err != nil {
		return err
	}
	mixed, err := b.patchCost(ctx, rig, s, follower, space, other, func(b *client.Batch, n int) { b.Patch("large/1", change(n*37%largeMembers, n)) })
	if err != nil {
		return err
	}
	n := float64(b.opts.appends)
	for _, row := range []struct {
		what string
		of   func(*patchCost) int64
		aim  float64
	}{
		{"the writer sends", func(c *patchCost) int64 { return c.sent }, patchAim},
		{"a follower receives", func(c *patchCost) int64 { return c.received }, patchAim},
		{"payloads in the log", func(c *patchCost) int64 { return c.log }, patchAim},
		{"the database grows, vacuumed", func(c *patchCost) int64 { return c.stored }, patchAim},
		{"the database writes", func(c *patchCost) int64 { return c.written }, patchAim},
	} {
		r.patch = append(r.patch, patchRow{db: db, what: row.what, put: float64(row.of(put)) / n, patch: float64(row.of(patch)) / n, aim: row.aim})
	}
	r.patch = append(r.patch, patchRow{db: db, what: "the database writes, another member each time", put: float64(put.written) / n, patch: float64(mixed.written) / n})
	b.progress.Printf("%s, %d patches of a value of %d bytes", db, b.opts.appends, len(value))
	return nil
}

// countedClient is a client whose traffic is counted.
type countedClient struct {
	traffic
	client *client.Client
}

func (b *bench) openCounted(ctx context.Context, rig *rig, name string) (*countedClient, error) {
	c := &countedClient{}
	config := rig.config(name)
	config.DialContext = c.dial
	var err error
	c.client, err = client.Open(ctx, config)
	return c, err
}

// patchCost makes changes one after the other, while another client follows.
func (b *bench) patchCost(ctx context.Context, rig *rig, s, follower *client.Session, writer, other *countedClient, change func(*client.Batch, int)) (*patchCost, error) {
	info, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}
	from := info.Session.Cursor
	to := from + uint64(b.opts.appends)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	c := &patchCost{}
	go func() {
		ended <- follower.Subscribe(ctx, client.SubscribeOptions{After: from - 1}, func(e client.Event) error {
			switch {
			case e.Cursor == from:
				close(ready)
				return nil
			case e.Cursor == to:
				c.log += int64(len(e.Payload))
				return errFollowed
			}
			c.log += int64(len(e.Payload))
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		return nil, err
	}
	stored, err := rig.size(ctx)
	if err != nil {
		return nil, err
	}
	written, err := rig.databaseWrites(ctx)
	if err != nil {
		return nil, err
	}
	sent, received := writer.sent.Load(), other.received.Load()
	for n := range b.opts.appends {
		batch := s.Batch()
		change(batch, n)
		if _, err := batch.CommitWait(ctx); err != nil {
			return nil, err
		}
	}
	if err := <-ended; !errors.Is(err, errFollowed) {
		return nil, err
	}
	c.sent, c.received = writer.sent.Load()-sent, other.received.Load()-received
	after, err := rig.databaseWrites(ctx)
	if err != nil {
		return nil, err
	}
	c.written = after - written
	if err := writer.client.Drain(ctx, nil); err != nil {
		return nil, err
	}
	now, err := rig.size(ctx)
	c.stored = now - stored
	return c, err
}

// database opens the server's database beside it.
func (r *rig) database() (*sql.DB, error) {
	if r.pair == nil {
		return sql.Open("sqlite", filepath.Join(r.dir, "server", "mooring.db"))
	}
	conf, err := pgx.ParseConfig(r.pair.server)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*conf), nil
}

// size is how large the server's database is, without what it has free.
func (r *rig) size(ctx context.Context) (size int64, err error) {
	db, err := r.database()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	query := `SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`
	if r.pair != nil {
		if _, err := db.ExecContext(ctx, "VACUUM FULL"); err != nil {
			return 0, err
		}
		query = `SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace`
	}
	return size, db.QueryRowContext(ctx, query).Scan(&size)
}

// databaseWrites is how much the server's database has written: to its write-ahead log on Postgres, to its files on SQLite.
func (r *rig) databaseWrites(ctx context.Context) (bytes int64, err error) {
	if r.pair == nil {
		return r.written()
	}
	db, err := r.database()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var text string
	if err := db.QueryRowContext(ctx, `SELECT pg_current_wal_lsn() - '0/0'`).Scan(&text); err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}
