package outbox_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/outbox/sqliteoutbox"
)

// What is committed is durable, with no server anywhere.
func ExampleBox_Commit() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	box, err := sqliteoutbox.Open(ctx, filepath.Join(dir, "outbox.db"), outbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close()

	const session = "ses_01M7XHJRC423DKMC0KKDH3E000"
	ref := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}.New(session)
	if err := box.PutRef(ctx, ref, outbox.RefMeta{Role: outbox.SessionOwner}); err != nil {
		log.Fatal(err)
	}

	id := outbox.NewBatchID()
	ticket, err := box.Commit(ctx, outbox.Batch{ID: id, Session: session, Ops: []outbox.Op{
		{Method: "put", Args: []ledger.Arg{
			{Name: "key", JSON: []byte(`"message/msg_1"`)}, {Name: "payload", JSON: []byte(`{"role":"user"}`)}}},
		// The second op applies only where the first one left the session.
		{Method: "remove", Args: []ledger.Arg{{Name: "key", JSON: []byte(`"message/msg_1"`)}},
			DependsOn: []string{outbox.OpID(id, 0)}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	rows, err := box.List(ctx, outbox.Filter{Batch: ticket.Batch})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rows {
		fmt.Println(r.Index, r.Method, r.State)
	}
	// Output:
	// 0 put pending
	// 1 remove pending
}

// An agent's own state and what it tells others change together, or not at all.
func ExampleBox_CommitTx() {
	save := func(ctx context.Context, pool *pgxpool.Pool, box *outbox.Box, session, text string) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, "INSERT INTO notes (text) VALUES ($1)", text); err != nil {
			return err
		}
		_, err = box.CommitTx(ctx, tx, outbox.Batch{Session: session, Ops: []outbox.Op{{Method: "put", Args: []ledger.Arg{
			{Name: "key", JSON: []byte(`"message/msg_1"`)}, {Name: "payload", JSON: fmt.Appendf(nil, `{"text":%q}`, text)}}}}})
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	_ = save
}
