package outbox

// Commit: check a batch, resolve its references, and write it durably as one row.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/refs"
	"github.com/mooring-rpc/mooring/outbox/internal/sender"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// Commit makes a batch durable and returns. It needs no server, but may send to one and write
// other callers' batches: Config's Logger and the Link are also called on this goroutine. A
// batch that can never be sent is refused and not stored: Malformed, TooLarge, BadReference,
// NotFound (no ref to send through), OutboxFull, DiskFull. An op that refers to one which is
// known not to have applied is accepted and skipped at once. References to known results become
// values here.
//
// If ctx ends first the error is Canceled and nothing is committed. Committing a batch again
// under the same id gives the same Ticket; another batch under that id, or an op id that is in
// use, is refused with AlreadyExists. If the database connection is lost so that it is not
// known whether the batch was committed, the error is Unavailable and names the id to commit it
// again under.
//
// The Box owns the memory that the batch points to (its Ops and their arguments) from then on:
// the batch is sent from there, so the caller must not change it.
func (b *Box) Commit(ctx context.Context, batch Batch) (Ticket, error) {
	leave, err := b.enter()
	if err != nil {
		return Ticket{}, err
	}
	defer leave()
	bd, err := b.checkBatch(&batch)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	var res intent.Resolution
	if bd.CustomIDs || bd.HasExternalRefs() {
		err := b.read(ctx, "commit", func(ctx context.Context, q sqlstore.Querier) (err error) {
			if err := b.checkOpIDs(ctx, q, batch.ID, bd); err != nil {
				return err
			}
			res, err = b.resolveCommit(ctx, q, &batch, bd)
			return err
		})
		if err != nil {
			return Ticket{}, err
		}
	}
	seen := b.refs.Generation()
	to, err := b.refs.Resolver().RouteForCommit(ctx, batch.Session, batch.Via, batch.ViaSecret, batch.ForkViaSecret, bd) // a create's refs may have been references
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	to.RefsGeneration = seen
	owner, err := b.ownerRow(&batch, bd, to)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	if err := b.commit(ctx, &batch, bd, res, to, owner); err != nil {
		switch {
		case errors.Is(err, sqlstore.ErrUnique):
			return b.recommit(ctx, &batch, bd)
		case errors.Is(err, writer.ErrAmbiguous):
			return b.resolveAmbiguous(ctx, &batch, bd, err)
		}
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	return ticket(batch.ID, bd), nil
}

// resolveAmbiguous reads whether a batch whose commit was ambiguous is there. If it is not, it
// may still appear later.
func (b *Box) resolveAmbiguous(ctx context.Context, batch *Batch, bd *intent.Batch, unsure error) (Ticket, error) {
	t, err := b.recommit(ctx, batch, bd)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: it is not known whether batch %s was stored; to find out, commit it again under that id: %w", batch.ID, unsure)
	}
	b.usage.commitsSinceCount.Store(0) // count again
	b.sender.NotifyBacklog(batch.Session)
	return t, nil
}

func ticket(id string, bd *intent.Batch) Ticket {
	t := Ticket{Batch: id, Ops: make([]string, len(bd.Ops))}
	for i := range bd.Ops {
		t.Ops[i] = bd.Ops[i].ID
	}
	return t
}

// checkOpIDs fails if an op id that the caller chose belongs to another op. Derived ids need no
// check.
func (b *Box) checkOpIDs(ctx context.Context, q sqlstore.Querier, batch string, bd *intent.Batch) error {
	if !bd.CustomIDs {
		return nil
	}
	ids := opid.DerivedFrom(batch)
	for i := range bd.Ops {
		op := bd.Ops[i].ID
		if ids.Has(i, op) {
			continue
		}
		f, err := b.t.FindOp(ctx, q, op, "")
		if err != nil {
			return err
		}
		if f.Row != nil && f.Row.ID != batch {
			return fault.AlreadyExists.With("op id %s was used before", op)
		}
	}
	return nil
}

// resolveCommit resolves the batch's references as far as possible, on a snapshot.
func (b *Box) resolveCommit(ctx context.Context, q sqlstore.Querier, batch *Batch, bd *intent.Batch) (intent.Resolution, error) {
	find := b.t.OpLookup(ctx, q, sqlstore.UnwrittenRow)
	for i := range bd.Ops {
		if old := bd.Ops[i].Retries; old != "" {
			e, err := find(old)
			switch {
			case err != nil:
				return intent.Resolution{}, err
			case e != nil && e.LostErr != nil:
				return intent.Resolution{}, e.LostErr
			case e == nil:
				return intent.Resolution{}, fault.NotFound.With("op %s, which is to be retried, is not in this outbox", old)
			case e.ID == bd.Ops[i].ID: // this batch is committed again
			case e.ID != old:
				return intent.Resolution{}, fault.AlreadyExists.With("op %s was retried as %s: if that one fails, retry that one", old, e.ID)
			case e.Outcome == nil || e.Outcome.Status == ledger.Applied:
				return intent.Resolution{}, fault.Usage.With("op %s did not fail: there is nothing to retry", old)
			}
		}
	}
	return intent.Resolve(bd, batch.Session, find, true)
}

