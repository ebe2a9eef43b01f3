// Ords of entries that have none: entries written before there was an order, or by a server of that
// version running concurrently.

package reads

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (

	// setOrds updates entries that have not changed since they were read. "Has no Ord" is no
	// condition of it: Postgres would then use the index of all entries without one.
	setOrds = &dialect.Statement{
		Postgres: dialect.Forms{
			Many: `UPDATE entries SET ord = CASE WHEN ord = 0 THEN w.d ELSE ord END, ord_index = CASE WHEN ord = 0 THEN w.e ELSE ord_index END,
				since = CASE WHEN since = 0 THEN w.f ELSE since END FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS w(a, b, c, d, e, f)
				WHERE entries.session = w.a AND entries.key = w.b AND entries.cursor = w.c`,
			One: setOrd,
		},
		SQLite:  dialect.Forms{One: setOrd},
		Columns: []dialect.Column{dialect.Text, dialect.Text, dialect.Int, dialect.Int, dialect.Int, dialect.Int},
	}
)

const setOrd = `UPDATE entries SET ord = CASE WHEN ord = 0 THEN $4 ELSE ord END, ord_index = CASE WHEN ord = 0 THEN $5 ELSE ord_index END,
	since = CASE WHEN since = 0 THEN $6 ELSE since END WHERE session = $1 AND key = $2 AND cursor = $3`

// orderPageBytes is how many bytes of a log or a state are read at once to compute Ords.
const orderPageBytes = 1 << 20

// EnsureOrds assigns an Ord to every entry of a session that has none: where the log is complete,
// the Ord that a Fold computes; otherwise an Ord before everything in the remaining log, by the
// creation time in the entry's value, then by key.
func (s *Reads) EnsureOrds(ctx context.Context, id string) error {
	var (
		row  *session.Row
		rows []*session.Entry
	)
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		sight := &session.Access{}
		txn.QueueAccess(run, sight, id, nil)
		run.Queue(txn.ReadUnordered, nil, []any{id}, func(found dialect.Scanner) error {
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
		return txn.Wrap("find entries without a place", err)
	}
	if row.Base == 0 {
		err = s.ordByLog(ctx, row, rows)
	} else {
		err = s.ordByTime(ctx, row, rows)
	}
	if err != nil {
		return err
	}
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		t.Run.Queue(txn.LockSessions, txn.TextRows([]string{id}), nil, func(found dialect.Scanner) error {
			_, err := txn.ScanSession(found)
			return err
		})
		t.QueueList(setOrds, txn.MapRows(rows, func(e *session.Entry) []any {
			return []any{e.Session, e.Key, int64(e.Cursor), int64(e.Ord.At), int64(e.Ord.Index), int64(e.Since)}
		}), nil)
		return t.Run.Flush(ctx)
	})
	return txn.Wrap("place entries", err)
}

func (s *Reads) ordByLog(ctx context.Context, row *session.Row, rows []*session.Entry) error {
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

func (s *Reads) ordByTime(ctx context.Context, row *session.Row, rows []*session.Entry) error {
	by := make(map[string]*session.Entry, len(rows))
	for _, e := range rows {
		by[e.Key] = e
	}
	for after, more := "", true; more; {
		var page []*session.Entry
		err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) (err error) {
			page, more, err = txn.EntryPage(ctx, run, row.ID, txn.KeyAfter(after), session.PrefixEnd(""), orderPageBytes, orderPageBytes/txn.EntryOverhead)
			return err
		})
		if err != nil {
			return txn.Wrap("read the state", err)
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
	readOutline = dialect.Both("", `
		SELECT `+txn.EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND e.key > {2} AND e.key < {3} ORDER BY e.key LIMIT {4}`)

	readSizes = dialect.Both("tt", `
		SELECT e.key, `+txn.EntryWeight+` FROM {w} CROSS JOIN entries e WHERE e.session = w.a AND e.key = w.b`)
)

// ReadOutline returns the entries with keys above after and below below, without their values, in
// key order: at most most entries. More reports that there are others.
func (s *Reads) ReadOutline(ctx context.Context, id, after, below string, most int, refIDs []string) (*session.Unscoped[*session.StateRange], error) {
	if err := txn.CheckText(after, below); err != nil {
		return nil, err
	}
	if err := s.EnsureOrds(ctx, id); err != nil {
		return nil, err
	}
	page := &session.StateRange{}
	var err error
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, txn.Wrap("read outline", err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, id, refIDs)
		run.Queue(readOutline, nil, []any{id, after, below, int64(most) + 1}, dialect.Collect(&page.Entries, txn.ScanMeta))
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if page.More = len(page.Entries) > most; page.More {
			page.Entries = page.Entries[:most]
		}
		return hideRange(ctx, run, page)
	})
	if err != nil {
		return nil, txn.Wrap("read outline", err)
	}
	return session.NewUnscoped(page), nil
}

// ReadValues returns the entries of keys, in the order of keys: entries of about maxBytes in all,
// or the first existing one if it is larger, and the turns of the messages among them. More reports
// that keys are left; next is the number of keys processed.
func (s *Reads) ReadValues(ctx context.Context, id string, keys []string, maxBytes int, refIDs []string) (values *session.Unscoped[*session.StateRange], next int, err error) {
	if err := txn.CheckText(keys...); err != nil {
		return nil, 0, err
	}
	page := &session.StateRange{}
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, 0, txn.Wrap("read values", err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, id, refIDs)
		sizes := map[string]int64{}
		if err := dialect.Query(ctx, run, readSizes, txn.PairRows(map[string][]string{id: keys}), nil, func(row dialect.Scanner) error {
			var key string
			var size int64
			err := row.Scan(&key, &size)
			sizes[key] = size
			return err
		}); err != nil {
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
		run.Queue(txn.ReadEntries, txn.PairRows(map[string][]string{id: fit}), []any{int64(math.MaxInt64)}, dialect.EachRow(txn.ScanEntry, func(e *session.Entry) {
			found[e.Key] = e
		}))
		for _, key := range fit {
			if k, err := session.ParseKey(key); err == nil && k.Kind == session.KeyMessage {
				messages = append(messages, []any{id, k.Message})
			}
		}
		if len(messages) > 0 {
			run.Queue(txn.ReadTurns, messages, nil, dialect.Collect(&page.Turns, txn.ScanTurn))
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		for _, key := range fit {
			page.Entries = append(page.Entries, found[key])
		}
		if err := txn.FoldOpenDeltas(ctx, run, id, page.Entries); err != nil {
			return err
		}
		return hideRange(ctx, run, page)
	})
	if err != nil {
		return nil, 0, txn.Wrap("read values", err)
	}
	return session.NewUnscoped(page), next, nil
}
