// Requests that are open or claimed: statements and scans of their rows. What they ask, and what became of them,
// is in entries.

package store

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	readRequests = statement("t", `
		SELECT r.session, r.id, r.request FROM {w} CROSS JOIN requests r WHERE r.session = w.a`)

	saveRequests = statement("ttit", `
		INSERT INTO requests (session, id, due, request)
		{values} ON CONFLICT (session, id) DO UPDATE SET due = excluded.due, request = excluded.request`)

	dropRequests    = statement("tt", `DELETE FROM requests WHERE (session, id) IN (SELECT a, b FROM {w})`)
	dropAllRequests = statement("t", `DELETE FROM requests WHERE session IN (SELECT a FROM {w})`)

	// dueRequests reads sessions of requests to which something happens by itself until {1}.
	dueRequests = statement("", `
		SELECT DISTINCT r.session FROM requests r {by requests_due}
		WHERE r.due > 0 AND r.due <= {1} AND r.session > {2} ORDER BY r.session LIMIT {3}`)
)

func scanRequest(row Scanner) (*session.OpenRequest, error) {
	var id, request, text string
	if err := row.Scan(&id, &request, &text); err != nil {
		return nil, err
	}
	return session.UnmarshalRequest(id, request, text)
}

func requestValues(r *session.OpenRequest) []any {
	return []any{r.Session, r.ID, r.Due(), r.Marshal()}
}

// ReadRequests implements session.Reader. The values are read of what is on the page alone.
func (s *Store) ReadRequests(ctx context.Context, id string, q session.RequestQuery, maxBytes int, refIDs []string, admit session.Admit) (*session.Unscoped[*session.RequestPage], error) {
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	page := &session.RequestPage{}
	err := s.admitted(ctx, "read requests", id, refIDs, admit, &page.Access, func(run Runner, g *capability.Grant) error {
		var keys []string // of what is asked, and what became of it
		run.Queue(readRequests, textRows([]string{id}), nil, func(row Scanner) error {
			r, err := scanRequest(row)
			if err == nil && q.Selects(r.Kind) {
				keys = append(keys, session.RequestKey(r.ID), session.RequestStateKey(r.ID))
			}
			return err
		})
		if err := run.Flush(ctx); err != nil || len(keys) == 0 {
			return err
		}
		sizes, shown := map[string]int{}, map[string]*session.Entry{}
		run.Queue(readSizes, pairRows(map[string][]string{id: keys}), nil, func(row Scanner) error {
			var key string
			var size int64
			err := row.Scan(&key, &size)
			sizes[key] = int(size)
			return err
		})
		run.Queue(readEntryMeta, pairRows(map[string][]string{id: keys}), nil, func(row Scanner) error {
			e, err := scanEntryMeta(row)
			if err == nil && session.ShowsEntry(g, e) {
				shown[e.Key] = e
			}
			return err
		})
		if err := run.Flush(ctx); err != nil {
			return err
		}
		for key, e := range shown {
			if request, state, _ := session.RequestOf(key); !state && e.Cursor > q.After {
				page.Requests = append(page.Requests, &session.RequestInfo{ID: request, Asked: e, State: shown[session.RequestStateKey(request)]})
			}
		}
		slices.SortFunc(page.Requests, func(a, b *session.RequestInfo) int { return cmp.Compare(a.Asked.Cursor, b.Asked.Cursor) })
		return readRequestValues(ctx, run, page, sizes, maxBytes)
	})
	if err != nil {
		return nil, err
	}
	return session.NewUnscoped(page), nil
}

// readRequestValues reads the values of a page whose entries have none, and cuts it at about maxBytes. sizes are those of the
// keys.
func readRequestValues(ctx context.Context, run Runner, page *session.RequestPage, sizes map[string]int, maxBytes int) error {
	var keys []string
	bytes := 0
	for i, r := range page.Requests {
		if bytes += sizes[r.Asked.Key]; r.State != nil {
			bytes += sizes[r.State.Key]
		}
		if i > 0 && bytes > maxBytes {
			page.Requests, page.Next = page.Requests[:i], page.Requests[i-1].Asked.Cursor
			break
		}
		if keys = append(keys, r.Asked.Key); r.State != nil {
			keys = append(keys, r.State.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	values := map[string]*session.Entry{}
	run.Queue(readEntries, pairRows(map[string][]string{page.Row.ID: keys}), []any{int64(math.MaxInt64)}, func(row Scanner) error {
		e, err := scanEntry(row)
		if err == nil {
			values[e.Key] = e
		}
		return err
	})
	if err := run.Flush(ctx); err != nil {
		return err
	}
	for _, r := range page.Requests {
		if r.Asked = values[r.Asked.Key]; r.State != nil {
			r.State = values[r.State.Key]
		}
	}
	return nil
}
