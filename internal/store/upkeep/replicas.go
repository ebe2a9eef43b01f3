// The servers that share a database, and the features that all of them know.

package upkeep

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// upgradeName is the name in meta of a row that is there while servers may run that keep no row in
// replicas: those of the version before it.
const upgradeName = "upgrade"

var (
	recordReplica = dialect.Both("tii", `
		INSERT INTO replicas (id, features, seen) {values}
		ON CONFLICT (id) DO UPDATE SET features = excluded.features, seen = excluded.seen`)
	readReplicas  = dialect.Both("", `SELECT features FROM replicas WHERE seen > {1}`)
	dropReplica   = dialect.Both("", `DELETE FROM replicas WHERE id = {1}`)
	dropReplicas  = dialect.Both("", `DELETE FROM replicas WHERE seen <= {1}`)
	finishUpgrade = dialect.Both("", `DELETE FROM meta WHERE name = {1}`)
)

// RecordReplica records that a server of the database is alive and knows some features, and returns
// those that every server knows that was alive within a time.
func (s *Upkeep) RecordReplica(ctx context.Context, id string, knows session.Features, within time.Duration) (inUse session.Features, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		since := t.Now - within.Milliseconds()
		upgrading := false
		inUse = knows
		t.Run.Queue(recordReplica, [][]any{{id, int64(knows), t.Now}}, nil, nil)
		t.Run.Queue(dropReplicas, nil, []any{since}, nil)
		t.Run.Queue(readReplicas, nil, []any{since}, func(row dialect.Scanner) error {
			var features int64
			err := row.Scan(&features)
			inUse &= session.Features(features)
			return err
		})
		t.Run.Queue(txn.ReadMeta, nil, []any{upgradeName}, func(row dialect.Scanner) error {
			var state string
			upgrading = true
			return row.Scan(&state)
		})
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if upgrading {
			inUse = 0
		}
		return nil
	})
	return inUse, txn.Wrap("record the replica", err)
}

// ForgetReplica removes the row of a server that has stopped.
func (s *Upkeep) ForgetReplica(ctx context.Context, id string) error {
	return txn.Wrap("forget the replica", s.db.Backend.Update(ctx, func(run dialect.Runner) error {
		run.Queue(dropReplica, nil, []any{id}, nil)
		return nil
	}))
}

// FinishUpgrade records that no server of the previous version runs any more; pending reports
// whether that was not recorded before.
func (s *Upkeep) FinishUpgrade(ctx context.Context) (pending bool, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		t.Run.Queue(txn.ReadMeta, nil, []any{upgradeName}, func(row dialect.Scanner) error {
			var state string
			pending = true
			return row.Scan(&state)
		})
		t.Run.Queue(finishUpgrade, nil, []any{upgradeName}, nil)
		return t.Run.Flush(ctx)
	})
	return pending, txn.Wrap("finish the upgrade", err)
}
