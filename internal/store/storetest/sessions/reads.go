// Reads: one snapshot each, whole and in order.

package sessions

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func testReadAccess(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	row, g := harness.LiveRow(id, harness.NewSpace(), 0), harness.Grant(harness.NewRef(id), "")
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{g}}, id)
	sight, err := f.ReadAccess(f.Ctx, id, []string{g.ID, harness.NewRef(id)})
	f.Must("look", err)
	harness.Same(f, "row", sight.Row, row)
	harness.Same(f, "grants", sight.Grants, map[string]*capability.Grant{g.ID: g})
	if sight.Now <= 0 {
		t.Errorf("now is %d", sight.Now)
	}
	for _, nobody := range []string{"", harness.NewSession(), harness.NewSpace()} {
		sight, err = f.ReadAccess(f.Ctx, nobody, nil)
		f.Must("look", err)
		if sight.Row != nil {
			t.Errorf("a row of %q: %+v", nobody, sight.Row)
		}
	}
	_, info, err := f.Describe(f.Ctx, id, nil)
	f.Must("describe", err)
	if info != nil {
		t.Errorf("an info that was never put: %+v", info)
	}
	put := harness.Event(id, 1, "session", `{"title":"t"}`)
	f.Save(&session.Changes{Events: []*session.Event{put}, Entries: []*session.Entry{harness.EntryOf(put)}}, id)
	sight, info, err = f.Describe(f.Ctx, id, []string{g.ID})
	f.Must("describe", err)
	if info == nil || string(info.Payload) != `{"title":"t"}` || sight.Row == nil || sight.Grants[g.ID] == nil {
		t.Errorf("described: %+v, %+v", sight, info)
	}
	other := harness.NewSession()
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(other, "", 7)}}, other)
	rows, err := f.ReadRows(f.Ctx, []string{other, id, harness.NewSession()})
	f.Must("read rows", err)
	if len(rows) != 2 || rows[other].Cursor != 7 || rows[id].AuthGen != row.AuthGen {
		t.Errorf("rows: %v", rows)
	}
	if rows, err = f.ReadRows(f.Ctx, nil); err != nil || len(rows) != 0 {
		t.Errorf("no rows: %v, %v", rows, err)
	}
	f.Must("ping", f.Ping(f.Ctx))
}

// fill writes n events to a new session.
func fill(f *harness.Fixture, n int) (id string, events []*session.Event) {
	id = harness.NewSession()
	row := harness.LiveRow(id, harness.NewSpace(), uint64(n))
	for i := range n {
		events = append(events, harness.Event(id, uint64(i+1), fmt.Sprintf("message/m%03d", i), fmt.Sprintf(`{"i":%d}`, i)))
	}
	f.Save(&session.Changes{Sessions: []*session.Row{row}, Events: events}, id)
	return id, events
}

func testReadLog(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, events := fill(f, 25)
	fill(f, 3) // a neighbour's
	g := harness.Grant(harness.NewRef(id), "")
	f.Save(&session.Changes{Grants: []*capability.Grant{g}}, id)
	for _, c := range []struct {
		after           uint64
		bytes, most     int
		first, last     uint64 // 0: none
		more, wantEmpty bool
	}{
		{after: 0, bytes: 1 << 20, most: 100, first: 1, last: 25},
		{after: 0, bytes: 1 << 20, most: 25, first: 1, last: 25},
		{after: 0, bytes: 1 << 20, most: 10, first: 1, last: 10, more: true},
		{after: 20, bytes: 1 << 20, most: 10, first: 21, last: 25},
		{after: 7, bytes: 0, most: 10, first: 8, last: 8, more: true},
		{after: 24, bytes: 0, most: 0, first: 25, last: 25},
		{after: 25, bytes: 1, most: 1, wantEmpty: true},
		{after: math.MaxUint64, bytes: 1, most: 1, wantEmpty: true},
	} {
		page, err := f.ReadLog(f.Ctx, id, c.after, c.bytes, c.most, []string{g.ID})
		f.Must("read log", err)
		if page.Row == nil || page.Row.Cursor != 25 || page.Grants[g.ID] == nil || page.Now == 0 {
			t.Fatalf("after %d: sight %+v", c.after, page.Access)
		}
		if c.wantEmpty {
			if len(page.Events) != 0 || page.More {
				t.Errorf("after %d: %d events, more %v", c.after, len(page.Events), page.More)
			}
			continue
		}
		harness.Same(f, fmt.Sprintf("log after %d", c.after), page.Events, events[c.first-1:c.last])
		if page.More != c.more {
			t.Errorf("after %d: more is %v", c.after, page.More)
		}
	}
	// Bounded by bytes: about as many as fit.
	page, err := f.ReadLog(f.Ctx, id, 0, 2000, 100, nil)
	f.Must("read log", err)
	if n := len(page.Events); n < 2 || n > 10 || !page.More {
		t.Errorf("2000 bytes gave %d events, more %v", n, page.More)
	}
	// Hashes at cursors, whether or not their events are on the page.
	page, err = f.ReadLog(f.Ctx, id, 20, 1<<20, 100, nil, 3, 21, 99, math.MaxUint64)
	f.Must("read hashes", err)
	if want := map[uint64]session.Hash{3: events[2].Hash, 21: events[20].Hash}; !maps.Equal(page.Hashes, want) {
		t.Errorf("the hashes of 3 and 21 are %v, want %v", page.Hashes, want)
	}
	if again, err := f.ReadLog(f.Ctx, id, 0, 1, 1, nil); err != nil || again.Key == (session.HashKey{}) || again.Key != page.Key {
		t.Errorf("the key is %x and then %x: %v", page.Key, again.Key, err)
	}
	page, err = f.ReadLog(f.Ctx, harness.NewSession(), 0, 100, 100, nil)
	f.Must("read log of nobody", err)
	if page.Row != nil || len(page.Events) != 0 {
		t.Errorf("a log of nobody: %+v", page)
	}
}

