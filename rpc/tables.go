// The parts that the tables are made of. After a burst they give its memory back: an idle connection keeps as much as it holds.

package rpc

import (
	"maps"
	"slices"
)

// table gives out numbers, low ones first, and finds what they stand for.
type table[T comparable] struct {
	slots    []T
	free     []uint32
	n        int
	shrinkAt int // at how many the slots at the end are looked at again
}

// minShrinkSlots are not worth giving back.
const minShrinkSlots = 256

func (t *table[T]) add(v T) uint32 {
	t.n++
	if k := len(t.free); k > 0 {
		id := t.free[k-1]
		t.free = t.free[:k-1]
		t.slots[id] = v
		return id
	}
	t.slots = append(t.slots, v)
	t.shrinkAt = len(t.slots) / 8
	return uint32(len(t.slots) - 1)
}

// get gives the zero value for a number that is not in use.
func (t *table[T]) get(id uint32) (v T) {
	if uint64(id) < uint64(len(t.slots)) {
		v = t.slots[id]
	}
	return v
}

func (t *table[T]) remove(id uint32) {
	var zero T
	if t.get(id) == zero {
		return
	}
	t.n--
	t.slots[id] = zero
	t.free = append(t.free, id)
	if t.n <= t.shrinkAt && len(t.slots) > minShrinkSlots {
		t.shrink()
	}
}

// shrink gives free slots at the end back, if they are most of all.
func (t *table[T]) shrink() {
	var zero T
	t.shrinkAt = t.n / 2 // to look so seldom costs next to nothing
	if t.n <= minShrinkSlots {
		t.shrinkAt = t.n - 1
	}
	end := len(t.slots)
	for end > 0 && t.slots[end-1] == zero {
		end--
	}
	if end > len(t.slots)/4 {
		return
	}
	t.slots = slices.Clone(t.slots[:end])
	free := slices.DeleteFunc(t.free, func(id uint32) bool { return id >= uint32(end) })
	t.free = slices.Clone(free)
}

// remove takes a key out of a map. A map of Go's stays as large as it ever was: so once it has an eighth of the most that it
// has had, it is made anew.
func remove[K comparable, V any](m *map[K]V, key K, most *int) {
	*most = max(*most, len(*m))
	delete(*m, key)
	if *most > minShrinkSlots && len(*m) <= *most/8 {
		small := make(map[K]V, len(*m))
		maps.Copy(small, *m)
		*m, *most = small, len(*m)
	}
}
