package sessions

// Reads of single keys and of pages of a prefix, and what they show a limited ref.

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testKeys: whatever the prefix, the order, the page and the ref, all pages together are what a
// snapshot shows, and each entry says who changed it last as the log does.
func testKeys(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/m10", `{"n":1}`), harness.PutOp("session", `{"title":"T"}`), harness.PutOp("model/x/y", `{}`), harness.PutOp("message/m2", `{}`)))
	f.Applied(o.Batch(false, harness.BeginOp("m1")(), harness.PutOp("part/m1/b", `{"text":"é"}`)))
	f.Applied(o.Batch(false, harness.PutOp("part/m10/a", `{"text":"a"}`), harness.PutOp("model/x/x", `{}`), harness.PutOp("message/m2", `{"n":2}`), harness.PutOp("part/m2/z", `{}`), harness.PutOp("part/m2/a", `{}`),
		harness.NewIntent(session.MethodAppendText, "key", "part/m1/b", "offset", 2, "text", "more \"text\"")))
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRemove, "key", "message/m10"), harness.PutOp("message/m10", `{"again":true}`), harness.PutOp("session_diff", `{"diff": [1, 2]}`)))
	checkKeys(f, o.Session)

	// Values that an event of another key embeds.
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodFinalize, "message", "m1", "status", "completed")))
	checkKeys(f, o.Session)
	if page, err := f.ListKeysAs(o.Session, session.KeyQuery{Prefix: "part/m1/"}, 1<<20, &capability.Grant{Message: "m1"}); err != nil || len(page.Entries) != 1 || page.Entries[0].Change.EventKey != "message/m1" || page.Entries[0].Change.Actor == "" {
		t.Errorf("a part by its message's end: %+v, %v", page, err)
	}

	// Who changed a value is shown by an event that the ref shows, as it shows a fork.
	for _, method := range []string{session.MethodFork, session.MethodPut} {
		other := harness.NewSession()
		made := harness.Event(other, 1, "ref/another", `{}`)
		made.Method = method
		copied := harness.EntryOf(made)
		copied.Key, copied.Payload = "message/m", []byte(`{"n":1}`)
		f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(other, harness.NewSpace(), 1)}, Events: []*session.Event{made}, Entries: []*session.Entry{copied}}, other)
		for _, g := range []*capability.Grant{harness.Everything, {Message: "m"}, {ReadKeys: []string{"message/m"}}} {
			want := session.Change{Cursor: 1, Ref: made.Ref, Actor: made.Actor, At: made.At, EventKey: made.Key, Method: method}
			if g != harness.Everything && method == session.MethodPut {
				want = session.Change{Cursor: 1}
			}
			listed := f.AllKeys(other, session.KeyQuery{Values: true}, 1<<20, g, nil)
			page, _, err := f.ReadKeys(f.Ctx, other, []string{"message/m"}, 1<<20, nil, harness.Admits(g))
			f.Must("read keys", err)
			for _, e := range append(listed, page.Shown(g).Entries...) {
				harness.Same(f, fmt.Sprintf("who made the %s, to %+v", method, g), e.Change, want)
			}
			if len(listed) != 1 || string(listed[0].Payload) != `{"n":1}` {
				t.Errorf("of a %s: %v", method, harness.KeysOf(listed))
			}
		}
	}

	// A trimmed log: who put a value of its own event is kept.
	before := map[string]session.Change{}
	for _, e := range f.AllKeys(o.Session, session.KeyQuery{}, 1<<20, harness.Everything, nil) {
		before[e.Key] = e.Change
	}
	f.TrimAll(o.Session, harness.KeepNothing, 100)
	for _, e := range f.AllKeys(o.Session, session.KeyQuery{}, 1<<20, harness.Everything, nil) {
		want := before[e.Key]
		if e.Key == "part/m1/b" && e.Change.Ref == "" {
			want.Ref, want.Actor, want.At, want.EventKey = "", "", 0, e.Key
		}
		if e.Change.Method == "" {
			want.Method = ""
		}
		harness.Same(f, "the last change of "+e.Key+" after trimming", e.Change, want)
	}
}

