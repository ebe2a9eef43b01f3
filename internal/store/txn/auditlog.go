// The audit: a hash chain of rows for each target. A transaction that adds to it locks the chain's
// end after all its other locks, so rows are in commit order.

package txn

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

var (
	// ensureAuditHeads creates the ends of new chains, to be locked, in the order of the list.
	ensureAuditHeads = dialect.PostgresOnly("t", `
		INSERT INTO audit_heads (target) SELECT a FROM {w} WHERE true ON CONFLICT (target) DO NOTHING`)

	lockAuditHeads = dialect.Both("t", `
		SELECT h.target, h.seq, h.head FROM audit_heads h
		WHERE h.target IN (SELECT a FROM {w}) ORDER BY h.target {lock}`).RowByRow(`
		SELECT h.target, h.seq, h.head FROM audit_heads h WHERE h.target = $1`)

	ReadAuditHead = dialect.Both("", `SELECT h.target, h.seq, h.head FROM audit_heads h WHERE h.target = {1}`)

	saveAuditHeads = dialect.Both("tib", `
		INSERT INTO audit_heads (target, seq, head) {values}
		ON CONFLICT (target) DO UPDATE SET seq = excluded.seq, head = excluded.head`)

	insertAudit = dialect.Both("tiiiiiitttttb", `
		INSERT INTO audit_log (target, seq, at, act, reason, cursor, times, ref, actor, subject, op, peer, hash) {values}`)

	ReadAudit = dialect.Both("", `
		SELECT a.target, a.seq, a.at, a.act, a.reason, a.cursor, a.times, a.ref, a.actor, a.subject, a.op, a.peer, a.hash
		FROM audit_log a WHERE a.target = {1} AND a.seq > {2} ORDER BY a.seq LIMIT {3}`)
)

// AuditHead is the end of a target's chain.
type AuditHead struct {
	Seq  uint64
	Hash [32]byte
}

// ScanAuditHead scans the end of a chain.
func ScanAuditHead(row dialect.Scanner) (target string, h AuditHead, err error) {
	var seq int64
	var hash []byte
	if err := row.Scan(&target, &seq, &hash); err != nil {
		return "", h, err
	}
	h.Seq = uint64(seq)
	copy(h.Hash[:], hash)
	return target, h, nil
}

// SaveAudit adds rows to their targets' chains. It is the last step of a transaction.
func (t *Tx) SaveAudit(ctx context.Context, rows []*capability.AuditRow) error {
	if len(rows) == 0 {
		return nil
	}
	heads := map[string]*AuditHead{}
	for _, r := range rows {
		heads[r.Target] = &AuditHead{} // of a new chain
	}
	targets := TextRows(sortedKeys(heads))
	t.QueueList(ensureAuditHeads, targets, nil)
	t.QueueList(lockAuditHeads, targets, func(row dialect.Scanner) error {
		target, h, err := ScanAuditHead(row)
		heads[target] = &h
		return err
	})
	if err := t.Run.Flush(ctx); err != nil {
		return err
	}
	list := make([][]any, len(rows))
	for i, row := range rows {
		a, h := *row, heads[row.Target]
		a.Seq, a.At, a.Count = h.Seq+1, cmp.Or(a.At, t.Now), max(a.Count, 1)
		a.Hash = capability.HashAuditRow(h.Hash, &a)
		h.Seq, h.Hash = a.Seq, a.Hash
		list[i] = []any{a.Target, int64(a.Seq), a.At, int64(a.Act), int64(a.Reason), int64(a.Cursor), int64(a.Count),
			a.Ref, a.Actor, a.Subject, a.Op, a.Peer, slices.Clone(a.Hash[:])}
	}
	t.QueueList(insertAudit, list, nil)
	ends := make([][]any, len(targets))
	for i, target := range sortedKeys(heads) {
		h := heads[target]
		ends[i] = []any{target, int64(h.Seq), h.Hash[:]}
	}
	t.QueueList(saveAuditHeads, ends, nil)
	return nil
}

// ScanAudit scans a row of the audit.
func ScanAudit(row dialect.Scanner) (*capability.AuditRow, error) {
	var (
		a                               capability.AuditRow
		seq, act, reason, cursor, times int64
		hash                            []byte
	)
	if err := row.Scan(&a.Target, &seq, &a.At, &act, &reason, &cursor, &times, &a.Ref, &a.Actor, &a.Subject, &a.Op, &a.Peer, &hash); err != nil {
		return nil, err
	}
	a.Seq, a.Act, a.Reason, a.Cursor, a.Count = uint64(seq), capability.AuditAct(act), fault.Code(reason), uint64(cursor), uint32(times)
	copy(a.Hash[:], hash)
	return &a, nil
}
