// Ords of entries that have none: entries written before there was an order, or by a server of that
// version running concurrently.

package store

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	readUnordered = statement("", `
		SELECT e.key, e.cursor FROM entries e {by entries_unordered} WHERE e.session = {1} AND e.ord = 0 ORDER BY e.key`)

	// setOrds updates entries that have not changed since they were read. "Has no Ord" is no
	// condition of it: Postgres would then use the index of all entries without one.
	setOrds = &Statement{
		Postgres: Forms{
			Many: `UPDATE entries SET ord = CASE WHEN ord = 0 THEN w.d ELSE ord END, ord_index = CASE WHEN ord = 0 THEN w.e ELSE ord_index END,
				since = CASE WHEN since = 0 THEN w.f ELSE since END FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS w(a, b, c, d, e, f)
				WHERE entries.session = w.a AND entries.key = w.b AND entries.cursor = w.c`,
			One: setOrd,
		},
		SQLite:  Forms{One: setOrd},
		Columns: []Column{Text, Text, Int, Int, Int, Int},
	}
)

const setOrd = `UPDATE entries SET ord = CASE WHEN ord = 0 THEN $4 ELSE ord END, ord_index = CASE WHEN ord = 0 THEN $5 ELSE ord_index END,
	since = CASE WHEN since = 0 THEN $6 ELSE since END WHERE session = $1 AND key = $2 AND cursor = $3`

// orderPageBytes is how many bytes of a log or a state are read at once to compute Ords.
const orderPageBytes = 1 << 20

// unorderedError says that a session has entries without a place.
type unorderedError struct{ session string }

func (e *unorderedError) Error() string {
	return "store: session " + e.session + " has entries without a place"
}

// findUnordered sets found to the first of some sessions that has entries without a place.
func (t *tx) findUnordered(sessions []string, found **unorderedError) {
	for _, id := range sessions {
		t.run.Queue(readUnordered, nil, []any{id}, func(Scanner) error {
			if *found == nil {
				*found = &unorderedError{id}
			}
			return ErrStopRows
		})
	}
}

// ensureOrds assigns an Ord to every entry of a session that has none: where the log is complete,
// the Ord that a Fold computes; otherwise an Ord before everything in the remaining log, by the
// creation time in the entry's value, then by key.
func (s *Store) ensureOrds(ctx context.Context, id string) error {
	var (
		row  *session.Row
		rows []*session.Entry
	)
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		sight := &session.Access{}
		queueAccess(run, sight, id, nil)
		run.Queue(readUnordered, nil, []any{id}, func(found Scanner) error {
			e := &session.Entry{Session: id}
			var cursor int64
			err := found.Scan(&e.Key, &cursor)
			e.Cursor = uint64(cursor)
			rows = append(rows, e)
			return err
		})
		err := run.Flush(ctx)
		row = sight.Row
		return err
	})
	if err != nil || len(rows) == 0 || row == nil {
		return wrap("find entries without a place", err)
	}
	if row.Base == 0 {
		err = s.ordByLog(ctx, row, rows)
	} else {
		err = s.ordByTime(ctx, row, rows)
	}
	if err != nil {
		return err
	}
	err = s.update(ctx, func(t *tx) error {
		t.run.Queue(lockSessions, textRows([]string{id}), nil, func(found Scanner) error {
			_, err := scanSession(found)
			return err
		})
		t.queueList(setOrds, mapRows(rows, func(e *session.Entry) []any {
			return []any{e.Session, e.Key, int64(e.Cursor), int64(e.Ord.At), int64(e.Ord.Index), int64(e.Since)}
		}), nil)
		return t.run.Flush(ctx)
	})
	return wrap("place entries", err)
}

func (s *Store) ordByLog(ctx context.Context, row *session.Row, rows []*session.Entry) error {
	places := session.NewOrdTracker()
	for after := uint64(0); after < row.Cursor; {
		page, err := s.readLog(ctx, row.ID, after, orderPageBytes, 1000, nil)
		if err != nil {
			return err
		}
		if page.Row.Base > after || len(page.Events) == 0 { // trimmed meanwhile
			return s.ordByTime(ctx, row, rows)
		}
		for _, e := range page.Events {
			if after = e.Cursor; after <= row.Cursor {
				places.Add(e)
			}
		}
	}
	for _, e := range rows {
		if e.Ord, e.Since = places.Of(e.Key); e.Ord.At == 0 {
			e.Ord.At = e.Cursor // more of the log is missing than its base says
		}
	}
	return nil
}

