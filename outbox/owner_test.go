package outbox

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// creating is a batch that makes a session called name, with its owner's ref.
func creating(space capability.Ref, name string, more ...ledger.Arg) (Batch, capability.Ref) {
	owner := testAddress.New(newSession())
	args := []ledger.Arg{{Name: "ref", JSON: []byte(`"` + owner.ID + `"`)}, {Name: "hash", JSON: []byte(`"x"`)}}
	return Batch{Session: owner.Target(), Via: space.ID, ViaSecret: space.Secret,
		Owner: &OwnerRef{Ref: owner, Meta: RefMeta{External: name}},
		Ops:   []Op{{Method: intent.MethodCreate, Args: append(args, more...)}}}, owner
}

// TestOwnersRefGoesWithItsBatch: it is there when the batch is, and not otherwise;
// and it lives as the session does.
func TestOwnersRefGoesWithItsBatch(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b, other := p.open(t, quick()), p.open(t, quick())
		ctx := limited(t)
		space := testRef(t, b, newSpace(), RefMeta{})
		run(t, b, newFakeServer())

		batch, owner := creating(space, "refused", ledger.Arg{Name: "refuse", JSON: []byte("true")})
		refused := commit(t, b, batch)
		wait(t, b, refused)
		got, err := b.Ref(ctx, owner.ID)
		if err != nil || got.Dead != fault.AlreadyExists || got.Role != SessionOwner || got.External != "refused" {
			t.Errorf("a refused one's: %+v, %v", got.RefMeta, err)
		}
		for _, box := range []*Box{b, other} {
			if _, err := box.RefFor(ctx, "refused", 0); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("by the name: %v", err)
			}
		}

		batch, made := creating(space, "made")
		wait(t, b, commit(t, b, batch))
		eventually(t, "that it was made is known", func() bool {
			got, err := other.RefFor(ctx, "made", capability.Share)
			return err == nil && got.ID == made.ID && !got.Confirmed.IsZero() && got.Rights == capability.SessionRights
		})
		if got, err := b.Ref(ctx, space.ID); err != nil || got.Confirmed.IsZero() {
			t.Errorf("the space's: %+v, %v", got.RefMeta, err)
		}

		// One that is there already stays, in what this process knows as well.
		batch, stored := creating(space, "new")
		skipped, stored2 := creating(space, "new2")
		skipped.Ops[0].DependsOn = refused.Ops
		for _, ref := range []capability.Ref{stored, stored2} {
			if err := b.PutRef(ctx, ref, RefMeta{Role: SessionOwner, Label: "old"}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Ref(ctx, ref.ID); err != nil {
				t.Fatal(err)
			}
		}
		commit(t, b, batch)
		commit(t, b, skipped)
		for _, ref := range []capability.Ref{stored, stored2} {
			if got, err := b.Ref(ctx, ref.ID); err != nil || got.Label != "old" {
				t.Errorf("one that was stored before: %+v, %v", got.RefMeta, err)
			}
		}

		batch, third := creating(space, "third")
		batch.Ops = append(batch.Ops, Op{Method: "put", Expected: ledger.Expect{Set: true, Ref: &ledger.Ref{Op: newBatchOp()}}})
		if _, err := b.Commit(ctx, batch); fault.CodeOf(err) != fault.BadReference {
			t.Errorf("%v", err)
		}
		if _, err := b.Ref(ctx, third.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("a batch that was not taken leaves %v", err)
		}
		batch, _ = creating(space, "other")
		batch.Owner.Ref = made
		if _, err := b.Commit(ctx, batch); fault.CodeOf(err) != fault.BadArgument {
			t.Errorf("another ref than is minted: %v", err)
		}
		if _, err := b.Commit(ctx, Batch{Session: made.Target(), Owner: &OwnerRef{Ref: made}, Ops: []Op{put("1")}}); fault.CodeOf(err) != fault.BadArgument {
			t.Errorf("nothing is minted: %v", err)
		}
		batch, _ = creating(space, "stolen")
		batch.ViaSecret = capability.NewSecret()
		if _, err := b.Commit(ctx, batch); fault.CodeOf(err) != fault.UnknownRef {
			t.Errorf("with another secret: %v", err)
		}

		if _, err := b.sender.Sweep(ctx, time.Now().Add(time.Hour).UnixMilli(), 100); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Ref(ctx, owner.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("after the batch is swept: %v", err)
		}
		if _, err := other.Ref(ctx, made.ID); err != nil {
			t.Errorf("and that of the one that was made: %v", err)
		}
	})
}

