// Group commit: updates that wait for the writing connection share one transaction, so that they
// wait for the disk once, and the write-ahead log is truncated once for all updates that erase.
// Each update has a savepoint: one that fails has no effect on the database or on the others. None
// returns before the commit.

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// maxGroup is the maximum number of updates in one transaction: the first waits for all of them.
const maxGroup = 64

// update is an update that waits, or is in a group.
type update struct {
	ctx    context.Context
	fn     func(dialect.Runner) error
	runner chan *runner // the runner to run fn on, in its caller's goroutine; sent at most once
	fnErr  chan error   // fn's result
	txErr  chan error   // the transaction's result
}

// updateQueue holds the waiting updates, in order. It is safe for concurrent use.
type updateQueue struct {
	mu      sync.Mutex
	updates []*update
}

func (l *updateQueue) push(u *update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updates = append(l.updates, u)
}

// remove removes u; false if it is in a group already.
func (l *updateQueue) remove(u *update) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.updates {
		if other == u {
			l.updates = append(l.updates[:i], l.updates[i+1:]...)
			return true
		}
	}
	return false
}

// popGroup removes and returns the updates of the next group.
func (l *updateQueue) popGroup() []*update {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.updates), maxGroup)
	group := append([]*update(nil), l.updates[:n]...)
	l.updates = append(l.updates[:0], l.updates[n:]...)
	clear(l.updates[len(l.updates) : len(l.updates)+n]) // so that they can be collected
	return group
}

// Update implements dialect.Backend.
func (b *backend) Update(ctx context.Context, fn func(dialect.Runner) error) error {
	u := &update{ctx: ctx, fn: fn, runner: make(chan *runner, 1), fnErr: make(chan error, 1), txErr: make(chan error, 1)}
	b.queue.push(u)
	turn, given := b.writeConn, ctx.Done() // nil once u is in a group
	for {
		select {
		case c, open := <-turn:
			if !open {
				if b.queue.remove(u) {
					return dialect.ErrClosed
				}
				turn = nil
				break
			}
			switch group := b.queue.popGroup(); {
			case len(group) == 0:
				b.writeConn <- c
				turn = nil
			case len(group) == 1 && group[0] == u:
				return b.runAlone(c, u)
			default:
				go b.runGroup(c, group)
			}
		case r := <-u.runner:
			turn, given = nil, nil // in a group now
			u.run(r)
		case err := <-u.txErr:
			return err
		case <-given:
			if b.queue.remove(u) {
				return translate(ctx, ctx.Err())
			}
			given = nil // the goroutine that runs the group checks ctx
		}
	}
}

// runAlone runs an update in a transaction of its own, on the connection c, and returns c to its
// channel.
func (b *backend) runAlone(c *conn, u *update) error {
	defer func() { b.writeConn <- c }()
	// The statements of an update are short. Interrupting one would end the whole transaction, so
	// ctx is checked between them.
	erases, err := transaction(u.ctx, c, "BEGIN IMMEDIATE", true, u.fn)
	b.checkpointAfterCommit(c, erases)
	return err
}

// runGroup runs a group and returns the connection to its channel.
func (b *backend) runGroup(c *conn, group []*update) {
	defer func() { b.writeConn <- c }()
	for len(group) > 0 {
		group = group[b.commitGroup(c, group):]
	}
}

// commitGroup runs a group's updates in one transaction, one after the other, and sends their
// results. It returns how many it has run: not all if a database error, such as a full disk, has
// ended the transaction.
func (b *backend) commitGroup(c *conn, group []*update) int {
	ctx := context.Background() // the group has many callers
	if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		reply(group, fmt.Errorf("begin: %w", translate(ctx, err)))
		return len(group)
	}
	through, erases := make([]*update, 0, len(group)), false
	for i, u := range group {
		erased, whole, err := u.runInSavepoint(c)
		switch {
		case !whole:
			rollback(ctx, c)
			u.txErr <- err
			reply(through, groupError(err))
			return i + 1
		case err != nil:
			u.txErr <- err
		default:
			through, erases = append(through, u), erases || erased
		}
	}
	err := c.exec(ctx, "COMMIT")
	if err != nil {
		rollback(ctx, c)
		err = fmt.Errorf("commit: %w", translate(ctx, err))
	}
	b.checkpointAfterCommit(c, erases && err == nil)
	reply(through, err)
	return len(group)
}

// groupError is the error of a group's other updates when one has ended their transaction: the
// database's reason, never the text for that update's own caller.
func groupError(err error) error {
	if dbfault.Of(err) != dbfault.None {
		return err
	}
	return dbfault.Locked.Fault(errors.New("another update has ended the transaction"), "the database gave this up with another transaction: try again")
}

func reply(updates []*update, err error) {
	for _, u := range updates {
		u.txErr <- err
	}
}

// runInSavepoint runs an update inside a transaction, and undoes it if there is an error. whole
// reports that the transaction can continue.
func (u *update) runInSavepoint(c *conn) (erases, whole bool, err error) {
	ctx := context.Background()
	if err := c.exec(ctx, "SAVEPOINT one"); err != nil {
		return false, false, fmt.Errorf("savepoint: %w", translate(ctx, err))
	}
	r := &runner{conn: c, uninterrupted: true}
	u.runner <- r
	err = <-u.fnErr
	if err != nil && c.exec(ctx, "ROLLBACK TO one") != nil {
		return false, false, err
	}
	if end := c.exec(ctx, "RELEASE one"); end != nil { // SQLite has rolled back the whole transaction
		return false, false, errors.Join(err, fmt.Errorf("savepoint: %w", translate(ctx, end)))
	}
	return r.erase, true, err
}

// run runs fn, in its caller's goroutine.
func (u *update) run(r *runner) {
	err := errPanicked
	defer func() { u.fnErr <- err }()
	err = r.runAll(u.ctx, u.fn)
}

// errPanicked ends an update whose caller has panicked and no longer waits for a result.
var errPanicked = errors.New("store/sqlite: a panic in an update")