func testReadState(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	row, g := harness.LiveRow(id, harness.NewSpace(), 8), harness.Grant(harness.NewRef(id), "")
	base := harness.Event(id, 1, "part/m/a", `{"id":"a","text":"base ","z":1}`)
	plain := harness.Event(id, 2, "part/m/b", `{"id":"b"}`)
	message := harness.Event(id, 3, "message/m", `{"role":"x"}`)
	done := harness.Event(id, 4, "part/d/x", `{"text":"old"}`)
	f.Save(&session.Changes{
		Sessions: []*session.Row{row}, Grants: []*capability.Grant{g},
		Events: []*session.Event{base, plain, message, done, harness.DeltaEvent(id, 5, base.Key, "one "), harness.DeltaEvent(id, 6, plain.Key, "b"),
			harness.DeltaEvent(id, 7, base.Key, "twö"), harness.Event(id, 8, "session", `{"title":"t"}`)},
		Entries: []*session.Entry{
			{Session: id, Key: base.Key, Cursor: 1, Schema: 1, Sum: base.Sum, TextLen: 13, LastAppend: 7},
			{Session: id, Key: plain.Key, Cursor: 2, Schema: 1, Sum: plain.Sum, TextLen: 1, LastAppend: 6},
			harness.EntryOf(message), harness.EntryOf(done),
			{Session: id, Key: "session", Cursor: 8, Schema: 1, Payload: []byte(`{"own":1}`)},
		},
		Turns: []*session.Turn{{Session: id, Message: "m", Status: session.Streaming, Begun: 3},
			{Session: id, Message: "d", Status: session.Completed, Begun: 1, Ended: 4}},
	}, id)
	for _, bytes := range []int{1 << 20, 100, 0} {
		var pieces []*session.StateChunk
		f.Must("read state", f.ReadState(f.Ctx, id, []string{g.ID}, bytes, func(p *session.StateChunk) error {
			pieces = append(pieces, p)
			return nil
		}))
		got := map[string]string{}
		var keys, turns []string
		for i, p := range pieces {
			if p.Row == nil || p.Row.Cursor != 8 || p.Grants[g.ID] == nil || p.Last != (i == len(pieces)-1) {
				t.Fatalf("piece %d: %+v", i, p)
			}
			if len(p.Turns) > 0 && len(keys) > 0 {
				t.Errorf("piece %d has turns, after entries", i)
			}
			for _, turn := range p.Turns {
				turns = append(turns, turn.Message)
			}
			for _, e := range p.Entries {
				keys = append(keys, e.Key)
				got[e.Key] = string(e.Payload)
			}
		}
		harness.Same(f, "turns", turns, []string{"d", "m"})
		if bytes == 0 && len(pieces) != 7 || bytes == 1<<20 && len(pieces) != 1 {
			t.Errorf("%d pieces of %d bytes", len(pieces), bytes)
		}
		if !slices.IsSorted(keys) {
			t.Errorf("keys out of order: %v", keys)
		}
		harness.Same(f, "state", got, map[string]string{
			"part/m/a": `{"id":"a","text":"base one twö","z":1}`, "part/m/b": `{"id":"b","text":"b"}`,
			"message/m": `{"role":"x"}`, "part/d/x": `{"text":"old"}`, "session": `{"own":1}`})
	}
	// Of ranges it has what is in them alone: entries, and the turns of the messages.
	for name, c := range map[string]struct {
		ranges      []session.KeyRange
		keys, turns []string
	}{
		"a key":          {[]session.KeyRange{{From: "session", Below: "session "}}, []string{"session"}, nil},
		"a prefix":       {[]session.KeyRange{{From: "part/m/", Below: "part/m0"}}, []string{"part/m/a", "part/m/b"}, nil},
		"two":            {[]session.KeyRange{{From: "message/m", Below: "message/m "}, {From: "part/d/", Below: "part/d0"}}, []string{"message/m", "part/d/x"}, []string{"m"}},
		"many":           {[]session.KeyRange{{From: "", Below: "message/n"}}, []string{"message/m"}, []string{"d", "m"}},
		"of one message": {[]session.KeyRange{{From: "message/d", Below: "message/d "}}, nil, []string{"d"}},
		"none":           {nil, nil, nil},
	} {
		for _, bytes := range []int{1 << 20, 0} {
			var keys, turns []string
			last := 0
			f.Must("read ranges", f.Store.ReadState(f.Ctx, id, []string{g.ID}, bytes, func(a *session.Access) session.Portion {
				if a.Row == nil || a.Row.Cursor != 8 || a.Grants[g.ID] == nil {
					t.Errorf("%s: they are asked for with %+v", name, a)
				}
				return session.Portion{Ranges: c.ranges}
			}, func(u *session.Unscoped[*session.StateChunk]) error {
				p := u.Shown(harness.Everything)
				for _, e := range p.Entries {
					keys = append(keys, e.Key)
				}
				for _, turn := range p.Turns {
					turns = append(turns, turn.Message)
				}
				if p.Last {
					last++
				}
				return nil
			}))
			harness.Same(f, name+": keys", keys, c.keys)
			harness.Same(f, name+": turns", turns, c.turns)
			harness.Same(f, name+": last pieces", last, 1)
		}
	}
	// By keys it is the same state, in whatever pieces.
	for _, most := range []int{1, 2, 100} {
		got, turns, after := map[string]string{}, []string{}, ""
		for more := true; more; {
			page, err := f.ReadRange(f.Ctx, id, after, "part/m/b", 1<<20, most, []string{g.ID})
			f.Must("read range", err)
			if page.Row == nil || page.Row.Cursor != 8 || page.Grants[g.ID] == nil || len(page.Entries) > most {
				t.Fatalf("a page after %q: %+v", after, page)
			}
			for _, e := range page.Entries {
				if e.Key <= after {
					t.Errorf("%s comes after %s", e.Key, after)
				}
				got[e.Key], after = string(e.Payload), e.Key
			}
			for _, turn := range page.Turns {
				turns = append(turns, turn.Message)
			}
			more = page.More
		}
		harness.Same(f, "the range's turns", turns, []string{"m"})
		harness.Same(f, "the range", got, map[string]string{
			"part/m/a": `{"id":"a","text":"base one twö","z":1}`, "message/m": `{"role":"x"}`, "part/d/x": `{"text":"old"}`})
	}
	if page, err := f.ReadRange(f.Ctx, id, "", "z", 0, 100, nil); err != nil || len(page.Entries) != 1 || !page.More {
		t.Errorf("a page of no bytes: %+v, %v", page, err)
	}

	// The callback's error ends the read and the store goes on.
	stop := fault.Canceled.With("enough")
	if err := f.ReadState(f.Ctx, id, nil, 0, func(*session.StateChunk) error { return stop }); err != error(stop) {
		t.Errorf("the callback's error came back as %v", err)
	}
	n := 0
	f.Must("state of nobody", f.ReadState(f.Ctx, harness.NewSession(), nil, 0, func(p *session.StateChunk) error {
		n++
		if p.Row != nil || len(p.Entries) != 0 || !p.Last {
			t.Errorf("state of nobody: %+v", p)
		}
		return nil
	}))
	if n != 1 {
		t.Errorf("%d pieces of nobody's state", n)
	}
}

