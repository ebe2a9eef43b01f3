package intent

// References to ops outside a batch: a known result becomes a value, a failed op makes its
// dependents skipped, an unfinished op of another stream blocks the batch. Messages and order
// are the server's (ledger.Decide), so that both decide alike.

import (
	"strconv"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Target is an op in the outbox that others refer to.
type Target struct {
	ID      string // the op asked for, or its retry
	Batch   string
	Session string
	Seq     uint64          // 0 while it has none
	Outcome *ledger.Outcome // nil while unfinished
	LostErr error           // why its outcome is lost
}

// Lookup returns the op with an id; nil if the outbox does not have it.
type Lookup func(op string) (*Target, error)

// Resolution is the result of resolving a batch's references.
type Resolution struct {
	Changed bool
	// BlockedOn are the ops of other sessions that the batch has to wait for.
	BlockedOn []*Target
	// PinSeq is the lowest seq in the batch's own stream that it still refers to.
	PinSeq uint64
	// OwnBatches are the batches of its own session that it still refers to; HasUnsequenced
	// reports that one of them has no seq yet.
	OwnBatches     []string
	HasUnsequenced bool
}

// Resolve resolves the references of b, a batch of session, in place. Ops that cannot apply get
// a local outcome. strict makes three cases errors instead: an op that find does not know, a
// lost outcome, and a path that is not in a known result.
func Resolve(b *Batch, session string, find Lookup, strict bool) (Resolution, error) {
	res := Resolution{}
	inside := make(map[string]int, len(b.Ops))
	for i := range b.Ops {
		if err := resolveOp(b, i, session, inside, find, strict, &res); err != nil {
			return res, err
		}
		inside[b.Ops[i].ID] = i
	}
	return res, nil
}

func resolveOp(b *Batch, i int, session string, inside map[string]int, find Lookup, strict bool, res *Resolution) error {
	op := &b.Ops[i]
	if op.LocalOutcome != nil || len(op.Deps) == 0 && op.Expected.Ref == nil && !argsHaveRefs(op.Args) {
		return nil
	}
	var broken *fault.Error
	before := len(res.BlockedOn)
	settle := func(o ledger.Outcome) {
		b.SetLocalOutcome(i, o)
		res.Changed, res.BlockedOn = true, res.BlockedOn[:before] // it waits for nothing any more
	}
	// look returns the target of an id; stop reports that op was skipped because of it.
	look := func(id string) (e *Target, stop bool, err error) {
		if j, in := inside[id]; in {
			if v := b.Ops[j].LocalOutcome; v != nil {
				settle(skippedOutcome(op.ID, v))
				return nil, true, nil
			}
			return nil, false, nil
		}
		e, err = find(id)
		switch {
		case err != nil:
			return nil, true, err
		case e == nil:
			if broken == nil {
				broken = fault.BadReference.With("op %s, which op %s refers to, is not in this outbox: refer to ops that were committed before, or commit the value", id, op.ID)
			}
			return nil, false, nil
		case e.LostErr != nil && strict:
			return nil, true, e.LostErr
		case e.LostErr != nil:
			o := skippedOutcome(op.ID, &ledger.Outcome{OpID: e.ID, Reason: fault.OutboxDamaged})
			o.Message = "what became of op " + e.ID + ", which it needs, is lost: its row in the outbox is damaged"
			settle(o)
			return nil, true, nil
		case e.Outcome != nil && e.Outcome.Status != ledger.Applied:
			settle(skippedOutcome(op.ID, e.Outcome))
			return nil, true, nil
		case e.Outcome == nil && e.Session != session:
			res.BlockedOn = append(res.BlockedOn, e)
		case e.Outcome == nil:
			res.OwnBatches = append(res.OwnBatches, e.Batch)
			res.HasUnsequenced = res.HasUnsequenced || e.Seq == 0
			if e.Seq > 0 && (res.PinSeq == 0 || e.Seq < res.PinSeq) {
				res.PinSeq = e.Seq
			}
		}
		return e, false, nil
	}
	// value returns the value that r refers to, if it is known.
	value := func(r *ledger.Ref) (v []byte, to *ledger.Ref, stop bool, err error) {
		e, stop, err := look(r.Op)
		if stop || err != nil || e == nil {
			return nil, r, stop, err // of the same batch, or unknown
		}
		if e.Outcome == nil {
			if e.ID != r.Op {
				res.Changed = true
				return nil, &ledger.Ref{Op: e.ID, Path: r.Path}, false, nil
			}
			return nil, r, false, nil
		}
		v, ok := ledger.Resolve(e.Outcome.Result, r.Path)
		if !ok {
			if broken == nil {
				broken = fault.BadReference.With("the result of op %s has nothing at %q", e.ID, r.Path)
			}
			return nil, r, false, nil
		}
		res.Changed = true
		return v, nil, false, nil
	}

	var deps []string
	for _, id := range op.Deps {
		e, stop, err := look(id)
		if stop || err != nil {
			return err
		}
		switch {
		case e == nil:
			deps = append(deps, id)
		case e.Outcome == nil:
			deps = append(deps, e.ID)
			res.Changed = res.Changed || e.ID != id
		default:
			res.Changed = true // it applied: nothing is left to wait for
		}
	}
	args := make([]ledger.Arg, len(op.Args))
	copy(args, op.Args)
	for k, a := range args {
		if a.Ref == nil {
			continue
		}
		v, to, stop, err := value(a.Ref)
		if stop || err != nil {
			return err
		}
		args[k] = ledger.Arg{Name: a.Name, JSON: v, Ref: to}
	}
	expected := op.Expected
	if expected.Ref != nil {
		v, to, stop, err := value(expected.Ref)
		if stop || err != nil {
			return err
		}
		expected.Ref = to
		if to == nil {
			n, err := strconv.ParseUint(string(v), 10, 64)
			if err != nil && broken == nil {
				broken = fault.BadReference.With("expected_cursor of op %s refers to %q of op %s, which is not a cursor", op.ID, op.Expected.Ref.Path, op.Expected.Ref.Op)
			}
			expected.Cursor = n
		}
	}
	if broken != nil {
		if strict {
			return broken
		}
		settle(ledger.Outcome{OpID: op.ID, Status: ledger.Rejected, Reason: broken.Code, Message: broken.Message})
		return nil
	}
	op.Deps, op.Args, op.Expected = deps, args, expected
	return nil
}

func argsHaveRefs(args []ledger.Arg) bool {
	for i := range args {
		if args[i].Ref != nil {
			return true
		}
	}
	return false
}
