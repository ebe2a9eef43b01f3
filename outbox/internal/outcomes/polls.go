package outcomes

// The polls of the database, which the waiters of a Box share.

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Polls batches the polls of the callers that wait for batches: a caller that comes during a poll
// joins the next. So they use one connection, however many they are. It is safe for concurrent use.
type Polls struct {
	// Read returns the unfinished ones of batches, none if it may be that any are blocked.
	Read func(batches map[string]struct{}) (unfinished map[string]struct{}, err error)

	mu   sync.Mutex // guards the fields below
	busy bool       // a poll is under way
	next *pollBatch // the poll after it; nil if nobody waits for one
}

// pollBatch is one poll for several batches.
type pollBatch struct {
	batches map[string]struct{}

	done       chan struct{}       // closed when the fields below are set
	unfinished map[string]struct{} // batches that are unfinished and not known to be blocked
	err        error
}

// StillWaiting reports that a batch is unfinished and not known to be blocked; else the caller
// has to read it by itself. closed ends when the Box is closed.
func (l *Polls) StillWaiting(ctx, closed context.Context, batch string) (bool, error) {
	l.mu.Lock()
	mine := l.next
	if mine == nil {
		mine = &pollBatch{batches: make(map[string]struct{}), done: make(chan struct{})}
		l.next = mine
	}
	mine.batches[batch] = struct{}{}
	if !l.busy {
		l.busy = true
		go l.run()
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		_, waits := mine.unfinished[batch]
		return waits, mine.err
	case <-ctx.Done():
		return false, sqlstore.AsCanceled(ctx.Err())
	case <-closed.Done():
		return false, sqlstore.ErrClosed
	}
}

// run polls until no caller waits for a poll.
func (l *Polls) run() {
	defer fatal.OnPanic() // the waiters would wait for ever
	for {
		l.mu.Lock()
		next := l.next
		l.next, l.busy = nil, next != nil
		l.mu.Unlock()
		if next == nil {
			return
		}
		if len(next.batches) > 1 { // a single batch is read by its caller anyway
			next.unfinished, next.err = l.Read(next.batches)
		}
		close(next.done)
	}
}
