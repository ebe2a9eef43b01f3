package outbox

// A Box: its fields, making and closing one.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/outcomes"
	"github.com/mooring-rpc/mooring/outbox/internal/sender"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// Box is one opened outbox. All methods are safe for concurrent use.
type Box struct {
	cfg      Config
	name     string
	id       string
	openedAt time.Time

	db sqlstore.Database
	t  sqlstore.Tables
	w  *writer.Writer

	hub            outcomes.Hub
	polls          outcomes.Polls
	warnedBlocking atomic.Int64 // since when the last logged blocking process has blocked
	refs           sqlstore.StoredRefs
	usage          usage
	damage         sqlstore.DamageLog

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  sync.WaitGroup

	lease  lease.Lease
	sender sender.Sender

	mu     sync.Mutex // guards closed
	closed bool
}

// defaultName is the name of an outbox that was opened without one.
const defaultName = "default"

// New opens the outbox called name, "" for "default", in the database that open opens, which the Box
// closes. open gets the Config with its defaults, but for Poll's. Programs call package sqliteoutbox
// or pgoutbox.
func New(ctx context.Context, name string, cfg Config, open func(Config) (sqlstore.Database, error)) (*Box, error) {
	if name == "" {
		name = defaultName
	}
	cfg = cfg.withDefaults()
	db, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", sqlstore.WithCode(err))
	}
	named, err := sqlstore.OpenBox(ctx, db, name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open outbox: %w", sqlstore.WithCode(err)), db.Close())
	}
	secret, err := capability.SecretFrom(named.Secret)
	if err != nil {
		return nil, errors.Join(fault.OutboxDamaged.Because(err, "the outbox's own row is damaged"), db.Close())
	}
	var old capability.Secret
	if named.OldSecret != nil {
		if old, err = capability.SecretFrom(named.OldSecret); err != nil {
			return nil, errors.Join(fault.OutboxDamaged.Because(err, "the outbox's own row is damaged"), db.Close())
		}
	}
	me := ulid.Make().String()
	b := &Box{cfg: cfg, name: name, id: named.ID, openedAt: time.Now(), db: db, t: sqlstore.Tables{DB: db, Box: named.Box, HolderID: me}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.w = writer.New(writer.Config{DB: db, Tables: &b.t, Outbox: b.id, Logger: cfg.Logger, Delay: cfg.AckDelay, Observe: b.damage.Observe})
	b.polls.Read = b.unfinishedOf
	b.refs.Tables, b.refs.Outbox, b.refs.Logger, b.refs.Read = &b.t, b.id, cfg.Logger, b.read
	b.lease = lease.Lease{Outbox: b.id, T: &b.t, W: b.w, Lasts: cfg.Lease, Logger: cfg.Logger}
	b.sender = sender.Sender{Outbox: b.id, Secret: secret, OldSecret: old, T: &b.t, W: b.w, Hub: &b.hub, Refs: &b.refs,
		Damage: &b.damage, Stored: &b.usage.stored, Read: b.read, Window: machine.Window(cfg.Window), NewBackoff: b.newBackoff,
		RetryAfter: cfg.Backoff.Initial, Lease: &b.lease, Retention: cfg.Retention, Logger: cfg.Logger, Now: cfg.Now}
	return b, nil
}

// ID is the outbox's id, obx_ + ULID.
func (b *Box) ID() string { return b.id }

// Close ends Run, stores the outcomes that have arrived, releases the lease and closes the
// database. Blocked calls fail with fault.Canceled. Close waits a few seconds for a database
// that does not answer; the next sender receives again the outcomes that were not stored.
func (b *Box) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.w.BeginClose()
	b.calls.Wait()
	b.w.Close()
	return sqlstore.WithCode(b.db.Close())
}

// Run sends committed batches, of this and other processes, until ctx ends or the Box is
// closed; then it returns nil. It holds the outbox's lease when it can get it and waits
// otherwise: also for another Run of the same Box, whose link sends everything until that one
// ends. Errors of the database or the link are logged and retried for ever.
func (b *Box) Run(ctx context.Context, link Link) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := b.withClose(ctx)
	defer cancel()
	b.sender.Run(ctx, link)
	return nil
}

// Wake reports that the link is back: all pending retries are tried now.
func (b *Box) Wake() { b.sender.Post((*machine.Machine).Wake) }

func (b *Box) newBackoff() backoff.BackOff {
	c := b.cfg.Backoff
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(c.Initial), backoff.WithMaxInterval(c.Max),
		backoff.WithMultiplier(c.Factor), backoff.WithRandomizationFactor(c.Jitter), backoff.WithMaxElapsedTime(0))
}

// enter registers a call that keeps the database open until leave; it fails once the Box is
// closed.
func (b *Box) enter() (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, sqlstore.ErrClosed
	}
	b.calls.Add(1)
	return b.calls.Done, nil
}

// withClose derives a context from ctx that Close also cancels.
func (b *Box) withClose(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// read runs f on committed data, perhaps twice, and names every error.
func (b *Box) read(ctx context.Context, what string, f func(ctx context.Context, q sqlstore.Querier) error) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := b.withClose(ctx)
	defer cancel()
	if err := b.db.Read(ctx, func(q sqlstore.Querier) error { return f(ctx, q) }); err != nil {
		b.damage.Observe(err)
		return fmt.Errorf("%s: %w", what, sqlstore.WithCode(err))
	}
	return nil
}

// usage estimates the unfinished ops and bytes, against the outbox's Limits. Each process adds
// its commits to its last count, and counts again every recountAfter commits and before it
// reports that the outbox is full. So the bounds are exact for one process and close for
// several. Only a count subtracts finished ops: others may have committed them since the last
// one.
type usage struct {
	ops, bytes        atomic.Int64
	commitsSinceCount atomic.Int64 // commits since the last count
	stored            atomic.Int64 // ops whose outcomes this process has stored, in total
}

// recountAfter is the number of commits between counts.
const recountAfter = 4096

// checkQuota fails with OutboxFull if ops and bytes more do not fit. q is the transaction to
// count in, nil for none.
func (b *Box) checkQuota(ctx context.Context, q sqlstore.Querier, ops, bytes int) error {
	over := func() bool {
		return b.usage.ops.Load()+int64(ops) > int64(b.cfg.Limits.Rows) || b.usage.bytes.Load()+int64(bytes) > b.cfg.Limits.Bytes
	}
	// One of several concurrent commits counts: a count reads all rows since the low-water
	// mark.
	if n := b.usage.commitsSinceCount.Add(1); n != 1 && n != recountAfter && !over() {
		return nil
	}
	var n, size int64
	count := func(ctx context.Context, q sqlstore.Querier) (err error) {
		n, size, err = b.t.Usage(ctx, q)
		return err
	}
	var err error
	if q != nil {
		err = count(ctx, q)
	} else {
		err = b.read(ctx, "count the outbox", count)
	}
	if err != nil {
		b.usage.commitsSinceCount.Store(0) // the next commit counts
		return err
	}
	b.usage.ops.Store(n)
	b.usage.bytes.Store(size)
	b.usage.commitsSinceCount.Store(1)
	if over() {
		return fault.OutboxFull.With("the outbox has %d unfinished ops in %d bytes, its bounds are %d and %d: wait until it has drained, or drop some",
			n, size, b.cfg.Limits.Rows, b.cfg.Limits.Bytes)
	}
	return nil
}
