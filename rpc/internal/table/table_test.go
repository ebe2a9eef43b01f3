package table

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Numbers are given out once each, however the others come and go.
func TestTable(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var tab Table[int]
	in := map[uint32]int{}
	for step := range 20_000 {
		grows := step/500%3 != 2
		if len(in) == 0 || grows && rnd.IntN(3) > 0 {
			id := tab.Add(step + 1)
			if in[id] != 0 {
				t.Fatalf("number %d is in use", id)
			}
			in[id] = step + 1
		} else {
			ids := slices.Collect(maps.Keys(in))
			id := ids[rnd.IntN(len(ids))]
			tab.Remove(id)
			tab.Remove(id)
			delete(in, id)
		}
		if step%100 == 0 {
			for id := range uint32(len(tab.slots)) {
				if tab.Get(id) != in[id] {
					t.Fatalf("number %d stands for %d, not %d", id, tab.Get(id), in[id])
				}
			}
		}
		if tab.Len() != len(in) {
			t.Fatalf("%d in use, not %d", tab.Len(), len(in))
		}
	}
}

// What a burst needed is given back when few are left, also if one of the first stays for good, as a bootstrap interface does.
func TestTablesGiveBack(t *testing.T) {
	t.Parallel()
	const burst = 10_000
	for _, stay := range []int{0, 1, 5} {
		var tab Table[int]
		m, most := map[int]int{}, 0
		for i := range burst {
			tab.Add(i + 1)
			m[i] = i
		}
		full := m
		for i := range burst {
			if i >= stay {
				tab.Remove(uint32(i))
				Delete(&m, i, &most)
			}
		}
		if cap(tab.slots) > 2*minShrinkSlots || cap(tab.free) > 2*minShrinkSlots || tab.Len() != stay {
			t.Errorf("of %d slots %d are left, and %d free ones, for %d", burst, cap(tab.slots), cap(tab.free), tab.Len())
		}
		if most > minShrinkSlots || len(m) != stay {
			t.Errorf("a map for %d has %d", most, len(m))
		}
		if m[0] = -1; full[0] == -1 {
			t.Error("the map is the one that held the burst")
		}
	}
}
