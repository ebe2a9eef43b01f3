package decide

// Audit rows and usage counts of a submission: changes of authority and refusals become rows in its
// own transaction; uses are returned, for the caller to count after the commit.

import (
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

// maxDenialRows is how many refusals of a batch get a row each; further ones share a row for each
// reason. The holder of a dead ref may send any number.
const maxDenialRows = 32

// audit adds a row for an act of the current op on a capability.
func (a *applier) audit(act capability.AuditAct, subject string) {
	row := a.auditRow(act, a.grant)
	row.Subject = subject
	if a.op != nil {
		row.Op = a.op.OpID
	}
	a.v.AddAudit(row)
	if a.sub.Manage {
		a.v.AddAudit(maintain.InSpace(row))
	}
}

// auditRow returns a row with the current time; under is its ref, which may be nil.
func (a *applier) auditRow(act capability.AuditAct, under *capability.Grant) *capability.AuditRow {
	row := &capability.AuditRow{Target: a.s.Row.ID, At: a.v.Now, Act: act, Ref: a.sub.Ref, Cursor: a.s.Row.Cursor, Peer: a.sub.Peer}
	if under != nil {
		row.Ref, row.Actor = under.ID, under.Actor
	}
	return row
}

// denials adds rows for a batch's refusals for lack of authority: a row each or, above
// maxDenialRows, one for each reason with the first op and the count. It returns the rows to be
// only counted, since their ref has reached its number of rows.
func (a *applier) denials(b *ledger.Batch, rec *ledger.Record) (counted []*capability.AuditRow) {
	var under *capability.Grant
	if slot := a.v.Grants[a.sub.Ref]; slot != nil && slot.Grant != nil && (slot.Grant.Target == a.s.Row.ID || a.sub.Manage || a.sub.Reach) {
		under = slot.Grant
	}
	room := -1 // rows permitted; -1: DenialRows was not called yet
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
			row.Subject = "" // may be of many methods
		}
		if rows <= room || room > maxDenialRows {
			a.v.AddAudit(row)
			continue
		}
		row.Op, row.Cursor, row.At = "", 0, 0 // of many ops
		counted = append(counted, row)
	}
	return counted
}

// methodName returns the name of an existing method: a peer's text may be of any length, and not
// UTF-8.
func methodName(name string) string {
	if _, known := opargs.MethodOf(name); known || name == ledger.MethodVoid {
		return name
	}
	return ""
}

// rollBackRefused undoes a direct call's changes since before, audits its refusal if it is for lack
// of authority, and returns it.
func (a *applier) rollBackRefused(before view.Savepoint, method string, err *fault.Error) *fault.Error {
	a.v.Rollback(before)
	if !err.Code.Authority() {
		return err
	}
	var under *capability.Grant
	if slot := a.v.Grants[a.sub.Ref]; slot != nil {
		under = slot.Grant
	}
	row := a.auditRow(capability.AuditDenial, under)
	row.Subject, row.Reason = method, err.Code
	a.v.AddAudit(row)
	return err
}

// uses returns the uses by applied ops, by ref and method. A create or fork uses the space's ref;
// all other ops their own.
func (a *applier) uses(ops []ledger.Intent, applied func(i int) bool) (uses []Use) {
next:
	for i := range ops {
		if !applied(i) {
			continue
		}
		method, id := ops[i].Method, a.sub.Ref
		if method == session.MethodCreate || method == session.MethodFork {
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
			if slot := a.v.Grants[id]; slot != nil {
				grant = slot.Grant
			}
		}
		use := Use{Ref: id, Method: method, Count: 1}
		if a.sub.Reach {
			use.Session = a.s.Row.ID
		}
		if grant != nil {
			use.Actor = grant.Actor
		}
		uses = append(uses, use)
	}
	return uses
}
