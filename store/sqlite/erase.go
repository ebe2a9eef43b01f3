// What is erased leaves the files: secure_delete overwrites it in the database
// file, and the write-ahead log, which still has it, is written back and cut.

package sqlite

import (
	"context"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/store"
)

// eraser remembers that the write-ahead log has to be cut. A reader whose
// snapshot is older is in the way of that: then it is done when that reader, or
// the next writer, is through.
type eraser struct {
	owed atomic.Bool
}

// cutLog writes the whole log back and cuts it to nothing, and says in its first
// column whether something was in the way.
const cutLog = "PRAGMA wal_checkpoint(TRUNCATE)"

// erase cuts the log, if that is owed, on the writing connection, which its
// caller has. It does not wait for readers.
func (b *backend) erase(c *conn) {
	if !b.owed.Load() {
		return
	}
	ctx := context.Background() // it is short, and follows a commit
	var busy, log, done int64 = 1, 0, 0
	if err := c.exec(ctx, "PRAGMA busy_timeout(0)"); err != nil {
		return
	}
	err := c.query(ctx, cutLog, nil, func(row store.Scanner) error { return row.Scan(&busy, &log, &done) })
	if again := c.exec(ctx, "PRAGMA "+busyTimeout); err == nil && again == nil && busy == 0 {
		b.owed.Store(false)
	}
}

// eraseLater is erase for who has no connection: if nobody writes now. Who does
// will see to it.
func (b *backend) eraseLater() {
	if !b.owed.Load() {
		return
	}
	select {
	case c, open := <-b.turn:
		if open {
			b.erase(c)
			b.turn <- c
		}
	default:
	}
}
