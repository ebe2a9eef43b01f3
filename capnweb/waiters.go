// waiters: a list of functions to be called later.

package capnweb

import (
	"slices"
	"sync/atomic"
)

// waiters is a list of functions to be called later, each unless it is cancelled: cancelled ones are swept out as the list
// grows, so that about half of it at most is cancelled. The zero value is an empty list; the user guards it with a lock.
type waiters[F any] struct {
	list    []waiter[F]
	sweepAt int // length at which the list is swept next
}

type waiter[F any] struct {
	f        F
	canceled *atomic.Bool // nil: cannot be cancelled
}

// minSweep is the length below which a list is not swept.
const minSweep = 16

func (w *waiters[F]) add(f F, over *atomic.Bool) {
	if len(w.list) >= max(w.sweepAt, minSweep) {
		w.list = slices.DeleteFunc(w.list, func(one waiter[F]) bool { return one.canceled != nil && one.canceled.Load() })
		w.sweepAt = 2 * len(w.list)
	}
	w.list = append(w.list, waiter[F]{f, over})
}

// drain returns the list and empties it.
func (w *waiters[F]) drain() []waiter[F] {
	list := w.list
	w.list = nil
	return list
}
