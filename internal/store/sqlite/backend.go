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
	// The writer is the last, so that the write-ahead log is checkpointed and removed.
	err := errors.Join(b.readers.close(), (<-b.writeConn).close())
	close(b.writeConn)
	return errors.Join(err, b.lock.Close())
}