func testListSessions(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space, other := harness.NewSpace(), harness.NewSpace()
	var ids []string
	for i := range 5 {
		id := harness.NewSession()
		ids = append(ids, id)
		row := harness.LiveRow(id, space, 1)
		if i == 1 {
			row.Life = session.Deleted
		}
		e := harness.Event(id, 1, "session", fmt.Sprintf(`{"title":"Title %d","x":1}`, i))
		c := &session.Changes{Sessions: []*session.Row{row}, Events: []*session.Event{e}}
		switch i {
		case 2: // a value of its own
			c.Entries = []*session.Entry{{Session: id, Key: "session", Cursor: 1, Payload: []byte(`{"title":"own"}`)}}
		case 3: // no info
		default:
			c.Entries = []*session.Entry{harness.EntryOf(e)}
		}
		f.Save(c, id)
	}
	stranger := harness.NewSession()
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(stranger, other, 0)}}, stranger)
	f.Load(&session.ReadSet{Sessions: []string{harness.NewSession()}}) // an absent one
	slices.Sort(ids)
	root := harness.Grant(harness.NewRef(space), "")
	f.Save(&session.Changes{Grants: []*capability.Grant{root}})

	var got []string
	after := ""
	for n := 0; ; n++ {
		page, err := f.ListSessions(f.Ctx, space, session.ListQuery{After: after, Deleted: true, Limit: 2}, []string{root.ID})
		f.Must("list", err)
		if page.Grants[root.ID] == nil {
			t.Fatal("the sight lacks the ref")
		}
		for _, l := range page.Sessions {
			got = append(got, l.ID)
		}
		if (page.Next != "") != (n < 2) {
			t.Errorf("page %d: the next one is %q", n, page.Next)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	harness.Same(f, "sessions", got, ids)
	list, err := f.ListSessions(f.Ctx, space, session.ListQuery{Deleted: true, Limit: 100}, nil)
	f.Must("list", err)
	titles := map[string]int{}
	deleted := 0
	for _, l := range list.Sessions {
		titles[l.Title]++
		if l.Life == session.Deleted {
			deleted++
		}
	}
	harness.Same(f, "titles", titles, map[string]int{"Title 0": 1, "Title 1": 1, "own": 1, "": 1, "Title 4": 1})
	if deleted != 1 {
		t.Errorf("%d deleted sessions", deleted)
	}
	if list, err := f.ListSessions(f.Ctx, "", session.ListQuery{Deleted: true, Limit: 100}, nil); err != nil || len(list.Sessions) != 0 {
		t.Errorf("sessions of no space: %v, %v", list, err)
	}
}

// testListTitles: a list shows the beginning of a title, however long one is, and however
// much the info has besides.
func testListTitles(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space := harness.NewSpace()
	much := `,"x":"` + strings.Repeat("x", 1<<20) + `"`
	for i, title := range []string{"short", "x" + strings.Repeat("ä", 1<<19), strings.Repeat("€", 100), "much more"} {
		id := harness.NewSession()
		e := harness.Event(id, 1, "session", fmt.Sprintf(`{"title":%q%s}`, title, strings.Repeat(much, i/3)))
		f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(id, space, 1)}, Events: []*session.Event{e}, Entries: []*session.Entry{harness.EntryOf(e)}}, id)
		list, err := f.ListSessions(f.Ctx, space, session.ListQuery{Limit: 100}, nil)
		f.Must("list", err)
		got := list.Sessions[slices.IndexFunc(list.Sessions, func(l *session.Listing) bool { return l.ID == id })].Title
		if !strings.HasPrefix(title, got) || !utf8.ValidString(got) || len(got) > 256 || len(got) < min(len(title), 250) {
			t.Errorf("a title of %d bytes is listed with %d: %.10q", len(title), len(got), got)
		}
	}
}

