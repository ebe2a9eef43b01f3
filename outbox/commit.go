package outbox

// Commit: check a batch, resolve its references, and write it durably as one row.

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
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
	var res resolution
	if bd.customIDs || hasExternalRefs(bd) {
		err := b.read(ctx, "commit", func(ctx context.Context, q querier) (err error) {
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
	seen := b.refs.generation()
	to, err := b.resolver().routeForCommit(ctx, &batch, bd) // a create's refs may have been references
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	to.refsGeneration = seen
	owner, err := b.ownerRow(&batch, bd, to)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	if err := b.commit(ctx, &batch, bd, res, to, owner); err != nil {
		switch {
		case errors.Is(err, errUnique):
			return b.recommit(ctx, &batch, bd)
		case errors.Is(err, errAmbiguous):
			return b.resolveAmbiguous(ctx, &batch, bd, err)
		}
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	return ticket(batch.ID, bd), nil
}

// resolveAmbiguous reads whether a batch whose commit was ambiguous is there. If it is not, it
// may still appear later.
func (b *Box) resolveAmbiguous(ctx context.Context, batch *Batch, bd *body, unsure error) (Ticket, error) {
	t, err := b.recommit(ctx, batch, bd)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: it is not known whether batch %s is there; to find out commit it again under that id: %w", batch.ID, unsure)
	}
	b.usage.commitsSinceCount.Store(0) // count again
	b.notifyBacklog(batch.Session)
	return t, nil
}

func ticket(id string, bd *body) Ticket {
	t := Ticket{Batch: id, Ops: make([]string, len(bd.ops))}
	for i := range bd.ops {
		t.Ops[i] = bd.ops[i].id
	}
	return t
}

// checkOpIDs fails if an op id that the caller chose belongs to another op. Derived ids need no
// check.
func (b *Box) checkOpIDs(ctx context.Context, q querier, batch string, bd *body) error {
	if !bd.customIDs {
		return nil
	}
	ids := opid.DerivedFrom(batch)
	for i := range bd.ops {
		op := bd.ops[i].id
		if ids.Has(i, op) {
			continue
		}
		f, err := b.t.findOp(ctx, q, op, "")
		if err != nil {
			return err
		}
		if f.row != nil && f.row.id != batch {
			return fault.AlreadyExists.With("op id %s was used before", op)
		}
	}
	return nil
}

// resolveCommit resolves the batch's references as far as possible, on a snapshot.
func (b *Box) resolveCommit(ctx context.Context, q querier, batch *Batch, bd *body) (resolution, error) {
	find := b.t.opLookup(ctx, q, unwrittenRow)
	for i := range bd.ops {
		if old := bd.ops[i].retries; old != "" {
			e, err := find(old)
			switch {
			case err != nil:
				return resolution{}, err
			case e != nil && e.lostErr != nil:
				return resolution{}, e.lostErr
			case e == nil:
				return resolution{}, fault.NotFound.With("op %s, which is to be retried, is not in this outbox", old)
			case e.id == bd.ops[i].id: // this batch is committed again
			case e.id != old:
				return resolution{}, fault.AlreadyExists.With("op %s was retried as %s: if that one fails, retry that one", old, e.id)
			case e.outcome == nil || e.outcome.Status == ledger.Applied:
				return resolution{}, fault.Usage.With("op %s did not fail: there is nothing to retry", old)
			}
		}
	}
	return resolve(bd, batch.Session, find, true)
}

// hasExternalRefs reports whether an op refers to one outside the batch.
func hasExternalRefs(bd *body) bool {
	var inside map[string]bool // nil until an op needs another
	for i := range bd.ops {
		op := &bd.ops[i]
		if op.retries != "" {
			return true
		}
		needs := op.needs()
		if inside == nil && len(needs) > 0 {
			inside = make(map[string]bool, len(bd.ops))
			for j := range i {
				inside[bd.ops[j].id] = true
			}
		}
		for _, id := range needs {
			if !inside[id] {
				return true
			}
		}
		if inside != nil {
			inside[op.id] = true
		}
	}
	return false
}

// newRow returns the row of a batch that is committed now.
func (b *Box) newRow(batch *Batch, bd *body) *batchRow {
	data := bd.encode(batch.Session, batch.ID)
	return &batchRow{id: batch.ID, session: batch.Session, via: batch.Via, ops: len(bd.ops), bytes: int64(len(data)),
		created: b.cfg.Now().UnixMilli(), body: data}
}

// ownerRow returns the row of the ref that is stored with a batch which creates a session; nil
// if there is none.
func (b *Box) ownerRow(batch *Batch, bd *body, to route) (*refRow, error) {
	switch {
	case batch.Owner == nil:
		return nil, nil
	case !createsSession(bd.ops[0].method) || batch.Owner.Ref.ID != to.ref:
		return nil, fault.BadArgument.With("the owner's ref is not the one that the batch's first op mints")
	}
	meta := batch.Owner.Meta
	meta.Role, meta.RefStatus = SessionOwner, RefStatus{}
	row, err := b.newRef(batch.Owner.Ref, meta)
	return &row, err
}

// commit adds the batch to a transaction. owner is the row of its session's owner ref, nil for
// none.
func (b *Box) commit(ctx context.Context, batch *Batch, bd *body, res resolution, to route, owner *refRow) error {
	row := b.newRow(batch, bd)
	if bd.decided() {
		return b.commitDecided(ctx, row, bd, owner)
	}
	if err := b.checkQuota(ctx, nil, row.ops, len(row.body)); err != nil {
		return err
	}
	var (
		la    *streamSeqs
		first uint64
		num   int64
		got   bool
		made  bool // owner was stored
	)
	n := bd.seqCount()
	run := func(ctx context.Context, q querier) error {
		la, first, got, made = nil, 0, false, false
		if len(res.blockedOn) == 0 && !res.hasUnsequenced && n == len(bd.ops) {
			la, first = b.w.seqs.allocateNow(row.session, n, len(row.body), res.ownBatches, b.cfg.Window)
		}
		var held *bool
		if la != nil {
			held = b.shareLease(q, true)
		} else if !b.w.seqs.isLeading() {
			b.db.notify(q, b.id)
		}
		b.t.insertBatch(q, row, first, held, func(n int64, sequenced bool) {
			if num, got = n, sequenced; !got && la != nil {
				b.w.seqs.deallocate(la, first)
			}
		})
		b.t.setTally(q, row.id, bd.tally())
		b.indexOps(q, row.id, bd)
		if owner != nil {
			var err error
			if made, err = b.t.insertRef(ctx, q, owner); err != nil {
				return err
			}
		}
		crashpoint.Hit(crashpoint.OutboxCommitBefore)
		return nil
	}
	done := func(err error, ambiguous bool) {
		switch {
		case err != nil && ambiguous && la != nil:
			b.endTerm(fault.Unavailable.Because(err, "it is not known whether a seq was given")) // nobody may allocate it again
		case err != nil:
		default:
			crashpoint.Hit(crashpoint.OutboxCommitAfter)
			b.usage.ops.Add(int64(row.ops))
			b.usage.bytes.Add(int64(len(row.body)))
			if made {
				b.refs.put(*owner)
			}
			if got {
				b.w.seqs.confirm(la, first+uint64(n), row.id, len(row.body))
				seq := int64(first)
				row.num, row.firstSeq, row.state = num, &seq, rowInFlight
				b.hub.noteSent(row.id)
				b.sendCommitted(row, bd, res.pinSeq, to)
			} else {
				if b.w.seqs.isLeading() {
					b.hub.noteQueued(row.id)
				}
				b.notifyBacklog(row.session)
			}
		}
	}
	return b.w.doJob(ctx, &job{run: run, done: done, commit: true})
}

// commitDecided stores a batch that no server need see: every op was skipped.
func (b *Box) commitDecided(ctx context.Context, row *batchRow, bd *body, owner *refRow) error {
	var decided decidedRow
	made := false
	err := b.w.do(ctx, func(ctx context.Context, q querier) (err error) {
		b.indexOps(q, row.id, bd)
		if owner != nil {
			if made, err = b.t.insertRef(ctx, q, owner); err != nil {
				return err
			}
		}
		if row.num, err = b.t.insert(ctx, q, row); err == nil {
			decided = b.finishLocally(ctx, q, row, bd)
		}
		return err
	})
	if err != nil {
		return err
	}
	if made {
		b.refs.put(*owner)
	}
	b.announceDecided([]decidedRow{decided})
	return nil
}

// indexOps indexes custom op ids and retries.
func (b *Box) indexOps(q querier, id string, bd *body) {
	ids := opid.DerivedFrom(id)
	for i := range bd.ops {
		op := &bd.ops[i]
		if !ids.Has(i, op.id) {
			b.t.indexOp(q, op.id, id)
		}
		if op.retries != "" {
			b.t.insertRetry(q, op.retries, op.id)
		}
	}
}

// recommit answers a Commit whose batch id or op ids are there already.
func (b *Box) recommit(ctx context.Context, batch *Batch, bd *body) (t Ticket, err error) {
	err = b.read(ctx, "commit", func(ctx context.Context, q querier) error {
		t, err = b.existing(ctx, q, batch, bd)
		return err
	})
	return t, err
}

func (b *Box) existing(ctx context.Context, q querier, batch *Batch, bd *body) (Ticket, error) {
	row, err := b.t.batch(ctx, q, batch.ID, "")
	if err != nil {
		return Ticket{}, err
	}
	if row == nil {
		return Ticket{}, fault.AlreadyExists.With("an op id of the batch, or an op it retries, was used before")
	}
	have, err := row.decode()
	if err != nil {
		return Ticket{}, err
	}
	if !sameOps(row, have, batch, bd) {
		return Ticket{}, fault.AlreadyExists.With("batch id %s was used before for another batch", row.id)
	}
	return ticket(row.id, have), nil
}

// CommitTx is Commit inside the caller's transaction, on the outbox's own database: the batch
// is there if that commits and never was if it does not. It does not wait for other
// transactions, nor for another connection. An error leaves the transaction usable, except for
// the database's own errors; Usage on an outbox that is not in Postgres.
//
// Batches of one transaction keep the order of their calls. A batch can refer to ops that were
// committed before or earlier in the same transaction.
func (b *Box) CommitTx(ctx context.Context, tx pgx.Tx, batch Batch) (Ticket, error) {
	leave, err := b.enter()
	if err != nil {
		return Ticket{}, err
	}
	defer leave()
	if _, ok := b.db.(*postgresDB); !ok {
		return Ticket{}, fault.Usage.With("commit in a transaction: the outbox is not in Postgres")
	}
	bd, err := b.checkBatch(&batch)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", err)
	}
	t, err := b.commitTx(ctx, tx, &batch, bd)
	if err != nil {
		return Ticket{}, fmt.Errorf("commit: %w", withCode(postgresFailure(err)))
	}
	return t, nil
}

func (b *Box) commitTx(ctx context.Context, tx pgx.Tx, batch *Batch, bd *body) (Ticket, error) {
	q := &postgresTx{ctx: ctx, conn: tx.Conn(), tx: tx}
	to, err := b.resolverInCallerTx(q).routeForCommit(ctx, batch, bd)
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
	if hasExternalRefs(bd) {
		if _, err := b.resolveCommit(ctx, q, batch, bd); err != nil {
			return Ticket{}, err
		}
	}
	if _, err := b.resolverInCallerTx(q).routeOf(ctx, batch.Session, batch.Via, bd); err != nil {
		return Ticket{}, err
	}
	row := b.newRow(batch, bd)
	if err := b.checkQuota(ctx, q, row.ops, len(row.body)); err != nil {
		return Ticket{}, err
	}
	n, err := q.exec(ctx, sqlInsertIfNew, b.t.box, row.id, row.session, row.via, row.ops, row.bytes, row.created, row.body)
	if err != nil {
		return Ticket{}, err
	}
	if n == 0 {
		return b.existing(ctx, q, batch, bd)
	}
	if !bd.decided() { // else the sender finishes it
		b.t.setTally(q, row.id, bd.tally())
	}
	b.indexOps(q, row.id, bd)
	if owner != nil {
		if _, err := b.t.insertRef(ctx, q, owner); err != nil {
			return Ticket{}, err
		}
	}
	b.db.notify(q, b.id)
	if err := q.flush(); err != nil {
		return Ticket{}, err
	}
	b.usage.ops.Add(int64(row.ops))
	b.usage.bytes.Add(int64(len(row.body)))
	return ticket(row.id, bd), nil
}
