package sessions

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testSessionLists: a list of many sessions is in its order, whole and once each, however it is
// cut into pages, and a search goes through all of them.
func testSessionLists(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	d := rand.New(rand.NewPCG(seed.Of(t), 0))
	space := harness.NewSpace()
	const many, pageSize = 5500, 500
	rows := make([]*session.Row, many)
	ids := make([]string, many)
	for i := range rows {
		id := harness.NewSession()
		row := harness.LiveRow(id, space, 1)
		row.Created = int64(1_795_000_000_000) + int64(i)
		// Some minutes have one change, some have hundreds, at equal times too.
		row.Updated = 1_795_000_000_000 + int64(d.IntN(3))*40_000_000_000 + int64(d.IntN(40))*60_000*int64(d.IntN(2)) + int64(d.IntN(500))
		if i%7 == 0 {
			row.Life = session.Deleted
		}
		rows[i], ids[i] = row, id
	}
	// Most of a long way is deleted.
	for _, row := range rows[1000:4000] {
		row.Life = session.Deleted
	}
	rows[2000].Life, rows[many-1].Life, rows[500].Life = session.Live, session.Live, session.Live
	rows[500].External = "ext_Needle"
	// Some titles are there many times, some look alike, some have been cut off, most are not there.
	titles := map[string]string{rows[many-1].ID: "A NEEDLE in the stack"}
	for range 400 {
		words := []string{"", " ", "a", "A", "b\x00", "É", "é", "z", "\U0001F600", "\U0010FFFF", strings.Repeat("lang ", 80)}
		if id := ids[d.IntN(many)]; titles[id] == "" {
			titles[id] = words[d.IntN(len(words))] + words[d.IntN(len(words))]
		}
	}
	c := &session.Changes{Sessions: rows}
	for _, id := range slices.Sorted(maps.Keys(titles)) {
		info, err := json.Marshal(map[string]string{"title": titles[id]})
		f.Must("marshal", err)
		e := harness.Event(id, 1, "session", string(info))
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
	}
	f.Save(c, ids...)
	stranger := harness.NewSession()
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(stranger, harness.NewSpace(), 1)}}, stranger)

	read := func(q session.ListQuery) (got []string, pages int) {
		t.Helper()
		for {
			page, err := f.ListSessions(f.Ctx, space, q, nil)
			f.Must("list", err)
			if len(page.Sessions) > q.Limit {
				t.Fatalf("%d sessions on a page of %d", len(page.Sessions), q.Limit)
			}
			for _, l := range page.Sessions {
				got = append(got, l.ID)
			}
			if pages++; page.Next == "" {
				return got, pages
			}
			if q.After == page.Next {
				t.Fatalf("a page goes on where it began: %s", page.Next)
			}
			q.After = page.Next
		}
	}
	// titled is what a session is sorted by, and whether it has a title.
	titled := func(row *session.Row) (key string, none int) {
		title := strings.ToLower(strings.TrimSpace(strings.ReplaceAll(titles[row.ID][:min(len(titles[row.ID]), 256)], "\x00", "")))
		if title == "" {
			none = 1
		}
		return title, none
	}
	orders := map[session.ListOrder]func(a, b *session.Row) int{
		session.ByTitle: func(a, b *session.Row) int {
			x, xNone := titled(a)
			y, yNone := titled(b)
			return cmp.Or(cmp.Compare(xNone, yNone), cmp.Compare(x, y), cmp.Compare(a.ID, b.ID))
		},
		session.OldestFirst: func(a, b *session.Row) int { return cmp.Compare(a.ID, b.ID) },
		session.NewestFirst: func(a, b *session.Row) int { return cmp.Compare(b.ID, a.ID) },
		session.ChangedFirst: func(a, b *session.Row) int {
			return cmp.Or(cmp.Compare(b.Updated, a.Updated), cmp.Compare(b.ID, a.ID))
		},
	}
	for order, by := range orders {
		sorted := slices.SortedFunc(slices.Values(rows), by)
		for _, deleted := range []bool{false, true} {
			var want []string
			for _, row := range sorted {
				if deleted || row.Life != session.Deleted {
					want = append(want, row.ID)
				}
			}
			got, _ := read(session.ListQuery{Order: order, Deleted: deleted, Limit: pageSize})
			harness.Same(f, fmt.Sprintf("%s first, deleted %v", order, deleted), got, want)
		}
		var found []string
		for _, row := range sorted {
			if row == rows[500] || row == rows[many-1] {
				found = append(found, row.ID)
			}
		}
		got, pages := read(session.ListQuery{Order: order, Search: "nEEdle", Limit: pageSize})
		harness.Same(f, order.String()+" first, searched", got, found)
		if pages < 2 || pages > many/1000 {
			t.Errorf("a search of %d sessions takes %d pages", many, pages)
		}
		got, _ = read(session.ListQuery{Order: order, Search: strings.ToLower(rows[2000].ID[8:]), Limit: 1})
		harness.Same(f, order.String()+" first, by id", got, []string{rows[2000].ID})
		for _, bad := range []session.ListQuery{{After: "x"}, {After: "1." + ids[0][1:]}, {After: "-1." + ids[0]}, {After: "AA." + ids[0]}, {After: "_w." + ids[0]}, {Search: strings.Repeat("x", session.MaxSearch+1)}} {
			bad.Order = order
			if _, err := f.ListSessions(f.Ctx, space, bad, nil); fault.CodeOf(err) != fault.BadArgument {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	}
}

// testTitles: a session stands where its title is, as soon as that is written, and among
// those without one when it is removed, or the session deleted.
func testTitles(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space := harness.NewSpace()
	a, b, c := harness.NewSession(), harness.NewSession(), harness.NewSession()
	ids := []string{a, b, c}
	slices.Sort(ids)
	a, b, c = ids[0], ids[1], ids[2]
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(a, space, 1), harness.LiveRow(b, space, 1), harness.LiveRow(c, space, 1)}}, ids...)
	check := func(what string, want ...string) {
		t.Helper()
		page, err := f.ListSessions(f.Ctx, space, session.ListQuery{Order: session.ByTitle, Limit: 10, Deleted: true}, nil)
		f.Must("list", err)
		var got []string
		for _, l := range page.Sessions {
			got = append(got, l.ID)
		}
		harness.Same(f, what, got, want)
	}
	cursor := map[string]uint64{}
	put := func(id, title string) {
		cursor[id]++
		e := harness.Event(id, cursor[id], "session", `{"title":"`+title+`"}`)
		f.Save(&session.Changes{Events: []*session.Event{e}, Entries: []*session.Entry{harness.EntryOf(e)}}, id)
	}
	check("without titles", a, b, c)
	put(c, "One")
	check("with one", c, a, b)
	put(b, "another")
	put(a, "zebra")
	check("with three", b, c, a)
	put(c, "Zebra")
	check("with another, the same as one that is there", b, a, c)
	f.Save(&session.Changes{DropEntries: map[string][]string{b: {"session"}}}, b)
	check("with one removed", a, c, b)
	put(b, "b")
	f.Save(&session.Changes{DropState: []string{a}}, a)
	check("with one deleted", b, c, a)
	for more := true; more; {
		var err error
		more, err = f.RefreshTitles(f.Ctx, 1)
		f.Must("retitle", err)
	}
	check("with nothing due", b, c, a)
}

