// The number of sessions in the database, for metrics: counted at intervals, a page at a time,
// since a maintained sum would be a row that every commit contends for.

package operator

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/session"
)

// countPage is the number of sessions counted in one read: some milliseconds.
const countPage = 2000

// countSessions counts all sessions when the server starts, and then each Config.CountInterval.
func (o *Operator) countSessions(ctx context.Context) {
	o.countAll(ctx, countPage)
	periodic.Do(ctx, o.cfg.CountInterval, func() { o.countAll(ctx, countPage) })
}

// countAll is one round. If it fails, the last counts stay.
func (o *Operator) countAll(ctx context.Context, page int) {
	var all session.Totals
	for after, more := "", true; more; {
		once, cancel := context.WithTimeout(ctx, o.cfg.ReadTimeout)
		some, next, err := o.cfg.Store.Totals(once, after, page)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				o.cfg.Outage.Warn("sessions were not counted", err)
			}
			return
		}
		all.Add(some)
		after, more = next, next != ""
	}
	o.totals.Store(&all)
}
