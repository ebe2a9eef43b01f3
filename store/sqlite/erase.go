// What is erased leaves the files: secure_delete overwrites it in the database
// file, and the write-ahead log, which still has it, is written back and cut. So is
// a log that has become large: reads that overlap keep SQLite from beginning it anew.

package sqlite

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/store"
)

const (
	// eraseWait is for how long reads that are in the way are waited for, in ms, and
	// commits wait with that.
	eraseWait = 1000
	// erasePause is the least time between two such waits, and erasePauseMost the most:
	// a read that takes long must not cost commits more and more.
	erasePause     = time.Second
	erasePauseMost = 10 * time.Second

	logMost      = 64 << 20 // bytes in the write-ahead log before it is cut
	commitsAlook = 32       // commits between two looks at that
)

// eraser remembers that the write-ahead log has to be cut. A read that began before
// the last commit is in the way of that. It is tried without waiting when something
// was erased and whenever a read is over, and while neither helps, again and again
// with some waiting: as long as nobody commits, those that begin are in no one's way.
type eraser struct {
	log     string // its file's name
	most    int64
	pause   time.Duration
	owed    atomic.Bool
	commits int           // since the log's size was looked at; whoever writes has it
	wake    chan struct{} // it may be owed
	stop    chan struct{} // closed by Close
	ended   chan struct{} // closed when nobody waits any more
}

func newEraser(file string, most int64, pause time.Duration) *eraser {
	e := &eraser{log: file + "-wal", most: most, pause: pause, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	if e.most <= 0 {
		e.most = logMost
	}
	if e.pause <= 0 {
		e.pause = erasePause
	}
	return e
}

// owe notes that the log has to be cut.
func (e *eraser) owe() {
	e.owed.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// tooLong says from time to time whether the log has become too large.
func (e *eraser) tooLong() bool {
	if e.commits++; e.commits < commitsAlook {
		return false
	}
	e.commits = 0
	info, err := os.Stat(e.log)
	return err == nil && info.Size() > e.most
}

// cutLog writes the whole log back and cuts it to nothing, and says in its first
// column whether something was in the way.
const cutLog = "PRAGMA wal_checkpoint(TRUNCATE)"

// eraseAfter cuts the log after a commit, if that erased something or the log is large.
func (b *backend) eraseAfter(c *conn, erases bool) {
	if erases || b.eraser.tooLong() {
		b.eraser.owe()
		b.erase(c, 0)
	}
}

// erase cuts the log, if that is owed, on the writing connection, which its
// caller has. It waits so many ms for reads that are in the way.
func (b *backend) erase(c *conn, wait int) {
	if !b.eraser.owed.Load() {
		return
	}
	ctx := context.Background() // it is short, and follows a commit
	var busy, log, done int64 = 1, 0, 0
	if err := c.exec(ctx, "PRAGMA busy_timeout("+strconv.Itoa(wait)+")"); err != nil {
		return
	}
	err := c.query(ctx, cutLog, nil, func(row store.Scanner) error { return row.Scan(&busy, &log, &done) })
	if again := c.exec(ctx, "PRAGMA "+busyTimeout); err == nil && again == nil && busy == 0 {
		b.eraser.owed.Store(false)
	}
}

// eraseLater is erase for a caller without a connection. It does nothing while somebody writes.
func (b *backend) eraseLater() {
	if !b.eraser.owed.Load() {
		return
	}
	select {
	case c, open := <-b.turn:
		if open {
			b.erase(c, 0)
			b.turn <- c
		}
	default:
	}
}

// eraseInTheEnd waits for reads where nothing else has helped, until Close.
func (b *backend) eraseInTheEnd() {
	e := b.eraser
	defer close(e.ended)
	for {
		select {
		case <-e.wake:
		case <-e.stop:
			return
		}
		for pause := e.pause; e.owed.Load(); pause = min(2*pause, max(e.pause, erasePauseMost)) {
			select {
			case c := <-b.turn:
				b.erase(c, eraseWait)
				b.turn <- c
			case <-e.stop:
				return
			}
			if !e.owed.Load() {
				break
			}
			select {
			case <-time.After(pause):
			case <-e.stop:
				return
			}
		}
	}
}
