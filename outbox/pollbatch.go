package outbox

// Polls of the database, shared by all waiters of a Box.

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/internal/fatal"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// pollBatcher batches the polls of the callers that wait for batches: a caller that comes
// during a poll joins the next. So they use one connection, however many they are.
type pollBatcher struct {
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

// stillWaiting reports that a batch is unfinished and not known to be blocked; else the caller
// has to read it by itself.
func (b *Box) stillWaiting(ctx context.Context, batch string) (bool, error) {
	l := &b.polls
	l.mu.Lock()
	mine := l.next
	if mine == nil {
		mine = &pollBatch{batches: make(map[string]struct{}), done: make(chan struct{})}
		l.next = mine
	}
	mine.batches[batch] = struct{}{}
	if !l.busy {
		l.busy = true
		go b.runPolls()
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		_, waits := mine.unfinished[batch]
		return waits, mine.err
	case <-ctx.Done():
		return false, sqlstore.AsCanceled(ctx.Err())
	case <-b.ctx.Done():
		return false, writer.ErrClosed
	}
}

// runPolls polls until no caller waits for a poll.
func (b *Box) runPolls() {
	defer fatal.OnPanic() // the waiters would wait for ever
	l := &b.polls
	for {
		l.mu.Lock()
		next := l.next
		l.next, l.busy = nil, next != nil
		l.mu.Unlock()
		if next == nil {
			return
		}
		if len(next.batches) > 1 { // a single batch is read by its caller anyway
			next.unfinished, next.err = b.unfinishedOf(next.batches)
		}
		close(next.done)
	}
}

// unfinishedOf returns the unfinished ones of batches; none while a stream has stopped, since
// it may block some of them.
func (b *Box) unfinishedOf(batches map[string]struct{}) (waiting map[string]struct{}, err error) {
	ids := make([]string, 0, len(batches))
	for id := range batches {
		ids = append(ids, id)
	}
	err = b.read(b.ctx, "wait", func(ctx context.Context, q sqlstore.Querier) error {
		stopped, err := b.anyStopped(ctx, q)
		waiting = make(map[string]struct{})
		if err != nil || stopped {
			return err
		}
		unfinished, err := b.t.UnfinishedOf(ctx, q, ids)
		for _, id := range unfinished {
			waiting[id] = struct{}{}
		}
		return err
	})
	return waiting, err
}
