package outbox

// A caller's pool that is nearly empty: inside a transaction the outbox takes no
// other connection.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
)

// narrowBox is pgBox on a pool that has one connection to give.
func narrowBox(t *testing.T, cfg Config) (*Box, *pgxpool.Pool) {
	pc, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	pc.MaxConns = 2 // migrations need both
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b, err := NewPostgres(context.Background(), pool, "box", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	held, err := pool.Acquire(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	return b, pool
}

func TestCommitTxTakesNoOtherConnection(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Limits.Rows = 3
	b, pool := narrowBox(t, cfg)
	session := withSession(t, b)
	space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
	made := newSession()
	owner := testRef(t, b, made, RefMeta{Role: SessionOwner})
	b.refs.forget()
	tx := begin(t, pool)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var tickets []Ticket
	for i, batch := range []Batch{
		{Session: session, Ops: []Op{put("1")}},
		{Session: made, Via: space.ID, Ops: []Op{{Method: "create", Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}}}}},
		{Session: made, Ops: []Op{put("2")}},
	} {
		ticket, err := b.CommitTx(ctx, tx, batch)
		if err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
		tickets = append(tickets, ticket)
	}
	if _, err := b.CommitTx(ctx, tx, Batch{Session: newSession(), Ops: []Op{put("3")}}); !errors.Is(err, fault.NotFound) {
		t.Errorf("no ref: %v", err)
	}
	if _, err := b.CommitTx(ctx, tx, Batch{Session: session, Ops: []Op{put("3")}}); !errors.Is(err, fault.OutboxFull) {
		t.Errorf("full: %v", err)
	}
	end(t, tx)
	if rows, err := b.List(ctx, Filter{}); err != nil || len(rows) != 3 || rows[2].Batch != tickets[2].Batch {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestDecidingTakesNoOtherConnection has a create that is skipped while the
// sender looks at it: how its session is reached is read where it looks.
func TestDecidingTakesNoOtherConnection(t *testing.T) {
	t.Parallel()
	b, _ := narrowBox(t, quick())
	srv := newFakeServer()
	one, two := withSession(t, b), newSession()
	space := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
	owner := testRef(t, b, two, RefMeta{Role: SessionOwner})
	x := commit(t, b, Batch{Session: one, Ops: []Op{{Method: "reject"}}})
	y := commit(t, b, Batch{Session: two, Ops: []Op{
		{Method: "create", Args: []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner.ID)}}, DependsOn: x.Ops}}})
	srv.after = func(*ledger.Batch) bool { b.refs.forget(); return false }
	run(t, b, srv)
	if o := wait(t, b, y)[0]; o.Status != ledger.Skipped {
		t.Errorf("%+v", o)
	}
	err := b.db.read(limited(t), func(q querier) error {
		st, err := b.t.stream(limited(t), q, two)
		if err == nil && (st.spaceRef != space.ID || st.ownerRef != owner.ID) {
			t.Errorf("%+v", st)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
