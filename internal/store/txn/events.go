// The log: statements and scans of events.

package txn

import (
	"fmt"
	"math"
	"strconv"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

const (
	eventColumns = `v.session, v.cursor, v.at, v.schema, v.method, v.key, v.ref, v.actor, v.outbox, v.op, v.batch, v.sum, v.hash, v.payload`
	deltaColumns = `v.session, v.key, v.cursor, v.payload`
)

var (
	insertEvents = dialect.Both("TIITTTTTittbbb", `
		INSERT INTO events (session, at, schema, method, ref, actor, outbox, batch, cursor, key, op, sum, hash, payload) {values}`)

	ReadEvents = dialect.Page(eventColumns, `FROM events v WHERE v.session = {1} AND v.cursor > {2}`,
		"v.cursor", strconv.FormatInt(math.MaxInt64, 10), fmt.Sprintf("COALESCE(octet_length(v.payload), 0) + %d", EventOverhead), "{3}", "{4}")

	// ReadHashes reads the hashes of events, which remain when payloads are removed.
	ReadHashes = dialect.Both("ti", `
		SELECT v.cursor, v.hash FROM {w} CROSS JOIN events v
		WHERE v.session = w.a AND v.cursor = w.b`)

	// readLogs reads whole logs, each up to a cursor.
	readLogs = dialect.Bounded("ti", eventColumns, `
		SELECT `+eventColumns+` FROM {w} CROSS JOIN events v
		WHERE v.session = w.a AND v.cursor <= w.b`)

	// readDeltas scans a session's log once, for any number of parts; the caller selects the keys.
	readDeltas = dialect.Bounded("ti", deltaColumns, `
		SELECT `+deltaColumns+` FROM {w} CROSS JOIN events v
		WHERE v.session = w.a AND v.cursor > w.b AND v.method = '`+session.MethodAppendText+`'`)

	// readOpenDeltas reads the deltas of keys from {4} to {5} after cursor {2} and up to {3}, while
	// turns are open: the deltas of ended turns are in their parts' values.
	readOpenDeltas = dialect.Both("", `
		SELECT `+deltaColumns+` FROM events v
		WHERE v.session = {1} AND v.cursor > {2} AND v.cursor <= {3}
		AND v.cursor > (SELECT MIN(t.begun) FROM turns t WHERE t.session = {1} AND t.status <= 2)
		AND v.key >= {4} AND v.key <= {5} AND v.method = '`+session.MethodAppendText+`' ORDER BY v.cursor`)

	// readKeptDeltas reads them also of turns that have ended: for values from before that.
	readKeptDeltas = dialect.Both("", `
		SELECT `+deltaColumns+` FROM events v
		WHERE v.session = {1} AND v.cursor > {2} AND v.cursor <= {3}
		AND v.key >= {4} AND v.key <= {5} AND v.method = '`+session.MethodAppendText+`' ORDER BY v.cursor`)

	// readPayloadEvents reads the events that hold payloads of a key b, or may: a fork, and the
	// finalize whose key is c. Only events that may are read with their payload.
	readPayloadEvents = dialect.Bounded("ttt", `v.session, v.cursor, v.method, v.payload`, `
		SELECT v.session, v.cursor, v.method,
			CASE WHEN v.method IN ('`+session.MethodFork+`', '`+session.MethodFinalize+`') THEN v.payload END AS payload
		FROM {w} CROSS JOIN events v
		WHERE v.session = w.a AND v.payload IS NOT NULL AND (
			v.key = w.b AND v.method IN ('`+session.MethodPut+`', '`+session.MethodPatch+`', '`+session.MethodAdd+`', '`+session.MethodBegin+`', '`+session.MethodAppendText+`')
			OR v.key = w.c AND v.method = '`+session.MethodFinalize+`'
			OR v.method = '`+session.MethodFork+`')`)

	DropPayloads = dialect.Both("ti", `
		UPDATE events SET payload = NULL WHERE (session, cursor) IN (SELECT a, b FROM {w})`)

	// replacePayload replaces an event's payload by the remainder after a purge.
	replacePayload = dialect.Both("", `UPDATE events SET payload = {3} WHERE session = {1} AND cursor = {2}`)

	// dropAllPayloads is DropPayloads for whole logs.
	dropAllPayloads = dialect.Both("t", `
		UPDATE events SET payload = NULL WHERE session IN (SELECT a FROM {w}) AND payload IS NOT NULL`).RowByRow(`
		UPDATE events SET payload = NULL WHERE session = $1 AND payload IS NOT NULL`)
)

// ScanEvent scans an event.
func ScanEvent(row dialect.Scanner) (*session.Event, error) {
	var (
		e              session.Event
		cursor, schema int64
		sum, hash      []byte
	)
	err := row.Scan(&e.Session, &cursor, &e.At, &schema, &e.Method, &e.Key, &e.Ref, &e.Actor, &e.Outbox, &e.Op, &e.Batch, &sum, &hash, &e.Payload)
	if err != nil {
		return nil, err
	}
	e.Cursor, e.Schema = uint64(cursor), uint32(schema)
	copy(e.Sum[:], sum)
	copy(e.Hash[:], hash)
	return &e, nil
}

func eventValues(to []any, e *session.Event) []any {
	return append(to, &e.Session, &e.At, int64(e.Schema), &e.Method, &e.Ref, &e.Actor, &e.Outbox, &e.Batch,
		&e.Cursor, &e.Key, &e.Op, &e.Sum, &e.Hash, &e.Payload)
}

// EventOverhead is the minimum size of an event, in bytes.
const EventOverhead = 256

// EventSize is about an event's size in memory and on the wire, in bytes.
func EventSize(e *session.Event) int {
	return EventOverhead + len(e.Payload) + len(e.Key) + len(e.Ref) + len(e.Actor)
}

// delta is one appendText event's text.
type delta struct {
	session, key string
	cursor       uint64
	text         []byte
	size         int // of the row
}

func scanDelta(row dialect.Scanner) (d delta, err error) {
	var cursor int64
	var payload []byte
	if err := row.Scan(&d.session, &d.key, &cursor, &payload); err != nil {
		return d, err
	}
	d.cursor, d.text, d.size = uint64(cursor), session.DeltaText(payload), dialect.RowSize(payload)
	return d, nil
}
