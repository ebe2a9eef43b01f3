package capability

// What is kept of every redeem, use, share, revoke and denial, and the chain
// that binds the rows of one target.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/digest"
)

// AuditRow is one line of a session's or space's audit: who did what to whose
// authority, and what came of it. It never holds a secret or a hash of one.
type AuditRow struct {
	Target  string     // the session or space
	Seq     uint64     // 1, 2, 3 … in the target's audit; given by the store
	At      int64      // Unix ms; 0: the transaction's now
	Act     AuditAct   // what was done or tried
	Ref     string     // the ref it was done under; for a redeem the ref itself
	Actor   string     // who, by that ref
	Subject string     // the ref it was done to: minted, revoked; for a use or denial the method
	Reason  fault.Code // why it was refused; None if it was done
	Op      string     // the op id, if it was an op
	Cursor  uint64     // the session's cursor after it
	Count   uint32     // how often, where rows are gathered (uses, a batch's denials, strangers'); 0 means once
	Peer    string     // the address it came from; "" if it came from many, or from nobody
	Hash    [32]byte   // over the row before it and this one (HashAuditRow); given by the store
}

// RefUses is how often a ref was used, and when last.
type RefUses struct {
	Ref      string
	Count    uint64
	LastUsed int64 // Unix ms
}

// IdempotencyKey names rows that are written together, of uses or of an audit. Whoever does not
// hear whether they were writes them again under the same name, and they are there once.
type IdempotencyKey struct {
	Writer string // whose pages come one after the other
	Seq    uint64 // that grows
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
	AuditUse      // calls and ops under a ref, counted by actor and method for a minute
	AuditExpiry   // a ref's time was over
	AuditRotate   // a ref took another one's place
	AuditDelete   // the session was deleted, and every ref to it died
	AuditPurge    // a key's payloads were removed from log and state
)

var auditActs = [...]string{"", "redeem", "share", "save", "revoke", "bump", "denial", "stranger",
	"use", "expiry", "rotate", "delete", "purge"}

// String is the act's name in lists and JSON.
func (a AuditAct) String() string {
	if a == 0 || int(a) >= len(auditActs) {
		return "unknown"
	}
	return auditActs[a]
}

// HashAuditRow computes the hash of a row over that of the row before it (zero for
// the first) and all of r's own fields but Hash.
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
