// The bytes stored in sessions: bytes removed from their logs are subtracted, and unknown sums are
// measured.

package store

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// The sizes of events v: in full, after a purge, and after trimming, when values stored only in
// events are in the state.
var (
	payloadBytes = `CAST(sum(length(v.payload)) AS bigint)`
	storedBytes  = fmt.Sprintf(`CAST(coalesce(sum(coalesce(length(v.payload), 0) + %d), 0) AS bigint)`, session.EventCost)
	purgedBytes  = `CAST(sum(coalesce(length(v.payload), 0) - w.c) AS bigint)`
	trimmedBytes = fmt.Sprintf(`CAST(coalesce(sum(CASE WHEN EXISTS (
			SELECT 1 FROM entries e WHERE e.session = v.session AND e.key = v.key AND e.cursor = v.cursor AND e.payload IS NULL)
		THEN 0 ELSE coalesce(length(v.payload), 0) END + %d), 0) AS bigint)`, session.EventCost)
)

const (
	subtractBytes = `SET bytes = CASE WHEN bytes > f.n THEN bytes - f.n ELSE 0 END FROM`
	cursorRange   = `v.session = {1} AND v.cursor > {2} AND v.cursor <= {3}`
)

// eventGrant is the grant of the ref f.ref, under which events were written: one of their session, or of one above
// it. fromAbove are the events of the latter.
var (
	targetLength = len(capability.SessionPrefix) + ulid.EncodedSize
	eventGrant   = fmt.Sprintf(`grants.target = substr(f.ref, 1, %d) AND grants.tail = substr(f.ref, %d)`, targetLength, targetLength+2)
	fromAbove    = fmt.Sprintf(`substr(v.ref, 1, %d) <> v.session`, targetLength)
)

// giveBack subtracts bytes from the counts of refs, in events that the text after SELECT and the sum names. The refs
// may be of a session above, which is not locked: their rows are locked in their order, so that two transactions in
// sessions below it do not wait for each other.
func giveBack(columns, sum, events string) *Statement {
	return statement(columns, `
		WITH f AS (SELECT v.ref, `+sum+` AS n `+events+` GROUP BY v.ref),
		held AS (SELECT grants.target, grants.tail, f.n FROM f CROSS JOIN grants WHERE `+eventGrant+` AND grants.bytes > 0 ORDER BY grants.target, grants.tail {lock})
		UPDATE grants `+subtractBytes+` held AS f WHERE grants.target = f.target AND grants.tail = f.tail`)
}

