package changelist

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// However the items change while they are listed, and however many have one cursor, none is missed, none that does not change
// comes twice, and what has changed comes as it is then.
func TestNothingIsMissed(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 500 {
		cursor := uint64(3)
		items := map[string]uint64{}
		for n := range rnd.IntN(12) {
			items[fmt.Sprint("i.", n)] = 1 + rnd.Uint64N(cursor) // as of a fork
		}
		size, text, changing := 1+rnd.IntN(4), "", rnd.IntN(2) == 0
		given, changed := map[string][]uint64{}, map[string]bool{}
		var order []uint64
		for pages := 0; pages == 0 || text != ""; pages++ {
			if pages > 100 {
				t.Fatalf("it does not end: %s", text)
			}
			var all []Item[int]
			for id, at := range items {
				all = append(all, Item[int]{Cursor: at, ID: id})
			}
			at, ok := Parse(text)
			if !ok {
				t.Fatalf("%q is no token", text)
			}
			var page []Item[int]
			page, text = Page(at, cursor, all, size)
			if len(page) > size || text != "" && len(page) == 0 {
				t.Fatalf("a page of %d has %d, and then %q", size, len(page), text)
			}
			for _, i := range page {
				given[i.ID] = append(given[i.ID], i.Cursor)
				order = append(order, i.Cursor)
			}
			for id := range items {
				if changing && pages < 20 && rnd.IntN(4) == 0 {
					cursor++
					items[id], changed[id] = cursor, true
				}
			}
		}
		for id, at := range items {
			if g := given[id]; len(g) == 0 || !changed[id] && (len(g) != 1 || g[0] != at) {
				t.Fatalf("%s, of %d, is given %v", id, at, g)
			}
		}
		if !changing && !slices.IsSortedFunc(order, func(a, b uint64) int { return int(b) - int(a) }) {
			t.Fatalf("they are given in the order %v", order)
		}
	}
}
