// Removing erased rows from the files: secure_delete overwrites them in the database file, and the
// write-ahead log, which still has them, is checkpointed and truncated. So is a log that has become
// large: overlapping reads keep SQLite from restarting it.

package sqlite

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

const (
	// truncateInterval is the time between two attempts to truncate a log while a read prevents it,
	// and for how long new reads wait for the running ones in one attempt.
	truncateInterval = time.Second

	// maxWALBytes is the size in bytes above which the write-ahead log is truncated. A larger log,
	// which only a read can cause, is checkpointed beside the commits, not by them.
	maxWALBytes         = 16 << 20
	commitsPerSizeCheck = 32 // commits between two checks of the size

	// autoCheckpoint is the number of log pages after which a commit, or the holder of the writing
	// connection, checkpoints (SQLite's own default).
	autoCheckpoint = 1000
)

// walTruncator records whether the write-ahead log has to be truncated. A read that began before
// the last commit prevents that: one of the store's own, or another program's, such as a backup. No
// commit ever waits for a read. The log is truncated at once when rows were erased, or when a read
// of the store ends; where that fails, it is tried once per truncateInterval, and then new reads
// wait for the running ones, once for each read.
type walTruncator struct {
	file     string // the log's file name
	maxBytes int64
	interval time.Duration
	pending  atomic.Bool
	wake     chan struct{} // pending may have become true
	stop     chan struct{} // closed by Close
	ended    chan struct{} // closed when the attempts have ended

	// Guarded by possession of the writing connection.
	commits   int  // since the last check of the log's size
	oversized bool // too large to be checkpointed by commits
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

// request has truncateLoop truncate the log.
func (e *walTruncator) request() {
	e.pending.Store(true)
	e.wakeLoop()
}

func (e *walTruncator) wakeLoop() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// checkSize reports whether the log has become too large; it checks every commitsPerSizeCheck
// commits.
func (e *walTruncator) checkSize() bool {
	if e.commits++; e.commits < commitsPerSizeCheck {
		return false
	}
	e.commits = 0
	info, err := os.Stat(e.file)
	return err == nil && info.Size() > e.maxBytes
}

// checkpointAfterCommit truncates the log if the commit erased rows or the log is too large.
func (b *backend) checkpointAfterCommit(c *conn, erases bool) {
	e := b.wal
	long := e.checkSize()
	if !erases && !long {
		return
	}
	e.pending.Store(true)
	if !e.oversized {
		b.truncateWAL(c)
		// A read has let it grow. After that read, a single commit would checkpoint all of it.
		e.oversized = long && e.pending.Load() && c.exec(context.Background(), "PRAGMA wal_autocheckpoint(0)") == nil
	}
	if e.pending.Load() { // else another attempt would truncate what is empty, and commits wait for it
		e.wakeLoop()
	}
}

// truncateWAL truncates the log, unless a read prevents it, on the writing connection c, which the
// caller holds. done is the number of pages that were checkpointed.
func (b *backend) truncateWAL(c *conn) (done int64) {
	ctx := context.Background() // short, and part of a completed commit
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

// truncateAfterRead truncates a log of normal size, if that is pending. It does nothing while
// another goroutine writes.
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

// checkpointResult is the state of the log after a checkpoint.
type checkpointResult struct {
	busy                   bool  // the checkpoint was not complete
	walPages, checkpointed int64 // pages in the log, and checkpointed; -1 if another checkpoint runs
}

func checkpoint(ctx context.Context, c *conn, mode string) (at checkpointResult, err error) {
	var busy int64
	err = c.query(ctx, "PRAGMA wal_checkpoint("+mode+")", nil, func(row dialect.Scanner) error { return row.Scan(&busy, &at.walPages, &at.checkpointed) })
	at.busy = busy != 0
	return at, err
}

// checkpointPassive checkpoints the log beside commits, as far as reads permit. few reports that
// the rest is small enough for a commit to wait for.
func checkpointPassive(beside *conn) (done int64, few bool) {
	for last := int64(-1); ; last = done {
		at, err := checkpoint(context.Background(), beside, "PASSIVE") // waits for no other connection
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

// truncateLoop repeats attempts to truncate the log while it is pending, until Close.
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

// truncateAttempt is the state that an attempt to truncate the log passes to the next.
type truncateAttempt struct {
	drains bool // new reads wait during it: not during the first
	// stuckAt is the number of pages that were checkpointed when only another program's read
	// prevented more, or -1. Until that number grows, reads of the store are not held back.
	stuckAt int64
}

// tryTruncate makes one attempt.
func (b *backend) tryTruncate(beside *conn, at *truncateAttempt) {
	e := b.wal
	done := b.truncateOrCheckpoint(beside)
	if !e.pending.Load() || !at.drains || done == at.stuckAt || !b.reads.drain(e.interval, e.stop) {
		return
	}
	defer b.reads.resume()
	at.stuckAt = b.truncateOrCheckpoint(beside)
}

// truncateOrCheckpoint truncates the log; an oversized one is first checkpointed beside commits.
// done is the number of pages that were checkpointed.
func (b *backend) truncateOrCheckpoint(beside *conn) (done int64) {
	c := <-b.writeConn // which is never held for long
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