// newRow returns the row of a batch that is committed now.
func (b *Box) newRow(batch *Batch, bd *intent.Batch) *sqlstore.BatchRow {
	data := bd.Encode(batch.Session, batch.ID)
	return &sqlstore.BatchRow{ID: batch.ID, Session: batch.Session, Via: batch.Via, Ops: len(bd.Ops), Bytes: int64(len(data)),
		Created: b.cfg.Now().UnixMilli(), Body: data}
}

// ownerRow returns the row of the ref that is stored with a batch which creates a session; nil
// if there is none.
func (b *Box) ownerRow(batch *Batch, bd *intent.Batch, to machine.Route) (*refs.Row, error) {
	switch {
	case batch.Owner == nil:
		return nil, nil
	case !intent.CreatesSession(bd.Ops[0].Method) || batch.Owner.Ref.ID != to.Ref:
		return nil, fault.BadArgument.With("the owner's ref is not the one that the batch's first op mints")
	}
	meta := batch.Owner.Meta
	meta.Role, meta.RefStatus = SessionOwner, RefStatus{}
	row, err := refs.NewRow(batch.Owner.Ref, meta, b.cfg.Now())
	return &row, err
}

// commit adds the batch to a transaction. owner is the row of its session's owner ref, nil for
// none.
func (b *Box) commit(ctx context.Context, batch *Batch, bd *intent.Batch, res intent.Resolution, to machine.Route, owner *refs.Row) error {
	row := b.newRow(batch, bd)
	if bd.Decided() {
		return b.commitDecided(ctx, row, bd, owner)
	}
	if err := b.checkQuota(ctx, nil, row.Ops, len(row.Body)); err != nil {
		return err
	}
	var (
		seqs  *writer.StreamSeqs
		first uint64
		num   int64
		got   bool
		made  bool // owner was stored
	)
	n := bd.SeqCount()
	run := func(ctx context.Context, q sqlstore.Querier) error {
		seqs, first, got, made = nil, 0, false, false
		if len(res.BlockedOn) == 0 && !res.HasUnsequenced && n == len(bd.Ops) {
			seqs, first = b.w.Seqs.AllocateNow(row.Session, n, len(row.Body), res.OwnBatches, machine.Window(b.cfg.Window))
		}
		var isHolder *bool
		if seqs != nil {
			isHolder = b.w.ShareLease(q, true)
		} else if !b.w.Seqs.IsLeading() {
			b.db.Notify(q, b.id)
		}
		b.t.InsertBatch(q, row, first, isHolder, func(n int64, sequenced bool) {
			if num, got = n, sequenced; !got && seqs != nil {
				b.w.Seqs.Deallocate(seqs, first)
			}
		})
		b.t.SetTally(q, row.ID, bd.Tally())
		b.indexOps(q, row.ID, bd)
		if owner != nil {
			var err error
			if made, err = b.t.InsertRef(ctx, q, owner); err != nil {
				return err
			}
		}
		crashpoint.Hit(crashpoint.OutboxCommitBefore)
		return nil
	}
	done := func(err error, ambiguous bool) {
		switch {
		case err != nil && ambiguous && seqs != nil:
			b.sender.EndTerm(fault.Unavailable.Because(err, "it is not known whether a seq was given")) // nobody may allocate it again
		case err != nil:
		default:
			crashpoint.Hit(crashpoint.OutboxCommitAfter)
			b.usage.ops.Add(int64(row.Ops))
			b.usage.bytes.Add(int64(len(row.Body)))
			if made {
				b.refs.Put(*owner)
			}
			if got {
				b.w.Seqs.Confirm(seqs, first+uint64(n), row.ID, len(row.Body))
				seq := int64(first)
				row.Num, row.FirstSeq, row.State = num, &seq, sqlstore.RowInFlight
				b.hub.NoteSent(row.ID)
				b.sender.SendCommitted(row, bd, res.PinSeq, to)
			} else {
				b.hub.NoteQueued(row.ID)
				if row.Num = num; opensUnread(to, res) {
					b.sender.NotifyWaiting(row, bd)
				} else {
					b.sender.NotifyBacklog(row.Session)
				}
			}
		}
	}
	return b.w.DoJob(ctx, &writer.Job{Run: run, Done: done, Commit: true})
}

