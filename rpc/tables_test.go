package rpc

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Numbers are given out once each, however the others come and go.
func TestTable(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var tab table[int]
	in := map[uint32]int{}
	for step := range 20_000 {
		grows := step/500%3 != 2
		if len(in) == 0 || grows && rnd.IntN(3) > 0 {
			id := tab.add(step + 1)
			if in[id] != 0 {
				t.Fatalf("number %d is in use", id)
			}
			in[id] = step + 1
		} else {
			ids := slices.Collect(maps.Keys(in))
			id := ids[rnd.IntN(len(ids))]
			tab.remove(id)
			tab.remove(id)
			delete(in, id)
		}
		if step%100 == 0 {
			for id := range uint32(len(tab.slots)) {
				if tab.get(id) != in[id] {
					t.Fatalf("number %d stands for %d, not %d", id, tab.get(id), in[id])
				}
			}
		}
		if tab.n != len(in) {
			t.Fatalf("%d in use, not %d", tab.n, len(in))
		}
	}
}

// What a burst needed is given back when few are left, also if one of the first stays for good, as a bootstrap interface does.
func TestTablesGiveBack(t *testing.T) {
	t.Parallel()
	const burst = 10_000
	for _, stay := range []int{0, 1, 5} {
		var tab table[int]
		m, most := map[int]int{}, 0
		for i := range burst {
			tab.add(i + 1)
			m[i] = i
		}
		full := m
		for i := range burst {
			if i >= stay {
				tab.remove(uint32(i))
				remove(&m, i, &most)
			}
		}
		if cap(tab.slots) > 2*minShrinkSlots || cap(tab.free) > 2*minShrinkSlots || tab.n != stay {
			t.Errorf("of %d slots %d are left, and %d free ones, for %d", burst, cap(tab.slots), cap(tab.free), tab.n)
		}
		if most > minShrinkSlots || len(m) != stay {
			t.Errorf("a map for %d has %d", most, len(m))
		}
		if m[0] = -1; full[0] == -1 {
			t.Error("the map is the one that held the burst")
		}
	}
}

// The maps of a connection do so too: of the peer's calls, of what it gave us, of what we gave it, and of promises that its
// calls wait for.
func TestConnectionsGiveBack(t *testing.T) {
	t.Parallel()
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{})
	h.say("bootstrap q=0")
	const burst = 1000
	for i := 1; i <= burst; i++ {
		h.say("call q=%d to=answer:0 hold cap=hosted:%d", 2*i-1, i)
		h.say("call q=%d to=answer:0 hold cap=answer:1.%d", 2*i, i)
	}
	maps := func() map[string]reflect.Value {
		return map[string]reflect.Value{"answers": reflect.ValueOf(h.c.answers), "imports": reflect.ValueOf(h.c.imports),
			"exported": reflect.ValueOf(h.c.exportIDs), "lanes": reflect.ValueOf(h.c.lanes)}
	}
	full := maps()
	for _, call := range obj.calls[1:] {
		r := NewLocal(newTestObject("x"))
		call.Return(testSize, fill(0, "", r))
		r.Release()
	}
	full["exported"] = maps()["exported"]
	obj.calls[0].Fail(errCanceled)
	h.deliver()
	for q := 1; q <= 2*burst; q++ {
		h.say("finish q=%d", q)
	}
	for name, m := range maps() {
		if m.Len() > 1 || full[name].Pointer() == m.Pointer() {
			t.Errorf("%s: %d are left, in a map that was made for %d", name, m.Len(), burst)
		}
	}
}
