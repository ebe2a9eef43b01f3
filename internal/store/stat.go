// Stat: how much of a session a ref shows.

package store

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

const statRange = `FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3}
			AND CASE WHEN e.payload IS NULL THEN e.cursor ELSE e.since END >= {4}`

var (
	// statKeys counts the keys from {2} to below {3} whose values were written from cursor {4} on.
	statKeys = statement("", `
		SELECT count(*), CAST(coalesce(sum(`+entryLength+`), 0) AS bigint) `+statRange)

	// statGrown reads those of them that were appended to since they were put.
	statGrown = statement("", `SELECT e.text_len, `+entryValue+` `+statRange+` AND e.grown > 0`)

	// statEvents counts the events from cursor {2} on that are in some of the ranges (session.EventRange).
	statEvents = statement("ttt", `
		SELECT count(*), coalesce(min(v.at), 0), coalesce(max(v.at), 0) FROM events v
		WHERE v.session = {1} AND v.cursor >= {2} AND EXISTS (
			SELECT 1 FROM {w} WHERE v.key >= w.a AND v.key < w.b AND (w.c = '' OR v.method = w.c))`)

	// statEnds reads the times of the first and the last event from cursor {2} on.
	statEnds = statement("", `
		SELECT coalesce((SELECT v.at FROM events v WHERE v.session = {1} AND v.cursor >= {2} ORDER BY v.cursor LIMIT 1), 0),
			coalesce((SELECT v.at FROM events v WHERE v.session = {1} AND v.cursor >= {2} ORDER BY v.cursor DESC LIMIT 1), 0)`)
)

// ReadStat implements session.Reader. What a ref of some keys shows of the log is counted event by
// event.
func (s *Store) ReadStat(ctx context.Context, id string, refIDs []string, admit session.Admit) (*session.Stat, error) {
	stat := &session.Stat{Kinds: []session.KindStat{}}
	var refused error
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		var access session.Access
		queueAccess(run, &access, id, refIDs)
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
			run.Queue(listKinds, nil, []any{id, int64(maxKinds)}, collect(&kinds, scanText))
			if err := run.Flush(ctx); err != nil {
				return err
			}
			ranges = session.KindRanges(kinds)
			if stat.Cursor >= first {
				events = int64(stat.Cursor - first + 1)
			}
			run.Queue(statEnds, nil, []any{id, clamp(first)}, func(row Scanner) error { return row.Scan(&from, &to) })
		} else {
			ranges = session.ScopeRanges(g)
			var shown [][]any
			for _, r := range session.EventRanges(g) {
				shown = append(shown, []any{r.From, r.Below, r.Method})
			}
			run.Queue(statEvents, shown, []any{id, clamp(first)}, func(row Scanner) error {
				return row.Scan(&events, &from, &to)
			})
		}
		var kind *session.KindStat // of the range that is read
		for _, r := range ranges {
			run.Queue(statKeys, nil, []any{id, r.From, r.Below, clamp(g.VisibleFrom)}, func(row Scanner) error {
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
			run.Queue(statGrown, nil, []any{id, r.From, r.Below, clamp(g.VisibleFrom)}, func(row Scanner) error {
				var length int64
				var put []byte
				err := row.Scan(&length, &put)
				text, _ := ledger.Member(put, "text")
				kind.Bytes += uint64(length) - uint64(len(ledger.Unquote(text)))
				return err
			})
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		stat.Events, stat.First, stat.Last = uint64(events), from, to
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, wrap("read stat", err)
	}
	return stat, nil
}
