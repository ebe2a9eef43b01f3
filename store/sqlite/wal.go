// What is erased leaves the files: secure_delete overwrites it in the database
// file, and the write-ahead log, which still has it, is written back and cut. So is
// a log that has become large: reads that overlap keep SQLite from beginning it anew.

package sqlite

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/store"
)

const (
	// truncateInterval is the time between two attempts to cut a log that somebody's read is in the
	// way of, and for how long reads that begin in one wait for those that run.
	truncateInterval = time.Second

	// maxWALBytes is how many bytes the write-ahead log may have before it is cut. A longer
	// one, which only a read has let grow, is written back beside the commits, not by them.
	maxWALBytes         = 16 << 20
	commitsPerSizeCheck = 32 // commits between two looks at that

	// autoCheckpoint is how many pages of the log a commit writes back, or whoever has its turn
	// (SQLite's own default).
	autoCheckpoint = 1000
)

// walTruncator remembers that the write-ahead log has to be cut. A read that began before the
// last commit is in the way of that: the store's own, or another program's, such as a
// backup. No commit ever waits for one. The log is cut at once when something was erased,
// or when a read of the store's is over; where that does not do, it is tried once a second,
// and then reads that begin wait for those that run, for each of those once.
type walTruncator struct {
	file     string // its file's name
	maxBytes int64
	interval time.Duration
	pending  atomic.Bool
	wake     chan struct{} // it may be pending
	stop     chan struct{} // closed by Close
	ended    chan struct{} // closed when nobody tries any more

	// These are for whoever has the writing connection.
	commits   int  // since the log's size was looked at
	oversized bool // the log is too long to be written back by commits
}

func newWALTruncator(file string, most int64, each time.Duration) *walTruncator {
	e := &walTruncator{file: file + "-wal", maxBytes: most, interval: each, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	if e.maxBytes <= 0 {
		e.maxBytes = maxWALBytes
	}
	if e.interval <= 0 {
		e.interval = truncateInterval
	}
	return e
}

// request notes that the log has to be cut.
func (e *walTruncator) request() {
	e.pending.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// checkSize says from time to time whether the log has become too long.
func (e *walTruncator) checkSize() bool {
	if e.commits++; e.commits < commitsPerSizeCheck {
		return false
	}
	e.commits = 0
	info, err := os.Stat(e.file)
	return err == nil && info.Size() > e.maxBytes
}

// checkpointAfterCommit cuts the log, if the commit erased something or the log is long.
func (b *backend) checkpointAfterCommit(c *conn, erases bool) {
	e := b.wal
	long := e.checkSize()
	if !erases && !long {
		return
	}
	e.request()
	if e.oversized {
		return
	}
	b.truncateWAL(c)
	// A read has let it grow. When that is over, one commit would write all of it back.
	e.oversized = long && e.pending.Load() && c.exec(context.Background(), "PRAGMA wal_autocheckpoint(0)") == nil
}

// truncateWAL cuts the log, unless somebody's read is in the way, on the writing connection, which
// its caller has. done is how much of it was written back.
func (b *backend) truncateWAL(c *conn) (done int64) {
	ctx := context.Background() // it is short, and follows a commit
	if err := c.exec(ctx, "PRAGMA busy_timeout(0)"); err != nil {
		return -1
	}
	at, err := checkpoint(ctx, c, "TRUNCATE")
	if err = errors.Join(err, c.exec(ctx, "PRAGMA "+busyTimeout)); err != nil || at.busy {
		return at.checkpointed
	}
	e := b.wal
	e.pending.Store(false)
	if e.oversized {
		e.oversized = c.exec(ctx, "PRAGMA wal_autocheckpoint("+strconv.Itoa(autoCheckpoint)+")") != nil
	}
	return at.checkpointed
}

// truncateAfterRead cuts a short log, if that is pending. It does nothing while somebody writes.
func (b *backend) truncateAfterRead() {
	if !b.wal.pending.Load() {
		return
	}
	select {
	case c, open := <-b.writeConn:
		if open {
			if !b.wal.oversized {
				b.truncateWAL(c)
			}
			b.writeConn <- c
		}
	default:
	}
}

// checkpointResult is how much of the log is written back.
type checkpointResult struct {
	busy                   bool  // what was to be done could not be done in whole
	walPages, checkpointed int64 // pages in the log, and written back; -1 if another checkpoint runs
}

func checkpoint(ctx context.Context, c *conn, mode string) (at checkpointResult, err error) {
	var busy int64
	err = c.query(ctx, "PRAGMA wal_checkpoint("+mode+")", nil, func(row store.Scanner) error { return row.Scan(&busy, &at.walPages, &at.checkpointed) })
	at.busy = busy != 0
	return at, err
}

// checkpointPassive writes the log back, as far as reads let it, beside commits. few says that so
// little is left of it that a commit may wait for the rest.
func checkpointPassive(beside *conn) (done int64, few bool) {
	for last := int64(-1); ; last = done {
		at, err := checkpoint(context.Background(), beside, "PASSIVE") // which waits for nobody
		if err != nil || at.walPages < 0 {
			return -1, false
		}
		done = at.checkpointed
		if at.walPages-done <= autoCheckpoint {
			return done, true
		}
		if done <= last {
			return done, false
		}
	}
}

// truncateLoop tries to cut the log again and again while nothing else has helped, until Close.
func (b *backend) truncateLoop() {
	e, beside := b.wal, &conn{now: b.now}
	defer close(e.ended)
	defer func() { _ = beside.close() }()
	for {
		select {
		case <-e.wake:
		case <-e.stop:
			return
		}
		for at := (truncateAttempt{stuckAt: -1}); e.pending.Load(); at.drains = true {
			b.tryTruncate(beside, &at)
			if !e.pending.Load() {
				break
			}
			select {
			case <-time.After(e.interval):
			case <-e.stop:
				return
			}
		}
	}
}

// truncateAttempt is what one attempt to cut the log leaves to the next.
type truncateAttempt struct {
	drains bool // reads wait in it: not in the first
	// stuckAt is how much of the log was written back when another program's read alone was
	// in the way, or -1. For as long as that is not more, no read of the store's has to wait.
	stuckAt int64
}

// tryTruncate is one attempt.
func (b *backend) tryTruncate(beside *conn, at *truncateAttempt) {
	e := b.wal
	done := b.truncateOrCheckpoint(beside)
	if !e.pending.Load() || !at.drains || done == at.stuckAt || !b.reads.drain(e.interval, e.stop) {
		return
	}
	defer b.reads.resume()
	at.stuckAt = b.truncateOrCheckpoint(beside)
}

// truncateOrCheckpoint cuts the log; a long one is written back first. done is how much of it was.
func (b *backend) truncateOrCheckpoint(beside *conn) (done int64) {
	c := <-b.writeConn // which nobody has for long
	if !b.wal.oversized || beside.open(b.driver, b.writeDSN) != nil {
		done = b.truncateWAL(c)
		b.writeConn <- c
		return done
	}
	b.writeConn <- c
	done, few := checkpointPassive(beside)
	if few {
		c := <-b.writeConn
		b.truncateWAL(c)
		b.writeConn <- c
	}
	return done
}