// testListSearch: what a search looks for is a part of the title, as it is now, or of an id, whatever its case.
func testListSearch(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space := harness.NewSpace()
	source := harness.NewSession()
	names := map[string]string{source: "source"}
	add := func(name, title string, change func(*session.Row)) string {
		row := harness.LiveRow(harness.NewSession(), space, 1)
		if change != nil {
			change(row)
		}
		c := &session.Changes{Sessions: []*session.Row{row}}
		if title != "" {
			info, err := json.Marshal(map[string]string{"title": title})
			f.Must("marshal", err)
			e := harness.Event(row.ID, 1, "session", string(info))
			c.Events, c.Entries = []*session.Event{e}, []*session.Entry{harness.EntryOf(e)}
		}
		f.Save(c, row.ID)
		names[row.ID] = name
		return row.ID
	}
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(source, space, 1)}}, source)
	add("titled", "  The Quick brown Fox ", nil)
	add("accented", "ÀÉÎ 100% 'quoted' _", nil)
	add("untitled", "", nil)
	add("deleted", "quick and gone", func(r *session.Row) { r.Life = session.Deleted })
	add("external", "", func(r *session.Row) { r.External = "Issue-17/QUICK" })
	add("accented external", "", func(r *session.Row) { r.External = "ÄPFEL" })
	add("long", strings.Repeat("x", 250)+"quickest of all", nil)
	fork := add("fork", "", func(r *session.Row) { r.Origin = session.Origin{Session: source, Cursor: 1} })
	renamed := add("renamed", "old name", nil)
	for more := true; more; {
		var err error
		more, err = f.RefreshTitles(f.Ctx, 100)
		f.Must("extract the titles", err)
	}
	e := harness.Event(renamed, 2, "session", `{"title":"new NAME"}`)
	f.Save(&session.Changes{Events: []*session.Event{e}, Entries: []*session.Entry{harness.EntryOf(e)}}, renamed)
	other := harness.NewSession()
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(other, harness.NewSpace(), 1)}}, other)

	for _, c := range []struct {
		search string
		want   []string
	}{
		{"new name", []string{"renamed"}}, // before a list by title extracts it
		{"old name", nil},
		{"quick", []string{"titled", "external", "long"}},
		{"QUICK BROWN", []string{"titled"}},
		{"fox ", []string{"titled"}},
		{" quick", []string{"titled"}},
		{"tthe", nil}, // with the letter that is before a title as it is sorted
		{"u", []string{"titled", "accented", "external", "long"}},
		{"àéî", []string{"accented"}},
		{"0% 'QUOTED' _", []string{"accented"}},
		{"100_", nil},
		{"%", []string{"accented"}},
		{"äpfel", []string{"accented external"}},
		{"issue-17", []string{"external"}},
		{"xquick", []string{"long"}},
		{"quickest", nil}, // behind what a list shows of a title
		{strings.ToLower(source), []string{"source", "fork"}},
		{fork[10:], []string{"fork"}},
		{other, nil},
	} {
		for order := session.OldestFirst; order <= session.ByTitle; order++ {
			for _, limit := range []int{1, 100} {
				var got []string
				for q := (session.ListQuery{Order: order, Search: c.search, Limit: limit}); ; {
					page, err := f.ListSessions(f.Ctx, space, q, nil)
					f.Must("search", err)
					if len(page.Sessions) > limit {
						t.Errorf("%d sessions on a page of %d", len(page.Sessions), limit)
					}
					for _, l := range page.Sessions {
						got = append(got, names[l.ID])
					}
					if q.After = page.Next; q.After == "" {
						break
					}
				}
				slices.Sort(got)
				slices.Sort(c.want)
				harness.Same(f, fmt.Sprintf("%q, %s, %d at once", c.search, order, limit), got, c.want)
			}
		}
	}
	page, err := f.ListSessions(f.Ctx, space, session.ListQuery{Search: "quick", Deleted: true, Limit: 100}, nil)
	f.Must("search the deleted too", err)
	harness.Same(f, "with deleted ones", len(page.Sessions), 4)
}
