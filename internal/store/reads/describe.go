// Describe: a session's row and its info.

package reads

import (
	"context"
	"math"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// infoKey is the key of a session's info.
var infoKey = session.Key{Kind: session.KeySession}.String()

// Describe is ReadAccess with the session's info: the entry that has its title; nil if none was
// put.
func (s *Reads) Describe(ctx context.Context, id string, refIDs []string) (_ *session.Unscoped[*session.Description], err error) {
	d := &session.Description{}
	if d.Key, err = s.hashKey(ctx); err != nil {
		return nil, txn.Wrap("describe", err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &d.Access, id, refIDs)
		run.Queue(txn.ReadEntries, [][]any{{id, infoKey}}, []any{int64(math.MaxInt64)}, func(row dialect.Scanner) (err error) {
			d.Info, err = txn.ScanEntry(row)
			return err
		})
		return nil
	})
	if err != nil {
		return nil, txn.Wrap("describe", err)
	}
	return session.NewUnscoped(d), nil
}
