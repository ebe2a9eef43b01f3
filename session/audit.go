package session

// What a submission leaves in the audit, and what is counted of it: changes of
// authority and refusals become rows of its own transaction; uses are given to
// the caller, who counts them when the transaction has committed.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// maxDenialRows is how many refusals of a batch get a row each; further ones
// share one for each reason. A dead ref's holder may send for ever.
const maxDenialRows = 32

// audit notes what was done to a capability by the op in hand.
func (a *applier) audit(act capability.AuditAct, subject string) {
	row := a.auditRow(act, a.grant)
	row.Subject = subject
	if a.op != nil {
		row.Op = a.op.OpID
	}
	a.v.audit = append(a.v.audit, row)
}

// auditRow is a row of now; under is the ref it is about, which may be nil.
func (a *applier) auditRow(act capability.AuditAct, under *capability.Grant) *capability.AuditRow {
	row := &capability.AuditRow{Target: a.s.row.ID, At: a.v.now, Act: act, Ref: a.sub.Ref, Cursor: a.s.row.Cursor, Peer: a.sub.Peer}
	if under != nil {
		row.Ref, row.Actor = under.ID, under.Actor
	}
	return row
}

// denials notes a batch's refusals for want of authority: a row each, and when
// they are many, one for each reason with the first op it was for and how many
// there were. It gives those that are counted alone, since their ref has had so
// many rows already.
func (a *applier) denials(b *ledger.Batch, rec *ledger.Record) (counted []*capability.AuditRow) {
	var under *capability.Grant
	if slot := a.v.grants[a.sub.Ref]; slot != nil && slot.grant != nil && slot.grant.Target == a.s.row.ID {
		under = slot.grant
	}
	room := -1 // how many rows there may be; not asked yet
	rows := 0
	var rest map[fault.Code]*capability.AuditRow
	for i := range rec.Outcomes {
		o := &rec.Outcomes[i]
		if o.Status != ledger.Denied && !(o.Status == ledger.BatchAborted && o.Cause == o.OpID && o.Reason.Authority()) {
			continue
		}
		if row := rest[o.Reason]; row != nil {
			row.Count++
			continue
		}
		row := a.auditRow(capability.AuditDenial, under)
		if under == nil && a.sub.Space != "" {
			row.Ref = a.sub.Space
		}
		row.Subject, row.Reason, row.Op, row.Count = methodName(b.Ops[i].Method), o.Reason, o.OpID, 1
		if room < 0 {
			if room = min(len(b.Ops), maxDenialRows+1); a.cfg.DenialRows != nil {
				room = a.cfg.DenialRows(row.Ref, room)
			}
		}
		rows++
		if rows > min(room, maxDenialRows) {
			if rest == nil {
				rest = map[fault.Code]*capability.AuditRow{}
			}
			rest[o.Reason] = row
			row.Subject = "" // of many methods, perhaps
		}
		if rows <= room || room > maxDenialRows {
			a.v.audit = append(a.v.audit, row)
			continue
		}
		row.Op, row.Cursor, row.At = "", 0, 0 // of many
		counted = append(counted, row)
	}
	return counted
}

// methodName is a method's name where there is such a method: what a peer wrote
// may be of any length, and no text.
func methodName(name string) string {
	if _, known := methods[name]; known || name == ledger.MethodVoid {
		return name
	}
	return ""
}

// rollBackRefused takes back what a direct call has done since before, notes its refusal if
// it is for want of authority, and gives it.
func (a *applier) rollBackRefused(before savepoint, method string, err *fault.Error) *fault.Error {
	a.v.rollback(before)
	if !err.Code.Authority() {
		return err
	}
	var under *capability.Grant
	if slot := a.v.grants[a.sub.Ref]; slot != nil {
		under = slot.grant
	}
	row := a.auditRow(capability.AuditDenial, under)
	row.Subject, row.Reason = method, err.Code
	a.v.audit = append(a.v.audit, row)
	return err
}

// uses are those of ops that have applied, by ref and method. A session is made
// under the space's ref; all else is done under its own.
func (a *applier) uses(ops []ledger.Intent, applied func(i int) bool) (uses []Use) {
next:
	for i := range ops {
		if !applied(i) {
			continue
		}
		method, id := ops[i].Method, a.sub.Ref
		if method == MethodCreate || method == MethodFork {
			id = a.sub.Space
		}
		for j := range uses { // there are few methods
			if uses[j].Method == method {
				uses[j].Count++
				continue next
			}
		}
		grant := a.grant
		if grant == nil || grant.ID != id {
			grant = nil
			if slot := a.v.grants[id]; slot != nil {
				grant = slot.grant
			}
		}
		use := Use{Ref: id, Method: method, Count: 1}
		if grant != nil {
			use.Actor = grant.Actor
		}
		uses = append(uses, use)
	}
	return uses
}
