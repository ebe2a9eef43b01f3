// Requests that are open or claimed: statements and scans of their rows. What they ask, and what became of them,
// is in entries.

package txn

import (
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

var (
	ReadRequests = dialect.Both("t", `
		SELECT r.session, r.id, r.request FROM {w} CROSS JOIN requests r WHERE r.session = w.a`)

	saveRequests = dialect.Both("ttit", `
		INSERT INTO requests (session, id, due, request)
		{values} ON CONFLICT (session, id) DO UPDATE SET due = excluded.due, request = excluded.request`)
)

// ScanRequest scans a request.
func ScanRequest(row dialect.Scanner) (*session.OpenRequest, error) {
	var id, request, text string
	if err := row.Scan(&id, &request, &text); err != nil {
		return nil, err
	}
	return session.UnmarshalRequest(id, request, text)
}

func requestValues(r *session.OpenRequest) []any {
	return []any{r.Session, r.ID, r.Due(), r.Marshal()}
}
