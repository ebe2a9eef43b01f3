package a2astore

import (
	"reflect"
	"slices"
	"testing"
)

// Only what differs is written: what is equal costs neither a place in the outbox nor on the wire.
func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(values ...string) (rows []row) {
		for i := 0; i < len(values); i += 2 {
			rows = append(rows, row{values[i], []byte(values[i+1])})
		}
		return rows
	}
	was := &stored{rows: digests(of("a", "1", "b", "2", "c", "3", "d", "4"))}
	now := of("a", "1", "b", "20", "e", "5")
	changed, gone := was.compare(now, digests(now))
	slices.Sort(gone)
	if !reflect.DeepEqual(changed, of("b", "20", "e", "5")) || !slices.Equal(gone, []string{"c", "d"}) {
		t.Errorf("changed %s, gone %s", changed, gone)
	}
}
