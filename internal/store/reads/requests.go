// Pages of requests.

package reads

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	// dueRequests reads sessions of requests to which something happens by itself until {1}.
	dueRequests = dialect.Both("", `
		SELECT DISTINCT r.session FROM requests r {by requests_due}
		WHERE r.due > 0 AND r.due <= {1} AND r.session > {2} ORDER BY r.session LIMIT {3}`)
)

// ReadRequests implements session.Reader. The values are read of what is on the page alone.
func (s *Reads) ReadRequests(ctx context.Context, id string, q session.RequestQuery, maxBytes int, refIDs []string, admit session.Admit) (*session.Unscoped[*session.RequestPage], error) {
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	page := &session.RequestPage{}
	err := s.admitted(ctx, "read requests", id, refIDs, admit, &page.Access, func(run dialect.Runner, g *capability.Grant) error {
		var keys []string // of what is asked, and what became of it
		if err := dialect.Query(ctx, run, txn.ReadRequests, txn.TextRows([]string{id}), nil, dialect.EachRow(txn.ScanRequest, func(r *session.OpenRequest) {
			if q.Selects(r.Kind) {
				keys = append(keys, session.RequestKey(r.ID), session.RequestStateKey(r.ID))
			}
		})); err != nil || len(keys) == 0 {
			return err
		}
		sizes, shown := map[string]int{}, map[string]*session.Entry{}
		run.Queue(readSizes, txn.PairRows(map[string][]string{id: keys}), nil, func(row dialect.Scanner) error {
			var key string
			var size int64
			err := row.Scan(&key, &size)
			sizes[key] = int(size)
			return err
		})
		run.Queue(txn.ReadEntryMeta, txn.PairRows(map[string][]string{id: keys}), nil, dialect.EachRow(txn.ScanMeta, func(e *session.Entry) {
			if session.ShowsEntry(g, e) {
				shown[e.Key] = e
			}
		}))
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
func readRequestValues(ctx context.Context, run dialect.Runner, page *session.RequestPage, sizes map[string]int, maxBytes int) error {
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
	if err := dialect.Query(ctx, run, txn.ReadEntries, txn.PairRows(map[string][]string{page.Row.ID: keys}), []any{int64(math.MaxInt64)}, dialect.EachRow(txn.ScanEntry, func(e *session.Entry) {
		values[e.Key] = e
	})); err != nil {
		return err
	}
	for _, r := range page.Requests {
		if r.Asked = values[r.Asked.Key]; r.State != nil {
			r.State = values[r.State.Key]
		}
	}
	return nil
}
