// The number of sessions in the database, for metrics: counted at intervals, a page at a time,
// since a maintained sum would be a row that every commit contends for.

package objects

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
)

// countPage is the number of sessions counted in one read: some milliseconds.
const countPage = 2000

// countSessions counts all sessions when the server starts, and then each Config.CountInterval.
func (s *Server) countSessions(ctx context.Context) {
	s.countAll(ctx, countPage)
	every(ctx, s.cfg.CountInterval, func() { s.countAll(ctx, countPage) })
}

// countAll is one round. If it fails, the last counts stay.
func (s *Server) countAll(ctx context.Context, page int) {
	var all session.Totals
	for after, more := "", true; more; {
		once, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
		some, next, err := s.cfg.Store.Totals(once, after, page)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				s.warn("sessions were not counted", err)
			}
			return
		}
		all.Add(some)
		after, more = next, next != ""
	}
	s.totals.Store(&all)
}
