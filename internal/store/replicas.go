// The servers that share a database, and the features that all of them know.

package store

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// upgradeName is the name in meta of a row that is there while servers may run that keep no row in
// replicas: those of the version before it.
const upgradeName = "upgrade"

// manageName is the name in meta of a row that is there until the audit of a space that is older than the
// right manage says that its root ref has it.
const manageName = "manage"

var (
	recordReplica = statement("tii", `
		INSERT INTO replicas (id, features, seen) {values}
		ON CONFLICT (id) DO UPDATE SET features = excluded.features, seen = excluded.seen`)
	readReplicas  = statement("", `SELECT features FROM replicas WHERE seen > {1}`)
	dropReplica   = statement("", `DELETE FROM replicas WHERE id = {1}`)
	dropReplicas  = statement("", `DELETE FROM replicas WHERE seen <= {1}`)
	finishUpgrade = statement("", `DELETE FROM meta WHERE name = {1}`)
	claimDone     = statement("", `DELETE FROM meta WHERE name = {1} RETURNING name`)
)

// RecordReplica records that a server of the database is alive and knows some features, and returns
// those that every server knows that was alive within a time.
func (s *Store) RecordReplica(ctx context.Context, id string, knows session.Features, within time.Duration) (inUse session.Features, err error) {
	err = s.update(ctx, func(t *tx) error {
		t.run.QueueNow(setClock(&t.now))
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		since := t.now - within.Milliseconds()
		upgrading := false
		inUse = knows
		t.run.Queue(recordReplica, [][]any{{id, int64(knows), t.now}}, nil, nil)
		t.run.Queue(dropReplicas, nil, []any{since}, nil)
		t.run.Queue(readReplicas, nil, []any{since}, func(row Scanner) error {
			var features int64
			err := row.Scan(&features)
			inUse &= session.Features(features)
			return err
		})
		t.run.Queue(readMeta, nil, []any{upgradeName}, func(row Scanner) error {
			var state string
			upgrading = true
			return row.Scan(&state)
		})
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		if upgrading {
			inUse = 0
		}
		return nil
	})
	return inUse, wrap("record the replica", err)
}

// AuditManage adds to the audit of a space that is older than the right manage that its root ref has it now:
// once, however often it is called. The caller has found the right in use.
func (s *Store) AuditManage(ctx context.Context) error {
	return wrap("audit the right manage", s.update(ctx, func(t *tx) error { return t.auditManage(ctx) }))
}

func (t *tx) auditManage(ctx context.Context) error {
	var state string
	t.run.Queue(readMeta, nil, []any{manageName}, func(row Scanner) error { return row.Scan(&state) })
	if err := t.run.Flush(ctx); err != nil || state == "" {
		return err
	}
	done, space := false, ""
	var roots []*capability.Grant
	t.run.Queue(claimDone, nil, []any{manageName}, func(Scanner) error {
		done = true
		return nil
	})
	t.run.Queue(readMeta, nil, []any{firstSpace}, func(row Scanner) error { return row.Scan(&space) })
	if err := t.run.Flush(ctx); err != nil || !done {
		return err
	}
	t.run.Queue(readRoots, nil, []any{space}, collect(&roots, scanRef))
	if err := t.run.Flush(ctx); err != nil {
		return err
	}
	var rows []*capability.AuditRow
	for _, g := range roots {
		if g.Revoked != 0 {
			continue
		}
		rows = append(rows, &capability.AuditRow{Target: g.Target, Act: capability.AuditManage, Ref: g.ID, Actor: "operator", Subject: g.ID})
	}
	return t.saveAudit(ctx, rows)
}

// ForgetReplica removes the row of a server that has stopped.
func (s *Store) ForgetReplica(ctx context.Context, id string) error {
	return wrap("forget the replica", s.backend.Update(ctx, func(run Runner) error {
		run.Queue(dropReplica, nil, []any{id}, nil)
		return nil
	}))
}

// FinishUpgrade records that no server of the previous version runs any more; pending reports
// whether that was not recorded before.
func (s *Store) FinishUpgrade(ctx context.Context) (pending bool, err error) {
	err = s.update(ctx, func(t *tx) error {
		t.run.Queue(readMeta, nil, []any{upgradeName}, func(row Scanner) error {
			var state string
			pending = true
			return row.Scan(&state)
		})
		t.run.Queue(finishUpgrade, nil, []any{upgradeName}, nil)
		return t.run.Flush(ctx)
	})
	return pending, wrap("finish the upgrade", err)
}