// checkKeys compares what is listed and read with what a snapshot and the log show.
func checkKeys(f *harness.Fixture, id string) {
	f.Helper()
	log := map[uint64]*session.Event{}
	events, err := f.ReadLog(f.Ctx, id, 0, 1<<20, 1000, nil)
	f.Must("read log", err)
	for _, e := range events.Events {
		log[e.Cursor] = e
	}
	for name, g := range harness.LimitedRefs {
		for _, prefix := range []string{"", "message/", "part/", "part/m2/", "part/m/", "model/", "model/x/", "none/"} {
			for _, order := range []session.KeyOrder{session.ByKey, session.ByPut} {
				for _, page := range []struct {
					limit, bytes int
					values       bool
				}{{1, 1 << 20, true}, {3, 400, true}, {1000, 0, true}, {2, 0, false}} {
					q := session.KeyQuery{Prefix: prefix, Order: order, Limit: page.limit, Values: page.values}
					want, got := f.Expected(id, q, g), f.AllKeys(id, q, page.bytes, g, nil)
					if len(got) != len(want) {
						f.Errorf("%+v by a ref %s: %v, want %d entries", q, name, harness.KeysOf(got), len(want))
						continue
					}
					for i, e := range got {
						checkEntry(f, fmt.Sprintf("%+v by a ref %s", q, name), e, want[i], log[e.Change.Cursor], page.values)
					}
				}
			}
		}
		checkGet(f, id, name, g, log)
	}
}

func checkEntry(f *harness.Fixture, what string, e *session.EntryInfo, want *session.Entry, by *session.Event, values bool) {
	f.Helper()
	payload := want.Payload
	if !values {
		payload = nil
	}
	if e.Key != want.Key || e.Cursor != want.Cursor || e.Ord != want.Ord || e.Schema != want.Schema || string(e.Payload) != string(payload) {
		f.Errorf("%s: %+v, want %+v", what, e.Entry, want)
	}
	if (values || want.LastAppend == 0) && e.Bytes != uint64(len(want.Payload)) || e.Bytes < uint64(len(want.Payload))/2 {
		f.Errorf("%s: %s has %d bytes, want %d", what, e.Key, e.Bytes, len(want.Payload))
	}
	if c := e.Change; c.Cursor != max(want.Cursor, want.LastAppend) || by == nil || c.Ref != by.Ref || c.Actor != by.Actor || c.At != by.At || c.EventKey != by.Key || c.Method != by.Method {
		f.Errorf("%s: %s is said to be changed by %+v, want %+v", what, e.Key, c, by)
	}
}

// checkGet reads keys by their names.
func checkGet(f *harness.Fixture, id, name string, g *capability.Grant, log map[uint64]*session.Event) {
	f.Helper()
	asked := []string{"part/m2/z", "message/none", "message/m10", "session", "part/m1/b", "message/m1", "message/m2", "part/none/x"}
	want := map[string]*session.Entry{}
	for _, e := range f.Expected(id, session.KeyQuery{}, g) {
		want[e.Key] = e
	}
	for _, bytes := range []int{0, 400, 1 << 20} {
		var got []*session.EntryInfo
		for keys := asked; len(keys) > 0; {
			page, next, err := f.ReadKeys(f.Ctx, id, keys, bytes, nil, harness.Admits(g))
			f.Must("read keys", err)
			shown := page.Shown(g)
			if next == 0 || shown.More != (next < len(keys)) {
				f.Fatalf("%d of %v for %d bytes, more %v", next, keys, bytes, shown.More)
			}
			if next < len(keys) && want[keys[next]] == nil {
				f.Errorf("by a ref %s: the next key, %s, is not shown, so there was room for it", name, keys[next])
			}
			got, keys = append(got, shown.Entries...), keys[next:]
		}
		for _, key := range asked {
			if want[key] == nil {
				continue
			}
			if len(got) == 0 || got[0].Key != key {
				f.Fatalf("by a ref %s for %d bytes: %s is not next in %v", name, bytes, key, harness.KeysOf(got))
			}
			checkEntry(f, "get by a ref "+name, got[0], want[key], log[got[0].Change.Cursor], true)
			got = got[1:]
		}
		if len(got) > 0 {
			f.Errorf("by a ref %s: %v are too many", name, harness.KeysOf(got))
		}
	}
}

