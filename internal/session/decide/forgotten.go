package decide

// Forgotten sessions: of a session deleted long ago only its row, its owner's ref and its audit
// remain. Its streams and records are removed, so whether an op was sent before is unknown. It does
// not matter: no op can apply, and each gets the same answer without a decision. Nothing is
// recorded, and a repetition gets the same answer.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// forgotten answers a submission to a forgotten session.
func (a *applier) forgotten(out *Answer) *fault.Error {
	why := fault.SessionDeleted.With("the session was deleted long ago")
	if a.sub.Direct != nil {
		return why
	}
	for i := range a.sub.Batch.Ops {
		op, o := &a.sub.Batch.Ops[i], ledger.Outcome{Status: ledger.Rejected, Reason: why.Code, Message: why.Message}
		if op.Method == ledger.MethodVoid {
			o = ledger.Outcome{Status: ledger.Voided, Reason: fault.Voided}
		}
		o.OpID = op.OpID
		out.Outcomes = append(out.Outcomes, o)
	}
	return nil
}
