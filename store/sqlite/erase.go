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
	// cutEach is the time between two attempts to cut a log that somebody's read is in the
	// way of, and for how long reads that begin in one wait for those that run.
	cutEach = time.Second

	// logMost is how many bytes the write-ahead log may have before it is cut. A longer
	// one, which only a read has let grow, is written back beside the commits, not by them.
	logMost      = 16 << 20
	commitsAlook = 32 // commits between two looks at that

	// autoCheckpoint is how many pages of the log a commit writes back, or whoever has its turn
	// (SQLite's own default).
	autoCheckpoint = 1000
)

// eraser remembers that the write-ahead log has to be cut. A read that began before the
// last commit is in the way of that: the store's own, or another program's, such as a
// backup. No commit ever waits for one. The log is cut at once when something was erased,
// or when a read of the store's is over; where that does not do, it is tried once a second,
// and then reads that begin wait for those that run, for each of those once.
type eraser struct {
	log     string // its file's name
	most    int64
	each    time.Duration
	pending atomic.Bool
	wake    chan struct{} // it may be pending
	stop    chan struct{} // closed by Close
	ended   chan struct{} // closed when nobody tries any more

	// These are for whoever has the writing connection.
	commits int  // since the log's size was looked at
	long    bool // the log is too long to be written back by commits
}

func newEraser(file string, most int64, each time.Duration) *eraser {
	e := &eraser{log: file + "-wal", most: most, each: each, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	if e.most <= 0 {
		e.most = logMost
	}
	if e.each <= 0 {
		e.each = cutEach
	}
	return e
}

// request notes that the log has to be cut.
func (e *eraser) request() {
	e.pending.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// tooLong says from time to time whether the log has become too long.
func (e *eraser) tooLong() bool {
	if e.commits++; e.commits < commitsAlook {
		return false
	}
	e.commits = 0
	info, err := os.Stat(e.log)
	return err == nil && info.Size() > e.most
}

// afterCommit cuts the log, if the commit erased something or the log is long.
func (b *backend) afterCommit(c *conn, erases bool) {
	e := b.eraser
	long := e.tooLong()
	if !erases && !long {
		return
	}
	e.request()
	if e.long {
		return
	}
	b.cut(c)
	// A read has let it grow. When that is over, one commit would write all of it back.
	e.long = long && e.pending.Load() && c.exec(context.Background(), "PRAGMA wal_autocheckpoint(0)") == nil
}

// cut cuts the log, unless somebody's read is in the way, on the writing connection, which
// its caller has. done is how much of it was written back.
func (b *backend) cut(c *conn) (done int64) {
	ctx := context.Background() // it is short, and follows a commit
	if err := c.exec(ctx, "PRAGMA busy_timeout(0)"); err != nil {
		return -1
	}
	at, err := checkpoint(ctx, c, "TRUNCATE")
	if err = errors.Join(err, c.exec(ctx, "PRAGMA "+busyTimeout)); err != nil || at.busy {
		return at.done
	}
	e := b.eraser
	e.pending.Store(false)
	if e.long {
		e.long = c.exec(ctx, "PRAGMA wal_autocheckpoint("+strconv.Itoa(autoCheckpoint)+")") != nil
	}
	return at.done
}

// cutAfterRead cuts a short log, if that is pending. It does nothing while somebody writes.
func (b *backend) cutAfterRead() {
	if !b.eraser.pending.Load() {
		return
	}
	select {
	case c, open := <-b.turn:
		if open {
			if !b.eraser.long {
				b.cut(c)
			}
			b.turn <- c
		}
	default:
	}
}

// written is how much of the log is written back.
type written struct {
	busy      bool  // what was to be done could not be done in whole
	log, done int64 // pages in the log, and written back; -1 if another checkpoint runs
}

func checkpoint(ctx context.Context, c *conn, mode string) (at written, err error) {
	var busy int64
	err = c.query(ctx, "PRAGMA wal_checkpoint("+mode+")", nil, func(row store.Scanner) error { return row.Scan(&busy, &at.log, &at.done) })
	at.busy = busy != 0
	return at, err
}

// writeBack writes the log back, as far as reads let it, beside commits. few says that so
// little is left of it that a commit may wait for the rest.
func writeBack(beside *conn) (done int64, few bool) {
	for last := int64(-1); ; last = done {
		at, err := checkpoint(context.Background(), beside, "PASSIVE") // which waits for nobody
		if err != nil || at.log < 0 {
			return -1, false
		}
		done = at.done
		if at.log-done <= autoCheckpoint {
			return done, true
		}
		if done <= last {
			return done, false
		}
	}
}

// cutUntilDone tries to cut the log again and again while nothing else has helped, until Close.
func (b *backend) cutUntilDone() {
	e, beside := b.eraser, &conn{now: b.now}
	defer close(e.ended)
	defer func() { _ = beside.close() }()
	for {
		select {
		case <-e.wake:
		case <-e.stop:
			return
		}
		for at := (attempt{standing: -1}); e.pending.Load(); at.drains = true {
			b.try(beside, &at)
			if !e.pending.Load() {
				break
			}
			select {
			case <-time.After(e.each):
			case <-e.stop:
				return
			}
		}
	}
}

// attempt is what one attempt to cut the log leaves to the next.
type attempt struct {
	drains bool // reads wait in it: not in the first
	// standing is how much of the log was written back when another program's read alone was
	// in the way, or -1. For as long as that is not more, no read of the store's has to wait.
	standing int64
}

// try is one attempt.
func (b *backend) try(beside *conn, at *attempt) {
	e := b.eraser
	done := b.cutOrWriteBack(beside)
	if !e.pending.Load() || !at.drains || done == at.standing || !b.reads.drain(e.each, e.stop) {
		return
	}
	defer b.reads.resume()
	at.standing = b.cutOrWriteBack(beside)
}

// cutOrWriteBack cuts the log; a long one is written back first. done is how much of it was.
func (b *backend) cutOrWriteBack(beside *conn) (done int64) {
	c := <-b.turn // which nobody has for long
	if !b.eraser.long || beside.open(b.driver, b.writer) != nil {
		done = b.cut(c)
		b.turn <- c
		return done
	}
	b.turn <- c
	done, few := writeBack(beside)
	if few {
		c := <-b.turn
		b.cut(c)
		b.turn <- c
	}
	return done
}
