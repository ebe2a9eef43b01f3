// Titles: lists are sorted by a column of the session's row, which is updated from the session's
// info before it is used.

package reads

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	listStaleTitles = dialect.Both("", `SELECT d.session FROM titles_due d ORDER BY d.session LIMIT {1}`)

	readTitles      = dialect.Both("t", `SELECT s.id, s.title, `+InfoPrefix+` FROM {w} CROSS JOIN sessions s WHERE s.id = w.a`)
	setTitles       = dialect.Both("tt", `UPDATE sessions SET title = w.b FROM {w} WHERE sessions.id = w.a`)
	dropStaleTitles = dialect.Both("t", `DELETE FROM titles_due WHERE session IN (SELECT a FROM {w})`)
)

// titlesPerTx is how many titles are updated under one lock, titlesPerList how many before a list.
const (
	titlesPerTx   = 100
	titlesPerList = 2000
)

// refreshTitles updates the titles that are due, a bounded number: after an upgrade all are. If it
// fails, a list shows the earlier titles.
func (s *Reads) refreshTitles(ctx context.Context) {
	for range titlesPerList / titlesPerTx {
		if more, err := s.RefreshTitles(ctx, titlesPerTx); err != nil || !more {
			return
		}
	}
}

// RefreshTitles updates the titles of sessions whose infos were written since their last update, at
// most limit; more reports that there may be others.
func (s *Reads) RefreshTitles(ctx context.Context, limit int) (more bool, err error) {
	var ids []string
	one := dialect.Collect(&ids, dialect.ScanText)
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(listStaleTitles, nil, []any{int64(limit)}, one)
		return nil
	})
	if err != nil || len(ids) == 0 {
		return false, txn.Wrap("find titles", err)
	}
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		if err := dialect.Query(ctx, t.Run, txn.LockSessions, txn.TextRows(ids), nil, func(row dialect.Scanner) error {
			_, err := txn.ScanSession(row)
			return err
		}); err != nil { // or the infos might be the ones from before the lock
			return err
		}
		var titles [][]any
		if err := dialect.Query(ctx, t.Run, readTitles, txn.TextRows(ids), nil, func(row dialect.Scanner) error {
			var id, was string
			var info []byte
			err := row.Scan(&id, &was, &info)
			if title := session.TitleKey(InfoTitle(info)); err == nil && title != was {
				titles = append(titles, []any{id, title})
			}
			return err
		}); err != nil {
			return err
		}
		t.QueueList(setTitles, titles, nil)
		t.QueueList(dropStaleTitles, txn.TextRows(ids), nil)
		return t.Run.Flush(ctx)
	})
	return len(ids) == limit, txn.Wrap("take titles", err)
}
