// Bounds: what one Load gives, and what a peer's texts may hold.

package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// testLoadBound: payloads above the bound are counted and not handed out, of
// whatever kind; at the bound all are.
func testLoadBound(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	c := &session.Changes{}
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 92))
	const n = 10
	for i := range n {
		e := event(id, uint64(i+1), fmt.Sprintf("part/m/p%d", i), payload)
		c.Events, c.Entries = append(c.Events, e), append(c.Entries, entryOf(e))
	}
	c.Events = append(c.Events, deltaEvent(id, n+1, "part/m/p0", strings.Repeat("d", 100)))
	f.save(c, id)
	for name, w := range map[string]struct {
		want  session.Want
		bytes int
	}{
		"entries":  {session.Want{Entries: map[string][]string{id: {"part/m/p1", "part/m/p2", "part/m/p3"}}}, 3 * len(payload)},
		"prefixes": {session.Want{Prefixes: map[string][]string{id: {"part/m/"}}}, n * len(payload)},
		"log":      {session.Want{Logs: map[string]uint64{id: n}}, n * len(payload)},
		"deltas":   {session.Want{Deltas: map[string]map[string]uint64{id: {"part/m/p0": 0}}}, 100},
		"both":     {session.Want{Entries: map[string][]string{id: {"part/m/p0"}}, Deltas: map[string]map[string]uint64{id: {"part/m/p0": 0}}}, 100 + len(payload)},
		"heads":    {session.Want{Heads: map[string][]string{id: {"part/m/p1"}}}, 0},
	} {
		for _, max := range []int{0, w.bytes, w.bytes - 1, 1} {
			w.want.MaxBytes = max
			rows := f.load(&w.want)
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
			want := w.bytes
			if rows.Bytes != want {
				t.Errorf("%s within %d: %d bytes are told, there are %d", name, max, rows.Bytes, want)
			}
			if fits := max <= 0 || want <= max; fits && got != want || !fits && got > max {
				t.Errorf("%s within %d: %d bytes of %d are given", name, max, got, want)
			}
		}
	}
}

// testStrangeTexts: a peer's texts that are none are refused by name, alike on
// every database, and never an error of the database.
func testStrangeTexts(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, root := newSession(), grant(newRef(newSpace()), "")
	f.save(&session.Changes{Grants: []*capability.Grant{root}}, id)
	for _, bad := range []string{"\x00", "obx\x00", "\xff", "a\xc3"} {
		if _, err := f.OpenStream(f.ctx, session.StreamKey{Session: id, Outbox: bad}, hash(), 1); !errors.Is(err, fault.BadArgument) {
			t.Errorf("outbox %q: %v", bad, err)
		}
		if err := f.Redeem(f.ctx, root.ID, bad, func(*session.Redemption) error { return nil }); !errors.Is(err, fault.BadArgument) {
			t.Errorf("redemption %q: %v", bad, err)
		}
		if _, _, _, err := f.ListSessions(f.ctx, root.Target, bad, 1, nil); !errors.Is(err, fault.BadArgument) {
			t.Errorf("after %q: %v", bad, err)
		}
		for _, ref := range []string{bad, root.ID + bad, bad + root.ID, strings.Repeat("x", 1<<20)} {
			err := f.Redeem(f.ctx, ref, "r", func(r *session.Redemption) error {
				if r.Grant != nil || r.Known {
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
