package outbox

// A Box: its parts, how it begins and how it ends.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Box is one opened outbox. All methods are safe for concurrent use.
type Box struct {
	cfg       Config
	name      string
	id        string
	secret    capability.Secret // from which those are derived that servers are shown
	oldSecret capability.Secret // that servers were shown before; zero for none
	holderID  string            // this Box, as the lease's holder
	openedAt  time.Time

	db database
	t  tables
	w  *worker

	hub            outcomeHub
	polls          pollBatcher
	warnedBlocking atomic.Int64 // since when who was said to stand in a transaction does
	refs           refCache
	usage          usage
	damage         damageLog

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closed  bool
	loop    *loop         // the sender, while this Box has the lease
	runDone chan struct{} // not nil while Run is running, and closed when it ends
}

// defaultName is what an outbox is called that was not given a name.
const defaultName = "default"

// newBox opens the outbox called name in db, which is the Box's from then on.
func newBox(ctx context.Context, db database, name string, cfg Config) (*Box, error) {
	named, err := openBox(ctx, db, name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open outbox: %w", withCode(err)), db.close())
	}
	secret, err := capability.SecretFrom(named.secret)
	if err != nil {
		return nil, errors.Join(fault.OutboxDamaged.Because(err, "the outbox's own row is damaged"), db.close())
	}
	var old capability.Secret
	if named.oldSecret != nil {
		if old, err = capability.SecretFrom(named.oldSecret); err != nil {
			return nil, errors.Join(fault.OutboxDamaged.Because(err, "the outbox's own row is damaged"), db.close())
		}
	}
	me := ulid.Make().String()
	b := &Box{cfg: cfg, name: name, id: named.id, secret: secret, oldSecret: old, holderID: me, openedAt: time.Now(), db: db, t: tables{db: db, box: named.box, holderID: me}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.w = newWorker(b)
	return b, nil
}

// ID is the outbox's id, obx_ + ULID.
func (b *Box) ID() string { return b.id }

// Close ends Run, stores the outcomes that have arrived, gives the lease back
// and closes the database. Calls that are waiting fail with fault.Canceled. A
// database that does not answer is waited for a few seconds: what is not stored then
// the next sender gets again.
func (b *Box) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.w.beginClose()
	b.calls.Wait()
	b.w.close()
	return withCode(b.db.close())
}

// enter counts a caller who keeps the database open until leave; it fails once
// the Box is closed.
func (b *Box) enter() (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	b.calls.Add(1)
	return b.calls.Done, nil
}

var errClosed = fault.Canceled.With("the outbox is closed")

// withClose gives ctx an end that also comes with Close.
func (b *Box) withClose(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// read runs f, twice if need be, on what is committed, with every error named.
func (b *Box) read(ctx context.Context, what string, f func(ctx context.Context, q querier) error) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := b.withClose(ctx)
	defer cancel()
	if err := b.db.read(ctx, func(q querier) error { return f(ctx, q) }); err != nil {
		b.damage.observe(err)
		return fmt.Errorf("%s: %w", what, withCode(err))
	}
	return nil
}

// asCanceled gives a context's end its code.
func asCanceled(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Canceled.Because(err, "given up before it was through")
	}
	return err
}

// withCode gives every error a code, so that no verb gives one of a driver alone.
func withCode(err error) error {
	var f *fault.Error
	var c fault.Code
	err = asCanceled(err)
	switch {
	case err == nil, errors.As(err, &f), errors.As(err, &c):
		return err
	case errors.Is(err, errTxConflict):
		return fault.Unavailable.Because(err, "the outbox's database gave this up in favour of another transaction, again and again: try again")
	}
	return fault.Internal.Because(err, "the outbox's database failed: %v", err)
}

// usage estimates what is unfinished, against the outbox's bounds. Each process
// adds what it commits to what it counted, and counts anew now and then, and always
// before it says that the outbox is full; so the bounds are exact for one process
// and near enough for several. What is finished is found by the next count alone:
// it may be what others committed since the last one.
type usage struct {
	ops, bytes        atomic.Int64
	commitsSinceCount atomic.Int64 // commits since the last count
	stored            atomic.Int64 // ops that this process has stored the outcomes of, in all
}

// recountAfter is how many commits may go by without a count.
const recountAfter = 4096

// checkQuota fails with OutboxFull if so much more does not fit. q is the transaction
// that asks, nil for none.
func (b *Box) checkQuota(ctx context.Context, q querier, ops, bytes int) error {
	over := func() bool {
		return b.usage.ops.Load()+int64(ops) > int64(b.cfg.Limits.Rows) || b.usage.bytes.Load()+int64(bytes) > b.cfg.Limits.Bytes
	}
	// Of those who commit at once one counts: all rows since the low-water mark are read for it.
	if n := b.usage.commitsSinceCount.Add(1); n != 1 && n != recountAfter && !over() {
		return nil
	}
	var n, size int64
	count := func(ctx context.Context, q querier) (err error) {
		n, size, err = b.t.usage(ctx, q)
		return err
	}
	var err error
	if q != nil {
		err = count(ctx, q)
	} else {
		err = b.read(ctx, "count the outbox", count)
	}
	if err != nil {
		b.usage.commitsSinceCount.Store(0) // the next one counts
		return err
	}
	b.usage.ops.Store(n)
	b.usage.bytes.Store(size)
	b.usage.commitsSinceCount.Store(1)
	if over() {
		return fault.OutboxFull.With("the outbox holds %d unfinished ops in %d bytes, its bounds are %d and %d: wait until it has drained, or drop some",
			n, size, b.cfg.Limits.Rows, b.cfg.Limits.Bytes)
	}
	return nil
}
