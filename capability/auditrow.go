package capability

// What is kept of every redeem, share, revoke and denial.

import "github.com/mooring-rpc/mooring/fault"

// AuditRow is one line of a session's or space's audit: who did what to whose
// authority, and what came of it. It never holds a secret or a hash.
type AuditRow struct {
	Target  string     // the session or space
	At      int64      // Unix ms; 0: the transaction's now
	Act     AuditAct   // what was done or tried
	Ref     string     // the ref it was done under; for a redeem the ref itself
	Actor   string     // that ref's actor
	Subject string     // the ref it was done to: minted, revoked; "" where there is none
	Reason  fault.Code // why it was refused; None if it was done
	Op      string     // the op id, if it was an op
	Cursor  uint64     // the session's cursor after it
	Count   uint32     // how often, where denials are gathered (a batch's, strangers'); 0 means once
}

// AuditAct numbers what an audit row is about; the list is append-only.
type AuditAct uint8

// The acts that are audited.
const (
	AuditRedeem AuditAct = 1 + iota
	AuditShare
	AuditSave
	AuditRevoke
	AuditBump
	AuditDenial   // a known ref's op or call was denied
	AuditStranger // an unknown ref or a wrong secret, counted
)

// String is the act's name in lists and JSON.
func (a AuditAct) String() string {
	switch a {
	case AuditRedeem:
		return "redeem"
	case AuditShare:
		return "share"
	case AuditSave:
		return "save"
	case AuditRevoke:
		return "revoke"
	case AuditBump:
		return "bump"
	case AuditDenial:
		return "denial"
	case AuditStranger:
		return "stranger"
	}
	return "unknown"
}
