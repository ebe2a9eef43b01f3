// Forks in pieces: what is copied of a session, and its entries from before they changed meanwhile.

package txn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// beforeColumns are entryColumns of an entry e that was kept.
const beforeColumns = `e.session, e.key, e.cursor, e.schema, e.text_len, e.grown, e.sum, e.since, e.ord, e.ord_index, '' AS claim, 0 AS claim_until, '' AS claim_ref, e.edited`

// keepEntries copies entries e, with their values, for a fork; those are what an update or removal in the same
// transaction changes.
const keepEntries = `INSERT INTO entries_before (session, key, cursor, schema, text_len, grown, sum, since, ord, ord_index, edited, payload, edits) SELECT `

const keptColumns = `e.key, e.cursor, e.schema, e.text_len, e.grown, e.sum, CASE WHEN e.payload IS NULL THEN e.cursor ELSE e.since END, e.ord, e.ord_index, e.edited, ` + EntryValue + `, ` + entryEdits

var (
	// keepBefore keeps for a fork a those of the entries c of its source b that are from up to cursor d.
	keepBefore = dialect.Both("ttti", keepEntries+`w.a, `+keptColumns+` FROM {w} CROSS JOIN entries e
		WHERE e.session = w.b AND e.key = w.c AND e.cursor <= w.d AND e.grown <= w.d ON CONFLICT (session, key) DO NOTHING`)

	// keepRange keeps those of the keys from {3} on and below {4}.
	keepRange = dialect.Both("", keepEntries+`{1}, `+keptColumns+` FROM entries e
		WHERE e.session = {2} AND e.key >= {3} AND e.key < {4} AND e.cursor <= {5} AND e.grown <= {5} ON CONFLICT (session, key) DO NOTHING`)

	readBefore = dialect.Page(beforeColumns+`, e.payload, e.edits`, `FROM entries_before e WHERE e.session = {1} AND e.key >= {2}`, "e.key", "{3}",
		fmt.Sprintf("CASE WHEN e.edited > 0 THEN e.edited ELSE COALESCE(octet_length(e.payload), 0) END + %d + CASE WHEN e.grown > 0 THEN e.text_len ELSE 0 END", EntryOverhead), "{4}", "{5}")

	readBeforeMeta = dialect.Both("tt", `SELECT `+beforeColumns+` FROM {w} CROSS JOIN entries_before e WHERE e.session = w.a AND e.key = w.b`)

	// readBeforeValues reads them with their values.
	readBeforeValues = dialect.Bounded("tt", beforeColumns+`, e.payload, e.edits`, `
		SELECT `+beforeColumns+`, e.payload, e.edits FROM {w} CROSS JOIN entries_before e WHERE e.session = w.a AND e.key = w.b`)

	// readBeforeRange reads {4} of the keys from {2} on and below {3}.
	readBeforeRange = dialect.Both("", `SELECT `+beforeColumns+` FROM entries_before e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3} ORDER BY e.key LIMIT {4}`)

	// readBeforeMessages reads {5} messages from a place in the session's order on.
	readBeforeMessages = dialect.Both("", `
		SELECT `+beforeColumns+` FROM entries_before e {by entries_before_put} WHERE e.session = {1} AND substr(e.key, 1, 8) = 'message/'
			AND (e.ord, e.ord_index, e.key) >= ({2}, {3}, {4}) ORDER BY e.ord, e.ord_index, e.key LIMIT {5}`)

	// saveBefore inserts or replaces them, without a value all but that.
	saveBefore = dialect.Both("ttiiiibiiibi", `
		INSERT INTO entries_before (session, key, cursor, schema, text_len, grown, sum, since, ord, ord_index, payload, edited) {values} ON CONFLICT (session, key) DO UPDATE SET
			cursor = excluded.cursor, schema = excluded.schema, text_len = excluded.text_len, grown = excluded.grown, sum = excluded.sum, since = excluded.since,
			ord = excluded.ord, ord_index = excluded.ord_index, payload = COALESCE(excluded.payload, entries_before.payload)`)

	dropBefore    = dialect.Both("tt", `DELETE FROM entries_before WHERE (session, key) IN (SELECT a, b FROM {w})`)
	dropAllBefore = dialect.Both("t", `DELETE FROM entries_before WHERE session IN (SELECT a FROM {w})`)

	saveForks = dialect.Both("tt", `UPDATE sessions SET forks = w.b FROM {w} WHERE sessions.id = w.a`)
)

// ForkDue is before what a session is being made as, as long as there is something to do for it.
const ForkDue = "due"

// ScanForks sets a row's forks from their column: a session is either being made as one, or is there, and may have some.
func ScanForks(s *session.Row, forks string) (err error) {
	switch {
	case forks == "":
		return nil
	case s.Life == session.Absent:
		s.Forking = &session.Forking{}
		err = json.Unmarshal([]byte(strings.TrimPrefix(forks, ForkDue)), s.Forking)
	default:
		s.Copies = &session.Copies{}
		err = json.Unmarshal([]byte(forks), &s.Copies.Forks)
	}
	if err != nil {
		err = fmt.Errorf("the forks of session %s: %w", s.ID, err)
	}
	return err
}