func (s *Store) ordByTime(ctx context.Context, row *session.Row, rows []*session.Entry) error {
	by := make(map[string]*session.Entry, len(rows))
	for _, e := range rows {
		by[e.Key] = e
	}
	for after, more := "", true; more; {
		var page []*session.Entry
		err := s.backend.Snapshot(ctx, func(run Runner) (err error) {
			page, more, err = entryPage(ctx, run, row.ID, keyAfter(after), session.PrefixEnd(""), orderPageBytes, orderPageBytes/entryOverhead)
			return err
		})
		if err != nil {
			return wrap("read the state", err)
		}
		for _, e := range page {
			after = e.Key
			if old := by[e.Key]; old != nil {
				old.Ord = session.ByTime.NewOrd(&session.Event{At: row.Created}, 0, e.Key, e.Payload)
			}
		}
	}
	if row.Order == session.ByTime {
		return nil
	}
	slices.SortFunc(rows, session.CompareEntries)
	for i, e := range rows {
		e.Ord = session.Ord{At: max(row.Base, 1), Index: uint64(i)}
	}
	slices.SortFunc(rows, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

var (
	readOutline = statement("", `
		SELECT `+entryMetaColumns+` FROM entries e WHERE e.session = {1} AND e.key > {2} AND e.key < {3} ORDER BY e.key LIMIT {4}`)

	readSizes = statement("tt", `
		SELECT e.key, `+entryWeight+` FROM {w} CROSS JOIN entries e WHERE e.session = w.a AND e.key = w.b`)
)

// ReadOutline returns the entries with keys above after and below below, without their values, in
// key order: at most most entries. More reports that there are others.
func (s *Store) ReadOutline(ctx context.Context, id, after, below string, most int, refIDs []string) (*session.Unscoped[*session.StateRange], error) {
	if err := checkText(after, below); err != nil {
		return nil, err
	}
	if err := s.ensureOrds(ctx, id); err != nil {
		return nil, err
	}
	page := &session.StateRange{}
	var err error
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, wrap("read outline", err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, id, refIDs)
		run.Queue(readOutline, nil, []any{id, after, below, int64(most) + 1}, func(row Scanner) error {
			e, err := scanEntryMeta(row)
			page.Entries = append(page.Entries, e)
			return err
		})
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if page.More = len(page.Entries) > most; page.More {
			page.Entries = page.Entries[:most]
		}
		return hideRange(ctx, run, page)
	})
	if err != nil {
		return nil, wrap("read outline", err)
	}
	return session.NewUnscoped(page), nil
}

// ReadValues returns the entries of keys, in the order of keys: entries of about maxBytes in all,
// or the first existing one if it is larger, and the turns of the messages among them. More reports
// that keys are left; next is the number of keys processed.
func (s *Store) ReadValues(ctx context.Context, id string, keys []string, maxBytes int, refIDs []string) (values *session.Unscoped[*session.StateRange], next int, err error) {
	if err := checkText(keys...); err != nil {
		return nil, 0, err
	}
	page := &session.StateRange{}
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, 0, wrap("read values", err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, id, refIDs)
		sizes := map[string]int64{}
		run.Queue(readSizes, pairRows(map[string][]string{id: keys}), nil, func(row Scanner) error {
			var key string
			var size int64
			err := row.Scan(&key, &size)
			sizes[key] = size
			return err
		})
		if err := run.Flush(ctx); err != nil {
			return err
		}
		var fit []string
		for bytes := int64(0); next < len(keys); next++ {
			size, there := sizes[keys[next]]
			if bytes += size; len(fit) > 0 && bytes > int64(maxBytes) {
				break
			}
			if there {
				fit = append(fit, keys[next])
			}
		}
		page.More = next < len(keys)
		if len(fit) == 0 {
			return nil
		}
		found := map[string]*session.Entry{}
		var messages [][]any
		run.Queue(readEntries, pairRows(map[string][]string{id: fit}), []any{int64(math.MaxInt64)}, func(row Scanner) error {
			e, err := scanEntry(row)
			if err == nil {
				found[e.Key] = e
			}
			return err
		})
		for _, key := range fit {
			if k, err := session.ParseKey(key); err == nil && k.Kind == session.KeyMessage {
				messages = append(messages, []any{id, k.Message})
			}
		}
		if len(messages) > 0 {
			run.Queue(readTurns, messages, nil, collect(&page.Turns, scanTurn))
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		for _, key := range fit {
			page.Entries = append(page.Entries, found[key])
		}
		if err := foldOpenDeltas(ctx, run, id, page.Entries); err != nil {
			return err
		}
		return hideRange(ctx, run, page)
	})
	if err != nil {
		return nil, 0, wrap("read values", err)
	}
	return session.NewUnscoped(page), next, nil
}
