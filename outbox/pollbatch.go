package outbox

// One look for all who wait in a Box.

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/internal/fatal"
)

// pollBatcher gathers what those who wait for batches ask the database: who comes while a look
// is under way has part in the next. So they use one connection, however many they are.
type pollBatcher struct {
	mu   sync.Mutex // guards what follows
	busy bool       // a look is under way
	next *pollBatch // the one after it; nil if nobody asks
}

// pollBatch is one question for several batches.
type pollBatch struct {
	batches map[string]struct{}

	done       chan struct{}       // closed when what follows is known
	unfinished map[string]struct{} // batches that nothing can be said of yet
	err        error
}

// stillWaiting says of a batch that it is unfinished and nothing is known to stand in its way; else
// it has to be looked at by itself.
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
		return false, asCanceled(ctx.Err())
	case <-b.ctx.Done():
		return false, errClosed
	}
}

// runPolls looks, until nobody asks any more.
func (b *Box) runPolls() {
	defer fatal.OnPanic() // they would wait for ever
	l := &b.polls
	for {
		l.mu.Lock()
		next := l.next
		l.next, l.busy = nil, next != nil
		l.mu.Unlock()
		if next == nil {
			return
		}
		if len(next.batches) > 1 { // else it is looked at by itself anyway
			next.unfinished, next.err = b.unfinishedOf(next.batches)
		}
		close(next.done)
	}
}

const sqlStillUnfinished = `SELECT batch FROM mooring_outbox_batch WHERE box = $1 AND state < 2 AND `

// unfinishedOf are those of some batches that are unfinished; none where a stream has stopped,
// since it may have some of them wait for it.
func (b *Box) unfinishedOf(batches map[string]struct{}) (waiting map[string]struct{}, err error) {
	ids := make([]string, 0, len(batches))
	for id := range batches {
		ids = append(ids, id)
	}
	among, arg := b.db.inClause("batch", "$2", ids)
	err = b.read(b.ctx, "wait", func(ctx context.Context, q querier) error {
		stopped, err := b.anyStopped(ctx, q)
		waiting = make(map[string]struct{})
		if err != nil || stopped {
			return err
		}
		return q.query(ctx, sqlStillUnfinished+among, []any{b.t.box, arg}, func(scan scanner) error {
			var id string
			err := scan(&id)
			waiting[id] = struct{}{}
			return err
		})
	})
	return waiting, err
}
