package storetest

// Searches: what they find is what a look at every value finds, however the state came about, and
// what they show a limited ref.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/search"
	"github.com/mooring-rpc/mooring/internal/session"
)

// search is a page as g shows it.
func (f *fixture) search(id string, q session.SearchQuery, g *capability.Grant) (*session.SearchPage, error) {
	page, err := f.Search(f.ctx, id, q, nil, admits(g))
	if err != nil {
		return nil, err
	}
	return page.Shown(g), nil
}

// found goes through all pages of a search.
func (f *fixture) found(id, text string, limit int, g *capability.Grant) (all []*session.Found) {
	f.Helper()
	for q := (session.SearchQuery{Text: text, Limit: limit}); ; {
		page, err := f.search(id, q, g)
		f.must("search", err)
		// A page that is not full and not the last would tell that something hidden matches.
		if page.Indexing || len(page.Found) > q.MaxFound() || page.Next != "" && len(page.Found) < q.MaxFound() || len(all) > 10_000 {
			f.Fatalf("a page of %q has %d entries, indexing %v, next %q", text, len(page.Found), page.Indexing, page.Next)
		}
		all = append(all, page.Found...)
		if page.Next == "" {
			return all
		}
		q.After = page.Next
	}
}

func foundKeys(found []*session.Found) string {
	keys := make([]string, len(found))
	for i, e := range found {
		keys[i] = e.Key
	}
	return strings.Join(keys, " ")
}

// checkSearch compares what searches find with a look at every value.
func (f *fixture) checkSearch(id string, refs map[string]*capability.Grant, texts ...string) {
	f.Helper()
	for name, g := range refs {
		all := f.expected(id, session.KeyQuery{Order: session.ByPut}, g)
		slices.Reverse(all)
		for _, text := range texts {
			q, refused := search.Parse(text)
			if refused != nil {
				f.Fatal(refused)
			}
			var want []string
			for _, e := range all {
				if m := q.Find(e.Key, e.Payload); m != nil {
					want = append(want, e.Key)
				}
			}
			for _, limit := range []int{1, 2, 0} {
				found := f.found(id, text, limit, g)
				if got := foundKeys(found); got != strings.Join(want, " ") {
					f.Errorf("%q by a ref %s, %d at once: %s, want %v", text, name, limit, got, want)
				}
				for _, e := range found {
					if e.Match == nil || e.Payload != nil || e.Change.Cursor == 0 {
						f.Errorf("%q by a ref %s: %+v", text, name, e)
					}
				}
			}
		}
	}
}

func testSearch(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	check := func() {
		f.Helper()
		f.checkSearch(o.session, limitedRefs, "alpha", "beta", "gamma delta", "東京", "🚀", "userName", `"alpha beta"`, "none", "epsilon", "seven", "5")
	}
	f.applied(o.batch(false, o.create(), putOp("message/m10", `{"text":"alpha 東京都"}`), putOp("session", `{"title":"Alpha beta"}`), putOp("model/x/y", `{"name":"alpha"}`), putOp("message/m2", `{"text":"beta 🚀🚀"}`)))
	check()
	// Text that streams, and the end of its turn, which writes values of other keys.
	f.applied(o.batch(false, beginOp("m1")(), putOp("part/m1/b", `{"text":"gam"}`), putOp("part/m1/a", `{"text":"alpha"}`), putOp("part/m2/z", `{"text":"get_user_name"}`)))
	check()
	f.applied(o.batch(false, newIntent(session.MethodAppendText, "key", "part/m1/b", "offset", 3, "text", "ma delta")))
	check()
	f.applied(o.batch(false, newIntent(session.MethodAppendText, "key", "part/m1/b", "offset", 11, "text", " epsilon")))
	check()
	f.applied(o.batch(false, newIntent(session.MethodFinalize, "message", "m1", "status", "completed",
		"parts", []any{map[string]any{"id": "a", "payload": map[string]string{"text": "beta at the end"}}})))
	check()
	// Values that change, go, and come again.
	f.applied(o.batch(false, newIntent(session.MethodRemove, "key", "message/m10"), putOp("message/m2", `{"text":"alpha"}`), putOp("session_diff", `{"diff":[{"file":"alpha/userName.go"}]}`)))
	check()
	f.applied(o.batch(false, putOp("message/m10", `{"text":"alpha again"}`), newIntent(session.MethodPurge, "key", "part/m2/z"), putOp("todo/seven", `{"size":5}`)))
	check()
	f.applied(o.batch(false, newIntent(session.MethodPatch, "key", "todo/seven", "patch", map[string]any{"title": "gamma delta"}), newIntent(session.MethodAdd, "key", "todo/seven", "member", "size", "by", 2)))
	check()
	// A log that was trimmed before the index has its changes, and an index by other rules.
	f.applied(o.batch(false, putOp("message/m3", `{"text":"epsilon"}`), newIntent(session.MethodRemove, "key", "message/m2")))
	f.trim(o.session, keepNothing, 100)
	check()
	for _, q := range []session.SearchQuery{{Text: ""}, {Text: "?"}, {Text: "a", Limit: -1}, {Text: "a", Limit: session.MaxFound + 1}, {Text: "a", After: "x"},
		{Text: "a", After: "1.2."}, {Text: "a", After: "~AAAA"}, {Text: "a\x00"}, {Text: strings.Repeat("a ", 600)}} {
		_, err := f.search(o.session, q, everything)
		f.code(fmt.Sprintf("search for %.20q after %q", q.Text, q.After), err, fault.BadArgument)
	}
	refused := fault.MissingRight.With("no")
	if _, err := f.Search(f.ctx, o.session, session.SearchQuery{Text: "alpha"}, nil, func(*session.Access) (*capability.Grant, error) { return nil, refused }); err != refused {
		t.Errorf("a ref that may not read: %v", err)
	}
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	if page, err := f.search(o.session, session.SearchQuery{Text: "alpha"}, everything); err != nil || len(page.Found) > 0 {
		t.Errorf("a deleted session: %+v, %v", page, err)
	}
}

