package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/session"
)

// TestRedemptionsWaitForNobodyElses: while somebody has a ref's row, or the end of its
// audit, others are redeemed.
func TestRedemptionsWaitForNobodyElses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := pgtest.URL(t)
	st, err := Open(ctx, Config{URL: url, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	holder, watching := connect(), connect()

	space, elsewhere := capability.SpacePrefix+ulid.Make().String(), capability.SpacePrefix+ulid.Make().String()
	held, other := capability.ServerID(space, ulid.Make()), capability.ServerID(elsewhere, ulid.Make())
	err = st.Update(ctx, func(tx session.Tx) error {
		return tx.Save(ctx, &session.Changes{Grants: []*capability.Grant{{ID: held, Target: space}, {ID: other, Target: elsewhere}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	redeem := func(ref, redemption string) error {
		return st.Redeem(ctx, ref, redemption, "", func(*session.Redemption) error { return nil })
	}
	if err := redeem(held, "first"); err != nil {
		t.Fatal(err)
	}
	for name, lock := range map[string]string{
		"row":   `SELECT 1 FROM grants WHERE target = $1 FOR UPDATE`,
		"audit": `SELECT 1 FROM audit_heads WHERE target = $1 FOR UPDATE`,
	} {
		tx, err := holder.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, lock, space)
		}
		if err != nil {
			t.Fatal(err)
		}
		late := make(chan error, 1)
		go func() { late <- redeem(held, name) }()
		until.True(t, "it waits", func() bool {
			waits := 0
			err := watching.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waits)
			return err == nil && waits == 1
		})
		if err := redeem(other, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(late) > 0 {
			t.Errorf("%s: it does not wait", name)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Error(err)
		}
		if err := <-late; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	sight, err := st.Look(ctx, "", []string{held, other})
	if err != nil || sight.Grants[held].Used != 3 || sight.Grants[other].Used != 2 {
		t.Errorf("counted: %+v, %v", sight, err)
	}
}