// opensUnread reports whether a stream may be opened for a row that was committed just now without
// reading it: the session's server knows its ref, so the session is there, and nothing blocks the
// row.
func opensUnread(to machine.Route, res intent.Resolution) bool {
	return to.Confirmed && len(res.BlockedOn) == 0
}

// commitDecided stores a batch that no server need see: every op was skipped.
func (b *Box) commitDecided(ctx context.Context, row *sqlstore.BatchRow, bd *intent.Batch, owner *refs.Row) error {
	var decided sender.Decided
	made := false
	err := b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) (err error) {
		b.indexOps(q, row.ID, bd)
		if owner != nil {
			if made, err = b.t.InsertRef(ctx, q, owner); err != nil {
				return err
			}
		}
		if row.Num, err = b.t.Insert(ctx, q, row); err == nil {
			decided = b.sender.FinishLocally(ctx, q, row, bd)
		}
		return err
	})
	if err != nil {
		return err
	}
	if made {
		b.refs.Put(*owner)
	}
	b.sender.AnnounceDecided([]sender.Decided{decided})
	return nil
}

// indexOps indexes custom op ids and retries.
func (b *Box) indexOps(q sqlstore.Querier, id string, bd *intent.Batch) {
	ids := opid.DerivedFrom(id)
	for i := range bd.Ops {
		op := &bd.Ops[i]
		if !ids.Has(i, op.ID) {
			b.t.IndexOp(q, op.ID, id)
		}
		if op.Retries != "" {
			b.t.InsertRetry(q, op.Retries, op.ID)
		}
	}
}

// recommit answers a Commit whose batch id or op ids are there already.
func (b *Box) recommit(ctx context.Context, batch *Batch, bd *intent.Batch) (t Ticket, err error) {
	err = b.read(ctx, "commit", func(ctx context.Context, q sqlstore.Querier) error {
		t, err = b.existing(ctx, q, batch, bd)
		return err
	})
	return t, err
}

func (b *Box) existing(ctx context.Context, q sqlstore.Querier, batch *Batch, bd *intent.Batch) (Ticket, error) {
	row, err := b.t.Batch(ctx, q, batch.ID, "")
	if err != nil {
		return Ticket{}, err
	}
	if row == nil {
		return Ticket{}, fault.AlreadyExists.With("an op id of the batch, or an op it retries, was used before")
	}
	have, err := row.Decode()
	if err != nil {
		return Ticket{}, err
	}
	if !sameOps(row, have, batch, bd) {
		return Ticket{}, fault.AlreadyExists.With("batch id %s was used before for another batch", row.ID)
	}
	return ticket(row.ID, have), nil
}

// Tx is a caller's transaction on an outbox's database: a pgx.Tx.
type Tx interface {
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// CommitTx is Commit inside the caller's transaction, on the outbox's own database: the batch
// is there if that commits and never was if it does not. It does not wait for other
// transactions, nor for another connection. An error leaves the transaction usable, except for
// the database's own errors; Usage on an outbox that is not in Postgres.
//
// Batches of one transaction keep the order of their calls. A batch can refer to ops that were
// committed before or earlier in the same transaction.
func (b *Box) CommitTx(ctx context.Context, tx Tx, batch Batch) (Ticket, error) {
	leave, err := b.enter()
	if err != nil {
		return Ticket{}, err
	}
	defer leave()
	q, err := b.db.InTx(ctx, tx)
	if err != nil {
		return Ticket{}, err
	}
	bd, err := b.checkBatch(&batch)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	t, err := b.commitTx(ctx, q, &batch, bd)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", sqlstore.WithCode(err))
	}
	return t, nil
}

func (b *Box) commitTx(ctx context.Context, q sqlstore.CallerTx, batch *Batch, bd *intent.Batch) (Ticket, error) {
	to, err := b.refs.ResolverIn(q, true).RouteForCommit(ctx, batch.Session, batch.Via, batch.ViaSecret, batch.ForkViaSecret, bd)
	if err != nil {
		return Ticket{}, err
	}
	owner, err := b.ownerRow(batch, bd, to)
	if err != nil {
		return Ticket{}, err
	}
	if err := b.checkOpIDs(ctx, q, batch.ID, bd); err != nil {
		return Ticket{}, err
	}
	if bd.HasExternalRefs() {
		if _, err := b.resolveCommit(ctx, q, batch, bd); err != nil {
			return Ticket{}, err
		}
	}
	if _, err := b.refs.ResolverIn(q, true).RouteOf(ctx, batch.Session, batch.Via, bd); err != nil {
		return Ticket{}, err
	}
	row := b.newRow(batch, bd)
	if err := b.checkQuota(ctx, q, row.Ops, len(row.Body)); err != nil {
		return Ticket{}, err
	}
	if made, err := b.t.InsertIfNew(ctx, q, row); err != nil {
		return Ticket{}, err
	} else if !made {
		return b.existing(ctx, q, batch, bd)
	}
	if !bd.Decided() { // else the sender finishes it
		b.t.SetTally(q, row.ID, bd.Tally())
	}
	b.indexOps(q, row.ID, bd)
	if owner != nil {
		if _, err := b.t.InsertRef(ctx, q, owner); err != nil {
			return Ticket{}, err
		}
	}
	b.db.Notify(q, b.id)
	if err := q.Flush(); err != nil {
		return Ticket{}, err
	}
	b.usage.ops.Add(int64(row.Ops))
	b.usage.bytes.Add(int64(len(row.Body)))
	return ticket(row.ID, bd), nil
}

