// Trimming of logs, one piece per transaction, and the removal of the rows of sessions deleted long
// ago.

package upkeep

import (
	"context"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// putBetween joins the events after {2}, up to and including {3}, with the entries whose values they
// put. Postgres cannot see through || that all entries are of one session, so it goes from each
// event to its entry, and does not compare all entries with all events.
const putBetween = `FROM events v WHERE v.session = {1} AND v.cursor > {2} AND v.cursor <= {3}
		AND entries.session = v.session || '' AND entries.key = v.key AND entries.cursor = v.cursor`

var (
	// pageTrimmable reads sessions in id order with the time of the first event of each log, NULL
	// if it must stay because a turn has been open since then.
	pageTrimmable = dialect.Both("", `
		SELECT s.id, v.at FROM sessions s
		LEFT JOIN events v ON v.session = s.id AND v.cursor = s.base + 1 AND NOT EXISTS (
			SELECT 1 FROM turns t WHERE t.session = s.id AND t.status <= 2 AND t.begun <= s.base + 1)
		WHERE s.id > {1} ORDER BY s.id LIMIT {2}`)

	// pageDeleted reads the deleted sessions that still have rows to remove.
	pageDeleted = dialect.Both("", `
		SELECT s.id, s.updated FROM sessions s
		WHERE s.life = 2 AND s.forgotten < 2 AND s.id > {1} ORDER BY s.id LIMIT {2}`)

	readEventMeta = dialect.Both("", `
		SELECT v.cursor, v.at, COALESCE(length(v.payload), 0) FROM events v
		WHERE v.session = {1} AND v.cursor > {2} ORDER BY v.cursor LIMIT {3}`)

	// materializeValues copies into entries the values that are stored only in events after {2}, up
	// to and including {3}.
	materializeValues = dialect.Both("", `
		UPDATE entries SET payload = v.payload, since = v.cursor `+putBetween+` AND entries.payload IS NULL`)

	// keepChanges copies into entries who put their values, in the same events. A value that an event
	// of another key embeds, as a turn's end does, has no such copy.
	keepChanges = dialect.Both("", `
		UPDATE entries SET put_ref = v.ref, put_actor = v.actor, put_at = v.at `+putBetween)

	dropEvents = dialect.Both("", `DELETE FROM events WHERE session = {1} AND cursor < {2}`)
	setBase    = dialect.Both("", `UPDATE sessions SET base = {2} WHERE id = {1}`)
)

var (
	// forget makes the session's row enough to answer every request, and clears the columns that no
	// request needs then. Without a space the row is in none of the indexes of the lists.
	forget = dialect.Both("", `
		UPDATE sessions SET forgotten = 1, space = '', external = '', creator = '', origin = '', origin_cursor = 0, origin_message = '', parent = '', parent_key = '', above = '', base = cursor, bytes = 0, spared = 0 WHERE id = {1}`)
	setForgotten = dialect.Both("", `UPDATE sessions SET forgotten = 2 WHERE id = {1}`)

	// forgotten are the rows removed after that. The holder of a living owner ref may still read
	// the audit, and the quotas of a space's refs are found through owner refs: both stay.
	forgotten = []*dialect.Statement{
		removal("events", "session", "cursor", ""),
		removal("search_rows", "session", "key", ""),
		removal("streams", "session", "outbox", ""),
		removal("records", "session", "outbox, first_seq", ""),
		removal("redemptions", "target", "tail, redemption", ""),
		removal("grants", "target", "tail", " AND (x.owner = 0 OR x.revoked > 0)"),
		removal("managed", "session", "target, tail", ""),
		removal("uses", "target", "tail", " AND (SELECT count(*) FROM grants g WHERE g.target = x.target AND g.tail = x.tail) = 0"),
	}
)

// readFirstOpen uses turns_open, the index of open turns by the cursor of their begin.
var readFirstOpen = dialect.Both("", `
	SELECT `+txn.TurnColumns+` FROM turns t WHERE t.session = {1} AND t.status <= 2 ORDER BY t.begun LIMIT 1`)

// Trimmable returns, of the next limit sessions after id after (in id order), the ones whose
// logs begin with an event that is older than keep, by the database's clock, and may be removed. next is
// the id to continue after; "" is the end.
func (s *Upkeep) Trimmable(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error) {
	return s.trimmable(ctx, pageTrimmable, keep, after, limit)
}

// TrimmableDeleted is Trimmable for sessions deleted longer than keep ago, which Forget can remove.
func (s *Upkeep) TrimmableDeleted(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error) {
	return s.trimmable(ctx, pageDeleted, keep, after, limit)
}

func (s *Upkeep) trimmable(ctx context.Context, page *dialect.Statement, keep time.Duration, after string, limit int) (ids []string, next string, err error) {
	var now int64
	seen := 0
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.QueueNow(dialect.SetClock(&now))
		run.Queue(page, nil, []any{after, int64(limit)}, func(row dialect.Scanner) error {
			var id string
			var at *int64
			if err := row.Scan(&id, &at); err != nil {
				return err
			}
			seen, next = seen+1, id
			if at != nil && *at < now-keep.Milliseconds() {
				ids = append(ids, id)
			}
			return nil
		})
		return nil
	})
	if err != nil {
		return nil, "", txn.Wrap("find logs to trim", err)
	}
	if seen < limit {
		next = ""
	}
	return ids, next, nil
}