var (
	// releaseSessionBytes subtracts removed payloads from a session's sum, except the bytes that
	// remain of each event; releaseGrantBytes does the same for the refs that they were written
	// under.
	releaseSessionBytes = statement("tii", `
		UPDATE sessions `+subtractBytes+` (
			SELECT v.session, `+purgedBytes+` AS n FROM {w} CROSS JOIN events v
			WHERE v.session = w.a AND v.cursor = w.b GROUP BY v.session) AS f
		WHERE sessions.id = f.session`)
	releaseGrantBytes = giveBack("tii", purgedBytes, `FROM {w} CROSS JOIN events v WHERE v.session = w.a AND v.cursor = w.b`)
	// releaseAbove subtracts all payloads of sessions that end, and forgetAbove a removed session's first {2} events,
	// from the refs of sessions above.
	releaseAbove = giveBack("t", payloadBytes, `FROM {w} CROSS JOIN events v WHERE v.session = w.a AND v.payload IS NOT NULL AND `+fromAbove)
	forgetAbove  = giveBack("", storedBytes, `
		FROM (SELECT x.session, x.ref, x.payload FROM events x WHERE x.session = {1} ORDER BY x.cursor LIMIT {2}) AS v WHERE `+fromAbove)

	// trimSessions and trimGrants subtract the events after {2}, up to {3}, which are removed.
	trimSessions = statement("", `
		UPDATE sessions `+subtractBytes+` (
			SELECT `+trimmedBytes+` - CASE WHEN EXISTS (SELECT 1 FROM events v WHERE `+cursorRange+` AND v.method IN ('fork', 'finalize', 'patch', 'add')) THEN (
				SELECT CAST(coalesce(sum(length(e.payload)), 0) AS bigint) FROM entries e
				WHERE e.session = {1} AND e.cursor > {2} AND e.cursor <= {3} AND e.payload IS NOT NULL) ELSE 0 END AS n
			FROM events v WHERE `+cursorRange+`) AS f
		WHERE sessions.id = {1}`)
	trimGrants = giveBack("", storedBytes, `FROM events v WHERE `+cursorRange)

	measureLog   = statement("", `SELECT `+storedBytes+` FROM events v WHERE v.session = {1} AND v.cursor > {2}`)
	measureState = statement("", `
		SELECT CAST(coalesce(sum(length(e.payload)), 0) AS bigint) FROM entries e WHERE e.session = {1} AND e.cursor <= {2}`)
	setMeasured = statement("", `UPDATE sessions SET bytes = {2}, spared = {3} WHERE id = {1}`)
	// A ref that reaches other sessions is not measured: its count is of all of them, and exact, since no server that
	// does not keep it has known such refs.
	clearGrants   = statement("", `UPDATE grants SET bytes = 0 WHERE target = {1} AND bytes > 0 AND reach = 0`)
	measureGrants = statement("", `
		UPDATE grants SET bytes = f.n FROM (
			SELECT v.ref, `+storedBytes+` AS n FROM events v WHERE v.session = {1} AND v.cursor > {2} GROUP BY v.ref) AS f
		WHERE `+eventGrant+` AND owner = 0 AND reach = 0`)
	exemptGrants = statement("", `UPDATE grants SET spared = bytes WHERE target = {1} AND bytes > 0 AND reach = 0`)

	listUnmeasured = statement("", `SELECT s.id FROM sessions s WHERE s.spared < 0 ORDER BY s.id LIMIT {1}`)
)

// releaseBytes subtracts the loss of events: session, cursor, and the remaining bytes of the
// payload.
func (t *tx) releaseBytes(list [][]any) {
	t.queueList(releaseSessionBytes, list, nil)
	t.queueList(releaseGrantBytes, list, nil)
}

// Unmeasured returns sessions whose size is unknown, at most limit: created before sizes were
// counted, or since then by a server of the previous version.
func (s *Store) Unmeasured(ctx context.Context, limit int) (ids []string, err error) {
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(listUnmeasured, nil, []any{int64(limit)}, collect(&ids, scanText))
		return nil
	})
	if err != nil {
		return nil, wrap("find sessions to measure", err)
	}
	return ids, nil
}

// Measure computes the bytes stored in a session, under its row's lock, and returns them. It reads
// all of the log except payloads. The bytes found the first time are exempt from quotas.
func (s *Store) Measure(ctx context.Context, id string) (bytes int64, err error) {
	leave, err := s.locks.acquire(ctx, id)
	if err != nil {
		return 0, wrap("measure", err)
	}
	defer leave()
	err = s.update(ctx, func(t *tx) error {
		var row *session.Row
		queueRow(t.run, lockSessions, id, &row)
		if err := t.run.Flush(ctx); err != nil || row == nil {
			return err
		}
		var log, state int64
		t.run.Queue(measureLog, nil, []any{id, int64(row.Base)}, func(found Scanner) error { return found.Scan(&log) })
		t.run.Queue(measureState, nil, []any{id, int64(row.Base)}, func(found Scanner) error { return found.Scan(&state) })
		t.run.Queue(clearGrants, nil, []any{id}, nil)
		t.run.Queue(measureGrants, nil, []any{id, int64(row.Base)}, nil)
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		bytes = log + state
		spared := row.ExemptBytes
		if spared < 0 {
			spared = bytes
			t.run.Queue(exemptGrants, nil, []any{id}, nil)
		}
		t.run.Queue(setMeasured, nil, []any{id, bytes, spared}, nil)
		return nil
	})
	return bytes, wrap("measure", err)
}