// manyKeys saves a session of n keys, whose values were put one after the other.
func manyKeys(f *harness.Fixture, n int, key func(i int) string) (id string) {
	id = harness.NewSession()
	for from := 0; from < n; from += 1000 {
		c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), uint64(min(from+1000, n)))}}
		for i := from; i < min(from+1000, n); i++ {
			e := harness.Event(id, uint64(i+1), key(i), `{}`)
			c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
		}
		slices.SortFunc(c.Entries, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
		f.Save(c, id)
	}
	return id
}

// testHiddenKeys: more hidden keys than a page looks at show nothing of themselves, and end nothing.
func testHiddenKeys(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	const hidden, shown = 5100, 40
	id := manyKeys(f, hidden+shown, func(i int) string {
		if i < hidden {
			return fmt.Sprintf("message/secret%04d", i)
		}
		return fmt.Sprintf("message/%c%02d", "az"[i%2], i-hidden)
	})
	late := &capability.Grant{VisibleFrom: hidden + 1}
	for _, order := range []session.KeyOrder{session.ByKey, session.ByPut} {
		q := session.KeyQuery{Order: order, Limit: 15, Values: true}
		want, pages, empty, sealed := f.Expected(id, q, late), 0, 0, ""
		got := f.AllKeys(id, q, 1<<20, late, func(page *session.KeyPage) {
			pages++
			if len(page.Entries) == 0 {
				empty++
			}
			if strings.HasPrefix(page.Next, "~") {
				if sealed = page.Next; len(sealed) != 807 {
					t.Errorf("a sealed next has %d bytes", len(sealed))
				}
			}
			if strings.Contains(page.Next, "secret") {
				t.Errorf("%s: next is %q", order, page.Next)
			}
		})
		// Full pages as long as there is more to show, and one that ends at a hidden key.
		if len(want) != shown || len(got) != shown || sealed == "" || pages > 5 || empty > 1 {
			t.Errorf("%s: %d of %d entries on %d pages, %d of them empty", order, len(got), len(want), pages, empty)
		}
		for name, c := range map[string]struct {
			id string
			q  session.KeyQuery
		}{
			"another order":   {id, session.KeyQuery{Order: 1 - order, After: sealed}},
			"another session": {harness.NewSession(), session.KeyQuery{Order: order, After: sealed}},
			"changed":         {id, session.KeyQuery{Order: order, After: sealed[:9] + "A" + sealed[10:11] + "B" + sealed[12:]}},
			"cut":             {id, session.KeyQuery{Order: order, After: "~"}},
			"no base64":       {id, session.KeyQuery{Order: order, After: "~?"}},
		} {
			_, err := f.ListKeysAs(c.id, c.q, 1<<20, late)
			f.WantCode("a sealed next of "+name, err, fault.BadArgument)
		}
		// The same key is sealed otherwise each time.
		again, err := f.ListKeysAs(id, session.KeyQuery{Order: order, Prefix: "message/", After: sealed, Limit: 1000}, 1<<20, late)
		if err != nil || len(again.Entries) == 0 || again.More {
			t.Errorf("%s: after the sealed next: %+v, %v", order, again, err)
		}
	}
	// Keys that a ref does not cover are not even passed over.
	for _, order := range []session.KeyOrder{session.ByKey, session.ByPut} {
		page, err := f.ListKeysAs(id, session.KeyQuery{Order: order, Limit: 1}, 1<<20, &capability.Grant{Message: "z01"})
		if err != nil || harness.KeysOf(page.Entries) != "message/z01" || page.More {
			t.Errorf("%s by a ref of a message: %v, more %v, %v", order, harness.KeysOf(page.Entries), page.More, err)
		}
	}
	// Hidden keys behind the last one that is shown are not more.
	last := &capability.Grant{VisibleFrom: hidden + shown} // message/z39 alone
	page, err := f.ListKeysAs(id, session.KeyQuery{Prefix: "message/", Limit: 1, After: "message/x"}, 1<<20, last)
	if err != nil || harness.KeysOf(page.Entries) != "message/z39" || page.More {
		t.Errorf("%v, more %v, %v", harness.KeysOf(page.Entries), page.More, err)
	}
	page, err = f.ListKeysAs(id, session.KeyQuery{Limit: 1, After: "message/secret5000"}, 1<<20, &capability.Grant{VisibleFrom: 5000, Message: "secret5001"})
	if err != nil || harness.KeysOf(page.Entries) != "message/secret5001" || page.More {
		t.Errorf("%v, more %v, %v", page, page.More, err)
	}
}