// testLargeSearch: an index that is made in many pieces, and pages of what has the same word.
func testLargeSearch(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	const n = 1500
	for from := 0; from < n; from += 500 {
		c := &session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), uint64(from+500))}}
		for i := from; i < from+500; i++ {
			e := event(id, uint64(i+1), fmt.Sprintf("todo/%04d", (i*7)%n), fmt.Sprintf(`{"title":"everywhere %s"}`, []string{"even", "odd"}[i%2]))
			c.Events, c.Entries = append(c.Events, e), append(c.Entries, entryOf(e))
		}
		slices.SortFunc(c.Entries, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
		f.save(c, id)
		for text, want := range map[string]int{"everywhere": from + 500, "odd": (from + 500) / 2, "odd even": 0} {
			found := f.found(id, text, session.MaxFound, everything)
			if len(found) != want || !slices.IsSortedFunc(found, func(a, b *session.Found) int { return b.Ord.Compare(a.Ord) }) {
				t.Errorf("%s: %d of %d, in order %v", text, len(found), want, foundKeys(found[:min(len(found), 20)]))
			}
		}
	}
	some := &capability.Grant{ReadKeys: []string{"todo/0007", "todo/1493", "plan"}}
	if got := foundKeys(f.found(id, "everywhere", 1, some)); got != "todo/1493 todo/0007" {
		t.Errorf("by a ref of three keys: %s", got)
	}
}

// testHeavySearch: one search does a bounded part of an index, and says so, and a page compares a bounded
// part of what matches; the next goes on.
func testHeavySearch(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	const n = 80
	c := &session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), n)}}
	for i := range n {
		e := event(id, uint64(i+1), fmt.Sprintf("note/%02d", i), `{"text":"everywhere","image":"data:image/png;base64,`+strings.Repeat("A", 300_000)+`"}`)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entryOf(e))
	}
	f.save(c, id)
	q := session.SearchQuery{Text: "everywhere", Limit: session.MaxFound}
	page, err := f.search(id, q, everything)
	f.must("search", err)
	if !page.Indexing || len(page.Found) == 0 || len(page.Found) >= n {
		t.Errorf("the first search: indexing %v, %d found", page.Indexing, len(page.Found))
	}
	for searches := 1; page.Indexing; searches++ {
		if page, err = f.search(id, q, everything); err != nil || searches > 5 {
			t.Fatalf("after %d searches: %v", searches, err)
		}
	}
	var found []*session.Found
	pages := 0
	for more := true; more; pages++ {
		page, err := f.search(id, q, everything)
		f.must("search", err)
		found = append(found, page.Found...)
		q.After, more = page.Next, page.Next != ""
	}
	if len(found) != n || pages < 3 || found[0].Key != "note/79" || found[n-1].Key != "note/00" {
		t.Errorf("in %d pages: %s", pages, foundKeys(found))
	}
}
