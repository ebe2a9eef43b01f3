// The set of sessions known to have a row, so that a commit need not ensure it. A session's row is
// never removed, so membership stays true unless the database is restored to an earlier state under
// a running server; the first Load that misses such a row removes it from the set and fails, and
// the next one creates the row.

package txn

import (
	"sync"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// maxExistingSessions is the maximum number of ids; above it the set is cleared.
const maxExistingSessions = 1 << 16

// existingSessions is safe for concurrent use.
type existingSessions struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

// unknown returns the ids that are not in the set, in their order.
func (k *existingSessions) unknown(ids []string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var unknown []string
	for _, id := range ids {
		if _, in := k.ids[id]; !in {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// add adds the sessions that a committed transaction has read.
func (k *existingSessions) add(rows map[string]PriorRow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range rows {
		if _, in := k.ids[id]; in {
			continue
		}
		if k.ids == nil || len(k.ids) >= maxExistingSessions {
			k.ids = make(map[string]struct{})
		}
		k.ids[id] = struct{}{}
	}
}

// verify returns an error if one of ids has no row, and removes it from the set.
func (k *existingSessions) verify(ids []string, rows map[string]*session.Row) error {
	if len(rows) == len(ids) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if rows[id] == nil {
			delete(k.ids, id)
		}
	}
	return fault.Unavailable.With("the database has lost sessions: was it restored to an earlier state?")
}