// testLongPrefixes: the keys of a prefix that are too many to be sorted, among others of their
// kind, come in the order of their places too; of too many kinds one is to be named.
func testLongPrefixes(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	r := rand.New(rand.NewPCG(3, 4))
	id := manyKeys(f, 3000, func(i int) string { return fmt.Sprintf("part/m%d/%04d", min(i%3, 1), (i*7919)%10_000) })
	for _, prefix := range []string{"part/m0/", "part/m1/", "part/"} { // 1,000, 2,000, all
		q := session.KeyQuery{Prefix: prefix, Order: session.ByPut, Limit: 1 + r.IntN(1000)}
		want, got := f.Expected(id, q, harness.Everything), f.AllKeys(id, q, 1<<20, harness.Everything, nil)
		if len(want) < 1000 || !slices.EqualFunc(got, want, func(e *session.EntryInfo, w *session.Entry) bool { return e.Key == w.Key }) {
			t.Errorf("%+v: %d entries, want %d", q, len(got), len(want))
		}
	}
	many := manyKeys(f, 300, func(i int) string { return fmt.Sprintf("kind%03d/a", i) })
	_, err := f.ListKeysAs(many, session.KeyQuery{Order: session.ByPut}, 1<<20, harness.Everything)
	f.WantCode("300 kinds by put", err, fault.TooLarge)
	for _, q := range []session.KeyQuery{{Limit: 1000}, {Order: session.ByPut, Prefix: "kind007/"}} {
		page, err := f.ListKeysAs(many, q, 1<<20, harness.Everything)
		if want := len(f.Expected(many, q, harness.Everything)); err != nil || len(page.Entries) != want || page.More {
			t.Errorf("%+v: %v", q, err)
		}
	}
	// Rows of a server that gives no places.
	old := harness.NewSession()
	f.Save(withoutPlaces(old, 0), old)
	if got := harness.KeysOf(f.AllKeys(old, session.KeyQuery{Order: session.ByPut, Limit: 1}, 1<<20, harness.Everything, nil)); got != "message/m10 message/m9 part/m10/a message/m3" {
		t.Errorf("rows without places: %v", got)
	}
}

