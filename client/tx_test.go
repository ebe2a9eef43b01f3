//go:build unix

// Batches inside the caller's own Postgres transaction.

package client_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// exampleDatabase makes a Postgres database for one example.
func exampleDatabase(ctx context.Context) (dsn string, drop func()) {
	server, err := pgtest.ServerURL(ctx)
	if err != nil {
		log.Fatal(err)
	}
	name := fmt.Sprintf("mooring_example_%x", ulid.Make())
	run := func(sql string) {
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, sql); err != nil {
			log.Fatal(err)
		}
	}
	run("CREATE DATABASE " + name + " TEMPLATE template0")
	u, err := url.Parse(server)
	if err != nil {
		log.Fatal(err)
	}
	u.Path = "/" + name
	return u.String(), func() { run("DROP DATABASE " + name + " WITH (FORCE)") }
}

// An agent's own state and what it tells others change together.
func ExampleBatch_CommitTx() {
	ctx := context.Background()
	owner, _, stop := exampleServer()
	defer stop()
	dsn, drop := exampleDatabase(ctx)
	defer drop()
	c, err := client.Open(ctx, client.Config{OpenOutbox: pgclient.Outbox(dsn, "")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	space, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	s, create := space.Create(client.CreateOptions{})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}

	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	var ticket client.Ticket
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE tasks (name text, done bool)"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO tasks VALUES ('answer', true)"); err != nil {
			return err
		}
		b := s.Batch()
		b.Put("message/msg_1", map[string]string{"text": "the task is done"})
		ticket, err = b.CommitTx(ctx, tx)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Status)
	// Output: applied
}

func TestRollbackSendsNothingAndOrderIsKept(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	dsn := pgtest.URL(t)
	c := r.open(t, "a", func(cfg *client.Config) { cfg.OpenOutbox = pgclient.Outbox(dsn, "") })
	s := r.newSession(t, c)
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	var last client.Ticket
	for i := range 6 {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for j := range 2 {
			b := s.Batch()
			b.Put(message(10*i+j), object{"i": i})
			ticket, err := b.CommitTx(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				last = ticket
			}
		}
		if i%2 == 0 {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := waited(t, last).Err(); err != nil {
		t.Fatal(err)
	}
	page, err := s.Events(t.Context(), 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, e := range page.Events {
		keys = append(keys, e.Key)
	}
	want := []string{message(0), message(1), message(20), message(21), message(40), message(41)}
	if fmt.Sprint(keys) != fmt.Sprint(want) {
		t.Errorf("the log has %v, want %v", keys, want)
	}
}

// TestSessionsMadeInATransactionOrNotAtAll: a creation that is rolled back leaves no
// ref, whose name would be in the way of the next one's.
func TestSessionsMadeInATransactionOrNotAtAll(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	dsn := pgtest.URL(t)
	c := r.open(t, "a", func(cfg *client.Config) { cfg.OpenOutbox = pgclient.Outbox(dsn, "") })
	sp := r.space(t, c)
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	var last *client.Session
	var ticket client.Ticket
	for i := range 3 {
		var b *client.Batch
		last, b = sp.Create(client.CreateOptions{External: "mine"})
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ticket, err = b.CommitTx(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if i == 2 {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.SessionByID(t.Context(), "mine"); err != nil || got.ID() != last.ID() {
		t.Errorf("by its name: %v", err)
	}
	if refs, err := c.Outbox().Refs(t.Context()); err != nil || len(refs) != 2 {
		t.Errorf("%d refs are kept, %v", len(refs), err)
	}
}
