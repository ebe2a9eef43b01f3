// Sessions that refs of other sessions reach: those below.

package txn

import (
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// chain is what is above the children of the session t, in their column above. What is further down begins with it and
// a space, so all of it stands together in the index: from the chain to what follows it and the space.
const (
	Chain   = `trim(t.above || ' ' || t.id)`
	ofChain = `s.above >= t.chain AND s.above < t.chain || '!' AND s.above <> '' AND s.life = 1`
	reaches = `g.reach > 0 AND g.revoked = 0`
)

// On Postgres each step is a LATERAL with an OFFSET, which the planner does not turn around: it takes an index of few rows,
// of which it has no figures yet, for an empty one, and would compare all of it with each row.
var (
	// readBelow reads the living sessions below others: of those where b is 1, or whose refs reach them.
	readBelow = dialect.Each(dialect.Both("ti", `
		SELECT t.id, c.id FROM {w}
		CROSS JOIN LATERAL (
			SELECT t.id, `+Chain+` AS chain FROM sessions t
			WHERE t.id = w.a AND w.b + (SELECT count(*) FROM grants g WHERE g.target = t.id AND g.epoch = t.epoch AND `+reaches+`) > 0 OFFSET 0) AS t
		CROSS JOIN LATERAL (SELECT s.id FROM sessions s WHERE `+ofChain+` OFFSET 0) AS c
		ORDER BY c.id`), dialect.Both("ti", `
		SELECT t.id, s.id FROM {w} CROSS JOIN sessions t CROSS JOIN sessions s {by sessions_above}
		WHERE t.id = w.a AND w.b + (SELECT count(*) FROM grants g WHERE g.target = t.id AND g.epoch = t.epoch AND `+reaches+`) > 0
			AND `+strings.ReplaceAll(ofChain, "t.chain", Chain)+` ORDER BY s.id`))

	// readReaching reads the refs of sessions that reach the sessions below and were not revoked.
	readReaching = dialect.Each(dialect.Both("t", `
		SELECT `+GrantColumns+` FROM {w} CROSS JOIN LATERAL (SELECT * FROM grants g WHERE g.target = w.a AND `+reaches+` OFFSET 0) AS g`), dialect.Both("t", `
		SELECT `+GrantColumns+` FROM {w} CROSS JOIN grants g WHERE g.target = w.a AND `+reaches))

	// reachingOfTree are the sessions of a tree's living refs that reach others.
	reachingOfTree = `WITH RECURSIVE ` + descendantsCTE + `, top(id) AS (
		SELECT DISTINCT below.target FROM below
		WHERE (SELECT CASE g.revoked WHEN 0 THEN g.reach END FROM grants g WHERE g.target = below.target AND g.tail = below.tail) > 0)`

	// readTreeReached reads the living sessions that they reach.
	readTreeReached = dialect.Each(dialect.Both("", reachingOfTree+`
		SELECT DISTINCT c.id FROM top
		CROSS JOIN LATERAL (SELECT `+Chain+` AS chain FROM sessions t WHERE t.id = top.id OFFSET 0) AS t
		CROSS JOIN LATERAL (SELECT s.id FROM sessions s WHERE `+ofChain+` OFFSET 0) AS c`), dialect.Both("", reachingOfTree+`
		SELECT DISTINCT s.id FROM top CROSS JOIN sessions t CROSS JOIN sessions s {by sessions_above}
		WHERE t.id = top.id AND `+strings.ReplaceAll(ofChain, "t.chain", Chain)))
)

// readBelow reads for a transaction what is below sessions, after locking them.
func (t *Tx) readBelow(w *session.ReadSet, out *session.Rows) {
	var list [][]any
	for _, id := range sortedKeys(w.Below) {
		always := int64(0)
		if w.Below[id] {
			always = 1
		}
		list = append(list, []any{id, always})
	}
	t.QueueList(readBelow, list, func(row dialect.Scanner) error {
		var top, id string
		err := row.Scan(&top, &id)
		out.Below[top] = append(out.Below[top], id)
		return err
	})
	t.QueueList(readReaching, TextRows(sortedKeys(w.Below)), GrantsByID(out.Grants))
	t.QueueList(ReadSessions, TextRows(w.Others), SessionsByID(out.Others))
}
