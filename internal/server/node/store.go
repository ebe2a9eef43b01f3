// Store: the interface of the server to its database. The packages store/sqlite and
// store/postgres implement it; only package server and tests import them.

package node

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/server/webhooks"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Store keeps the rows. A method that writes is one transaction. A method that reads returns
// authority and rows of one snapshot. All methods are safe for concurrent use. Errors that
// callers handle are faults (Unavailable, DiskFull); all others are defects.
type Store interface {
	admission.AuditStore
	fanout.HubStore
	objects.Store
	commit.Store
	operator.Store
	operator.BootstrapStore
	webhooks.Store

	// PoolStats returns the open connections to the database and their maximum, 0 and 0
	// without a pool. short reports that the database granted no more connections.
	PoolStats() (have, limit int, short bool)

	// HistoryID returns the id of the history that the database's commits belong to.
	HistoryID(ctx context.Context) (id string, err error)

	// Ping returns nil if the database answers.
	Ping(ctx context.Context) error
}

// monitoredStore is a store that reports its failed writes to an outage. The committer reports
// those of its own, since it knows their size: it gets the store itself.
type monitoredStore struct {
	Store
	outage *operator.Outage
}

func (w monitoredStore) report(err error) error {
	w.outage.RecordFailure(err, 0)
	return err
}

// Update implements Store.
func (w monitoredStore) Update(ctx context.Context, fn func(session.Tx) error) error {
	return w.report(w.Store.Update(ctx, fn))
}

// ChangeWebhooks implements Store.
func (w monitoredStore) ChangeWebhooks(ctx context.Context, id string, refs []string, decide func(*session.Access, []*session.Webhook) (*session.WebhookChange, error)) error {
	return w.report(w.Store.ChangeWebhooks(ctx, id, refs, decide))
}

// OpenStream implements Store.
func (w monitoredStore) OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error) {
	st, err := w.Store.OpenStream(ctx, o)
	return st, w.report(err)
}

// Redeem implements Store.
func (w monitoredStore) Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error {
	return w.report(w.Store.Redeem(ctx, ref, redemption, peer, admit))
}

// Audit implements Store.
func (w monitoredStore) Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error {
	return w.report(w.Store.Audit(ctx, page, rows))
}

// AddUses implements Store.
func (w monitoredStore) AddUses(ctx context.Context, page capability.IdempotencyKey, uses []capability.RefUses) error {
	return w.report(w.Store.AddUses(ctx, page, uses))
}

// AuditExpired implements Store.
func (w monitoredStore) AuditExpired(ctx context.Context, limit int) (more bool, err error) {
	more, err = w.Store.AuditExpired(ctx, limit)
	return more, w.report(err)
}

// Trim implements Store.
func (w monitoredStore) Trim(ctx context.Context, id string, keep time.Duration, maxEvents, maxBytes int) (more bool, err error) {
	more, err = w.Store.Trim(ctx, id, keep, maxEvents, maxBytes)
	return more, w.report(err)
}
