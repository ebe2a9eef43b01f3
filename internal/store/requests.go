// Requests that are open or claimed: statements and scans of their rows. What they ask, and what became of them,
// is in entries.

package store

import "github.com/mooring-rpc/mooring/internal/session"

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
