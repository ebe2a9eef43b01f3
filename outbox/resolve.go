package outbox

// References to ops outside a batch: a known result becomes a value, a failed op makes its
// dependents skipped, an unfinished op of another stream blocks the batch. Messages and order
// are the server's (ledger.Decide), so that both decide alike.

import (
	"strconv"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// refTarget is an op in the outbox that others refer to.
type refTarget struct {
	id      string // the op asked for, or its retry
	batch   string
	session string
	seq     uint64          // 0 while it has none
	outcome *ledger.Outcome // nil while unfinished
	lostErr error           // why its outcome is lost
}

// opLookup returns the op with an id; nil if the outbox does not have it.
type opLookup func(op string) (*refTarget, error)

// resolution is the result of resolving a batch's references.
type resolution struct {
	changed bool
	// blockedOn are the ops of other sessions that the batch has to wait for.
	blockedOn []*refTarget
	// pinSeq is the lowest seq in the batch's own stream that it still refers to.
	pinSeq uint64
	// ownBatches are the batches of its own session that it still refers to; hasUnsequenced
	// reports that one of them has no seq yet.
	ownBatches     []string
	hasUnsequenced bool
}

// resolve resolves the references of b, a batch of session, in place. Ops that cannot apply get
// a local outcome. strict makes three cases errors instead: an op that find does not know, a
// lost outcome, and a path that is not in a known result.
func resolve(b *body, session string, find opLookup, strict bool) (resolution, error) {
	res := resolution{}
	inside := make(map[string]int, len(b.ops))
	for i := range b.ops {
		if err := resolveOp(b, i, session, inside, find, strict, &res); err != nil {
			return res, err
		}
		inside[b.ops[i].id] = i
	}
	return res, nil
}

func resolveOp(b *body, i int, session string, inside map[string]int, find opLookup, strict bool, res *resolution) error {
	op := &b.ops[i]
	if op.localOutcome != nil || len(op.deps) == 0 && op.expected.Ref == nil && !argsHaveRefs(op.args) {
		return nil
	}
	var broken *fault.Error
	before := len(res.blockedOn)
	settle := func(o ledger.Outcome) {
		b.setLocalOutcome(i, o)
		res.changed, res.blockedOn = true, res.blockedOn[:before] // it waits for nothing any more
	}
	// look returns the target of an id; stop reports that op was skipped because of it.
	look := func(id string) (e *refTarget, stop bool, err error) {
		if j, in := inside[id]; in {
			if v := b.ops[j].localOutcome; v != nil {
				settle(skippedOutcome(op.id, v))
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
				broken = fault.BadReference.With("op %s, which op %s refers to, is not in this outbox: refer to ops that were committed before, or commit the value", id, op.id)
			}
			return nil, false, nil
		case e.lostErr != nil && strict:
			return nil, true, e.lostErr
		case e.lostErr != nil:
			o := skippedOutcome(op.id, &ledger.Outcome{OpID: e.id, Reason: fault.OutboxDamaged})
			o.Message = "what became of op " + e.id + ", which it needs, is lost: its row in the outbox is damaged"
			settle(o)
			return nil, true, nil
		case e.outcome != nil && e.outcome.Status != ledger.Applied:
			settle(skippedOutcome(op.id, e.outcome))
			return nil, true, nil
		case e.outcome == nil && e.session != session:
			res.blockedOn = append(res.blockedOn, e)
		case e.outcome == nil:
			res.ownBatches = append(res.ownBatches, e.batch)
			res.hasUnsequenced = res.hasUnsequenced || e.seq == 0
			if e.seq > 0 && (res.pinSeq == 0 || e.seq < res.pinSeq) {
				res.pinSeq = e.seq
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
		if e.outcome == nil {
			if e.id != r.Op {
				res.changed = true
				return nil, &ledger.Ref{Op: e.id, Path: r.Path}, false, nil
			}
			return nil, r, false, nil
		}
		v, ok := ledger.Resolve(e.outcome.Result, r.Path)
		if !ok {
			if broken == nil {
				broken = fault.BadReference.With("the result of op %s has nothing at %q", e.id, r.Path)
			}
			return nil, r, false, nil
		}
		res.changed = true
		return v, nil, false, nil
	}

	var deps []string
	for _, id := range op.deps {
		e, stop, err := look(id)
		if stop || err != nil {
			return err
		}
		switch {
		case e == nil:
			deps = append(deps, id)
		case e.outcome == nil:
			deps = append(deps, e.id)
			res.changed = res.changed || e.id != id
		default:
			res.changed = true // it applied: nothing is left to wait for
		}
	}
	args := make([]ledger.Arg, len(op.args))
	copy(args, op.args)
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
	expected := op.expected
	if expected.Ref != nil {
		v, to, stop, err := value(expected.Ref)
		if stop || err != nil {
			return err
		}
		expected.Ref = to
		if to == nil {
			n, err := strconv.ParseUint(string(v), 10, 64)
			if err != nil && broken == nil {
				broken = fault.BadReference.With("expected_cursor of op %s refers to %q of op %s, which is not a cursor", op.id, op.expected.Ref.Path, op.expected.Ref.Op)
			}
			expected.Cursor = n
		}
	}
	if broken != nil {
		if strict {
			return broken
		}
		settle(ledger.Outcome{OpID: op.id, Status: ledger.Rejected, Reason: broken.Code, Message: broken.Message})
		return nil
	}
	op.deps, op.args, op.expected = deps, args, expected
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

// skippedOutcome is the outcome of an op that needs cause's op, which did not apply.
func skippedOutcome(op string, cause *ledger.Outcome) ledger.Outcome {
	return ledger.Outcome{OpID: op, Status: ledger.Skipped, Reason: cause.Reason, Cause: cause.OpID,
		Message: "op " + cause.OpID + ", which it needs, did not apply (" + cause.Reason.String() + ")"}
}

// voidOutcome is the outcome of an op that was dropped before it got a seq.
func voidOutcome(op string) ledger.Outcome {
	return ledger.Outcome{OpID: op, Status: ledger.Voided, Reason: fault.Voided, Message: "dropped by its own outbox"}
}

// setLocalOutcome sets the outcome of the op at index i without the server. In an atomic batch
// all others are aborted with it, and a single op is aborted too, as on the server; only a void
// is a void.
func (b *body) setLocalOutcome(i int, o ledger.Outcome) {
	if !b.atomic || len(b.ops) == 1 && o.Status == ledger.Voided {
		b.ops[i].localOutcome = &o
		return
	}
	for j := range b.ops {
		v := ledger.Outcome{OpID: b.ops[j].id, Status: ledger.BatchAborted, Reason: o.Reason, Cause: o.OpID,
			Message: "op " + o.OpID + " of the same atomic batch did not apply (" + o.Reason.String() + ")"}
		if j == i {
			v.Message, v.At, v.Cursor = o.Message, o.At, o.Cursor
		}
		b.ops[j].localOutcome = &v
	}
}

// skipDependents skips the ops that need an op of the same batch with a local outcome.
func (b *body) skipDependents() {
	verdicts := make(map[string]*ledger.Outcome)
	for i := range b.ops {
		op := &b.ops[i]
		if op.localOutcome == nil {
			for _, id := range op.needs() {
				if v := verdicts[id]; v != nil {
					b.setLocalOutcome(i, skippedOutcome(op.id, v))
					break
				}
			}
		}
		if op.localOutcome != nil {
			verdicts[op.id] = op.localOutcome
		}
	}
}

// needs lists the ops that o depends on or refers to, in the order of their resolution.
func (o *opRow) needs() []string {
	ids := append([]string(nil), o.deps...)
	for _, a := range o.args {
		if a.Ref != nil {
			ids = append(ids, a.Ref.Op)
		}
	}
	if o.expected.Ref != nil {
		ids = append(ids, o.expected.Ref.Op)
	}
	return ids
}

// externalRefs lists the ops outside the batch that its ops need.
func (b *body) externalRefs() (ids []string) {
	inside := make(map[string]bool)
	for i := range b.ops {
		for _, id := range b.ops[i].needs() {
			if !inside[id] {
				ids = append(ids, id)
			}
		}
		inside[b.ops[i].id] = true
	}
	return ids
}

// decided reports whether no op is left for the server.
func (b *body) decided() bool { return b.seqCount() == 0 }

// seqCount counts the ops that take a seq.
func (b *body) seqCount() int {
	n := 0
	for i := range b.ops {
		if b.ops[i].takesSeq() {
			n++
		}
	}
	return n
}

// tally counts the ops with local outcomes while others are unfinished.
func (b *body) tally() (n tally) {
	for i := range b.ops {
		if op := &b.ops[i]; !op.takesSeq() {
			n.add(stateOf(op, op.localOutcome))
		}
	}
	return n
}

// hasLocalOutcome reports whether any op has a local outcome.
func (b *body) hasLocalOutcome() bool {
	for i := range b.ops {
		if b.ops[i].localOutcome != nil {
			return true
		}
	}
	return false
}

// outcomes merges the answers for the ops that took a seq with the local outcomes.
func (b *body) outcomes(answers []ledger.Outcome) []ledger.Outcome {
	if len(answers) == len(b.ops) && !b.hasLocalOutcome() {
		return answers
	}
	all := make([]ledger.Outcome, len(b.ops))
	k := 0
	for i := range b.ops {
		op := &b.ops[i]
		switch {
		case op.takesSeq():
			if k < len(answers) {
				all[i] = answers[k]
				k++
			}
			if op.localOutcome != nil { // its void only filled the seq
				all[i] = *op.localOutcome
			}
		default:
			all[i] = *op.localOutcome
		}
		all[i].OpID = op.id
	}
	return all
}

// stateOf returns the final state for an outcome.
func stateOf(op *opRow, o *ledger.Outcome) State {
	switch {
	case o.Status == ledger.Applied:
		return Acked
	case o.Status == ledger.Voided, op.void && op.localOutcome == nil, o.Reason == fault.Voided && o.Cause == op.id:
		return Void
	case o.Status == ledger.Skipped:
		return Skipped
	}
	return Failed
}

// count tallies final states.
func (b *body) count(outs []ledger.Outcome) (n tally) {
	for i := range outs {
		n.add(stateOf(&b.ops[i], &outs[i]))
	}
	return n
}

func (n *tally) add(s State) {
	switch s {
	case Failed:
		n.failed++
	case Skipped:
		n.skipped++
	case Void:
		n.voided++
	}
}
