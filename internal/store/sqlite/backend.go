// Transactions: one writer at a time, and concurrent readers.

package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// backend implements dialect.Backend. Taking a connection gives the right to use it; Close takes them
// all.
type backend struct {
	now       func() time.Time
	file      string // the database's, behind links
	lock      io.Closer
	driver    driver.Driver
	readDSN   string      // data source of reading connections
	writeDSN  string      // data source of writing connections
	writeConn chan *conn  // the one writing connection
	queue     updateQueue // of updates waiting for it
	readers   *readPool
	reads     *readTracker
	wal       *walTruncator

	closing sync.Mutex
	closed  bool
}

// FreeSpace implements dialect.SpaceReporter. It ignores quotas and limits on files.
func (b *backend) FreeSpace() (bytes uint64, known bool) {
	bytes, err := freeSpaceAt(b.file)
	return bytes, err == nil
}

// Snapshot implements dialect.Backend.
func (b *backend) Snapshot(ctx context.Context, fn func(dialect.Runner) error) (err error) {
	read, err := b.reads.begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		b.reads.end(read)
		b.truncateAfterRead() // this read may have prevented it
	}()
	c, err := b.readers.acquire(ctx)
	if err != nil {
		return err
	}
	defer b.readers.release(c)
	if err := c.open(b.driver, b.readDSN); err != nil {
		return fmt.Errorf("connect: %w", translate(ctx, err))
	}
	_, err = transaction(ctx, c, "BEGIN DEFERRED", false, fn)
	return err
}

// transaction runs fn and the statements it leaves in the queue between begin and commit. erases
// reports that the committed transaction removed rows that must leave the files.
func transaction(ctx context.Context, c *conn, begin string, brief bool, fn func(dialect.Runner) error) (erases bool, err error) {
	steady := context.WithoutCancel(ctx)
	if err := c.exec(steady, begin); err != nil {
		return false, fmt.Errorf("begin: %w", translate(ctx, err))
	}
	done := false
	defer func() {
		if !done { // after an error, or a panic that a caller recovers
			rollback(steady, c)
		}
	}()
	r := &runner{conn: c, uninterrupted: brief}
	if err := r.runAll(ctx, fn); err != nil {
		return false, err
	}
	if err := c.exec(steady, "COMMIT"); err != nil {
		return false, fmt.Errorf("commit: %w", translate(steady, err))
	}
	done = true
	return r.erase, nil
}

// rollback ends an unsuccessful transaction. After some errors (a full disk) SQLite has rolled back
// already, and reports that there is no transaction.
func rollback(ctx context.Context, c *conn) {
	_ = c.exec(ctx, "ROLLBACK")
}

// Announce implements dialect.Backend: no other process listens.
func (b *backend) Announce(map[string]uint64) {}

// Listen implements dialect.Backend: no other process can commit.
func (b *backend) Listen(ctx context.Context, heard func(string, uint64)) error {
	heard("", 0)
	<-ctx.Done()
	return nil
}

// Ping implements dialect.Backend.
func (b *backend) Ping(ctx context.Context) error {
	c, err := b.readers.acquire(ctx)
	if err != nil {
		return err
	}
	defer b.readers.release(c)
	if err := c.open(b.driver, b.readDSN); err != nil {
		return fmt.Errorf("connect: %w", translate(ctx, err))
	}
	return translate(ctx, c.exec(ctx, "SELECT 1 FROM meta"))
}

// Close implements dialect.Backend: it waits until every connection is free.
func (b *backend) Close() error {
	b.closing.Lock()
	defer b.closing.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	close(b.wal.stop)
	<-b.wal.ended
	var errs []error
	for range cap(b.readers.free) {
		<-b.readers.free
		errs = append(errs, b.readers.pop().close())
	}
	// The writer is the last, so that the write-ahead log is checkpointed and removed.
	errs = append(errs, (<-b.writeConn).close())
	close(b.readers.free)
	close(b.writeConn)
	return errors.Join(append(errs, b.lock.Close())...)
}

// readPool is the reading connections. The one that was used last is taken first: its cache has most
// of what the next read wants, and each that is used has to drop its cache after a commit and read
// the pages again.
type readPool struct {
	free chan struct{} // an element for each connection that is free; closed with the backend

	mu    sync.Mutex
	conns []*conn // those that are free, the one used last at the end
}

// newReadPool returns a pool of n connections, each of which is opened by its first use.
func newReadPool(n int, now func() time.Time) *readPool {
	p := &readPool{free: make(chan struct{}, n)}
	for range n {
		p.release(&conn{now: now})
	}
	return p
}

// acquire waits for a connection.
func (p *readPool) acquire(ctx context.Context) (*conn, error) {
	select {
	case _, open := <-p.free:
		if !open {
			return nil, dialect.ErrClosed
		}
		return p.pop(), nil
	case <-ctx.Done():
		return nil, translate(ctx, ctx.Err())
	}
}

// pop takes a connection after an element of free was taken.
func (p *readPool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.conns) - 1
	c := p.conns[last]
	p.conns = p.conns[:last]
	return c
}

// release returns a connection.
func (p *readPool) release(c *conn) {
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	p.free <- struct{}{}
}
