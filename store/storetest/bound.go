// The bound of what one Load gives.

package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/session"
)

// testLoadBound: payloads above the bound are counted and not handed out, of
// whatever kind; at the bound all are.
func testLoadBound(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	c := &session.Changes{}
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 92))
	const n = 10
	for i := range n {
		e := event(id, uint64(i+1), fmt.Sprintf("part/m/p%d", i), payload)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entryOf(e))
	}
	c.Events = append(c.Events, deltaEvent(id, n+1, "part/m/p0", strings.Repeat("d", 100)))
	f.save(c, id)
	for name, w := range map[string]struct {
		want  session.Want
		bytes int
	}{
		"entries":  {session.Want{Entries: map[string][]string{id: {"part/m/p1", "part/m/p2", "part/m/p3"}}}, 3 * len(payload)},
		"prefixes": {session.Want{Prefixes: map[string][]string{id: {"part/m/"}}}, n * len(payload)},
		"log":      {session.Want{Logs: map[string]uint64{id: n}}, n * len(payload)},
		"deltas":   {session.Want{Deltas: map[string]map[string]uint64{id: {"part/m/p0": 0}}}, 100},
		"both":     {session.Want{Entries: map[string][]string{id: {"part/m/p0"}}, Deltas: map[string]map[string]uint64{id: {"part/m/p0": 0}}}, 100 + len(payload)},
		"heads":    {session.Want{Heads: map[string][]string{id: {"part/m/p1"}}}, 0},
	} {
		for _, max := range []int{0, w.bytes, w.bytes - 1, 1} {
			w.want.MaxBytes = max
			rows := f.load(&w.want)
			got := 0
			for _, e := range rows.Entries[id] {
				got += len(e.Payload)
			}
			for _, e := range rows.Logs[id] {
				got += len(e.Payload)
			}
			for _, d := range rows.Deltas[id] {
				got += len(d)
			}
			want := w.bytes
			if rows.Bytes != want {
				t.Errorf("%s within %d: %d bytes are told, there are %d", name, max, rows.Bytes, want)
			}
			if fits := max <= 0 || want <= max; fits && got != want || !fits && got > max {
				t.Errorf("%s within %d: %d bytes of %d are given", name, max, got, want)
			}
		}
	}
}
