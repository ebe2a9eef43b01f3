// The bytes that count for sessions and refs: what is subtracted when payloads and events go.

package txn

import (
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// The sizes of events v: in full, after a purge, and after trimming, when values stored only in
// events are in the state.
var (
	payloadBytes = `CAST(sum(length(v.payload)) AS bigint)`
	StoredBytes  = fmt.Sprintf(`CAST(coalesce(sum(coalesce(length(v.payload), 0) + %d), 0) AS bigint)`, session.EventCost)
	purgedBytes  = `CAST(sum(coalesce(length(v.payload), 0) - w.c) AS bigint)`
	trimmedBytes = fmt.Sprintf(`CAST(coalesce(sum(CASE WHEN EXISTS (
			SELECT 1 FROM entries e WHERE e.session = v.session AND e.key = v.key AND e.cursor = v.cursor AND e.payload IS NULL)
		THEN 0 ELSE coalesce(length(v.payload), 0) END + %d), 0) AS bigint)`, session.EventCost)
)

// EventGrant is the grant of the ref f.ref, under which events were written: one of their session, or of one above
// it. fromAbove are the events of the latter.
var (
	targetLength = len(capability.SessionPrefix) + ulid.EncodedSize
	EventGrant   = fmt.Sprintf(`grants.target = substr(f.ref, 1, %d) AND grants.tail = substr(f.ref, %d)`, targetLength, targetLength+2)
	fromAbove    = fmt.Sprintf(`substr(v.ref, 1, %d) <> v.session`, targetLength)
)

const (
	subtractBytes = `SET bytes = CASE WHEN bytes > f.n THEN bytes - f.n ELSE 0 END FROM`
	cursorRange   = `v.session = {1} AND v.cursor > {2} AND v.cursor <= {3}`
)

var (
	// releaseSessionBytes subtracts removed payloads from a session's sum, except the bytes that
	// remain of each event; releaseGrantBytes does the same for the refs that they were written
	// under.
	releaseSessionBytes = dialect.Both("tii", `
		UPDATE sessions `+subtractBytes+` (
			SELECT v.session, `+purgedBytes+` AS n FROM {w} CROSS JOIN events v
			WHERE v.session = w.a AND v.cursor = w.b GROUP BY v.session) AS f
		WHERE sessions.id = f.session`)
	releaseGrantBytes = giveBack("tii", purgedBytes, `FROM {w} CROSS JOIN events v WHERE v.session = w.a AND v.cursor = w.b`)

	// releaseAbove subtracts all payloads of sessions that end, and ForgetAbove a removed session's first {2} events,
	// from the refs of sessions above.
	releaseAbove = giveBack("t", payloadBytes, `FROM {w} CROSS JOIN events v WHERE v.session = w.a AND v.payload IS NOT NULL AND `+fromAbove)

	ForgetAbove = giveBack("", StoredBytes, `
		FROM (SELECT x.session, x.ref, x.payload FROM events x WHERE x.session = {1} ORDER BY x.cursor LIMIT {2}) AS v WHERE `+fromAbove)

	// TrimSessions and TrimGrants subtract the events after {2}, up to {3}, which are removed.
	TrimSessions = dialect.Both("", `
		UPDATE sessions `+subtractBytes+` (
			SELECT `+trimmedBytes+` - CASE WHEN EXISTS (SELECT 1 FROM events v WHERE `+cursorRange+` AND v.method IN ('fork', 'finalize', 'patch', 'add')) THEN (
				SELECT CAST(coalesce(sum(length(e.payload)), 0) AS bigint) FROM entries e
				WHERE e.session = {1} AND e.cursor > {2} AND e.cursor <= {3} AND e.payload IS NOT NULL) ELSE 0 END AS n
			FROM events v WHERE `+cursorRange+`) AS f
		WHERE sessions.id = {1}`)
	TrimGrants = giveBack("", StoredBytes, `FROM events v WHERE `+cursorRange)
)

// giveBack subtracts bytes from the counts of refs, in events that the text after SELECT and the sum names. The refs
// may be of a session above, which is not locked: their rows are locked in their order, so that two transactions in
// sessions below it do not wait for each other.
func giveBack(columns, sum, events string) *dialect.Statement {
	return dialect.Both(columns, `
		WITH f AS (SELECT v.ref, `+sum+` AS n `+events+` GROUP BY v.ref),
		held AS (SELECT grants.target, grants.tail, f.n FROM f CROSS JOIN grants WHERE `+EventGrant+` AND grants.bytes > 0 ORDER BY grants.target, grants.tail {lock})
		UPDATE grants `+subtractBytes+` held AS f WHERE grants.target = f.target AND grants.tail = f.tail`)
}

// releaseBytes subtracts the loss of events: session, cursor, and the remaining bytes of the
// payload.
func (t *Tx) releaseBytes(list [][]any) {
	t.QueueList(releaseSessionBytes, list, nil)
	t.QueueList(releaseGrantBytes, list, nil)
}
