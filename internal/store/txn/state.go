// The folded state: statements and scans of entries and turns, and of requests that are open or claimed, whose
// texts and answers are in entries.

package txn

import (
	"fmt"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

const (
	EntryMetaNames = `e.session, e.key, e.cursor, e.schema, e.text_len, e.grown, e.sum, e.since, e.ord, e.ord_index, e.claim, e.claim_until, e.claim_ref, e.edited`

	// EntryMetaColumns are an entry's columns without its payload. A value that is stored in its
	// event is as old as the event, whichever server wrote the row.
	EntryMetaColumns = `e.session, e.key, e.cursor, e.schema, e.text_len, e.grown, e.sum,
		CASE WHEN e.payload IS NULL THEN e.cursor ELSE e.since END AS since, e.ord, e.ord_index, e.claim, e.claim_until, e.claim_ref, e.edited`

	// EntryValue selects an entry's stored value, which is in its own row or, mostly, in its event's row.
	// It is a subquery and not a join: without statistics Postgres would scan the whole log for
	// each entry of a join.
	EntryValue = `COALESCE(e.payload, (SELECT v.payload FROM events v WHERE v.session = e.session AND v.cursor = e.cursor))`
	// entryEdits selects what makes the value of it, if that was changed since it was stored whole.
	entryEdits   = `CASE WHEN e.edited > 0 THEN (SELECT d.edits FROM entry_edits d WHERE d.session = e.session AND d.key = e.key) END`
	entryColumns = EntryMetaColumns + `, ` + EntryValue + ` AS payload, ` + entryEdits + ` AS edits`

	// EntryLength selects the length of an entry's value, without its deltas.
	EntryLength = `CASE WHEN e.edited > 0 THEN e.edited ELSE COALESCE(octet_length(` + EntryValue + `), 0) END`

	// turnTail selects the tail of a turn's ref. A server of the previous version stores none: the
	// one in the turn's event exists as long as the turn is open.
	turnTail = `COALESCE(NULLIF(t.ref, ''), (SELECT substr(v.ref, length(t.session) + 2) FROM events v
		WHERE v.session = t.session AND v.cursor = t.begun), '')`
	TurnColumns = `t.session, t.message, t.status, t.lease, t.begun, t.ended, t.outbox, t.final, t.orphan, ` + turnTail + ` AS tail`
)

// EntryWeight selects an entry's size, its deltas included: the text of those is in neither of the two
// payloads.
var EntryWeight = fmt.Sprintf("%s + %d + CASE WHEN e.grown > 0 THEN e.text_len ELSE 0 END", EntryLength, EntryOverhead)

var (
	ReadEntryMeta = dialect.Both("Tt", `
		SELECT `+EntryMetaColumns+` FROM {w} CROSS JOIN entries e WHERE e.session = w.a AND e.key = w.b`)

	ReadEntries = dialect.Bounded("tt", EntryMetaNames+`, payload, edits`, `
		SELECT `+entryColumns+` FROM {w} CROSS JOIN entries e
		WHERE e.session = w.a AND e.key = w.b`)

	// readRanges reads the keys from b to below c.
	readRanges = dialect.Bounded("ttt", EntryMetaNames+`, payload, edits`, `
		SELECT `+entryColumns+` FROM {w} CROSS JOIN entries e
		WHERE e.session = w.a AND e.key >= w.b AND e.key < w.c`)

	// readRange reads the keys from {2} on and below {3}.
	readRange = dialect.Page(entryColumns, `FROM entries e WHERE e.session = {1} AND e.key >= {2}`, "e.key", "{3}", EntryWeight, "{4}", "{5}")

	// saveEntries inserts or replaces entries. An existing entry keeps its Ord, except one that was
	// removed before in the same group.
	saveEntries = dialect.Both("TIIBItiibiii", `
		INSERT INTO entries (session, schema, grown, payload, edited, key, cursor, text_len, sum, since, ord, ord_index)
		{values} ON CONFLICT (session, key) DO UPDATE SET
			cursor = excluded.cursor, schema = excluded.schema, text_len = excluded.text_len, grown = excluded.grown,
			sum = excluded.sum, payload = excluded.payload, edited = excluded.edited, since = excluded.since,
			ord = CASE WHEN excluded.ord > 0 THEN excluded.ord ELSE entries.ord END,
			ord_index = CASE WHEN excluded.ord > 0 THEN excluded.ord_index ELSE entries.ord_index END`)

	// insertEntries is saveEntries for keys known to be absent.
	insertEntries = dialect.Both("TIIBItiibiii", `
		INSERT INTO entries (session, schema, grown, payload, edited, key, cursor, text_len, sum, since, ord, ord_index) {values}`)

	// updateEdited writes an edit's changes to its entry, whose stored value stays, and saveEdits what
	// makes the new value of that. SQLite writes neither a large value's pages again: the row keeps its
	// length.
	updateEdited = dialect.Both("ttiibi", `
		UPDATE entries SET cursor = w.c, schema = w.d, sum = w.e, edited = w.f FROM {w} WHERE entries.session = w.a AND entries.key = w.b`)
	saveEdits = dialect.Both("ttb", `
		INSERT INTO entry_edits (session, key, edits) {values} ON CONFLICT (session, key) DO UPDATE SET edits = excluded.edits`)
	dropEdits = dialect.Both("tt", `
		DELETE FROM entry_edits WHERE (session, key) IN (SELECT a, b FROM {w})`)

	dropEntries = dialect.Both("tt", `
		DELETE FROM entries WHERE (session, key) IN (SELECT a, b FROM {w})`)

	// readOpenTurns uses turns_counted, the index of open turns (status Streaming and Interrupted)
	// except orphans.
	readOpenTurns = dialect.Both("t", `
		SELECT `+TurnColumns+` FROM {w} CROSS JOIN turns t {by turns_counted} WHERE t.session = w.a AND t.status <= 2 AND t.orphan = 0`)

	// readTurnRefs reads the refs that open turns were begun under, and all their ancestors in the
	// session.
	readTurnRefs = dialect.Both("t", `
		WITH RECURSIVE line(target, tail) AS (
			SELECT t.session, `+turnTail+` FROM {w} CROSS JOIN turns t {by turns_counted} WHERE t.session = w.a AND t.status <= 2 AND t.orphan = 0
			UNION
			SELECT g.parent_target, g.parent_tail FROM line CROSS JOIN grants g
			WHERE g.target = line.target AND g.tail = line.tail AND g.parent_target = g.target)
		SELECT `+GrantColumns+` FROM line CROSS JOIN grants g WHERE g.target = line.target AND g.tail = line.tail`)

	// readStreamingTurns uses turns_streaming, the index of turns of status Streaming.
	readStreamingTurns = dialect.Both("t", `
		SELECT `+TurnColumns+` FROM {w} CROSS JOIN turns t {by turns_streaming} WHERE t.session = w.a AND t.status = 1`)

	// readOpenOrphans uses turns_open, the index of open turns.
	readOpenOrphans = dialect.Both("", `
		SELECT `+TurnColumns+` FROM turns t {by turns_open} WHERE t.session = {1} AND t.status <= 2 AND t.orphan = 1 ORDER BY t.begun LIMIT {2}`)

	ReadTurns = dialect.Both("tt", `
		SELECT `+TurnColumns+` FROM {w} CROSS JOIN turns t WHERE t.session = w.a AND t.message = w.b`)

	readLapsedClaims = dialect.Both("t", `
		SELECT `+EntryMetaColumns+` FROM {w} CROSS JOIN entries e {by entries_claimed}
		WHERE e.session = w.a AND e.claim_until > 0 AND e.claim_until <= {1} LIMIT {2}`)

	// countClaims counts the claims in force of a session by ref, from their index alone.
	countClaims = dialect.Both("", `
		SELECT e.claim_ref, COUNT(*) FROM entries e {by entries_claimed}
		WHERE e.session = {1} AND e.claim_until > 0 AND e.claim_until > {2} GROUP BY e.claim_ref`)

	// readFreeKeys looks at {6} keys between {2} and {3}, and reads the first {5} of them that are not
	// claimed at {4}.
	readFreeKeys = dialect.Both("", `
		SELECT `+EntryMetaNames+` FROM (
			SELECT `+EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND e.key > {2} AND e.key < {3} ORDER BY e.key LIMIT {6}) e
		WHERE e.claim_until <= {4} ORDER BY e.key LIMIT {5}`)

	// NthKey reads the key that comes after {4} others.
	NthKey = dialect.Both("", `
		SELECT e.key FROM entries e WHERE e.session = {1} AND e.key > {2} AND e.key < {3} ORDER BY e.key LIMIT 1 OFFSET {4}`)

	saveClaims = dialect.Both("tttit", `
		UPDATE entries SET claim = w.c, claim_until = w.d, claim_ref = w.e FROM {w} WHERE entries.session = w.a AND entries.key = w.b`)

	// saveTurns inserts or replaces turns. An orphan stays one.
	saveTurns = dialect.Both("ttiiiitbit", `
		INSERT INTO turns (session, message, status, lease, begun, ended, outbox, final, orphan, ref)
		{values} ON CONFLICT (session, message) DO UPDATE SET
			status = excluded.status, lease = excluded.lease, begun = excluded.begun, ended = excluded.ended,
			outbox = excluded.outbox, final = excluded.final, ref = excluded.ref,
			orphan = CASE WHEN turns.orphan > excluded.orphan THEN turns.orphan ELSE excluded.orphan END`)

	dropState = dialect.Both("t", `DELETE FROM entries WHERE session IN (SELECT a FROM {w})`).RowByRow(`
		DELETE FROM entries WHERE session = $1`)
	dropAllEdits = dialect.Both("t", `DELETE FROM entry_edits WHERE session IN (SELECT a FROM {w})`)
	dropTurns    = dialect.Both("t", `DELETE FROM turns WHERE session IN (SELECT a FROM {w})`)
)

// updateAppended writes an appended delta's changes to its part. The row's other columns, its
// payload among them, are neither read, sent nor rewritten by the server.
var updateAppended = &dialect.Statement{
	Postgres: dialect.Forms{
		Many: `UPDATE entries SET text_len = w.c, grown = w.d
			FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS w(a, b, c, d)
			WHERE entries.session = w.a AND entries.key = w.b`,
		One: updateOneAppended,
	},
	SQLite:  dialect.Forms{One: updateOneAppended},
	Columns: []dialect.Column{dialect.Text, dialect.Text, dialect.Int, dialect.Int},
}

const updateOneAppended = `UPDATE entries SET text_len = $3, grown = $4 WHERE session = $1 AND key = $2`

// ScanEntryMeta scans an entry without its payload.
func ScanEntryMeta(row dialect.Scanner, more ...any) (*session.Entry, error) {
	var (
		e                                     session.Entry
		cursor, schema, textLen, grown, since int64
		ord, index, edited                    int64
		sum                                   []byte
		claim, ref                            string
		until                                 int64
	)
	dest := []any{&e.Session, &e.Key, &cursor, &schema, &textLen, &grown, &sum, &since, &ord, &index, &claim, &until, &ref, &edited}
	if err := row.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	e.Cursor, e.Schema, e.TextLen, e.LastAppend, e.Since = uint64(cursor), uint32(schema), uint64(textLen), uint64(grown), uint64(since)
	e.Ord, e.Edited = session.Ord{At: uint64(ord), Index: uint64(index)}, uint64(edited)
	copy(e.Sum[:], sum)
	if claim != "" {
		var err error
		if e.Claim, err = session.UnmarshalClaim(claim, until, refOf(e.Session, ref)); err != nil {
			return nil, err
		}
	}
	return &e, nil
}

// claimValues returns the values of an entry's claim, or those of none.
func claimValues(e *session.Entry) []any {
	if e.Claim == nil {
		return []any{e.Session, e.Key, "", int64(0), ""}
	}
	return []any{e.Session, e.Key, session.MarshalClaim(e.Claim), e.Claim.Until, refIn(e.Session, e.Claim.Ref)}
}

// ScanEntry scans an entry with its payload.
func ScanEntry(row dialect.Scanner) (*session.Entry, error) {
	var payload, edits []byte
	e, err := ScanEntryMeta(row, &payload, &edits)
	if err != nil {
		return nil, err
	}
	e.Edits = edits
	e.Payload, err = session.Value(payload, edits)
	return e, err
}

// EntryOverhead is the minimum size of an entry, in bytes.
const EntryOverhead = 128

// entrySize is about an entry's size in bytes, its deltas included.
func entrySize(e *session.Entry) int {
	bytes := EntryOverhead + len(e.Payload) + len(e.Key)
	if e.LastAppend > 0 {
		bytes += int(e.TextLen)
	}
	return bytes
}

func entryValues(to []any, e *session.Entry) []any {
	return append(to, &e.Session, int64(e.Schema), &e.LastAppend, &e.Payload, &e.Edited, &e.Key, &e.Cursor, &e.TextLen, &e.Sum, &e.Since, &e.Ord.At, &e.Ord.Index)
}

// ScanTurn scans a turn.
func ScanTurn(row dialect.Scanner) (*session.Turn, error) {
	var (
		t            session.Turn
		status       uint8
		begun, ended int64
		final        []byte
		orphan       int64
		tail         string
	)
	if err := row.Scan(&t.Session, &t.Message, &status, &t.Lease, &begun, &ended, &t.Outbox, &final, &orphan, &tail); err != nil {
		return nil, err
	}
	t.Orphan, t.Ref = orphan != 0, refOf(t.Session, tail)
	t.Status, t.Begun, t.Ended = session.TurnStatus(status), uint64(begun), uint64(ended)
	copy(t.Final[:], final)
	return &t, nil
}

func turnValues(t *session.Turn) []any {
	orphan := int64(0)
	if t.Orphan {
		orphan = 1
	}
	return []any{t.Session, t.Message, int64(t.Status), t.Lease, int64(t.Begun), int64(t.Ended), t.Outbox, t.Final[:], orphan, refIn(t.Session, t.Ref)}
}

// ListByPut reads entries of kind {2} without values, after a place in the session's order.
var ListByPut = dialect.Both("", `
	SELECT `+EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND {kind} = {2} AND (e.ord, e.ord_index, e.key) > ({3}, {4}, {5})
	ORDER BY e.ord, e.ord_index, e.key LIMIT {6}`)

// KeyAfter returns the text that comes after a key and before all keys that do.
func KeyAfter(key string) string { return key + " " }

// ScanMeta is ScanEntryMeta without further columns.
func ScanMeta(row dialect.Scanner) (*session.Entry, error) { return ScanEntryMeta(row) }

var (
	ReadRequests = dialect.Both("t", `
		SELECT r.session, r.id, r.request FROM {w} CROSS JOIN requests r WHERE r.session = w.a`)

	saveRequests = dialect.Both("ttit", `
		INSERT INTO requests (session, id, due, request)
		{values} ON CONFLICT (session, id) DO UPDATE SET due = excluded.due, request = excluded.request`)
)

// ScanRequest scans a request.
func ScanRequest(row dialect.Scanner) (*session.OpenRequest, error) {
	var id, request, text string
	if err := row.Scan(&id, &request, &text); err != nil {
		return nil, err
	}
	return session.UnmarshalRequest(id, request, text)
}

func requestValues(r *session.OpenRequest) []any {
	return []any{r.Session, r.ID, r.Due(), r.Marshal()}
}