// Trim removes the oldest events of a session's log, if older than keep by the database's clock:
// at most maxEvents and about maxBytes of payloads in this one transaction, under the session row's
// lock. more reports that others are left. No state is lost (see session.TrimTo): values stored
// only in the removed events are copied into their entries. A session without a row has nothing to
// trim.
func (s *Upkeep) Trim(ctx context.Context, id string, keep time.Duration, maxEvents, maxBytes int) (more bool, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		row, open := &session.Row{}, []*session.Turn(nil)
		txn.QueueRow(t.Run, txn.LockSessions, id, &row)
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		t.Run.Queue(readFirstOpen, nil, []any{id}, dialect.Collect(&open, txn.ScanTurn))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if row.Copies != nil {
			return nil // deltas of what is copied may be in the log alone
		}
		var log []session.EventMeta
		if err := dialect.Query(ctx, t.Run, readEventMeta, nil, []any{id, int64(row.Base), int64(max(maxEvents, 1))}, func(found dialect.Scanner) error {
			var cursor, bytes int64
			var m session.EventMeta
			err := found.Scan(&cursor, &m.At, &bytes)
			m.Cursor, m.Bytes = uint64(cursor), int(bytes)
			log = append(log, m)
			return err
		}); err != nil {
			return err
		}
		var base uint64
		base, more = session.TrimTo(row, open, log, t.Now-keep.Milliseconds(), maxBytes)
		if base == row.Base {
			return nil
		}
		t.Run.Queue(txn.TrimSessions, nil, []any{id, int64(row.Base), int64(base)}, nil)
		t.Run.Queue(txn.TrimGrants, nil, []any{id, int64(row.Base), int64(base)}, nil)
		t.Run.Queue(keepChanges, nil, []any{id, int64(row.Base), int64(base)}, nil)
		t.Run.Queue(materializeValues, nil, []any{id, int64(row.Base), int64(base)}, nil)
		t.Run.Queue(dropEvents, nil, []any{id, int64(base)}, nil)
		t.QueueList(txn.DropPayloads, [][]any{{id, int64(base)}}, nil)
		t.Run.Queue(setBase, nil, []any{id, int64(base)}, nil)
		return nil
	})
	return more, txn.Wrap("trim", err)
}

// removal deletes the first {2} of a session's rows in a table, and returns one row for each.
// session and rest are the key.
func removal(table, session, rest, which string) *dialect.Statement {
	return dialect.Both("", `
		DELETE FROM `+table+` WHERE (`+session+`, `+rest+`) IN (
			SELECT `+session+`, `+rest+` FROM `+table+` x WHERE x.`+session+` = {1}`+which+` ORDER BY `+rest+` LIMIT {2})
		RETURNING 1`)
}

// Forget removes the rows of a session that was deleted longer than keep ago, by the database's
// clock, except its own row, its living owner ref, its public shares (whose ids are never used
// again) and its audit: at most most rows of each kind in this one transaction, under the session
// row's lock. more reports that others are left. From the first call on, requests for the session
// are answered without those rows (session.Row.Forgotten), so the removal may stop after any call.
func (s *Upkeep) Forget(ctx context.Context, id string, keep time.Duration, most int) (more bool, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		row := &session.Row{}
		txn.QueueRow(t.Run, txn.LockSessions, id, &row)
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if row.Life != session.Deleted || row.Updated >= t.Now-keep.Milliseconds() {
			return nil
		}
		t.Run.Queue(forget, nil, []any{id}, nil)
		t.Run.Queue(txn.ForgetAbove, nil, []any{id, int64(max(most, 1))}, nil)
		removed := make([]int, len(forgotten))
		for i, kind := range forgotten {
			t.Run.Queue(kind, nil, []any{id, int64(max(most, 1))}, func(dialect.Scanner) error {
				removed[i]++
				return nil
			})
		}
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if more = slices.Max(removed) >= max(most, 1); !more {
			t.Run.Queue(setForgotten, nil, []any{id}, nil)
		}
		return nil
	})
	return more, txn.Wrap("forget", err)
}
