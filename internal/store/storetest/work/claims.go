package work

// Claims: that they are kept with their entries, whatever happens to these, and the search for keys that
// have none.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// claimsOf are the keys of a session that are claimed, with the cursors of the claims, by key; every read says
// the same.
func claimsOf(f *harness.Fixture, id string) string {
	f.Helper()
	text := func(entries []*session.Entry) (s string) {
		for _, e := range entries {
			if e.Claim != nil {
				s += fmt.Sprintf("%s:%d ", e.Key, e.Claim.Cursor)
			}
		}
		return strings.TrimSpace(s)
	}
	page, err := f.ListKeysAs(id, session.KeyQuery{}, 1<<20, harness.Everything)
	f.Must("list keys", err)
	var listed []*session.Entry
	for _, e := range page.Entries {
		listed = append(listed, e.Entry)
	}
	state, _ := f.StateOf(id)
	harness.Same(f, "in a snapshot", text(state), text(listed))
	return text(listed)
}

func testClaims(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := f.Worker("todo/1", "todo/2", "todo/3")
	claim := func(key string) ledger.Intent {
		return harness.NewIntent(session.MethodClaim, "key", key, "lease", 3_600_000, "worker", "w\u00e9")
	}
	f.Applied(o.Batch(false, claim("todo/1"), claim("todo/2"), claim("todo/3")))
	harness.Same(f, "claimed", claimsOf(f, o.Session), "todo/1:5 todo/2:6 todo/3:7")
	got := f.Load(&session.ReadSet{EntryMeta: map[string][]string{o.Session: {"todo/1"}}}).Entries[o.Session]["todo/1"].Claim
	want := &session.Claim{Cursor: 5, Renewed: 5, Until: got.Until, Outbox: o.Outbox, Worker: "w\u00e9", Ref: o.Ref, Actor: got.Actor}
	harness.Same(f, "a claim", got, want)

	f.Applied(o.Batch(false, putOpClaimed("todo/1", 5), harness.NewIntent(session.MethodPatch, "key", "todo/2", "patch", 7, "claim", 6)))
	harness.Same(f, "after changes", claimsOf(f, o.Session), "todo/1:5 todo/2:6 todo/3:7")
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRelease, "key", "todo/1", "claim", 5), claim("todo/1"))) // 10, 11
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodRemove, "key", "todo/2", "claim", 6), harness.PutOp("todo/2", `8`)))
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodPurge, "key", "todo/3")))
	f.Applied(o.Batch(false, harness.PutOp("todo/3", `9`)))
	harness.Same(f, "ended", claimsOf(f, o.Session), "todo/1:11")

	more, err := f.Trim(f.Ctx, o.Session, -time.Hour, 1000, 1<<20)
	f.Must("trim", err)
	harness.Same(f, "trimmed", more, false)
	harness.Same(f, "without their events", claimsOf(f, o.Session), "todo/1:11")
	f.Applied(o.Batch(false, putOpClaimed("todo/1", 11)))
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	harness.Same(f, "deleted", len(f.Load(&session.ReadSet{EntryMeta: map[string][]string{o.Session: {"todo/1"}}}).Entries), 0)
}

// putOpClaimed is a put under a claim.
func putOpClaimed(key string, claim int) ledger.Intent {
	return harness.NewIntent(session.MethodPut, "key", key, "payload", 2, "claim", claim)
}

func testFreeKeys(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, other := harness.NewSession(), harness.NewSession()
	now := f.Load(&session.ReadSet{}).Now
	add := func(id string, keys ...string) {
		c := &session.Changes{}
		for i, text := range keys {
			key, until, _ := strings.Cut(text, " ")
			ev := harness.Event(id, uint64(i+1), key, `1`)
			e := harness.EntryOf(ev)
			switch until {
			case "claimed":
				e.Claim = &session.Claim{Cursor: 1, Until: now + 1, Ref: id + []string{".a", ".b"}[i/4%2]}
			case "lapsed":
				e.Claim = &session.Claim{Cursor: 1, Until: now, Ref: id + ".a"}
			}
			c.Events, c.Entries = append(c.Events, ev), append(c.Entries, e)
			if e.Claim != nil {
				c.Claims = append(c.Claims, e)
			}
		}
		f.Save(c, id)
	}
	add(id, "todo", "todo-x/1", "todo/1 claimed", "todo/1/x", "todo/2 claimed", "todo/3 claimed", "todo/4 lapsed", "todo/5", "todo/6 claimed", "todo0/1")
	add(other, "todo/0", "todo/7")
	for _, c := range []struct {
		after         string
		limit, passed int
		want          string
	}{
		{"todo/", 10, 100, "todo/1/x todo/4 todo/5"},
		{"todo/", 2, 100, "todo/1/x todo/4"},
		{"todo/1/x", 1, 100, "todo/4"},
		{"todo/4", 10, 100, "todo/5"},
		{"todo/5", 10, 100, ""},
		{"todo/", 10, 7, "todo/1/x todo/4 todo/5"},
		{"todo/", 10, 6, "todo/1/x todo/4 todo/5 more"},
		{"todo/1/x", 10, 2, "more"},
		{"todo/1/x", 10, 3, "todo/4 more"},
		{"todo/5", 10, 1, ""},
	} {
		rows := f.Load(&session.ReadSet{FreeKeys: &session.FreeKeys{Session: id, After: c.after, Below: "todo0", Now: now, Limit: c.limit, Passed: c.passed}})
		var got []string
		for _, e := range rows.FreeKeys {
			got = append(got, e.Key)
			harness.Same(f, "its cursor", e.Cursor > 0 && e.Payload == nil, true)
		}
		if rows.MoreFreeKeys {
			got = append(got, "more")
		}
		harness.Same(f, fmt.Sprintf("after %s, %d of %d", c.after, c.limit, c.passed), strings.Join(got, " "), c.want)
	}
	rows := f.Load(&session.ReadSet{Sessions: []string{id}})
	harness.Same(f, "locked", len(rows.Sessions), 1)
	counted := f.Load(&session.ReadSet{CountedClaims: id, LapsedBy: now}).ClaimCounts
	harness.Same(f, "counted", counted, map[string]int{id + ".a": 2, id + ".b": 2})
	harness.Same(f, "of another", f.Load(&session.ReadSet{CountedClaims: other, LapsedBy: now}).ClaimCounts, map[string]int{})
	lapsed := f.Load(&session.ReadSet{LapsedClaims: []string{id}, LapsedBy: now}).Entries[id]
	harness.Same(f, "lapsed", sortedKeys(lapsed), []string{"todo/4"})
}
