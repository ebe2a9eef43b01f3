package sessions

// Searches: what they find is what a look at every value finds, however the state came about, and
// what they show a limited ref.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func testSearch(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	check := func() {
		f.Helper()
		f.CheckSearch(o.Session, harness.LimitedRefs, "alpha", "beta", "gamma delta", "東京", "🚀", "userName", `"alpha beta"`, "none", "epsilon", "seven", "5")
	}
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/m10", `{"text":"alpha 東京都"}`), harness.PutOp("session", `{"title":"Alpha beta"}`), harness.PutOp("model/x/y", `{"name":"alpha"}`), harness.PutOp("message/m2", `{"text":"beta 🚀🚀"}`)))
	check()
	// Text that streams, and the end of its turn, which writes values of other keys.
	f.Applied(o.Batch(false, harness.BeginOp("m1")(), harness.PutOp("part/m1/b", `{"text":"gam"}`), harness.PutOp("part/m1/a", `{"text":"alpha"}`), harness.PutOp("part/m2/z", `{"text":"get_user_name"}`)))
	check()
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodAppendText, "key", "part/m1/b", "offset", 3, "text", "ma delta")))
	check()
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodAppendText, "key", "part/m1/b", "offset", 11, "text", " epsilon")))
	check()
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodFinalize, "message", "m1", "status", "completed",
		"parts", []any{map[string]any{"id": "a", "payload": map[string]string{"text": "beta at the end"}}})))
	check()
	// Values that change, go, and come again.
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRemove, "key", "message/m10"), harness.PutOp("message/m2", `{"text":"alpha"}`), harness.PutOp("session_diff", `{"diff":[{"file":"alpha/userName.go"}]}`)))
	check()
	f.Applied(o.Batch(false, harness.PutOp("message/m10", `{"text":"alpha again"}`), harness.NewIntent(session.MethodPurge, "key", "part/m2/z"), harness.PutOp("todo/seven", `{"size":5}`)))
	check()
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodPatch, "key", "todo/seven", "patch", map[string]any{"title": "gamma delta"}), harness.NewIntent(session.MethodAdd, "key", "todo/seven", "member", "size", "by", 2)))
	check()
	// A log that was trimmed before the index has its changes, and an index by other rules.
	f.Applied(o.Batch(false, harness.PutOp("message/m3", `{"text":"epsilon"}`), harness.NewIntent(session.MethodRemove, "key", "message/m2")))
	f.TrimAll(o.Session, harness.KeepNothing, 100)
	check()
	for _, q := range []session.SearchQuery{{Text: ""}, {Text: "?"}, {Text: "a", Limit: -1}, {Text: "a", Limit: session.MaxFound + 1}, {Text: "a", After: "x"},
		{Text: "a", After: "1.2."}, {Text: "a", After: "~AAAA"}, {Text: "a\x00"}, {Text: strings.Repeat("a ", 600)}} {
		_, err := f.SearchAs(o.Session, q, harness.Everything)
		f.WantCode(fmt.Sprintf("search for %.20q after %q", q.Text, q.After), err, fault.BadArgument)
	}
	refused := fault.MissingRight.With("no")
	if _, err := f.Search(f.Ctx, o.Session, session.SearchQuery{Text: "alpha"}, nil, func(*session.Access) (*capability.Grant, error) { return nil, refused }); err != refused {
		t.Errorf("a ref that may not read: %v", err)
	}
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	if page, err := f.SearchAs(o.Session, session.SearchQuery{Text: "alpha"}, harness.Everything); err != nil || len(page.Found) > 0 {
		t.Errorf("a deleted session: %+v, %v", page, err)
	}
}

// testLargeSearch: an index that is made in many pieces, and pages of what has the same word.
func testLargeSearch(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	const n = 1500
	for from := 0; from < n; from += 500 {
		c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), uint64(from+500))}}
		for i := from; i < from+500; i++ {
			e := harness.Event(id, uint64(i+1), fmt.Sprintf("todo/%04d", (i*7)%n), fmt.Sprintf(`{"title":"everywhere %s"}`, []string{"even", "odd"}[i%2]))
			c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
		}
		slices.SortFunc(c.Entries, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
		f.Save(c, id)
		for text, want := range map[string]int{"everywhere": from + 500, "odd": (from + 500) / 2, "odd even": 0} {
			found := f.Found(id, text, session.MaxFound, harness.Everything)
			if len(found) != want || !slices.IsSortedFunc(found, func(a, b *session.Found) int { return b.Ord.Compare(a.Ord) }) {
				t.Errorf("%s: %d of %d, in order %v", text, len(found), want, harness.FoundKeys(found[:min(len(found), 20)]))
			}
		}
	}
	some := &capability.Grant{ReadKeys: []string{"todo/0007", "todo/1493", "plan"}}
	if got := harness.FoundKeys(f.Found(id, "everywhere", 1, some)); got != "todo/1493 todo/0007" {
		t.Errorf("by a ref of three keys: %s", got)
	}
}

// testHeavySearch: one search does a bounded part of an index, and says so, and a page compares a bounded
// part of what matches; the next goes on.
func testHeavySearch(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	const n = 80
	c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), n)}}
	for i := range n {
		e := harness.Event(id, uint64(i+1), fmt.Sprintf("note/%02d", i), `{"text":"everywhere","image":"data:image/png;base64,`+strings.Repeat("A", 300_000)+`"}`)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
	}
	f.Save(c, id)
	q := session.SearchQuery{Text: "everywhere", Limit: session.MaxFound}
	page, err := f.SearchAs(id, q, harness.Everything)
	f.Must("search", err)
	if !page.Indexing || len(page.Found) == 0 || len(page.Found) >= n {
		t.Errorf("the first search: indexing %v, %d found", page.Indexing, len(page.Found))
	}
	for searches := 1; page.Indexing; searches++ {
		if page, err = f.SearchAs(id, q, harness.Everything); err != nil || searches > 5 {
			t.Fatalf("after %d searches: %v", searches, err)
		}
	}
	var found []*session.Found
	pages := 0
	for more := true; more; pages++ {
		page, err := f.SearchAs(id, q, harness.Everything)
		f.Must("search", err)
		found = append(found, page.Found...)
		q.After, more = page.Next, page.Next != ""
	}
	if len(found) != n || pages < 3 || found[0].Key != "note/79" || found[n-1].Key != "note/00" {
		t.Errorf("in %d pages: %s", pages, harness.FoundKeys(found))
	}
}
