package sessions

// The order of a state, and its reading in that order.

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// inOrder are the keys of a session's state in its order, as two ways of reading it
// say, with the cursors since when their values stand.
func inOrder(f *harness.Fixture, id string) (keys []string, since map[string]uint64) {
	f.Helper()
	entries, _ := f.StateOf(id)
	slices.SortFunc(entries, session.CompareEntries)
	outline, err := f.ReadOutline(f.Ctx, id, "", "z", 1000, nil)
	f.Must("read outline", err)
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
	row := harness.LiveRow(id, harness.NewSpace(), 7)
	row.Base = base
	c := &session.Changes{Sessions: []*session.Row{row}}
	end := harness.Event(id, 5, "message/m10", `{"status":"completed","entries":[{"key":"message/m10","schema_version":1,"payload":"{\"end\":1}"},{"key":"part/m10/a","schema_version":1,"payload":"{}"}]}`)
	end.Method = session.MethodFinalize
	gone := harness.Event(id, 6, "message/m3", `{}`)
	gone.Method = session.MethodRemove
	c.Events = []*session.Event{harness.Event(id, 1, "message/m10", `{"time":{"created":30}}`), harness.Event(id, 2, "message/m9", `{"time":{"created":10}}`),
		harness.Event(id, 3, "message/m3", `{}`), harness.Event(id, 4, "message/m10", `{"time":{"created":30}}`), end, gone, harness.Event(id, 7, "message/m3", `{"time":{"created":20}}`)}
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

func testOrder(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/m1", `{}`), harness.PutOp("message/m2", `{}`), harness.PutOp("message/m10", `{}`), harness.PutOp("message/m9", `{}`)))
	f.Applied(o.Batch(false, harness.PutOp("message/m2", `{"n":1}`), harness.NewIntent(session.MethodRemove, "key", "message/m1")))
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRemove, "key", "message/m10"), harness.PutOp("message/m10", `{}`), harness.PutOp("message/m1", `{"n":1}`)))
	if keys, _ := inOrder(f, o.Session); strings.Join(keys, " ") != "message/m2 message/m9 message/m10 message/m1" {
		t.Errorf("the order is %v", keys)
	}
	for after, want := range map[string]string{"": "message/m1 message/m10 message/m2 …", "message/m1": "message/m10 message/m2 message/m9"} {
		page, err := f.ReadOutline(f.Ctx, o.Session, after, "z", 3, nil)
		f.Must("read a piece of the outline", err)
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
			page, next, err := f.ReadValues(f.Ctx, o.Session, keys, bytes, nil)
			f.Must("read values", err)
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
	id := harness.NewSession()
	f.Save(withoutPlaces(id, 0), id)
	for range 2 {
		keys, since := inOrder(f, id)
		if strings.Join(keys, " ") != "message/m10 message/m9 part/m10/a message/m3" || since["message/m10"] != 4 || since["part/m10/a"] != 5 {
			t.Errorf("by the log: %v since %v", keys, since)
		}
	}
	// Such a server's replacement of a row keeps the place, and new ones come to have one.
	c := withoutPlaces(id, 0)
	c.Events = []*session.Event{harness.Event(id, 8, "message/m0", `{}`)}
	c.Sessions[0].Cursor = 8
	c.Entries = append(c.Entries[:1:1], &session.Entry{Session: id, Key: "message/m0", Cursor: 8, Schema: 1, Payload: []byte(`{}`)})
	slices.SortFunc(c.Entries, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
	f.Save(c, id)
	if keys, _ := inOrder(f, id); strings.Join(keys, " ") != "message/m10 message/m9 part/m10/a message/m3 message/m0" {
		t.Errorf("after more: %v", keys)
	}
	// Of a log that does not begin at its beginning: by time, before all that comes.
	id = harness.NewSession()
	f.Save(withoutPlaces(id, 3), id)
	if keys, _ := inOrder(f, id); strings.Join(keys, " ") != "message/m9 message/m3 message/m10 part/m10/a" {
		t.Errorf("of a trimmed log: %v", keys)
	}
}
