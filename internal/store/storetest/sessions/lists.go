// Lists long enough to be written and read in bulk.

package sessions

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testLongLists saves events and entries of two sessions in runs that agree in
// what events mostly have in common, shorter and longer than what goes into one
// statement, and reads them back.
func testLongLists(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	ids := []string{harness.NewSession(), harness.NewSession()}
	c, heads, entries := &session.Changes{}, map[string][]string{}, map[string]map[string]*session.Entry{}
	for n, id := range ids {
		row := &session.Row{ID: id, Space: harness.NewSpace(), Life: session.Live, Epoch: 1}
		entries[id] = map[string]*session.Entry{}
		for run, length := range [][]int{{1, 15, 16, 17, 33, 3}, {40, 2, 16}}[n] {
			common := harness.Event(id, 0, "", "")
			for i := range length {
				row.Cursor++
				e := harness.Event(id, row.Cursor, fmt.Sprintf("message/m%d", row.Cursor), fmt.Sprintf(`{"n":%d}`, row.Cursor))
				e.Ref, e.Outbox, e.Batch = common.Ref, common.Outbox, common.Batch
				entry := harness.EntryOf(e)
				switch {
				case run%3 == 1 && i == 7: // one that is different
					e.Actor, e.Payload = "owner/b", nil
					entry.Payload, entry.Schema = []byte(`{}`), 2
				case run%3 == 2:
					entry.Payload = []byte(fmt.Sprintf(`{"own":%d}`, i))
				}
				c.Events, c.Entries = append(c.Events, e), append(c.Entries, entry)
				entries[id][e.Key] = entry
				heads[id] = append(heads[id], e.Key, e.Key+"-none")
			}
		}
		c.Sessions = append(c.Sessions, row)
	}
	f.Save(c, ids...)
	saved := c.Events
	for i, id := range ids {
		last := c.Sessions[i].Cursor
		page, err := f.ReadLog(f.Ctx, id, 0, 1<<20, 1000, nil)
		f.Must("read log", err)
		harness.Same(f, "events", page.Events, saved[:last])
		saved = saved[last:]
	}
	rows := f.Load(&session.ReadSet{Sessions: ids, EntryMeta: heads})
	for _, id := range ids {
		if got, want := len(rows.Entries[id]), len(entries[id]); got != want {
			t.Errorf("%d heads of %d", got, want)
		}
		for key, want := range entries[id] {
			head := *want
			head.Payload = nil
			harness.Same(f, key, rows.Entries[id][key], &head)
		}
	}
	whole := f.Load(&session.ReadSet{Sessions: ids, Entries: heads})
	for id := range entries {
		for key, want := range entries[id] {
			if got := whole.Entries[id][key]; want.Payload != nil && (got == nil || string(got.Payload) != string(want.Payload)) {
				t.Errorf("%s: %+v", key, got)
			}
		}
	}
	c.Sessions, c.Events = nil, nil // the same again, as replacements
	for _, e := range c.Entries {
		e.TextLen += 5
	}
	f.Save(c, ids...)
	rows = f.Load(&session.ReadSet{Sessions: ids, EntryMeta: heads})
	for id := range entries {
		for key, want := range entries[id] {
			if got := rows.Entries[id][key]; got == nil || got.TextLen != want.TextLen {
				t.Errorf("%s, replaced: %+v", key, got)
			}
		}
	}
}
