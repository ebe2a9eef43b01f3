package jsonpatch

// The cost of a merge is in proportion to the bytes of both, however many members there are and however deep they are.

import (
	"fmt"
	"strings"
	"testing"
)

func TestCostIsLinear(t *testing.T) {
	// Not parallel: allocations are counted.
	wide := func(n int, value string) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"member %d":%s`, i, value)
		}
		return []byte("{" + b.String()[1:] + "}")
	}
	deep := func(n int, inner string) []byte { // with a member before and behind, at each depth
		return []byte(strings.Repeat(`{"b":1 , "a":`, n) + inner + strings.Repeat(` , "c":[1,2] }`, n))
	}
	for name, of := range map[string]func(n int) (value, patch []byte){
		"wide":          func(n int) (value, patch []byte) { return wide(n, "1"), wide(n, "2") },
		"all removed":   func(n int) (value, patch []byte) { return wide(n, "1"), wide(n, "null") },
		"all new":       func(n int) (value, patch []byte) { return []byte("{}"), wide(n, "2") },
		"one of many":   func(n int) (value, patch []byte) { return wide(n, "[{}]"), []byte(`{"member 1":null}`) },
		"deep":          func(n int) (value, patch []byte) { return deep(n, "1"), deep(n, "2") },
		"deep and new":  func(n int) (value, patch []byte) { return []byte("{}"), deep(n, "{}") },
		"deep and gone": func(n int) (value, patch []byte) { return deep(n, "{}"), deep(n, "null") },
		"deep in wide": func(n int) (value, patch []byte) {
			return wide(n, `{"a":{"b":{"c":1}}}`), wide(n, `{"a":{"b":{"d":[ ]}}}`)
		},
	} {
		cost := func(n int) (m *merger, allocations float64) {
			value, patch := of(n)
			allocations = testing.AllocsPerRun(1, func() {
				m = newMerger(value, patch, nil)
				if err := m.merge(); err != nil {
					t.Fatal(err)
				}
			})
			if m.passed > len(value)+len(patch) {
				t.Errorf("%s, %d: %d bytes passed, and there are %d", name, n, m.passed, len(value)+len(patch))
			}
			if cap(m.out) != len(value)+len(patch) { // it has not grown
				t.Errorf("%s, %d: %d bytes of room for %d", name, n, cap(m.out), len(m.out))
			}
			return m, allocations
		}
		_, few := cost(500)
		_, many := cost(8000)
		if many > 16*few+100 {
			t.Errorf("%s: %.0f allocations, and for 16 times as much %.0f", name, few, many)
		}
	}
}
