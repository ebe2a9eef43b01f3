// Pages of the log and of the state: as many rows as fit, and whether there are more.

package storetest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
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
func testPages(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, r := newSession(), rand.New(rand.NewPCG(1, 2))
	const n = 24
	c := &session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), n)}}
	var events, entries []int // weights
	for i := range n {
		e := event(id, uint64(i+1), fmt.Sprintf("message/m%02d", i), fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", r.IntN(1000))))
		entry := entryOf(e)
		if i%3 == 0 { // a value of its own
			entry.Payload, e.Payload = e.Payload, []byte(`{}`)
		}
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entry)
		events = append(events, 256+len(e.Payload)+len(e.Key)+len(e.Ref)+len(e.Actor))
		entries = append(entries, 128+max(len(entry.Payload), len(e.Payload))+len(e.Key))
	}
	f.save(c, id)
	for base := range uint64(2) {
		for _, after := range []uint64{0, 1, 2, 9, n - 2, n} {
			for _, bytes := range []int{0, 200, 600, 2000, 5000, 1 << 20} {
				for _, most := range []int{1, 3, 100} {
					what := fmt.Sprintf("after %d of a log from %d, for %d bytes and %d rows", after, base, bytes, most)
					page, err := f.ReadLog(f.ctx, id, after, bytes, most, nil)
					f.must(what, err)
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
					state, err := f.ReadRange(f.ctx, id, key, c.Entries[below].Key, bytes, most, nil)
					f.must(what, err)
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
		if _, err := f.Trim(f.ctx, id, keepNothing, 1, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// PagesCost holds what a page takes of memory against what it gives. No test may run beside it.
func PagesCost(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	const n, size, page = 100, 64 << 10, 3
	c := &session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), n)}}
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", size))
	for i := range n {
		e := event(id, uint64(i+1), fmt.Sprintf("message/m%03d", i), payload)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entryOf(e))
	}
	f.save(c, id)
	for what, read := range map[string]func() (int, error){
		"the log": func() (int, error) {
			p, err := f.ReadLog(f.ctx, id, 0, (page+1)*size, 4096, nil)
			return len(p.Events), err
		},
		"the state": func() (int, error) {
			p, err := f.ReadRange(f.ctx, id, "", "z", (page+1)*size, 4096, nil)
			return len(p.Entries), err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := read()
		runtime.ReadMemStats(&after)
		f.must("read "+what, err)
		if took := after.TotalAlloc - before.TotalAlloc; got != page || took > 4*(page+2)*size {
			t.Errorf("%d rows of %s, of %d bytes each, took %d", got, what, size, took)
		}
	}
}

// GrowthCost holds what texts that grow take of memory against what is read of them. No
// test may run beside it.
func GrowthCost(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	const parts, deltas, size = 20, 4, 64 << 10
	put := event(id, 1, "message/m", `{}`)
	c := &session.Changes{Events: []*session.Event{put}, Entries: []*session.Entry{entryOf(put)},
		Turns: []*session.Turn{{Session: id, Message: "m", Status: session.Streaming, Begun: 1, Outbox: newOutbox()}}}
	next := func() uint64 { return uint64(len(c.Events) + 1) }
	text := strings.Repeat("x", size)
	for i := range parts {
		e := event(id, next(), fmt.Sprintf("part/m/p%03d", i), `{"text":""}`)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entryOf(e))
	}
	for range deltas { // of all parts at once
		for _, e := range c.Entries[1:] {
			e.LastAppend, e.TextLen = next(), e.TextLen+size
			c.Events = append(c.Events, deltaEvent(id, e.LastAppend, e.Key, text))
		}
	}
	c.Sessions = []*session.Row{liveRow(id, newSpace(), next()-1)}
	f.save(c, id)
	c = nil

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page, err := f.ReadRange(f.ctx, id, "part/m/p004", "part/m/p006", 1<<20, 10, nil)
	runtime.ReadMemStats(&after)
	f.must("read a part", err)
	if took := after.TotalAlloc - before.TotalAlloc; len(page.Entries) != 1 || len(page.Entries[0].Payload) < deltas*size || took > 16*deltas*size {
		t.Errorf("%d parts, of %d bytes each, took %d", len(page.Entries), deltas*size, took)
	}
	page, err = f.ReadRange(f.ctx, id, "part/m/", "part/m/z", 2*deltas*size+1000, 100, nil)
	f.must("read parts", err)
	if len(page.Entries) != 2 || !page.More {
		t.Errorf("%d parts, more %v, in room for two", len(page.Entries), page.More)
	}
	page = nil

	runtime.GC()
	runtime.ReadMemStats(&before)
	most, texts := uint64(0), 0
	f.must("read the state", f.ReadState(f.ctx, id, nil, 1<<20, func(p *session.StateChunk) error {
		runtime.GC()
		runtime.ReadMemStats(&after)
		most = max(most, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
		for _, e := range p.Entries {
			texts += strings.Count(string(e.Payload), text)
		}
		return nil
	}))
	if all := parts * deltas; texts != all || most > uint64(all*size/2) {
		t.Errorf("of a state of %d texts of %d bytes %d were given, and %d bytes held at once", all, size, texts, most)
	}
}
