// Titles: lists are sorted by a column of the session's row, which is updated from the session's
// info before it is used.

package store

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	listStaleTitles = statement("", `SELECT d.session FROM titles_due d ORDER BY d.session LIMIT {1}`)

	readTitles      = statement("t", `SELECT s.id, s.title, `+infoPrefix+` FROM {w} CROSS JOIN sessions s WHERE s.id = w.a`)
	setTitles       = statement("tt", `UPDATE sessions SET title = w.b FROM {w} WHERE sessions.id = w.a`)
	dropStaleTitles = statement("t", `DELETE FROM titles_due WHERE session IN (SELECT a FROM {w})`)
)

// titlesPerTx is how many titles are updated under one lock, titlesPerList how many before a list.
const (
	titlesPerTx   = 100
	titlesPerList = 2000
)

// refreshTitles updates the titles that are due, a bounded number: after an upgrade all are. If it
// fails, a list shows the earlier titles.
func (s *Store) refreshTitles(ctx context.Context) {
	for range titlesPerList / titlesPerTx {
		if more, err := s.RefreshTitles(ctx, titlesPerTx); err != nil || !more {
			return
		}
	}
}

// RefreshTitles updates the titles of sessions whose infos were written since their last update, at
// most limit; more reports that there may be others.
func (s *Store) RefreshTitles(ctx context.Context, limit int) (more bool, err error) {
	var ids []string
	one := collect(&ids, scanText)
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(listStaleTitles, nil, []any{int64(limit)}, one)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return false, wrap("find titles", err)
	}
	err = s.update(ctx, func(t *tx) error {
		t.run.Queue(lockSessions, textRows(ids), nil, func(row Scanner) error {
			_, err := scanSession(row)
			return err
		})
		if err := t.run.Flush(ctx); err != nil { // or the infos might be the ones from before the lock
			return err
		}
		var titles [][]any
		t.run.Queue(readTitles, textRows(ids), nil, func(row Scanner) error {
			var id, was string
			var info []byte
			err := row.Scan(&id, &was, &info)
			if title := session.TitleKey(infoTitle(info)); err == nil && title != was {
				titles = append(titles, []any{id, title})
			}
			return err
		})
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		t.queueList(setTitles, titles, nil)
		t.queueList(dropStaleTitles, textRows(ids), nil)
		return t.run.Flush(ctx)
	})
	return len(ids) == limit, wrap("take titles", err)
}