func newBatchOp() string { return opid.Of(opid.NewBatch(), 0) }

// TestRefsThatDie: a ref that was denied as dead is known to be so.
func TestRefsThatDie(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		ctx := limited(t)
		session := newSession()
		first, second := testRef(t, b, session, RefMeta{}), testRef(t, b, session, RefMeta{})
		run(t, b, newFakeServer())
		wait(t, b, commit(t, b, Batch{Session: session, Via: second.ID, Ops: []Op{put("1"), {Method: "deny"}}}))
		eventually(t, "it is known", func() bool {
			got, err := b.Ref(ctx, second.ID)
			return err == nil && got.Dead == fault.Revoked
		})
		if got, err := b.RefFor(ctx, session, 0); err != nil || got.ID != first.ID {
			t.Errorf("the one to use: %v, %v", got.Ref, err)
		}
	})
}

// TestCreatingInTransactions: as many of them as the pool has connections, all at
// once; and what is rolled back leaves nothing.
func TestCreatingInTransactions(t *testing.T) {
	t.Parallel()
	const conns = 4
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(limited(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b, err := newPostgres(limited(t), pool, "", quick())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	ctx := limited(t)
	space := testRef(t, b, newSpace(), RefMeta{})
	b.refs.Forget() // the first caller has to read them, on its transaction's connection
	var all, ready sync.WaitGroup
	ready.Add(conns)
	for i := range conns {
		all.Go(func() {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				ready.Done()
				return
			}
			ready.Done()
			ready.Wait()
			batch, owner := creating(space, "mine")
			if _, err := b.CommitTx(ctx, tx, batch); err != nil {
				t.Error(err)
			}
			// It is there for the transaction, and for nobody else.
			if _, err := b.CommitTx(ctx, tx, Batch{Session: owner.Target(), Via: owner.ID, Ops: []Op{put("1")}}); err != nil {
				t.Errorf("in the same transaction: %v", err)
			}
			if len(b.refs.Get(owner.ID)) > 0 {
				t.Error("it is remembered before it is there")
			}
			end := tx.Rollback
			if i == 0 {
				end = tx.Commit
			}
			if err := end(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if refs, err := b.Refs(ctx); err != nil || len(refs) != 2 {
		t.Errorf("%d refs are kept, %v", len(refs), err)
	}
	if _, err := b.RefFor(ctx, "mine", 0); err != nil {
		t.Errorf("by the name: %v", err)
	}
}

// TestTransactionsThatSeeThePast: a transaction with a snapshot of its own reads less
// than there is, and that is not taken for everything.
func TestTransactionsThatSeeThePast(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	ctx := limited(t)
	other := newSession()
	testRef(t, b, other, RefMeta{})
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SELECT 1"); err != nil { // its snapshot is taken
		t.Fatal(err)
	}
	session := newSession()
	ref := testRef(t, b, session, RefMeta{})
	b.refs.Forget()
	if _, err := b.CommitTx(ctx, tx, Batch{Session: other, Ops: []Op{put("1")}}); err != nil {
		t.Errorf("under a ref that it can see: %v", err)
	}
	if got, err := b.RefFor(ctx, session, 0); err != nil || got.ID != ref.ID {
		t.Errorf("the newer one: %v", err)
	}
}

// TestRefsThatATransactionHasReadBeside: one that looks refs up, and stores one, while
// later transactions come and go. Its own ref must not be taken for one that was seen.
func TestRefsThatATransactionHasReadBeside(t *testing.T) {
	t.Parallel()
	b, pool, _ := pgBox(t, quick())
	ctx := limited(t)
	space := testRef(t, b, newSpace(), RefMeta{})
	b.refs.Forget()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	batch, owner := creating(space, "mine")
	if _, err := b.CommitTx(ctx, tx, batch); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "SELECT txid_current()"); err != nil { // a later one, which is through
		t.Fatal(err)
	}
	for range 2 { // it asks for its own ref, which is remembered by nobody
		if _, err := b.CommitTx(ctx, tx, Batch{Session: owner.Target(), Via: owner.ID, Ops: []Op{put("1")}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := b.RefFor(ctx, "mine", 0); err != nil || got.ID != owner.ID {
		t.Errorf("after it: %v", err)
	}
}
