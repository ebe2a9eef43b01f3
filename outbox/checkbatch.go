package outbox

// The checks by which Commit refuses a batch that could never be sent.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

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
			return nil, fault.Malformed.With("op %d retries what is not an op id", i+1)
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