// saveForks writes what ScanForks reads, of sessions of which it has changed.
func (t *Tx) saveForks(rows []*session.Row) {
	var changed [][]any
	for _, s := range rows {
		if was := t.Prior[s.ID]; was.forking == s.Forking && was.copies == s.Copies {
			continue
		}
		forks := ""
		if s.Copies != nil {
			forks = jsonText(s.Copies.Forks)
		} else if s.Forking != nil {
			if forks = jsonText(s.Forking); s.Forking.IsDue() {
				forks = ForkDue + forks
			}
		}
		changed = append(changed, []any{s.ID, forks})
	}
	t.QueueList(saveForks, changed, nil)
}

// keepBefore keeps the entries of the sources of forks that c changes, and removes what c purges from what was copied
// of them.
func (t *Tx) keepBefore(c *session.Changes) {
	none := true
	for _, was := range t.Prior {
		none = none && was.copies == nil
	}
	if none {
		return
	}
	var kept, purged [][]any
	var gone []string
	each := func(id string, do func(f *session.Copied)) {
		if copies := t.Prior[id].copies; copies != nil {
			for i := range copies.Forks {
				do(&copies.Forks[i])
			}
		}
	}
	keep := func(id, key string) {
		each(id, func(f *session.Copied) {
			if !f.Whole {
				kept = append(kept, []any{f.Session, id, key, int64(f.At)})
			}
		})
	}
	for _, list := range [][]*session.Entry{c.Entries, c.Appended, c.Edited} {
		for _, e := range list {
			keep(e.Session, e.Key)
		}
	}
	for id, keys := range c.DropEntries {
		for _, key := range keys {
			keep(id, key)
		}
	}
	for _, m := range c.DropReverted {
		key := session.MessageKey(m.Message)
		from, below := PartRange(m.Message)
		each(m.Session, func(f *session.Copied) {
			if !f.Whole {
				t.Run.Queue(keepRange, nil, []any{f.Session, m.Session, key, KeyAfter(key), int64(f.At)}, nil)
				t.Run.Queue(keepRange, nil, []any{f.Session, m.Session, from, below, int64(f.At)}, nil)
			}
		})
	}
	t.QueueList(keepBefore, kept, nil)
	for _, e := range c.Events {
		if e.Method == session.MethodPurge {
			each(e.Session, func(f *session.Copied) { purged = append(purged, []any{f.Session, e.Key}) })
		}
	}
	t.QueueList(dropEntries, purged, nil)
	t.QueueList(dropBefore, purged, nil)
	for _, id := range c.DropState {
		each(id, func(f *session.Copied) { gone = append(gone, f.Session) })
	}
	t.QueueList(dropState, TextRows(gone), nil)
	t.QueueList(dropAllBefore, TextRows(gone), nil)
}

// readForks reads what only the copying of forks asks for.
func (t *Tx) readForks(ctx context.Context, w *session.ReadSet, out *session.Rows) (err error) {
	if err = t.readBefore(ctx, w.Before, out); err != nil {
		return err
	}
	if r := w.LogRange; r != nil {
		size := 0
		if err := dialect.Query(ctx, t.Run, ReadEvents, nil, []any{r.Session, Clamp(r.After), int64(max(r.Events, 1)) + 1, int64(max(r.Bytes, EventOverhead))}, func(row dialect.Scanner) error {
			e, err := ScanEvent(row)
			if err != nil {
				return err
			}
			if size += EventSize(e); len(out.LogRange) > 0 && (size > r.Bytes || len(out.LogRange) >= r.Events) {
				return dialect.ErrStopRows
			}
			out.LogRange = append(out.LogRange, e)
			return nil
		}); err != nil {
			return err
		}
	}
	if p := w.Page; p != nil {
		read, deltas, log := readRange, readOpenDeltas, p.Session
		if p.Before {
			read, deltas, log = readBefore, readKeptDeltas, p.Log
		}
		out.Page, out.MorePage, err = pageOf(ctx, t.Run, read, deltas, p.Session, log, KeyAfter(p.After), session.PrefixEnd(""), p.Bytes, p.Keys)
	}
	return err
}

// readBefore reads of what is kept for a fork.
func (t *Tx) readBefore(ctx context.Context, w *session.BeforeSet, out *session.Rows) error {
	if w == nil {
		return nil
	}
	out.Before = map[string]*session.Entry{}
	meta := dialect.EachRow(ScanMeta, func(e *session.Entry) { out.Before[e.Key] = e })
	t.QueueList(readBeforeMeta, PairRows(map[string][]string{w.Session: w.Keys}), meta)
	for _, message := range w.Parts {
		from, below := PartRange(message)
		t.Run.Queue(readBeforeRange, nil, []any{w.Session, max(from, KeyAfter(w.After)), below, int64(w.Limit)}, meta)
	}
	if p := w.From; p.Key != "" {
		t.Run.Queue(readBeforeMessages, nil, []any{w.Session, int64(p.Ord.At), Clamp(p.Ord.Index), p.Key, int64(w.Limit)}, meta)
	}
	if len(w.Values) > 0 {
		size := 0
		t.Run.Queue(readBeforeValues, PairRows(map[string][]string{w.Session: w.Values}), []any{int64(w.Bytes)}, func(row dialect.Scanner) error {
			e, err := ScanEntry(row)
			if err != nil {
				return err
			}
			if out.Before[e.Key] = e; size > w.Bytes {
				return dialect.ErrStopRows
			}
			size += dialect.RowSize(e.Payload)
			return nil
		})
	}
	return t.Run.Flush(ctx)
}
