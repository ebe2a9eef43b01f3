// Which sessions are known to have a row, so that a commit need not make sure of
// it. A session's row is never removed, so knowing of one never becomes wrong,
// unless the database is put back to an earlier state under a running server;
// the first Load that misses such a row forgets it and fails, and the next one
// makes it.

package store

import (
	"sync"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// maxExistingSessions is how many ids are kept; when there are more, all are forgotten.
const maxExistingSessions = 1 << 16

// existingSessions is safe for concurrent use.
type existingSessions struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

// unknown gives those of ids that are not known, in their order.
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

// add takes what a committed transaction has seen.
func (k *existingSessions) add(rows map[string]priorRow) {
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

// verify fails if one of ids has no row, after all.
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
	return fault.Unavailable.With("the database has lost sessions that were there: was it put back to an earlier state?")
}
