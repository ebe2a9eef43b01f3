// Old sessions of a space.

package reads

import (
	"context"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// listOlder reads of a space's sessions by id what says whether they are old.
var listOlder = dialect.Both("", `
	SELECT s.id, s.life, s.updated, s.cursor - s.base, s.bytes, (
		SELECT count(*) FROM turns t {by turns_streaming} WHERE t.session = s.id AND t.status = 1 AND t.lease > {3} AND s.life = 1 AND s.updated < {4})
	FROM (SELECT s.id, s.life, s.updated, s.cursor, s.base, s.bytes FROM sessions s
		WHERE s.space = {1} AND s.space <> '' AND s.id > {2} ORDER BY s.id LIMIT {5}) AS s
	ORDER BY s.id`)

// Bounds of a page of old sessions: the number of sessions that it looks at, and reads at once.
const (
	maxOlderScan   = 10_000
	olderScanBatch = 1000
)

// ListOlder implements session.Reader.
func (s *Reads) ListOlder(ctx context.Context, space string, q session.OlderQuery, refIDs []string) (*session.OldPage, error) {
	if err := txn.CheckText(space, q.After); err != nil {
		return nil, err
	}
	page := &session.OldPage{}
	var refused *fault.Error
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, "", refIDs)
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if refused = q.SetBefore(page.Now); refused != nil {
			return refused
		}
		page.Before = q.Remove.Before
		return listOlderPage(ctx, run, space, &q, page)
	})
	if refused != nil {
		return nil, refused
	}
	return page, txn.Wrap("list old sessions", err)
}

// listOlderPage fills a page, reading one batch of sessions at a time.
func listOlderPage(ctx context.Context, run dialect.Runner, space string, q *session.OlderQuery, page *session.OldPage) error {
	limit, at := max(q.Limit, 1), q.After
	for looked := 0; ; {
		seen := 0
		if err := dialect.Query(ctx, run, listOlder, nil, []any{space, at, page.Now, page.Before, int64(olderScanBatch)}, func(row dialect.Scanner) error {
			var one session.OldSession
			var life, events, running int64
			if err := row.Scan(&one.ID, &life, &one.Updated, &events, &one.Bytes, &running); err != nil {
				return err
			}
			if len(page.Sessions) == limit {
				return dialect.ErrStopRows
			}
			seen, at = seen+1, one.ID
			if session.Life(life) == session.Live && one.Updated < page.Before {
				one.Events, one.Running = uint64(events), running > 0
				page.Sessions = append(page.Sessions, one)
			}
			return nil
		}); err != nil {
			return err
		}
		if looked += seen; len(page.Sessions) == limit || seen == olderScanBatch && looked >= maxOlderScan {
			page.Next = at
			return nil
		}
		if seen < olderScanBatch {
			return nil
		}
	}
}
