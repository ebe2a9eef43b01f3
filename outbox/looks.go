package outbox

// One look for all who wait in a Box.

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/internal/fatal"
)

// looks gathers what those who wait for batches ask the database: who comes while a look
// is under way has part in the next. So they use one connection, however many they are.
type looks struct {
	mu   sync.Mutex // guards what follows
	busy bool       // a look is under way
	next *look      // the one after it; nil if nobody asks
}

// look is one question for several batches.
type look struct {
	batches map[string]struct{}

	done    chan struct{}       // closed when what follows is known
	waiting map[string]struct{} // batches that nothing can be said of yet
	err     error
}

// waits says of a batch that it is unfinished and nothing is known to stand in its way; else
// it has to be looked at by itself.
func (b *Box) waits(ctx context.Context, batch string) (bool, error) {
	l := &b.looks
	l.mu.Lock()
	mine := l.next
	if mine == nil {
		mine = &look{batches: make(map[string]struct{}), done: make(chan struct{})}
		l.next = mine
	}
	mine.batches[batch] = struct{}{}
	if !l.busy {
		l.busy = true
		go b.look()
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		_, waits := mine.waiting[batch]
		return waits, mine.err
	case <-ctx.Done():
		return false, canceled(ctx.Err())
	case <-b.life.Done():
		return false, errClosed
	}
}

// look looks, until nobody asks any more.
func (b *Box) look() {
	defer fatal.OnPanic() // they would wait for ever
	l := &b.looks
	for {
		l.mu.Lock()
		next := l.next
		l.next, l.busy = nil, next != nil
		l.mu.Unlock()
		if next == nil {
			return
		}
		if len(next.batches) > 1 { // else it is looked at by itself anyway
			next.waiting, next.err = b.waiting(next.batches)
		}
		close(next.done)
	}
}

const sqlUnfinishedOf = `SELECT batch FROM mooring_outbox_batch WHERE box = $1 AND state < 2 AND `

// waiting are those of some batches that are unfinished; none where a stream has stopped,
// since it may have some of them wait for it.
func (b *Box) waiting(batches map[string]struct{}) (waiting map[string]struct{}, err error) {
	ids := make([]string, 0, len(batches))
	for id := range batches {
		ids = append(ids, id)
	}
	among, arg := b.db.among("batch", "$2", ids)
	err = b.read(b.life, "wait", func(ctx context.Context, q querier) error {
		stopped, err := b.anyStopped(ctx, q)
		waiting = make(map[string]struct{})
		if err != nil || stopped {
			return err
		}
		return q.query(ctx, sqlUnfinishedOf+among, []any{b.t.box, arg}, func(scan scanner) error {
			var id string
			err := scan(&id)
			waiting[id] = struct{}{}
			return err
		})
	})
	return waiting, err
}
