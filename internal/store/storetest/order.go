package storetest

// The order of a state, and its reading in that order.

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

// inOrder are the keys of a session's state in its order, as two ways of reading it
// say, with the cursors since when their values stand.
func (f *fixture) inOrder(id string) (keys []string, since map[string]uint64) {
	f.Helper()
	entries, _ := f.state(id)
	slices.SortFunc(entries, session.CompareEntries)
	outline, err := f.ReadOutline(f.ctx, id, "", "z", 1000, nil)
	f.must("read outline", err)
	slices.SortFunc(outline.Entries, session.CompareEntries)
	since = map[string]uint64{}
	for i, e := range entries {
		keys = append(keys, e.Key)
		since[e.Key] = e.Since
		if i >= len(outline.Entries) || outline.Entries[i].Key != e.Key || outline.Entries[i].Ord != e.Ord || outline.Entries[i].Payload != nil {
			f.Errorf("the outline has %+v at %d, the state %+v", outline.Entries, i, e)
		}
	}
	return keys, since
}

// withoutPlaces is a log with its entries as a server of before there was an order
// writes them.
func withoutPlaces(id string, base uint64) *session.Changes {
	row := liveRow(id, newSpace(), 7)
	row.Base = base
	c := &session.Changes{Sessions: []*session.Row{row}}
	end := event(id, 5, "message/m10", `{"status":"completed","entries":[{"key":"message/m10","schema_version":1,"payload":"{\"end\":1}"},{"key":"part/m10/a","schema_version":1,"payload":"{}"}]}`)
	end.Method = session.MethodFinalize
	gone := event(id, 6, "message/m3", `{}`)
	gone.Method = session.MethodRemove
	c.Events = []*session.Event{event(id, 1, "message/m10", `{"time":{"created":30}}`), event(id, 2, "message/m9", `{"time":{"created":10}}`),
		event(id, 3, "message/m3", `{}`), event(id, 4, "message/m10", `{"time":{"created":30}}`), end, gone, event(id, 7, "message/m3", `{"time":{"created":20}}`)}
	c.Events = c.Events[base:]
	for _, e := range []*session.Entry{
		{Key: "message/m10", Cursor: 5, Payload: []byte(`{"time":{"created":30}}`)}, {Key: "message/m3", Cursor: 7, Payload: []byte(`{"time":{"created":20}}`)},
		{Key: "message/m9", Cursor: 2, Payload: []byte(`{"time":{"created":10}}`)}, {Key: "part/m10/a", Cursor: 5, Payload: []byte(`{}`)},
	} {
		e.Session, e.Schema = id, 1
		c.Entries = append(c.Entries, e)
	}
	return c
}

func testOrder(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create(), putOp("message/m1", `{}`), putOp("message/m2", `{}`), putOp("message/m10", `{}`), putOp("message/m9", `{}`)))
	f.applied(o.batch(false, putOp("message/m2", `{"n":1}`), newIntent(session.MethodRemove, "key", "message/m1")))
	f.applied(o.batch(false, newIntent(session.MethodRemove, "key", "message/m10"), putOp("message/m10", `{}`), putOp("message/m1", `{"n":1}`)))
	if keys, _ := f.inOrder(o.session); strings.Join(keys, " ") != "message/m2 message/m9 message/m10 message/m1" {
		t.Errorf("the order is %v", keys)
	}
	for after, want := range map[string]string{"": "message/m1 message/m10 message/m2 …", "message/m1": "message/m10 message/m2 message/m9"} {
		page, err := f.ReadOutline(f.ctx, o.session, after, "z", 3, nil)
		f.must("read a piece of the outline", err)
		var got []string
		for _, e := range page.Entries {
			got = append(got, e.Key)
		}
		if page.More {
			got = append(got, "…")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the outline after %q is %v, want %s", after, got, want)
		}
	}

	// The values in the order that they are asked for, as many as fit.
	want := []string{"message/m1", "message/none", "message/m10", "message/m9", "message/m2"}
	for _, bytes := range []int{1 << 20, 300, 0} {
		var got []string
		for keys := want; len(keys) > 0; {
			page, next, err := f.ReadValues(f.ctx, o.session, keys, bytes, nil)
			f.must("read values", err)
			if next == 0 || page.More != (next < len(keys)) || bytes == 0 && len(page.Entries) > 1 || bytes > 1000 && next < len(keys) {
				t.Fatalf("%d of %v for %d bytes: %+v", next, keys, bytes, page)
			}
			for _, e := range page.Entries {
				got = append(got, e.Key)
			}
			keys = keys[next:]
		}
		if strings.Join(got, " ") != "message/m1 message/m10 message/m9 message/m2" {
			t.Errorf("for %d bytes: %v", bytes, got)
		}
	}

	// Rows of before: by their log, and then they have their places.
	id := newSession()
	f.save(withoutPlaces(id, 0), id)
	for range 2 {
		keys, since := f.inOrder(id)
		if strings.Join(keys, " ") != "message/m10 message/m9 part/m10/a message/m3" || since["message/m10"] != 4 || since["part/m10/a"] != 5 {
			t.Errorf("by the log: %v since %v", keys, since)
		}
	}
	// Such a server's replacement of a row keeps the place, and new ones come to have one.
	c := withoutPlaces(id, 0)
	c.Events = []*session.Event{event(id, 8, "message/m0", `{}`)}
	c.Sessions[0].Cursor = 8
	c.Entries = append(c.Entries[:1:1], &session.Entry{Session: id, Key: "message/m0", Cursor: 8, Schema: 1, Payload: []byte(`{}`)})
	slices.SortFunc(c.Entries, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
	f.save(c, id)
	if keys, _ := f.inOrder(id); strings.Join(keys, " ") != "message/m10 message/m9 part/m10/a message/m3 message/m0" {
		t.Errorf("after more: %v", keys)
	}
	// Of a log that does not begin at its beginning: by time, before all that comes.
	id = newSession()
	f.save(withoutPlaces(id, 3), id)
	if keys, _ := f.inOrder(id); strings.Join(keys, " ") != "message/m9 message/m3 message/m10 part/m10/a" {
		t.Errorf("of a trimmed log: %v", keys)
	}
}