// testLateLists: pages by put of lists whose keys come behind very many others of their kind have what
// they have room for. Only where a list is too long to be sorted as well does a page end before its keys
// come: at a place that a ref which does not show it is not told.
func testLateLists(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	const others, late, long = 5250, 1500, 10_500 // one in 21 of the others is in a thin list, three are in these
	var keys []string
	for i := range others + late + long {
		list := "long"
		switch {
		case i == 4997 || i == 4999:
		case i < others && i%21 == 0:
			list = "thin"
		case i < others && i != 4165:
			list = "other"
		case i < others+late:
			list = "late"
		}
		keys = append(keys, fmt.Sprintf("item/%s/%05d", list, i*7919%100_000)) // neighbours are not put together
	}
	id := harness.NewSession()
	for from := 0; from < len(keys); from += 5000 {
		to := min(from+5000, len(keys))
		c := &session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), uint64(to))}}
		for i, key := range keys[from:to] {
			c.Entries = append(c.Entries, harness.EntryOf(harness.Event(id, uint64(from+i+1), key, `{}`)))
		}
		slices.SortFunc(c.Entries, func(a, b *session.Entry) int { return strings.Compare(a.Key, b.Key) })
		f.Save(c, id)
	}

	// A ref of many lists shares the bounds of a page among them: one of 12 looks for keys of each among 4,166.
	shares := func(n int, from uint64, lists ...string) *capability.Grant {
		for len(lists) < n {
			lists = append(lists, fmt.Sprintf("item/none%d/", len(lists)))
		}
		return &capability.Grant{ReadKeys: lists, VisibleFrom: from}
	}
	const shown = others + late + long - 700 // from there on
	const a, b, c = "item/thin/", "item/late/", "item/long/"
	for name, test := range map[string]struct {
		prefix string
		limit  int
		g      *capability.Grant
		pages  int
		short  string // what pages that are not full, and are not the last, have as their next
	}{
		"sorted":                      {b, 100, harness.Everything, 16, ""},
		"searched for":                {c, 1000, harness.Everything, 11, ""},
		"sorted after a search":       {"", 1000, shares(12, 0, a, b), 2, ""},
		"too many, up to a key":       {"item/", 1000, shares(10, 0, a, b, c), 14, "5000.0.item/long/"},
		"too many, up to another's":   {"item/", 1000, shares(12, 0, a, b, c), 14, "4166.0.item/late/"},
		"too many, up to a hidden":    {"", 1000, shares(11, 0, a, b, c), 14, "~"},
		"searched for, mostly hidden": {c, 100, &capability.Grant{VisibleFrom: shown}, 9, "~"},
		"sorted, all hidden":          {b, 100, &capability.Grant{VisibleFrom: shown}, 1, ""},
		"too many, mostly hidden":     {"", 100, shares(12, shown, a, b, c), 11, "~"},
	} {
		var want []string
		for i, key := range keys {
			if strings.HasPrefix(key, test.prefix) && session.InScope(test.g, key) && uint64(i+1) >= test.g.VisibleFrom {
				want = append(want, key)
			}
		}
		pages, short := 0, ""
		got := f.AllKeys(id, session.KeyQuery{Prefix: test.prefix, Order: session.ByPut, Limit: test.limit}, 1<<20, test.g, func(page *session.KeyPage) {
			pages++
			if len(page.Entries) < test.limit && page.More {
				if short = page.Next; test.short == "" || !strings.HasPrefix(short, test.short) {
					t.Errorf("%s: a page of %d entries has the next %q", name, len(page.Entries), short)
				}
			}
		})
		if harness.KeysOf(got) != strings.Join(want, " ") || pages != test.pages || (short == "") != (test.short == "") {
			t.Errorf("%s: %d of %d entries on %d pages, not %d", name, len(got), len(want), pages, test.pages)
		}
	}
}

