package outbox

// What the statements about refs change, and what they leave alone.

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// oldRow puts a ref's row into the outbox as it is.
func oldRow(t *testing.T, b *Box, row refs.Row) refs.Row {
	t.Helper()
	if row.Text == "" {
		ref := testAddress.New(newSession())
		row.ID, row.Text = ref.ID, ref.Text()
	}
	err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
		made, err := b.t.InsertRef(ctx, q, &row)
		if !made {
			t.Errorf("%s is there already", row.ID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// rowOf is a ref's row as it is now, after change, if that is not nil.
func rowOf(t *testing.T, b *Box, id string, change func(ctx context.Context, q sqlstore.Querier) error) (row refs.Row) {
	t.Helper()
	err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) (err error) {
		if change != nil {
			err = change(ctx, q)
		}
		if err == nil {
			row, err = b.t.Ref(ctx, q, id, "")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// TestNewsOfARef: what an answer does not tell of stays, and so does a ref that is not
// sent through any more, or not yet.
func TestNewsOfARef(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		known := refs.Row{Role: Shared, External: "out", Label: "mine", Redemption: "r", Saved: 3, Confirmed: 1000, Rights: capability.Read, Restricted: true, Dead: fault.Revoked}
		for name, c := range map[string]struct {
			status RefStatus
			want   func(*refs.Row)
		}{
			"dead":      {RefStatus{Dead: fault.Expired}, func(r *refs.Row) { r.Dead = fault.Expired }},
			"confirmed": {RefStatus{Confirmed: time.UnixMilli(2000)}, func(r *refs.Row) { r.Confirmed, r.Dead = 2000, fault.None }},
			"rights":    {RefStatus{Confirmed: time.UnixMilli(2000), Rights: capability.Share}, func(r *refs.Row) { r.Confirmed, r.Rights, r.Dead = 2000, capability.Share, fault.None }},
		} {
			for role, update := range map[refs.Role]bool{Shared: true, SessionOwner: true, refs.RoleGone: false, refs.RoleRotated: false, refs.RoleRotating: false} {
				row := known
				row.Role = role
				row = oldRow(t, b, row)
				want := row
				if update {
					c.want(&want)
				}
				got := rowOf(t, b, row.ID, func(_ context.Context, q sqlstore.Querier) error {
					b.t.WriteRefStatus(q, []refs.Update{{ID: row.ID, Status: c.status}})
					return nil
				})
				if got != want {
					t.Errorf("%s, of one that is %s: %+v, want %+v", name, role, got, want)
				}
			}
		}
	})
}

// TestARefIsWrittenOnce: a new row takes the place of one that is gone, and of no other.
func TestARefIsWrittenOnce(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		old := oldRow(t, b, refs.Row{Role: Shared, Label: "old", Redemption: "1"})
		young := old
		young.Label, young.Redemption = "young", "2"
		insert := func(want bool) func(context.Context, sqlstore.Querier) error {
			return func(ctx context.Context, q sqlstore.Querier) error {
				made, err := b.t.InsertRef(ctx, q, &young)
				if made != want {
					t.Errorf("written (%t), want %t", made, want)
				}
				return err
			}
		}
		if got := rowOf(t, b, old.ID, insert(false)); got != old {
			t.Errorf("%+v", got)
		}
		rowOf(t, b, old.ID, func(_ context.Context, q sqlstore.Querier) error { b.t.DropRef(q, old.ID, 1); return nil })
		if got := rowOf(t, b, old.ID, insert(true)); got != young {
			t.Errorf("in the place of one that is gone: %+v", got)
		}
	})
}

// TestOnlyOwnersRefsOfUnmadeSessionsAreRefused, whatever has happened to a ref since it
// was found to be one.
func TestOnlyOwnersRefsOfUnmadeSessionsAreRefused(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		for name, c := range map[string]struct {
			row     refs.Row
			refused bool
		}{
			"never made":     {refs.Row{Role: SessionOwner, Dead: fault.Rejected}, true},
			"living":         {refs.Row{Role: SessionOwner}, false},
			"made, and dead": {refs.Row{Role: SessionOwner, Dead: fault.Revoked, Confirmed: 1}, false},
			"another's":      {refs.Row{Role: Shared, Dead: fault.Rejected}, false},
		} {
			row := oldRow(t, b, c.row)
			var list []string
			got := rowOf(t, b, row.ID, func(ctx context.Context, q sqlstore.Querier) error {
				err := q.Query(ctx, sqlstore.SQLOldRefs, []any{b.t.Box, 1}, func(scan sqlstore.Scanner) error {
					var id, role string
					err := scan(&id, &role)
					list = append(list, id)
					return err
				})
				q.Enqueue(b.t.DB.Refs().DropRefused, []any{b.t.Box, row.ID, 1}, nil)
				return err
			})
			if refused := got.Role == refs.RoleGone; refused != c.refused || !refused && got != row {
				t.Errorf("%s: %+v", name, got)
			}
			if found := len(list) > 0; found != c.refused {
				t.Errorf("%s: found (%t)", name, found)
			}
		}
	})
}

// TestStampsOfAnotherDatabase: a database that was restored to another server counts from
// where that one is. A takeover brings down what is ahead, else nobody would find it.
func TestStampsOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "postgres").open(t, quick())
	ref := testRef(t, b, newSession(), RefMeta{})
	ahead := func(add int) (ahead bool) {
		t.Helper()
		err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
			if _, err := q.Exec(ctx, "UPDATE mooring_outbox_ref SET change = change + $2 WHERE box = $1", b.t.Box, add); err != nil {
				return err
			}
			return q.Query(ctx, "SELECT change > txid_current() FROM mooring_outbox_ref WHERE box = $1 AND id = $2", []any{b.t.Box, ref.ID},
				func(scan sqlstore.Scanner) error { return scan(&ahead) })
		})
		if err != nil {
			t.Fatal(err)
		}
		return ahead
	}
	if !ahead(100_000) {
		t.Error("it is not ahead")
	}
	if tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{Step: 1}); err != nil || tk == nil {
		t.Fatal(tk, err)
	}
	if ahead(0) {
		t.Error("it is still ahead")
	}
}

// TestNotificationsToSenders: each of these is for the sender to look at, whatever process
// that is.
func TestNotificationsToSenders(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	ctx := limited(t)
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "LISTEN "+postgres.NotifyChannel); err != nil {
		t.Fatal(err)
	}
	session := newSession()
	ref := testAddress.New(session)
	for what, f := range []func() error{
		func() error { return b.PutRef(ctx, ref, RefMeta{}) },
		func() error { _, err := b.beginRotation(ctx, ref.ID, ref.New(session)); return err },
		func() error { _, err := b.Commit(ctx, Batch{Session: session, Ops: []Op{put("1")}}); return err },
		func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := b.CommitTx(ctx, tx, Batch{Session: session, Ops: []Op{put("1")}})
				return err
			})
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Conn().WaitForNotification(ctx); err != nil || n.Payload != b.id {
			t.Fatalf("%d: %+v, %v", what, n, err)
		}
	}
}
