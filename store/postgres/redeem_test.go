package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/session"
)

func connect(ctx context.Context, t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// waiting counts those that wait for a lock.
func waiting(ctx context.Context, t *testing.T, url string) func() int {
	t.Helper()
	conn := connect(ctx, t, url)
	return func() (n int) {
		t.Helper()
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

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
	holder, waits := connect(ctx, t, url), waiting(ctx, t, url)

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
		until.True(t, "it waits", func() bool { return waits() == 1 })
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

// TestRedemptionsTogetherHoldNobodyUp: of redemptions that share a transaction one waits for a row that
// somebody has; none of the others' rows is held meanwhile, so who has the one may have them all.
func TestRedemptionsTogetherHoldNobodyUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := pgtest.URL(t)
	st, err := Open(ctx, Config{URL: url, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	waits := waiting(ctx, t, url)

	const many, each = 12, 2 // redemptions of one ref: those that wait do so together
	space := capability.SpacePrefix + ulid.Make().String()
	var refs []string
	var grants []*capability.Grant
	for range many {
		refs = append(refs, capability.ServerID(space, ulid.Make()))
		grants = append(grants, &capability.Grant{ID: refs[len(refs)-1], Target: space})
	}
	last := slices.Max(refs) // a group locks it after the others
	if err := st.Update(ctx, func(tx session.Tx) error { return tx.Save(ctx, &session.Changes{Grants: grants}) }); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(ctx, t, url).Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, "SET LOCAL deadlock_timeout = '10ms'") // it is the one that would be told
	}
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT 1 FROM grants WHERE target = $1 AND tail = right($2, length(tail)) FOR UPDATE", space, last)
	}
	if err != nil {
		t.Fatal(err)
	}

	var first sync.WaitGroup // all come at once
	first.Add(many * each)
	ended := make(chan error, many*each)
	for i := range many * each {
		go func() {
			looked := false
			ended <- st.Redeem(ctx, refs[i%many], fmt.Sprint(i), "", func(*session.Redemption) error {
				if !looked {
					looked = true
					first.Done()
					first.Wait()
				}
				return nil
			})
		}()
	}
	until.True(t, "some wait", func() bool { return waits() > 0 })
	if _, err := tx.Exec(ctx, "SELECT 1 FROM grants WHERE target = $1 FOR UPDATE", space); err != nil {
		t.Errorf("who has one ref cannot have the others: %v", err)
	}
	_ = tx.Rollback(ctx)
	for range many * each {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	sight, err := st.Look(ctx, "", refs)
	if err != nil {
		t.Fatal(err)
	}
	for ref, g := range sight.Grants {
		if g.Used != each {
			t.Errorf("%s was counted %d times", ref, g.Used)
		}
	}
}
