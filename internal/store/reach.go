// Sessions that refs of other sessions reach: those below.

package store

import (
	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	// readBelow reads the living sessions below others: of those where b is 1, or whose refs reach them.
	readBelow = statement("ti", `
		WITH RECURSIVE below(top, id, life) AS (
			SELECT t.id, t.id, 0 FROM {w} CROSS JOIN sessions t
			WHERE t.id = w.a AND w.b + (SELECT count(*) FROM grants g WHERE g.target = t.id AND g.epoch = t.epoch AND g.reach > 0 AND g.revoked = 0) > 0
			UNION ALL
			SELECT below.top, c.id, c.life FROM below CROSS JOIN sessions c WHERE c.parent = below.id AND c.parent <> '')
		SELECT below.top, below.id FROM below WHERE below.life = 1 ORDER BY below.id`)

	// readReaching reads the refs of sessions that reach the sessions below and were not revoked.
	readReaching = statement("t", `
		SELECT `+grantColumns+` FROM {w} CROSS JOIN grants g
		WHERE g.target = w.a AND g.reach > 0 AND g.revoked = 0`)

	// readTreeReached reads the living sessions that a tree's living refs reach.
	readTreeReached = statement("", `
		WITH RECURSIVE `+descendantsCTE+`,
		reached(id, life) AS (
			SELECT below.target, 0 FROM below
			WHERE (SELECT CASE g.revoked WHEN 0 THEN g.reach END FROM grants g WHERE g.target = below.target AND g.tail = below.tail) > 0
			UNION
			SELECT c.id, c.life FROM reached CROSS JOIN sessions c WHERE c.parent = reached.id AND c.parent <> '')
		SELECT DISTINCT reached.id FROM reached WHERE reached.life = 1`)
)

// readBelow reads for a transaction what is below sessions, after locking them.
func (t *tx) readBelow(w *session.ReadSet, out *session.Rows) {
	var list [][]any
	for _, id := range sortedKeys(w.Below) {
		always := int64(0)
		if w.Below[id] {
			always = 1
		}
		list = append(list, []any{id, always})
	}
	t.queueList(readBelow, list, func(row Scanner) error {
		var top, id string
		err := row.Scan(&top, &id)
		out.Below[top] = append(out.Below[top], id)
		return err
	})
	t.queueList(readReaching, textRows(sortedKeys(w.Below)), grantsByID(out.Grants))
	t.queueList(readSessions, textRows(w.Others), sessionsByID(out.Others))
}
