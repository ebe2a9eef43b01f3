// Sturdy refs and redemptions: statements and scans. A ref id is stored in two columns: the target,
// with which every key begins, and the tail.

package txn

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// GrantColumns are the columns that ScanGrant scans.
const GrantColumns = `g.target, g.tail, g.parent_target, g.parent_tail, g.owner, g.epoch, g.rights, g.methods, g.expires, g.visible_from,
	g.redeemable, g.redeemed, g.created, g.revoked, g.cut, g.revoked_by, g.label, g.actor, g.hash, g.message, g.message_rights, g.seal,
	g.read_keys, g.write_keys, g.key_rights, g.reach, g.reach_rights, g.ask_kinds, g.answer_kinds, g.bytes, g.spared`

var (
	ReadGrants = dialect.Both("tt", `
		SELECT `+GrantColumns+` FROM {w} CROSS JOIN grants g WHERE g.target = w.a AND g.tail = w.b`)

	// ReadLineages reads refs with all their ancestors.
	ReadLineages = dialect.Both("tt", `
		WITH RECURSIVE line(target, tail) AS (
			SELECT g.target, g.tail FROM {w} CROSS JOIN grants g WHERE g.target = w.a AND g.tail = w.b
			UNION
			SELECT g.parent_target, g.parent_tail FROM line CROSS JOIN grants g
			WHERE g.target = line.target AND g.tail = line.tail AND g.parent_target <> '')
		SELECT `+GrantColumns+` FROM line CROSS JOIN grants g WHERE g.target = line.target AND g.tail = line.tail`)

	insertGrants = dialect.Both("ttttiiitiiiiiiitttbtibttiiitt", `
		INSERT INTO grants (target, tail, parent_target, parent_tail, owner, epoch, rights, methods, expires, visible_from,
			redeemable, redeemed, created, revoked, cut, revoked_by, label, actor, hash, message, message_rights, seal,
			read_keys, write_keys, key_rights, reach, reach_rights, ask_kinds, answer_kinds)
		{values}`)

	// chargeGrants adds to the bytes stored under refs.
	chargeGrants = dialect.Both("tti", `
		UPDATE grants SET bytes = bytes + w.c FROM {w} WHERE grants.target = w.a AND grants.tail = w.b`)

	// revokeSubtree marks a ref and its living descendants revoked.
	revokeSubtree = dialect.Both("", `
		WITH RECURSIVE `+descendantsCTE+`
		UPDATE grants SET revoked = {3}, cut = {4}, revoked_by = {5}
		WHERE (target, tail) IN (SELECT target, tail FROM below) AND revoked = 0`)
)

// ScanGrant scans a ref and, behind its columns, more.
func ScanGrant(row dialect.Scanner, more ...any) (*capability.Grant, error) {
	var (
		g                                                   capability.Grant
		tail, parentTarget, parentTail, methods             string
		owner, epoch, rights, from, redeemable, used, cutAt int64
		within, inKeys, reach, reaching                     int64
		readKeys, writeKeys, asks, answers                  string
		hash, seal                                          []byte
	)
	dest := []any{&g.Target, &tail, &parentTarget, &parentTail, &owner, &epoch, &rights, &methods, &g.Expires, &from,
		&redeemable, &used, &g.Created, &g.Revoked, &cutAt, &g.RevokedBy, &g.Label, &g.Actor, &hash, &g.Message, &within, &seal,
		&readKeys, &writeKeys, &inKeys, &reach, &reaching, &asks, &answers, &g.Bytes, &g.ExemptBytes}
	if err := row.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	g.ID, g.Parent = JoinRef(g.Target, tail), JoinRef(parentTarget, parentTail)
	g.Owner, g.Epoch, g.Rights = owner != 0, uint64(epoch), capability.Rights(rights|within|inKeys|reaching)
	g.Children = capability.Rights(reach)
	g.VisibleFrom, g.MaxRedemptions, g.Redemptions, g.Cut = uint64(from), uint32(redeemable), uint32(used), uint64(cutAt)
	if g.Owner {
		g.Rights |= capability.LaterRights
	}
	if g.IsRoot() {
		g.Rights |= capability.Manage
	}
	copy(g.Hash[:], hash)
	if len(seal) > 0 {
		g.Seal = seal
	}
	g.ReadKeys, g.WriteKeys, g.AskKinds, g.AnswerKinds = splitKeys(readKeys), splitKeys(writeKeys), splitKeys(asks), splitKeys(answers)
	// NULL is nil: all methods. No ref has an empty list.
	if err := json.Unmarshal([]byte(methods), &g.Methods); err != nil {
		return nil, fmt.Errorf("methods of ref %s: %w", g.ID, err)
	}
	return &g, nil
}

func grantValues(g *capability.Grant) ([]any, error) {
	methods, err := json.Marshal(g.Methods)
	if err != nil {
		return nil, fmt.Errorf("methods of ref %s: %w", g.ID, err)
	}
	seal := g.Seal
	if seal == nil {
		seal = []byte{} // the column is never NULL
	}
	_, tail := SplitRef(g.ID)
	parentTarget, parentTail := SplitRef(g.Parent)
	var owner int64
	all := g.Rights
	if g.Owner { // a server that does not know them would refuse to rotate the ref
		owner, all = 1, all&^capability.LaterRights
	}
	if g.IsRoot() {
		all &^= capability.Manage
	}
	// A server that does not know a limit must find no rights without it.
	var rights, within, inKeys, reaching int64
	switch {
	case g.Children != 0:
		reaching = int64(all)
	case g.ReadKeys != nil || g.WriteKeys != nil || g.AskKinds != nil || g.AnswerKinds != nil:
		inKeys = int64(all)
	case g.Message != "":
		within = int64(all)
	default:
		rights = int64(all)
	}
	return []any{g.Target, tail, parentTarget, parentTail, owner, int64(g.Epoch), rights, string(methods), g.Expires, int64(g.VisibleFrom),
		int64(g.MaxRedemptions), int64(g.Redemptions), g.Created, g.Revoked, int64(g.Cut), g.RevokedBy, g.Label, g.Actor, g.Hash[:], g.Message, within, seal,
		strings.Join(g.ReadKeys, keySep), strings.Join(g.WriteKeys, keySep), inKeys, int64(g.Children), reaching,
		strings.Join(g.AskKinds, keySep), strings.Join(g.AnswerKinds, keySep)}, nil
}

// keySep is between the keys of a list in a column; ” is no limit.
const keySep = "\n"

func splitKeys(column string) []string {
	if column == "" {
		return nil
	}
	return strings.Split(column, keySep)
}

// GrantsByID returns a callback that puts refs into a map.
func GrantsByID(grants map[string]*capability.Grant) func(dialect.Scanner) error {
	return dialect.EachRow(ScanRef, func(g *capability.Grant) { grants[g.ID] = g })
}

// ScanRef is ScanGrant without further columns.
func ScanRef(row dialect.Scanner) (*capability.Grant, error) { return ScanGrant(row) }
