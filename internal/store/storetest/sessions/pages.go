// Pages of the log and of the state: as many rows as fit, and whether there are more.

package sessions

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// rowsThatFit is how many rows of such weights a page has that is for so many bytes and
// rows: the first one always.
func rowsThatFit(weights []int, bytes, most int) (n int) {
	for sum := 0; n < len(weights); n++ {
		if sum += weights[n]; n > 0 && (sum > bytes || n >= most) {
			break
		}
	}
	return n
}

// testPages: whatever the rows weigh and wherever the log begins, a page has what fits
// and says truly whether there is more.
func testPages(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, r := harness.NewSession(), rand.New(rand.NewPCG(1, 2))
	const n = 24
	c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), n)}}
	var events, entries []int // weights
	for i := range n {
		e := harness.Event(id, uint64(i+1), fmt.Sprintf("message/m%02d", i), fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", r.IntN(1000))))
		entry := harness.EntryOf(e)
		if i%3 == 0 { // a value of its own
			entry.Payload, e.Payload = e.Payload, []byte(`{}`)
		}
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entry)
		events = append(events, 256+len(e.Payload)+len(e.Key)+len(e.Ref)+len(e.Actor))
		entries = append(entries, 128+max(len(entry.Payload), len(e.Payload))+len(e.Key))
	}
	f.Save(c, id)
	for base := range uint64(2) {
		for _, after := range []uint64{0, 1, 2, 9, n - 2, n} {
			for _, bytes := range []int{0, 200, 600, 2000, 5000, 1 << 20} {
				for _, most := range []int{1, 3, 100} {
					what := fmt.Sprintf("after %d of a log from %d, for %d bytes and %d rows", after, base, bytes, most)
					page, err := f.ReadLog(f.Ctx, id, after, bytes, most, nil)
					f.Must(what, err)
					from := max(after, base)
					want := from + uint64(rowsThatFit(events[from:], bytes, most))
					if len(page.Events) != int(want-from) || len(page.Events) > 0 && page.Events[len(page.Events)-1].Cursor != want || page.More != (want < n) {
						t.Errorf("%s: %d events, more %v, want %d", what, len(page.Events), page.More, want-from)
					}
					if (page.Checkpoint != nil) != (after < base) {
						t.Errorf("%s: the checkpoint is %+v", what, page.Checkpoint)
					}
					if base > 0 {
						continue
					}
					key := ""
					if after > 0 {
						key = c.Entries[after-1].Key
					}
					const below = n - 2
					state, err := f.ReadRange(f.Ctx, id, key, c.Entries[below].Key, bytes, most, nil)
					f.Must(what, err)
					some := 0
					if after < below {
						some = rowsThatFit(entries[after:below], bytes, most)
					}
					if len(state.Entries) != some || state.More != (int(after)+some < below) {
						t.Errorf("%s: %d entries, more %v, want %d", what, len(state.Entries), state.More, some)
					}
				}
			}
		}
		if _, err := f.Trim(f.Ctx, id, harness.KeepNothing, 1, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}
