package outbox

// Opening and closing, and the verbs' signatures in one place.

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Box is one opened outbox. All methods are safe for concurrent use.
type Box struct{ cfg Config }

var errSkeleton = errors.New("outbox: not there yet")

// OpenSQLite opens the outbox in the file at path and makes it (mode 0600) if it
// is not there. Several processes may have it open.
func OpenSQLite(ctx context.Context, path string, cfg Config) (*Box, error) { return nil, errSkeleton }

// OpenPostgres opens the outbox called name in the database at url, making its
// tables and itself if they are not there. Outboxes of different names in one
// database have nothing to do with each other.
func OpenPostgres(ctx context.Context, url, name string, cfg Config) (*Box, error) {
	return nil, errSkeleton
}

// NewPostgres is OpenPostgres on a pool that stays the caller's.
func NewPostgres(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Box, error) {
	return nil, errSkeleton
}

// ID is the outbox's id, obx_ + ULID.
func (b *Box) ID() string { return "" }

// Close ends what the Box has running and closes its database. Run must have
// returned, or returns now.
func (b *Box) Close() error { return errSkeleton }

// Commit makes a batch durable and returns.
func (b *Box) Commit(ctx context.Context, batch Batch) (Ticket, error) { return Ticket{}, errSkeleton }

// CommitTx is Commit inside the caller's transaction.
func (b *Box) CommitTx(ctx context.Context, tx pgx.Tx, batch Batch) (Ticket, error) {
	return Ticket{}, errSkeleton
}

// Wait blocks until every op of the batch has its outcome, and gives them in order.
func (b *Box) Wait(ctx context.Context, batch string) ([]ledger.Outcome, error) {
	return nil, errSkeleton
}

// Status counts rows and lists the streams that have unfinished ones.
func (b *Box) Status(ctx context.Context) (Status, error) { return Status{}, errSkeleton }

// List gives rows in the order they were committed.
func (b *Box) List(ctx context.Context, f Filter) ([]Row, error) { return nil, errSkeleton }

// Retry commits a failed op again under a new op id that names the old.
func (b *Box) Retry(ctx context.Context, op string) (Ticket, error) { return Ticket{}, errSkeleton }

// Drop gives an unfinished op up.
func (b *Box) Drop(ctx context.Context, op string) error { return errSkeleton }

// PutRef stores a ref to send through, or changes what is remembered of it.
func (b *Box) PutRef(ctx context.Context, ref capability.Ref, meta RefMeta) error { return errSkeleton }

// Refs lists the stored refs, oldest first.
func (b *Box) Refs(ctx context.Context) ([]SavedRef, error) { return nil, errSkeleton }

// Ref gives a stored ref by its id; NotFound.
func (b *Box) Ref(ctx context.Context, id string) (SavedRef, error) { return SavedRef{}, errSkeleton }

// RefFor gives the ref for a session or space id, or an external id: the owner's
// if there is one, else the newest. NotFound, Ambiguous.
func (b *Box) RefFor(ctx context.Context, target string) (SavedRef, error) {
	return SavedRef{}, errSkeleton
}

// DropRef forgets a ref; no error if it is not there.
func (b *Box) DropRef(ctx context.Context, id string) error { return errSkeleton }

// Run sends until ctx ends.
func (b *Box) Run(ctx context.Context, link Link) error { return errSkeleton }

// Wake says that the link is back: whatever waits to be tried again is tried now.
func (b *Box) Wake() {}

// Drain waits until nothing is unfinished. progress, if not nil, is called with
// the ops finished since the call and those there were in all.
func (b *Box) Drain(ctx context.Context, progress func(done, total int)) error { return errSkeleton }