func testLapsed(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	turn := func(status session.TurnStatus, lease int64) string {
		id := harness.NewSession()
		f.Save(&session.Changes{Turns: []*session.Turn{{Session: id, Message: "m", Status: status, Lease: lease},
			{Session: id, Message: "n", Status: status, Lease: lease}}}, id)
		return id
	}
	claimed := func(until int64) string {
		id := harness.NewSession()
		ev := harness.Event(id, 1, "todo/1", `1`)
		e := harness.EntryOf(ev)
		e.Claim = &session.Claim{Cursor: 1, Until: until}
		f.Save(&session.Changes{Events: []*session.Event{ev}, Entries: []*session.Entry{e}, Claims: []*session.Entry{e}}, id)
		return id
	}
	now := f.Load(&session.ReadSet{}).Now
	claims := []string{claimed(now), claimed(1)}
	claimed(now + 1_000_000)
	past, future := turn(session.Streaming, now-5000), turn(session.Streaming, now+1_000_000)
	older := turn(session.Streaming, 1)
	turn(session.Interrupted, 1)
	turn(session.Completed, 1)
	turn(session.Aborted, 1)
	for _, c := range []struct {
		before int64
		want   []string
	}{
		{0, []string{past, older}}, {now - 10000, []string{older}}, {math.MaxInt64, []string{past, future, older}}, {1, nil},
	} {
		c.want = append(c.want, claims...)
		slices.Sort(c.want)
		got, err := f.Lapsed(f.Ctx, c.before, "", 10)
		f.Must("lapsed", err)
		harness.Same(f, fmt.Sprintf("lapsed before %d", c.before), got, c.want)
		if len(c.want) > 1 {
			one, err := f.Lapsed(f.Ctx, c.before, "", 1)
			f.Must("lapsed", err)
			rest, err := f.Lapsed(f.Ctx, c.before, one[0], 10)
			f.Must("lapsed", err)
			harness.Same(f, "lapsed in pages", append(one, rest...), c.want)
			harness.Same(f, "the page", len(one), 1)
		}
	}
}
