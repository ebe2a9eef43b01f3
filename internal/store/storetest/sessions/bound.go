// Bounds: what one Load gives, and what a peer's texts may hold.

package sessions

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testLoadBound: payloads up to the bound are all given, of whatever kind; above
// it reading stops, and that is told.
func testLoadBound(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := &session.Changes{}
	const n, size, row = 40, 64 << 10, 64 // row is what a row itself weighs
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", size-8))
	for i := range n {
		e := harness.Event(id, uint64(i+1), fmt.Sprintf("part/m/p%02d", i), payload)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
	}
	for i := range n { // of two parts
		c.Events = append(c.Events, harness.DeltaEvent(id, uint64(n+i+1), fmt.Sprintf("part/m/p%02d", i%2), strings.Repeat("d", size-22)))
	}
	f.Save(c, id)
	keys := make([]string, n)
	for i := range n {
		keys[i] = c.Entries[i].Key
	}
	deltas := map[string]map[string]uint64{id: {keys[0]: 0}}
	for name, w := range map[string]struct {
		want  session.ReadSet
		bytes int // weight of what is read
		given int // payloads and texts of that
	}{
		"one":      {session.ReadSet{Entries: map[string][]string{id: keys[:1]}}, size + row, size},
		"entries":  {session.ReadSet{Entries: map[string][]string{id: keys}}, n * (size + row), n * size},
		"prefixes": {session.ReadSet{Prefixes: map[string][]string{id: {"part/m/"}}}, n * (size + row), n * size},
		"log":      {session.ReadSet{Logs: map[string]uint64{id: n}}, n * (size + row), n * size},
		"deltas":   {session.ReadSet{Deltas: deltas}, n * (size + row), n / 2 * (size - 22)}, // the other part's are passed over
		"both":     {session.ReadSet{Entries: map[string][]string{id: keys[:1]}, Deltas: deltas}, (n + 1) * (size + row), size + n/2*(size-22)},
		"heads":    {session.ReadSet{EntryMeta: map[string][]string{id: keys}}, 0, 0},
	} {
		for _, max := range []int{0, w.bytes, w.bytes - 1, w.bytes / 4, 1} {
			w.want.MaxBytes = max
			rows := f.Load(&w.want)
			got := 0
			for _, e := range rows.Entries[id] {
				got += len(e.Payload)
			}
			for _, e := range rows.Logs[id] {
				got += len(e.Payload)
			}
			for _, d := range rows.Deltas[id] {
				got += len(d)
			}
			if max <= 0 || w.bytes <= max {
				if rows.Bytes != w.bytes || got != w.given {
					t.Errorf("%s within %d: %d bytes read, %d given; there are %d and %d", name, max, rows.Bytes, got, w.bytes, w.given)
				}
				continue
			}
			statements := 1
			if name == "both" {
				statements = 2
			}
			if rows.Bytes <= max || rows.Bytes > max+statements*(size+row) || got > max {
				t.Errorf("%s within %d: %d bytes of %d are read, %d given", name, max, rows.Bytes, w.bytes, got)
			}
		}
	}
}

// testRowBound: rows weigh something even where their payloads do not.
func testRowBound(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	c := &session.Changes{}
	const n, row = 500, 64
	for i := range n {
		e := harness.Event(id, uint64(i+1), fmt.Sprintf("part/m/p%03d", i), `{}`)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, harness.EntryOf(e))
	}
	f.Save(c, id)
	for name, w := range map[string]session.ReadSet{
		"prefixes": {Prefixes: map[string][]string{id: {""}}},
		"log":      {Logs: map[string]uint64{id: n}},
	} {
		w.MaxBytes = 100 * row
		if rows := f.Load(&w); rows.Bytes <= w.MaxBytes || rows.Bytes > w.MaxBytes+row+2 {
			t.Errorf("%s: %d bytes are read within %d", name, rows.Bytes, w.MaxBytes)
		}
	}
}

// testStrangeTexts: a peer's texts that are none are refused by name, alike on
// every database, and never an error of the database.
func testStrangeTexts(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, root := harness.NewSession(), harness.Grant(harness.NewRef(harness.NewSpace()), "")
	f.Save(&session.Changes{Grants: []*capability.Grant{root}}, id)
	space := f.Space()
	for _, bad := range []string{"\x00", "obx\x00", "\xff", "a\xc3"} {
		p := harness.NewAuthor(space.ID)
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: p.Session, Outbox: p.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		answers, _ := f.Commit(p.Batch(false, p.Create("external", json.RawMessage(`"`+bad+`"`))))
		if out := answers[0].Outcomes[0]; out.Status != ledger.Rejected || out.Reason != fault.Malformed {
			t.Errorf("external id %q: %+v", bad, out)
		}
		if _, err := f.OpenStream(f.Ctx, session.StreamKey{Session: id, Outbox: bad}, harness.Hash(), 1); !errors.Is(err, fault.BadArgument) {
			t.Errorf("outbox %q: %v", bad, err)
		}
		if err := f.Redeem(f.Ctx, root.ID, bad, "192.0.2.1", func(*session.Redemption) error { return nil }); !errors.Is(err, fault.BadArgument) {
			t.Errorf("redemption %q: %v", bad, err)
		}
		if _, err := f.ListSessions(f.Ctx, root.Target, session.ListQuery{After: bad, Limit: 1}, nil); !errors.Is(err, fault.BadArgument) {
			t.Errorf("after %q: %v", bad, err)
		}
		for _, ref := range []string{bad, root.ID + bad, bad + root.ID, strings.Repeat("x", 1<<20)} {
			err := f.Redeem(f.Ctx, ref, "r", "192.0.2.1", func(r *session.Redemption) error {
				if r.Grant != nil || r.AlreadyCounted {
					t.Errorf("ref %q is known", bad)
				}
				return fault.UnknownRef
			})
			if !errors.Is(err, fault.UnknownRef) {
				t.Errorf("ref of %q: %v", bad, err)
			}
		}
	}
}