// testKeysMeanwhile: while others write, a key that stays comes once, in its place.
func testKeysMeanwhile(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	r := rand.New(rand.NewPCG(5, 6))
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/stay00", `{}`)))
	stay := []string{"message/stay00"}
	for i := 1; i < 40; i++ {
		key := fmt.Sprintf("%s%02d", []string{"message/stay", "part/m/stay", "model/stay"}[i%3], i)
		f.Applied(o.Batch(false, harness.PutOp(key, `{}`), harness.PutOp(fmt.Sprintf("message/go%02d", i), `{}`)))
		stay = append(stay, key)
	}
	for _, order := range []session.KeyOrder{session.ByKey, session.ByPut} {
		seen := map[string]int{}
		got := f.AllKeys(o.Session, session.KeyQuery{Order: order, Limit: 7, Values: true}, 1<<20, harness.Everything, func(*session.KeyPage) {
			other := fmt.Sprintf("message/go%02d", r.IntN(60))
			f.Applied(o.Batch(false, harness.NewIntent(session.MethodRemove, "key", other), harness.PutOp(fmt.Sprintf("part/n/new%d", r.IntN(99)), `{}`),
				harness.PutOp(stay[r.IntN(len(stay))], `{"n":%d}`, r.IntN(99)), harness.PutOp(other, `{}`), harness.NewIntent(session.MethodRemove, "key", fmt.Sprintf("message/go%02d", r.IntN(60)))))
		})
		for i, e := range got {
			if seen[e.Key]++; i > 0 && session.PositionOf(got[i-1].Entry).Compare(order, session.PositionOf(e.Entry)) >= 0 {
				t.Errorf("%s: %s after %s", order, e.Key, got[i-1].Key)
			}
		}
		for _, key := range stay {
			if seen[key] != 1 {
				t.Errorf("%s: %s came %d times", order, key, seen[key])
			}
		}
	}
}

// testKeyRefusals: whoever is refused gets nothing, and each wrong argument has its error.
func testKeyRefusals(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := manyKeys(f, 3, func(i int) string { return fmt.Sprintf("message/m%d", i) })
	no := errors.New("not you")
	refuses := func(access *session.Access) (*capability.Grant, error) {
		if access.Row == nil || access.Row.Cursor != 3 {
			t.Errorf("asked with %+v", access)
		}
		return nil, no
	}
	if _, err := f.ListKeys(f.Ctx, id, session.KeyQuery{}, 1<<20, nil, refuses); err != no {
		t.Errorf("list: %v", err)
	}
	if _, _, err := f.ReadKeys(f.Ctx, id, []string{"message/m1"}, 1<<20, nil, refuses); err != no {
		t.Errorf("get: %v", err)
	}
	wrong := map[string]session.KeyQuery{
		"a prefix without /": {Prefix: "message"}, "an empty id": {Prefix: "part//"}, "a slash": {Prefix: "/"}, "a space": {Prefix: "a b/"}, "a NUL": {Prefix: "a\x00/"},
		"no UTF-8": {Prefix: "\xff/"}, "a long id": {Prefix: strings.Repeat("a", 201) + "/"}, "a limit": {Limit: 1001}, "a negative limit": {Limit: -1},
		"no key": {After: "message"}, "a place for a key": {After: "1.0.message/m1"}, "a key for a place": {After: "message/m1", Order: session.ByPut},
		"a place without a key": {After: "1.0.", Order: session.ByPut}, "a negative place": {After: "-1.0.message/m1", Order: session.ByPut},
		"a large place": {After: "9223372036854775808.0.message/m1", Order: session.ByPut},
	}
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		_, err := f.ListKeysAs(id, wrong[name], 1<<20, harness.Everything)
		f.WantCode(name, err, fault.BadArgument)
	}
	if page, err := f.ListKeysAs(id, session.KeyQuery{After: "message/zzz"}, 1<<20, harness.Everything); err != nil || len(page.Entries) > 0 || page.More {
		t.Errorf("after the last: %+v, %v", page, err)
	}
	if page, err := f.ListKeysAs(harness.NewSession(), session.KeyQuery{}, 1<<20, harness.Everything); err != nil || len(page.Entries) > 0 || page.Row != nil {
		t.Errorf("of no session: %+v, %v", page, err)
	}
}
