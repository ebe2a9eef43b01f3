// What reads take of memory.

package storetest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// PagesCost holds what a page takes of memory against what it gives. No test may run beside it.
func PagesCost(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	const n, size, page = 100, 64 << 10, 3
	c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), n)}}
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", size))
	for i := range n {
		e := harness.Event(id, uint64(i+1), fmt.Sprintf("message/m%03d", i), payload)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
	}
	f.Save(c, id)
	for what, read := range map[string]func() (int, error){
		"the log": func() (int, error) {
			p, err := f.ReadLog(f.Ctx, id, 0, (page+1)*size, 4096, nil)
			return len(p.Events), err
		},
		"the state": func() (int, error) {
			p, err := f.ReadRange(f.Ctx, id, "", "z", (page+1)*size, 4096, nil)
			return len(p.Entries), err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := read()
		runtime.ReadMemStats(&after)
		f.Must("read "+what, err)
		if took := after.TotalAlloc - before.TotalAlloc; got != page || took > 4*(page+2)*size {
			t.Errorf("%d rows of %s, of %d bytes each, took %d", got, what, size, took)
		}
	}
}

// GrowthCost holds what texts that grow take of memory against what is read of them. No
// test may run beside it.
func GrowthCost(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	const parts, deltas, size = 20, 4, 64 << 10
	put := harness.Event(id, 1, "message/m", `{}`)
	c := &session.Changes{Events: []*session.Event{put}, Entries: []*session.Entry{harness.EntryOf(put)},
		Turns: []*session.Turn{{Session: id, Message: "m", Status: session.Streaming, Begun: 1, Outbox: harness.NewOutbox()}}}
	next := func() uint64 { return uint64(len(c.Events) + 1) }
	text := strings.Repeat("x", size)
	for i := range parts {
		e := harness.Event(id, next(), fmt.Sprintf("part/m/p%03d", i), `{"text":""}`)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
	}
	for range deltas { // of all parts at once
		for _, e := range c.Entries[1:] {
			e.LastAppend, e.TextLen = next(), e.TextLen+size
			c.Events = append(c.Events, harness.DeltaEvent(id, e.LastAppend, e.Key, text))
		}
	}
	c.Sessions = []*session.Row{harness.LiveRow(id, harness.NewSpace(), next()-1)}
	f.Save(c, id)
	c = nil

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page, err := f.ReadRange(f.Ctx, id, "part/m/p004", "part/m/p006", 1<<20, 10, nil)
	runtime.ReadMemStats(&after)
	f.Must("read a part", err)
	if took := after.TotalAlloc - before.TotalAlloc; len(page.Entries) != 1 || len(page.Entries[0].Payload) < deltas*size || took > 16*deltas*size {
		t.Errorf("%d parts, of %d bytes each, took %d", len(page.Entries), deltas*size, took)
	}
	page, err = f.ReadRange(f.Ctx, id, "part/m/", "part/m/z", 2*deltas*size+1000, 100, nil)
	f.Must("read parts", err)
	if len(page.Entries) != 2 || !page.More {
		t.Errorf("%d parts, more %v, in room for two", len(page.Entries), page.More)
	}
	page = nil

	runtime.GC()
	runtime.ReadMemStats(&before)
	most, texts := uint64(0), 0
	f.Must("read the state", f.ReadState(f.Ctx, id, nil, 1<<20, func(p *session.StateChunk) error {
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
