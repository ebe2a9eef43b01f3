package intent

// The outcomes of a batch's ops that are decided here, and all of them together with the server's.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// SetLocalOutcome sets the outcome of the op at index i without the server. In an atomic batch
// all others are aborted with it, and a single op is aborted too, as on the server; only a void
// is a void.
func (b *Batch) SetLocalOutcome(i int, o ledger.Outcome) {
	if !b.Atomic || len(b.Ops) == 1 && o.Status == ledger.Voided {
		b.Ops[i].LocalOutcome = &o
		return
	}
	for j := range b.Ops {
		v := ledger.Outcome{OpID: b.Ops[j].ID, Status: ledger.BatchAborted, Reason: o.Reason, Cause: o.OpID,
			Message: "op " + o.OpID + " of the same atomic batch did not apply (" + o.Reason.String() + ")"}
		if j == i {
			v.Message, v.At, v.Cursor = o.Message, o.At, o.Cursor
		}
		b.Ops[j].LocalOutcome = &v
	}
}

// SkipDependents skips the ops that need an op of the same batch with a local outcome.
func (b *Batch) SkipDependents() {
	verdicts := make(map[string]*ledger.Outcome)
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.LocalOutcome == nil {
			for _, id := range op.Needs() {
				if v := verdicts[id]; v != nil {
					b.SetLocalOutcome(i, skippedOutcome(op.ID, v))
					break
				}
			}
		}
		if op.LocalOutcome != nil {
			verdicts[op.ID] = op.LocalOutcome
		}
	}
}

// VoidRequestedDrops voids the ops of a batch whose drop was requested, since it is not sent
// after all; it reports whether there were any.
func (b *Batch) VoidRequestedDrops() (any bool) {
	for i := range b.Ops {
		op := &b.Ops[i]
		if !op.DropRequested && !op.Void {
			continue
		}
		any = true
		if op.DropRequested, op.Void = false, false; op.LocalOutcome == nil {
			b.SetLocalOutcome(i, VoidOutcome(op.ID))
		}
	}
	b.SkipDependents()
	return any
}

// Deny finishes all undecided ops of a batch as denied.
func (b *Batch) Deny(why *fault.Error) {
	for i := range b.Ops {
		if op := &b.Ops[i]; op.LocalOutcome == nil {
			b.SetLocalOutcome(i, ledger.Outcome{OpID: op.ID, Status: ledger.Denied, Reason: why.Code, Message: why.Message, At: why.At})
			b.SkipDependents()
		}
	}
}

// ResolveDrop turns ops into voids, or lets them stand if it is too late. why is set if the
// server cannot take the batch at all: then all of it becomes void.
func (b *Batch) ResolveDrop(inTime bool, why *fault.Error) {
	for i := range b.Ops {
		op := &b.Ops[i]
		if inTime && (op.DropRequested || why != nil) && op.TakesSeq() {
			op.Void = true
			if why != nil && !op.DropRequested {
				op.LocalOutcome = &ledger.Outcome{OpID: op.ID, Status: ledger.Rejected, Reason: why.Code, Message: why.Message}
			}
		}
		op.DropRequested = false
	}
}

// Abandon finishes all undecided ops of a batch, and returns their ids.
func (b *Batch) Abandon(sent bool) (ops []string) {
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.LocalOutcome == nil {
			v := ledger.Outcome{OpID: op.ID, Status: ledger.Voided, Reason: fault.Voided, Message: "abandoned with its stream"}
			if sent {
				v.Message += "; whether the server has applied it is not known here"
			}
			op.LocalOutcome = &v
			ops = append(ops, op.ID)
		}
		op.Void, op.DropRequested = false, false
	}
	return ops
}

// VoidOutcome is the outcome of an op that was dropped before it got a seq.
func VoidOutcome(op string) ledger.Outcome {
	return ledger.Outcome{OpID: op, Status: ledger.Voided, Reason: fault.Voided, Message: "dropped by its own outbox"}
}

// skippedOutcome is the outcome of an op that needs cause's op, which did not apply.
func skippedOutcome(op string, cause *ledger.Outcome) ledger.Outcome {
	return ledger.Outcome{OpID: op, Status: ledger.Skipped, Reason: cause.Reason, Cause: cause.OpID,
		Message: "op " + cause.OpID + ", which it needs, did not apply (" + cause.Reason.String() + ")"}
}

// hasLocalOutcome reports whether any op has a local outcome.
func (b *Batch) hasLocalOutcome() bool {
	for i := range b.Ops {
		if b.Ops[i].LocalOutcome != nil {
			return true
		}
	}
	return false
}

// Outcomes merges the answers for the ops that took a seq with the local outcomes.
func (b *Batch) Outcomes(answers []ledger.Outcome) []ledger.Outcome {
	if len(answers) == len(b.Ops) && !b.hasLocalOutcome() {
		return answers
	}
	all := make([]ledger.Outcome, len(b.Ops))
	k := 0
	for i := range b.Ops {
		op := &b.Ops[i]
		switch {
		case op.TakesSeq():
			if k < len(answers) {
				all[i] = answers[k]
				k++
			}
			if op.LocalOutcome != nil { // its void only filled the seq
				all[i] = *op.LocalOutcome
			}
		default:
			all[i] = *op.LocalOutcome
		}
		all[i].OpID = op.ID
	}
	return all
}

// Tally counts a batch's ops by final state. The remaining ops were applied, if the row is
// finished, or are unfinished.
type Tally struct{ Failed, Skipped, Voided int }

// Tally counts the ops with local outcomes while others are unfinished.
func (b *Batch) Tally() (n Tally) {
	for i := range b.Ops {
		if op := &b.Ops[i]; !op.TakesSeq() {
			n.add(EndingOf(op, op.LocalOutcome))
		}
	}
	return n
}

// Count tallies final states.
func (b *Batch) Count(outs []ledger.Outcome) (n Tally) {
	for i := range outs {
		n.add(EndingOf(&b.Ops[i], &outs[i]))
	}
	return n
}

func (n *Tally) add(e Ending) {
	switch e {
	case endFailed:
		n.Failed++
	case endSkipped:
		n.Skipped++
	case endVoid:
		n.Voided++
	}
}

// Ending is how an op ended.
type Ending uint8

// The endings of an op.
const (
	endApplied Ending = iota
	endFailed         // denied, in conflict, rejected, or aborted with its batch
	endSkipped        // an op it refers to or depends on did not apply
	endVoid           // dropped
)

// EndingOf returns how an op with that outcome ended.
func EndingOf(op *Op, o *ledger.Outcome) Ending {
	switch {
	case o.Status == ledger.Applied:
		return endApplied
	case o.Status == ledger.Voided, op.Void && op.LocalOutcome == nil, o.Reason == fault.Voided && o.Cause == op.ID:
		return endVoid
	case o.Status == ledger.Skipped:
		return endSkipped
	}
	return endFailed
}
