// Package table has the data structures of a connection's tables, for package rpc, which bounds and locks them. After a burst they
// release its memory: an idle connection keeps only what it uses.
package table

import (
	"iter"
	"maps"
	"slices"
)

// Table allocates numbers, low ones first, and finds their values. None of these is the zero value.
type Table[T comparable] struct {
	slots    []T
	free     []uint32
	n        int
	shrinkAt int // at how many entries the slots at the end are checked again
}

// minShrinkSlots is the number of slots below which memory is not released.
const minShrinkSlots = 256

// Add adds a value under a number that is not in use.
func (t *Table[T]) Add(v T) uint32 {
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

// Get returns the zero value for a number that is not in use.
func (t *Table[T]) Get(id uint32) (v T) {
	if uint64(id) < uint64(len(t.slots)) {
		v = t.slots[id]
	}
	return v
}

// Remove frees a number, if it is in use.
func (t *Table[T]) Remove(id uint32) {
	var zero T
	if t.Get(id) == zero {
		return
	}
	t.n--
	t.slots[id] = zero
	t.free = append(t.free, id)
	if t.n <= t.shrinkAt && len(t.slots) > minShrinkSlots {
		t.shrink()
	}
}

// Len returns how many numbers are in use.
func (t *Table[T]) Len() int { return t.n }

// All iterates over the values.
func (t *Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		var zero T
		for _, v := range t.slots {
			if v != zero && !yield(v) {
				return
			}
		}
	}
}

// shrink releases free slots at the end, if they are the majority.
func (t *Table[T]) shrink() {
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

// Delete removes a key from a map, whose largest size is in most. A Go map never shrinks: so once it has an eighth of that, it
// is copied to a new one.
func Delete[K comparable, V any](m *map[K]V, key K, most *int) {
	*most = max(*most, len(*m))
	delete(*m, key)
	if *most > minShrinkSlots && len(*m) <= *most/8 {
		small := make(map[K]V, len(*m))
		maps.Copy(small, *m)
		*m, *most = small, len(*m)
	}
}

// IDSetSize bounds the numbers of an IDSet, and so its memory, whatever numbers a peer chooses. Peers that reuse their numbers
// need no high ones.
const IDSetSize = 512

// IDSet is a set of numbers below IDSetSize.
type IDSet [IDSetSize / 64]uint64

// Has reports whether the number is in the set.
func (s *IDSet) Has(id uint32) bool { return id < IDSetSize && s[id/64]>>(id%64)&1 != 0 }

// Add adds a number below IDSetSize.
func (s *IDSet) Add(id uint32) { s[id/64] |= 1 << (id % 64) }

// Remove removes a number and reports whether the number was in the set.
func (s *IDSet) Remove(id uint32) bool {
	if !s.Has(id) {
		return false
	}
	s[id/64] &^= 1 << (id % 64)
	return true
}
