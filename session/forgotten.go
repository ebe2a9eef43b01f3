package session

// Forgotten sessions: of one that was deleted long ago its row is left, its owner's ref and
// its audit. Its streams and what was recorded on them are gone, so nobody can tell any more
// whether an op came before. It does not matter: nothing can apply, and every op is told so
// without being decided on. Nothing is recorded, and the same is told again.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Forgotten is the stream that the opening gives of a forgotten session. Any seq may be
// recorded, so that nothing is taken to be known to have never arrived, and no outbox finds
// the server behind itself. It has no row.
func (o *StreamRequest) Forgotten() *ledger.Stream {
	const last = 1<<53 - 1 // a number in JavaScript, too
	return &ledger.Stream{Session: o.Key.Session, Outbox: o.Key.Outbox, SecretHash: o.SecretHash, Incarnation: o.Incarnation, LastSeq: last}
}

// forgotten answers what comes for a forgotten session.
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
