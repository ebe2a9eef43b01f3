// Describe: a session's row and its info.

package store

import (
	"context"
	"math"

	"github.com/mooring-rpc/mooring/internal/session"
)

// infoKey is the key of a session's info.
var infoKey = session.Key{Kind: session.KeySession}.String()

// Describe is ReadAccess with the session's info: the entry that has its title; nil if none was
// put.
func (s *Store) Describe(ctx context.Context, id string, refIDs []string) (_ *session.Unscoped[*session.Description], err error) {
	d := &session.Description{}
	if d.Key, err = s.hashKey(ctx); err != nil {
		return nil, wrap("describe", err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &d.Access, id, refIDs)
		run.Queue(readEntries, [][]any{{id, infoKey}}, []any{int64(math.MaxInt64)}, func(row Scanner) (err error) {
			d.Info, err = scanEntry(row)
			return err
		})
		return nil
	})
	if err != nil {
		return nil, wrap("describe", err)
	}
	return session.NewUnscoped(d), nil
}
