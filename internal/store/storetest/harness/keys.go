// Lists of keys, searches and views of a session, compared with a look at every value.

package harness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/search"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Admits lets a read through by g, whatever refs it came with.
func Admits(g *capability.Grant) session.Admit {
	return func(*session.Access) (*capability.Grant, error) { return g, nil }
}

// ListKeysAs is a page as g shows it.
func (f *Fixture) ListKeysAs(id string, q session.KeyQuery, maxBytes int, g *capability.Grant) (*session.KeyPage, error) {
	page, err := f.ListKeys(f.Ctx, id, q, maxBytes, nil, Admits(g))
	if err != nil {
		return nil, err
	}
	return page.Shown(g), nil
}

// AllKeys goes through all pages; between is called after each, if it is not nil.
func (f *Fixture) AllKeys(id string, q session.KeyQuery, maxBytes int, g *capability.Grant, between func(*session.KeyPage)) (all []*session.EntryInfo) {
	f.Helper()
	for pages := 0; ; pages++ {
		page, err := f.ListKeysAs(id, q, maxBytes, g)
		f.Must("list keys", err)
		if len(page.Entries) > q.MaxEntries() || page.More != (page.Next != "") || pages > 20_000 {
			f.Fatalf("page %d of %+v has %d entries, more %v, next %q", pages, q, len(page.Entries), page.More, page.Next)
		}
		all = append(all, page.Entries...)
		if between != nil {
			between(page)
		}
		if !page.More {
			return all
		}
		q.After = page.Next
	}
}

// KeysOf joins the entries' keys.
func KeysOf(entries []*session.EntryInfo) string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return strings.Join(keys, " ")
}

// Expected are the entries that a snapshot shows g, below a prefix and in an order.
func (f *Fixture) Expected(id string, q session.KeyQuery, g *capability.Grant) (entries []*session.Entry) {
	f.Helper()
	all, _ := f.StateOf(id)
	for _, e := range all {
		if strings.HasPrefix(e.Key, q.Prefix) && len(e.Key) > len(q.Prefix) && session.ShowsEntry(g, e) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *session.Entry) int {
		return session.PositionOf(a).Compare(q.Order, session.PositionOf(b))
	})
	return entries
}

// LimitedRefs are refs that show all or a part of a session, by what they show.
var LimitedRefs = map[string]*capability.Grant{"of all": Everything, "of a message": {Message: "m2"}, "of none": {Message: "m"},
	"of some keys": {ReadKeys: []string{"part/m2/", "session", "message/m10", "part/m1/b", "part/m2/z"}}, "of some keys from a cursor": {ReadKeys: []string{"part/", "model/x/"}, VisibleFrom: 8},
	"from a cursor": {VisibleFrom: 8}, "of a message from a cursor": {Message: "m10", VisibleFrom: 8}}

// SearchAs is a page as g shows it.
func (f *Fixture) SearchAs(id string, q session.SearchQuery, g *capability.Grant) (*session.SearchPage, error) {
	page, err := f.Search(f.Ctx, id, q, nil, Admits(g))
	if err != nil {
		return nil, err
	}
	return page.Shown(g), nil
}

