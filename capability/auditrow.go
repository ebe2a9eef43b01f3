package capability

// Audit rows of redemptions, uses, shares, revocations and denials, and the hash chain of the rows
// of one target.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/digest"
)

// AuditRow is one row of a session's or space's audit: an act, its actor and authority, and its
// result. It never contains a secret or the hash of one.
type AuditRow struct {
	Target  string     // the session or space
	Seq     uint64     // 1, 2, 3 … in the target's audit; assigned by the store
	At      int64      // Unix ms; 0: the transaction's time
	Act     AuditAct   // what was done or tried
	Ref     string     // the ref it was done under; for a redemption the ref itself
	Actor   string     // the actor of that ref
	Subject string     // the ref it was done to: minted, revoked; for a use or denial the method
	Reason  fault.Code // the reason of the refusal; None if it was done
	Op      string     // the op id, if it was an op
	Cursor  uint64     // the session's cursor after it
	Count   uint32     // number of acts, in aggregated rows (uses, a batch's denials, unknown refs); 0 means one
	Peer    string     // the address of the caller; "" for several callers or none
	Hash    [32]byte   // over the previous row and this one (HashAuditRow); assigned by the store
}

// RefUses is how often a ref was used, and when last.
type RefUses struct {
	Ref      string
	Count    uint64
	LastUsed int64 // Unix ms
}

// IdempotencyKey names a page of rows that are written together, of uses or of an audit. A writer
// without an answer writes the page again under the same key, and it is stored once.
type IdempotencyKey struct {
	Writer string // the writer, whose pages are written one after the other
	Seq    uint64 // increasing
}

// AuditAct is the kind of act in an audit row. The values are stored; new ones are only appended.
type AuditAct uint8

// The acts that are audited.
const (
	AuditRedeem AuditAct = 1 + iota
	AuditShare
	AuditSave
	AuditRevoke
	AuditBump
	AuditDenial   // an op or call under a known ref was denied
	AuditStranger // an unknown ref or a wrong secret, counted
	AuditUse      // calls and ops under a ref, counted by actor and method for a minute
	AuditExpiry   // a ref expired
	AuditRotate   // a ref was replaced by another
	AuditDelete   // the session was deleted, and every ref to it died
	AuditPurge    // a key's payloads were removed from log and state
	AuditManage   // a space's ref began to act in the session; in the space's audit also: root refs got the right to
	AuditWebhook  // a webhook was registered
	AuditUnhook   // a webhook was removed
)

var auditActs = [...]string{"", "redeem", "share", "save", "revoke", "bump", "denial", "stranger",
	"use", "expiry", "rotate", "delete", "purge", "manage", "webhook", "unhook"}

// String returns the act's name in lists and JSON.
func (a AuditAct) String() string {
	if a == 0 || int(a) >= len(auditActs) {
		return "unknown"
	}
	return auditActs[a]
}

// HashAuditRow returns the hash of a row over that of the previous row (zero for the first) and all
// fields of r except Hash.
func HashAuditRow(prev [32]byte, r *AuditRow) (sum [32]byte) {
	w := digest.New("mooring audit v1")
	w.Sum32(prev)
	w.Text(r.Target)
	w.Num(r.Seq)
	w.Num(uint64(r.At))
	w.Num(uint64(r.Act))
	w.Text(r.Ref)
	w.Text(r.Actor)
	w.Text(r.Subject)
	w.Num(uint64(r.Reason))
	w.Text(r.Op)
	w.Num(r.Cursor)
	w.Num(uint64(r.Count))
	w.Text(r.Peer)
	return w.Sum()
}
