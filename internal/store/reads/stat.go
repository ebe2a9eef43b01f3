// Stat: how much of a session a ref shows.

package reads

import (
	"context"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
	"github.com/mooring-rpc/mooring/ledger"
)

const statRange = `FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3}
			AND CASE WHEN e.payload IS NULL THEN e.cursor ELSE e.since END >= {4}`

const (
	statEntryColumns = `SELECT ` + txn.EntryMetaColumns + `, ` + txn.EntryLength + `, CASE WHEN e.grown > 0 THEN ` + txn.EntryValue + ` END`
	inRange          = `e.session = {1} AND e.key >= w.a AND e.key < w.b`
)

var (
	// statKeys counts the keys from {2} to below {3} whose values were written from cursor {4} on.
	statKeys = dialect.Both("", `
		SELECT count(*), CAST(coalesce(sum(`+txn.EntryLength+`), 0) AS bigint) `+statRange)

	// statGrown reads those of them that were appended to since they were put.
	statGrown = dialect.Both("", `SELECT e.text_len, `+txn.EntryValue+` `+statRange+` AND e.grown > 0`)

	// statMessages reads messages from a place in the session's order on.
	statMessages = dialect.Both("", `
		SELECT `+txn.EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND {kind} = 'message' AND (e.ord, e.ord_index, e.key) >= ({2}, {3}, {4})
		ORDER BY e.ord, e.ord_index, e.key LIMIT {5}`)

	// statEntries reads entries of ranges of keys, with the lengths of their values: one seek for each range, which on Postgres a
	// LATERAL with an OFFSET keeps.
	statEntries = dialect.Each(dialect.Both("tt", statEntryColumns+`
		FROM {w} CROSS JOIN LATERAL (SELECT * FROM entries e WHERE `+inRange+` OFFSET 0) AS e`), dialect.Both("tt", statEntryColumns+`
		FROM {w} CROSS JOIN entries e WHERE `+inRange))

	// statEvents counts the events from cursor {2} on that are in some of the ranges (session.EventRange).
	statEvents = dialect.Both("ttt", `
		SELECT count(*), coalesce(min(v.at), 0), coalesce(max(v.at), 0) FROM events v
		WHERE v.session = {1} AND v.cursor >= {2} AND EXISTS (
			SELECT 1 FROM {w} WHERE v.key >= w.a AND v.key < w.b AND (w.c = '' OR v.method = w.c))`)

	// statEnds reads the times of the first and the last event from cursor {2} on.
	statEnds = dialect.Both("", `
		SELECT coalesce((SELECT v.at FROM events v WHERE v.session = {1} AND v.cursor >= {2} ORDER BY v.cursor LIMIT 1), 0),
			coalesce((SELECT v.at FROM events v WHERE v.session = {1} AND v.cursor >= {2} ORDER BY v.cursor DESC LIMIT 1), 0)`)
)

// ReadStat implements session.Reader. What a ref of some keys shows of the log is counted event by
// event.
func (s *Reads) ReadStat(ctx context.Context, id string, refIDs []string, admit session.Admit) (*session.Stat, error) {
	stat := &session.Stat{Kinds: []session.KindStat{}}
	var refused error
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		var access session.Access
		txn.QueueAccess(run, &access, id, refIDs)
		if err := run.Flush(ctx); err != nil {
			return err
		}
		var g *capability.Grant
		if g, refused = admit(&access); refused != nil {
			return refused
		}
		first := max(g.VisibleFrom, access.Row.Base+1)
		stat.Cursor = access.Row.Cursor
		var ranges []session.KeyRange
		var events, from, to int64
		if g.ShowsAllKeys() {
			var kinds []string
			if err := dialect.Query(ctx, run, listKinds, nil, []any{id, int64(maxKinds)}, dialect.Collect(&kinds, dialect.ScanText)); err != nil {
				return err
			}
			ranges = session.KindRanges(kinds)
			if stat.Cursor >= first {
				events = int64(stat.Cursor - first + 1)
			}
			run.Queue(statEnds, nil, []any{id, txn.Clamp(first)}, func(row dialect.Scanner) error { return row.Scan(&from, &to) })
		} else {
			ranges = session.ScopeRanges(g)
			var shown [][]any
			for _, r := range session.EventRanges(g) {
				shown = append(shown, []any{r.From, r.Below, r.Method})
			}
			run.Queue(statEvents, shown, []any{id, txn.Clamp(first)}, func(row dialect.Scanner) error {
				return row.Scan(&events, &from, &to)
			})
		}
		var kind *session.KindStat // of the range that is read
		for _, r := range ranges {
			run.Queue(statKeys, nil, []any{id, r.From, r.Below, txn.Clamp(g.VisibleFrom)}, func(row dialect.Scanner) error {
				var keys, bytes int64
				err := row.Scan(&keys, &bytes)
				if keys == 0 {
					return err
				}
				if last := len(stat.Kinds) - 1; last < 0 || stat.Kinds[last].Kind != r.Kind {
					stat.Kinds = append(stat.Kinds, session.KindStat{Kind: r.Kind})
				}
				kind = &stat.Kinds[len(stat.Kinds)-1]
				kind.Keys, kind.Bytes = kind.Keys+uint64(keys), kind.Bytes+uint64(bytes)
				return err
			})
			run.Queue(statGrown, nil, []any{id, r.From, r.Below, txn.Clamp(g.VisibleFrom)}, func(row dialect.Scanner) error {
				var length int64
				var put []byte
				err := row.Scan(&length, &put)
				kind.Bytes += grownBytes(uint64(length), put)
				return err
			})
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		stat.Events, stat.First, stat.Last = uint64(events), from, to
		return withoutHidden(ctx, run, access.Row, g, stat)
	})
	if refused != nil {
		return nil, refused
	}
	return stat, txn.Wrap("read stat", err)
}

// grownBytes is how much longer a value is whose text was appended to: length is that of its text, put the value before.
func grownBytes(length uint64, put []byte) uint64 {
	text, _ := ledger.Member(put, "text")
	return length - uint64(len(ledger.Unquote(text)))
}

// withoutHidden subtracts what reverts hide, or have removed from the state, and was counted: the database looks at the
// messages from the first such place on, with their parts.
func withoutHidden(ctx context.Context, run dialect.Runner, row *session.Row, g *capability.Grant, stat *session.Stat) error {
	reverts := row.Hiding()
	if len(reverts) == 0 {
		return nil
	}
	kinds := map[string]*session.KindStat{}
	for i := range stat.Kinds {
		kinds[stat.Kinds[i].Kind] = &stat.Kinds[i]
	}
	subtract := func(e *session.Entry, bytes uint64) {
		if of := kinds[session.KindOf(e.Key)]; of != nil && session.ShowsEntry(g, e) {
			of.Keys, of.Bytes = of.Keys-1, of.Bytes-bytes
		}
	}
	const piece = 500
	for at := reverts.First(); ; {
		var heads []*session.Entry
		if err := dialect.Query(ctx, run, statMessages, nil, []any{row.ID, int64(at.Ord.At), int64(at.Ord.Index), at.Key, int64(piece)}, dialect.Collect(&heads, txn.ScanMeta)); err != nil {
			return err
		}
		if len(heads) == 0 {
			break
		}
		known := map[string]*session.Entry{}
		var ranges [][]any
		for _, head := range heads {
			known[head.Key] = head
			from, below := txn.PartRange(strings.TrimPrefix(head.Key, session.MessageKey("")))
			ranges = append(ranges, []any{head.Key, txn.KeyAfter(head.Key)}, []any{from, below})
		}
		if err := dialect.Query(ctx, run, statEntries, ranges, []any{row.ID}, func(row dialect.Scanner) error {
			var length int64
			var put []byte
			e, err := txn.ScanEntryMeta(row, &length, &put)
			if err != nil || !reverts.Hides(e, known[session.HeadOf(e.Key)]) {
				return err
			}
			bytes := uint64(length)
			if e.LastAppend > 0 {
				bytes += grownBytes(e.TextLen, put)
			}
			subtract(e, bytes)
			return nil
		}); err != nil {
			return err
		}
		last := heads[len(heads)-1]
		if at = (session.KeyPosition{Ord: last.Ord, Key: txn.KeyAfter(last.Key)}); len(heads) < piece {
			break
		}
	}
	stat.Kinds = slices.DeleteFunc(stat.Kinds, func(of session.KindStat) bool { return of.Keys == 0 })
	return nil
}
