// waiters: who is to be told something later.

package capnweb

import (
	"slices"
	"sync/atomic"
)

// waiters is a list of functions to be called later, each until it is told that nobody wants that any more: those are
// swept out as the list grows, so that it is as long as there are others, about. The zero value is an empty list; who
// uses it has a lock around it.
type waiters[F any] struct {
	list    []waiter[F]
	sweepAt int // how long the list is when it is swept next
}

type waiter[F any] struct {
	f        F
	canceled *atomic.Bool // nil: it wants to be called whatever happens
}

// minSweep is how short a list is not swept.
const minSweep = 16

func (w *waiters[F]) add(f F, over *atomic.Bool) {
	if len(w.list) >= max(w.sweepAt, minSweep) {
		w.list = slices.DeleteFunc(w.list, func(one waiter[F]) bool { return one.canceled != nil && one.canceled.Load() })
		w.sweepAt = 2 * len(w.list)
	}
	w.list = append(w.list, waiter[F]{f, over})
}

// drain empties the list.
func (w *waiters[F]) drain() []waiter[F] {
	list := w.list
	w.list = nil
	return list
}
