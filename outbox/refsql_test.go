package outbox

// What the statements about refs change, and what they leave alone.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// oldRow puts a ref's row into the outbox as it is.
func oldRow(t *testing.T, b *Box, row refRow) refRow {
	t.Helper()
	if row.text == "" {
		ref := testAddress.New(newSession())
		row.id, row.text = ref.ID, ref.Text()
	}
	err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
		made, err := b.t.insertRef(ctx, q, &row)
		if !made {
			t.Errorf("%s is there already", row.id)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// rowOf is a ref's row as it is now, after change, if that is not nil.
func rowOf(t *testing.T, b *Box, id string, change func(ctx context.Context, q querier) error) (row refRow) {
	t.Helper()
	err := b.w.do(limited(t), func(ctx context.Context, q querier) (err error) {
		if change != nil {
			err = change(ctx, q)
		}
		if err == nil {
			row, err = b.t.ref(ctx, q, id, "")
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
		known := refRow{role: Shared, external: "out", label: "mine", redemption: "r", saved: 3, confirmed: 1000, rights: capability.Read, restricted: true, dead: fault.Revoked}
		for name, c := range map[string]struct {
			status RefStatus
			want   func(*refRow)
		}{
			"dead":      {RefStatus{Dead: fault.Expired}, func(r *refRow) { r.dead = fault.Expired }},
			"confirmed": {RefStatus{Confirmed: time.UnixMilli(2000)}, func(r *refRow) { r.confirmed, r.dead = 2000, fault.None }},
			"rights":    {RefStatus{Confirmed: time.UnixMilli(2000), Rights: capability.Share}, func(r *refRow) { r.confirmed, r.rights, r.dead = 2000, capability.Share, fault.None }},
		} {
			for role, update := range map[Role]bool{Shared: true, SessionOwner: true, roleGone: false, roleRotated: false, roleRotating: false} {
				row := known
				row.role = role
				row = oldRow(t, b, row)
				want := row
				if update {
					c.want(&want)
				}
				got := rowOf(t, b, row.id, func(_ context.Context, q querier) error {
					b.t.writeRefStatus(q, []refUpdate{{row.id, c.status}})
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
		old := oldRow(t, b, refRow{role: Shared, label: "old", redemption: "1"})
		young := old
		young.label, young.redemption = "young", "2"
		insert := func(want bool) func(context.Context, querier) error {
			return func(ctx context.Context, q querier) error {
				made, err := b.t.insertRef(ctx, q, &young)
				if made != want {
					t.Errorf("written (%t), want %t", made, want)
				}
				return err
			}
		}
		if got := rowOf(t, b, old.id, insert(false)); got != old {
			t.Errorf("%+v", got)
		}
		rowOf(t, b, old.id, func(_ context.Context, q querier) error { b.t.dropRef(q, old.id, 1); return nil })
		if got := rowOf(t, b, old.id, insert(true)); got != young {
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
			row     refRow
			refused bool
		}{
			"never made":     {refRow{role: SessionOwner, dead: fault.Rejected}, true},
			"living":         {refRow{role: SessionOwner}, false},
			"made, and dead": {refRow{role: SessionOwner, dead: fault.Revoked, confirmed: 1}, false},
			"another's":      {refRow{role: Shared, dead: fault.Rejected}, false},
		} {
			row := oldRow(t, b, c.row)
			var refs []string
			got := rowOf(t, b, row.id, func(ctx context.Context, q querier) error {
				err := q.query(ctx, sqlOldRefs, []any{b.t.box, 1}, func(scan scanner) error {
					var id, role string
					err := scan(&id, &role)
					refs = append(refs, id)
					return err
				})
				q.enqueue(b.t.db.refs().dropRefused, []any{b.t.box, row.id, 1}, nil)
				return err
			})
			if refused := got.role == roleGone; refused != c.refused || !refused && got != row {
				t.Errorf("%s: %+v", name, got)
			}
			if found := len(refs) > 0; found != c.refused {
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
		err := b.w.do(limited(t), func(ctx context.Context, q querier) error {
			if _, err := q.exec(ctx, "UPDATE mooring_outbox_ref SET change = change + $2 WHERE box = $1", b.t.box, add); err != nil {
				return err
			}
			return q.query(ctx, "SELECT change > txid_current() FROM mooring_outbox_ref WHERE box = $1 AND id = $2", []any{b.t.box, ref.ID},
				func(scan scanner) error { return scan(&ahead) })
		})
		if err != nil {
			t.Fatal(err)
		}
		return ahead
	}
	if !ahead(100_000) {
		t.Error("it is not ahead")
	}
	if tk, _, err := b.tryAcquireLease(limited(t), &leaseWaiter{step: 1}); err != nil || tk == nil {
		t.Fatal(tk, err)
	}
	if ahead(0) {
		t.Error("it is still ahead")
	}
}

// TestWhatStaysOfAPutRef, and of one that a server has told of.
func TestWhatStaysOfAPutRef(t *testing.T) {
	t.Parallel()
	ref := testAddress.New(newSession())
	other := ref.With(ref.ID, capability.NewSecret())
	row := func(ref capability.Ref, role Role) refRow {
		return refRow{id: ref.ID, text: ref.Text(), role: role, redemption: "r", saved: 1, rights: capability.Read, restricted: true}
	}
	old := row(ref, Shared)
	old.confirmed = 1000

	put := refRow{id: ref.ID, text: ref.Text(), role: SessionOwner, redemption: "another", saved: 2, confirmed: 2000}
	want := put
	want.redemption, want.saved = "r", 1
	if got, err := mergePut(old, put); got != want || err != nil {
		t.Errorf("put with a word: %+v, %v", got, err)
	}
	put.confirmed = 0
	want.confirmed, want.rights, want.restricted = 1000, capability.Read, true
	if got, err := mergePut(old, put); got != want || err != nil {
		t.Errorf("put without a word: %+v, %v", got, err)
	}

	update := refRow{id: ref.ID, text: other.Text(), confirmed: 3000}
	first := row(ref, Shared)
	if got, err := mergeConfirmed(first, update, ref.Address()); got.rights != 0 || got.restricted || got.confirmed != 3000 || err != nil {
		t.Errorf("another secret has the rights of the one before: %+v, %v", got, err)
	}
	damaged := old
	damaged.text = "junk"
	if got, err := mergeConfirmed(damaged, update, ref.Address()); got != damaged || !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("in the place of one that cannot be read: %+v, %v", got, err)
	}
	for _, role := range []Role{roleGone, roleRotated, roleRotating} {
		was := row(ref, role)
		if got, err := mergeConfirmed(was, refRow{id: ref.ID, text: ref.Text(), confirmed: 3000}, ref.Address()); got != was || err != nil {
			t.Errorf("a word of one that is %s: %+v, %v", role, got, err)
		}
		if got, err := mergePut(was, put); err != nil || role != roleGone && got != was {
			t.Errorf("put over one that is %s: %+v, %v", role, got, err)
		}
	}
}

// TestWhatSendersAreToldOf: each of these is for the sender to look at, whatever process
// that is.
func TestWhatSendersAreToldOf(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	ctx := limited(t)
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "LISTEN "+notifyChannel); err != nil {
		t.Fatal(err)
	}
	session := newSession()
	ref := testAddress.New(session)
	for what, f := range []func() error{
		func() error { return b.PutRef(ctx, ref, RefMeta{}) },
		func() error { _, err := b.BeginRotation(ctx, ref.ID, ref.New(session)); return err },
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
