// The data structures of the tables. After a burst they release its memory: an idle connection keeps only what it uses.

package rpc

import (
	"maps"
	"slices"
)

// table allocates numbers, low ones first, and finds their values.
type table[T comparable] struct {
	slots    []T
	free     []uint32
	n        int
	shrinkAt int // at how many entries the slots at the end are checked again
}

// minShrinkSlots is the number of slots below which memory is not released.
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

// get returns the zero value for a number that is not in use.
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

// shrink releases free slots at the end, if they are the majority.
func (t *table[T]) shrink() {
	var zero T
	t.shrinkAt = t.n / 2 // checking this seldom costs next to nothing
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

// remove removes a key from a map. A Go map never shrinks: so once it has an eighth of its largest size, it is copied to a
// new one.
func remove[K comparable, V any](m *map[K]V, key K, most *int) {
	*most = max(*most, len(*m))
	delete(*m, key)
	if *most > minShrinkSlots && len(*m) <= *most/8 {
		small := make(map[K]V, len(*m))
		maps.Copy(small, *m)
		*m, *most = small, len(*m)
	}
}