// checkBatch checks a batch and returns its row form. It mints missing ids.
func (b *Box) checkBatch(batch *Batch) (*intent.Batch, error) {
	if batch.ID == "" {
		batch.ID = opid.NewBatch()
	}
	ids := opid.DerivedFrom(batch.ID)
	switch {
	case ids.Underivable && !opid.IsULID(batch.ID):
		return nil, fault.Malformed.With("the batch id is not a ULID: leave it empty or use NewBatchID")
	case !capability.IsSession(batch.Session):
		return nil, fault.Malformed.With("%q is not a session id (ses_ and a ULID)", clip(batch.Session))
	case len(batch.Ops) == 0:
		return nil, fault.Malformed.With("the batch has no ops")
	}
	lim := b.cfg.Limits.ledger()
	intents := make([]ledger.Intent, len(batch.Ops))
	bd := &intent.Batch{Atomic: batch.Atomic, Ops: make([]intent.Op, len(batch.Ops))}
	named, needing := false, false // an op has a custom id; an op needs other ops
	for i := range batch.Ops {
		op := &batch.Ops[i]
		id := op.ID
		switch {
		case id == "":
			id = opid.Of(batch.ID, i)
			named = named || ids.Underivable
		case ids.Has(i, id):
		case !opid.IsULID(id):
			return nil, fault.Malformed.With("the id of op %d is not a ULID: leave it empty or use OpID", i+1)
		default:
			named, bd.CustomIDs = true, true
		}
		if op.Retries != "" && !opid.IsULID(op.Retries) {
			return nil, fault.Malformed.With("op %d retries something that is not an op id", i+1)
		}
		bd.Ops[i] = intent.Op{ID: id, Method: op.Method, Args: op.Args, Deps: op.DependsOn, Expected: op.Expected, Retries: op.Retries}
		needing = needing || len(bd.Ops[i].Needs()) > 0
		intents[i] = ledger.Intent{OpID: id, Method: op.Method, Args: op.Args, DependsOn: op.DependsOn, Expected: op.Expected}
	}
	if err := ledger.CheckSize(intents, lim); err != nil {
		return nil, err
	}
	var place map[string]int
	if named || needing { // derived ids are distinct, and nothing refers to them
		place = make(map[string]int, len(intents))
		for i := range bd.Ops {
			if _, twice := place[bd.Ops[i].ID]; twice {
				return nil, fault.Malformed.With("op id %s is in the batch twice", bd.Ops[i].ID)
			}
			place[bd.Ops[i].ID] = i
		}
	}
	check := ledger.CheckIntent
	if batch.JSONChecked {
		check = ledger.CheckIntentSkipJSON
	}
	for i := range intents {
		if err := check(&intents[i], lim); err != nil {
			err.Message = "op " + intents[i].OpID + " (" + clip(intents[i].Method) + "): " + err.Message
			return nil, err
		}
		if intent.CreatesSession(intents[i].Method) && i > 0 {
			return nil, fault.Malformed.With("op %d: %s must be the first op of its session", i+1, intents[i].Method)
		}
		for _, id := range bd.Ops[i].Needs() {
			if j, in := place[id]; in && j >= i {
				return nil, fault.BadReference.With("op %d refers to op %d, which does not come before it", i+1, j+1)
			}
		}
	}
	bd.IntentBuf = intents
	return bd, nil
}

// clip bounds the input repeated in a message.
func clip(s string) string { return fault.Clip(s) }

// sameOps reports whether row r holds the batch, as a second Commit under the same id requires.
// Arguments are not compared: references may have become values since.
func sameOps(r *sqlstore.BatchRow, have *intent.Batch, batch *Batch, want *intent.Batch) bool {
	return r.Session == batch.Session && have.Atomic == want.Atomic &&
		slices.EqualFunc(have.Ops, want.Ops, func(a, b intent.Op) bool { return a.ID == b.ID && (a.Method == b.Method || a.Void) })
}