// Found goes through all pages of a search.
func (f *Fixture) Found(id, text string, limit int, g *capability.Grant) (all []*session.Found) {
	f.Helper()
	for q := (session.SearchQuery{Text: text, Limit: limit}); ; {
		page, err := f.SearchAs(id, q, g)
		f.Must("search", err)
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

// FoundKeys joins the keys of what was found.
func FoundKeys(found []*session.Found) string {
	keys := make([]string, len(found))
	for i, e := range found {
		keys[i] = e.Key
	}
	return strings.Join(keys, " ")
}

// CheckSearch compares what searches find with a look at every value.
func (f *Fixture) CheckSearch(id string, refs map[string]*capability.Grant, texts ...string) {
	f.Helper()
	for name, g := range refs {
		all := f.Expected(id, session.KeyQuery{Order: session.ByPut}, g)
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
				found := f.Found(id, text, limit, g)
				if got := FoundKeys(found); got != strings.Join(want, " ") {
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

// Shown is what each way of reading shows of a session: keys, in their order.
func (f *Fixture) Shown(id string) map[string]string {
	f.Helper()
	shown := map[string]string{}
	all, turns := f.StateOf(id)
	var keys []string
	for _, e := range all {
		keys = append(keys, e.Key)
	}
	slices.Sort(keys)
	shown["state"] = strings.Join(keys, " ")
	for _, t := range turns {
		shown["turns"] += t.Message + " "
	}
	for _, limit := range []int{1, 100} {
		shown[fmt.Sprint("by key, ", limit)] = KeysOf(f.AllKeys(id, session.KeyQuery{Limit: limit}, 1<<20, Everything, nil))
		for _, prefix := range []string{"message/", "part/m2/"} {
			shown[fmt.Sprint(prefix, " by put, ", limit)] = KeysOf(f.AllKeys(id, session.KeyQuery{Prefix: prefix, Order: session.ByPut, Limit: limit, Values: true}, 1<<20, Everything, nil))
		}
	}
	for _, g := range []*capability.Grant{Everything, {VisibleFrom: 5}, {Message: "m2"}, {ReadKeys: []string{"message/", "part/m1/"}}} {
		counted := map[string]*session.KindStat{}
		for _, e := range all {
			kind := session.KindOf(e.Key)
			if !session.ShowsEntry(g, e) {
				continue
			}
			if counted[kind] == nil {
				counted[kind] = &session.KindStat{Kind: kind}
			}
			counted[kind].Keys, counted[kind].Bytes = counted[kind].Keys+1, counted[kind].Bytes+uint64(len(e.Payload))
		}
		stat, err := f.ReadStat(f.Ctx, id, nil, Admits(g))
		f.Must("stat", err)
		if len(stat.Kinds) != len(counted) {
			f.Errorf("%v is counted for %+v, the state has %d kinds", stat.Kinds, g, len(counted))
		}
		for _, kind := range stat.Kinds {
			if of := counted[kind.Kind]; of == nil || kind != *of {
				f.Errorf("%v is counted for %+v, the state has %v", kind, g, of)
			}
		}
	}
	page, next, err := f.ReadKeys(f.Ctx, id, []string{"message/m1", "message/m2", "part/m2/a", "part/m1/b", "todo/1"}, 1<<20, nil, Admits(Everything))
	f.Must("read keys", err)
	shown["get"] = fmt.Sprintf("%s %d", KeysOf(page.Shown(Everything).Entries), next)
	for _, most := range []int{1, 100} {
		var outline, ranges []string
		for after := ""; ; {
			page, err := f.ReadOutline(f.Ctx, id, after, "~", most, nil)
			f.Must("read outline", err)
			for _, e := range page.Entries {
				outline = append(outline, e.Key)
			}
			if after = page.Last; !page.More {
				break
			}
		}
		for after := ""; ; {
			page, err := f.ReadRange(f.Ctx, id, after, "~", 1<<20, most, nil)
			f.Must("read range", err)
			for _, e := range page.Entries {
				ranges = append(ranges, e.Key)
			}
			for _, t := range page.Turns {
				ranges = append(ranges, "turn "+t.Message)
			}
			if after = page.Last; !page.More {
				break
			}
		}
		shown[fmt.Sprint("outline, ", most)], shown[fmt.Sprint("ranges, ", most)] = strings.Join(outline, " "), strings.Join(ranges, " ")
	}
	values, _, err := f.ReadValues(f.Ctx, id, []string{"message/m2", "part/m2/a", "part/m1/b"}, 1<<20, nil)
	f.Must("read values", err)
	for _, e := range values.Entries {
		shown["values"] += e.Key + " "
	}
	found, err := f.Search(f.Ctx, id, session.SearchQuery{Text: "word", Limit: 100}, nil, Admits(Everything))
	f.Must("search", err)
	for _, e := range found.Shown(Everything).Found {
		shown["search"] += e.Key + " "
	}
	return shown
}

// compactedState is the compacted view of some keys as ReadState gives it: what is left out, turns, entries.
func (f *Fixture) compactedState(id string, keys []string, pieceBytes int) (left, turns, entries []string) {
	f.Helper()
	selected, refused := session.SelectKeys(keys)
	if refused != nil {
		f.Fatal(refused)
	}
	stage := 0
	f.Must("read the compacted state", f.Store.ReadState(f.Ctx, id, nil, pieceBytes, func(a *session.Access) session.Portion {
		return session.Portion{Ranges: selected.Ranges(Everything), Compacted: a.Row.CompactedTo(Everything)}
	}, func(u *session.Unscoped[*session.StateChunk]) error {
		c := selected.Chunk(u.Shown(Everything))
		if c.Compacted != c.Row.Compacted() {
			f.Errorf("a chunk is of the view that is compacted to %+v", c.Compacted)
		}
		for at, n := range []int{len(c.LeftOut), len(c.Turns), len(c.Entries)} {
			if n > 0 && at < stage {
				f.Errorf("the chunks are out of order")
			}
			if n > 0 {
				stage = at
			}
		}
		left = append(left, c.LeftOut...)
		for _, t := range c.Turns {
			turns = append(turns, t.Message)
		}
		for _, e := range c.Entries {
			entries = append(entries, e.Key+"="+string(e.Payload))
		}
		return nil
	}))
	slices.Sort(left)
	slices.Sort(turns)
	slices.Sort(entries)
	return left, turns, entries
}

// CheckCompacted compares all ways of reading a session's compacted view with its whole state.
func (f *Fixture) CheckCompacted(id string) {
	f.Helper()
	entries, turns := f.StateOf(id)
	c := f.LogOf(id).Row.Compacted()
	heads := map[string]*session.Entry{}
	for _, e := range entries {
		if session.HeadOf(e.Key) == e.Key {
			heads[e.Key] = e
		}
	}
	leftOut := func(key string) bool { return c.LeavesOut(heads[session.HeadOf(key)]) }
	for _, keys := range [][]string{nil, {"message/"}, {"part/m1/", "message/m1", "todo/"}, {"part/m"}, {"todo/"}} {
		var left, begun, shown []string
		for _, e := range entries {
			switch {
			case leftOut(e.Key) && session.HeadOf(e.Key) == e.Key:
				left = append(left, strings.TrimPrefix(e.Key, "message/"))
			case !leftOut(e.Key) && capability.CoversKey(keys, e.Key):
				shown = append(shown, e.Key+"="+string(e.Payload))
			}
		}
		for _, t := range turns {
			if key := session.MessageKey(t.Message); !leftOut(key) && capability.CoversKey(keys, key) {
				begun = append(begun, t.Message)
			}
		}
		slices.Sort(left)
		slices.Sort(begun)
		slices.Sort(shown)
		for _, bytes := range []int{1, 1 << 20} {
			what := fmt.Sprintf("%v in pieces of %d: ", keys, bytes)
			gotLeft, gotTurns, got := f.compactedState(id, keys, bytes)
			Same(f, what+"left out", gotLeft, left)
			Same(f, what+"turns", gotTurns, begun)
			Same(f, what+"entries", got, shown)
		}
	}
	for _, prefix := range []string{"", "message/", "part/", "part/m1/"} {
		for _, order := range []session.KeyOrder{session.ByKey, session.ByPut} {
			var want []string
			for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b *session.Entry) int {
				return session.PositionOf(a).Compare(order, session.PositionOf(b))
			}) {
				if strings.HasPrefix(e.Key, prefix) && !leftOut(e.Key) {
					want = append(want, e.Key)
				}
			}
			for _, limit := range []int{1, 3, 100} {
				got := KeysOf(f.AllKeys(id, session.KeyQuery{Prefix: prefix, Order: order, Limit: limit, Compacted: true}, 1<<20, Everything, nil))
				if got != strings.Join(want, " ") {
					f.Errorf("%q by %s, %d a page: %s is listed, want %s", prefix, order, limit, got, want)
				}
			}
		}
	}
}

// CompactedIDs are ids of messages whose keys, and whose parts' keys, are in other orders than one another: "/" is behind
// "-" and ".".
var CompactedIDs = []string{"m", "m1", "m-1", "m.1", "m10", "m1.", "n", "a"}
