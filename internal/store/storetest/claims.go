package storetest

// Claims: that they are kept with their entries, whatever happens to these, and the search for keys that
// have none.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// worker is the author of a session with keys that have values.
func (f *fixture) worker(keys ...string) *author {
	f.Helper()
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	ops := []ledger.Intent{o.create()}
	for _, key := range keys {
		ops = append(ops, putOp(key, `1`))
	}
	f.applied(o.batch(false, ops...))
	return o
}

// claimsOf are the keys of a session that are claimed, with the cursors of the claims, by key; every read says
// the same.
func (f *fixture) claimsOf(id string) string {
	f.Helper()
	text := func(entries []*session.Entry) (s string) {
		for _, e := range entries {
			if e.Claim != nil {
				s += fmt.Sprintf("%s:%d ", e.Key, e.Claim.Cursor)
			}
		}
		return strings.TrimSpace(s)
	}
	page, err := f.listKeys(id, session.KeyQuery{}, 1<<20, everything)
	f.must("list keys", err)
	var listed []*session.Entry
	for _, e := range page.Entries {
		listed = append(listed, e.Entry)
	}
	state, _ := f.state(id)
	same(f, "in a snapshot", text(state), text(listed))
	return text(listed)
}

func testClaims(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := f.worker("todo/1", "todo/2", "todo/3")
	claim := func(key string) ledger.Intent {
		return newIntent(session.MethodClaim, "key", key, "lease", 3_600_000, "worker", "w\u00e9")
	}
	f.applied(o.batch(false, claim("todo/1"), claim("todo/2"), claim("todo/3")))
	same(f, "claimed", f.claimsOf(o.session), "todo/1:5 todo/2:6 todo/3:7")
	got := f.load(&session.ReadSet{EntryMeta: map[string][]string{o.session: {"todo/1"}}}).Entries[o.session]["todo/1"].Claim
	want := &session.Claim{Cursor: 5, Renewed: 5, Until: got.Until, Outbox: o.outbox, Worker: "w\u00e9", Ref: o.ref, Actor: got.Actor}
	same(f, "a claim", got, want)

	f.applied(o.batch(false, putOpClaimed("todo/1", 5), newIntent(session.MethodPatch, "key", "todo/2", "patch", 7, "claim", 6)))
	same(f, "after changes", f.claimsOf(o.session), "todo/1:5 todo/2:6 todo/3:7")
	f.applied(o.batch(false, newIntent(session.MethodRelease, "key", "todo/1", "claim", 5), claim("todo/1"))) // 10, 11
	f.applied(o.batch(false, newIntent(session.MethodRemove, "key", "todo/2", "claim", 6), putOp("todo/2", `8`)))
	f.applied(o.batch(false, newIntent(session.MethodPurge, "key", "todo/3")))
	f.applied(o.batch(false, putOp("todo/3", `9`)))
	same(f, "ended", f.claimsOf(o.session), "todo/1:11")

	more, err := f.Trim(f.ctx, o.session, -time.Hour, 1000, 1<<20)
	f.must("trim", err)
	same(f, "trimmed", more, false)
	same(f, "without their events", f.claimsOf(o.session), "todo/1:11")
	f.applied(o.batch(false, putOpClaimed("todo/1", 11)))
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	same(f, "deleted", len(f.load(&session.ReadSet{EntryMeta: map[string][]string{o.session: {"todo/1"}}}).Entries), 0)
}

// putOpClaimed is a put under a claim.
func putOpClaimed(key string, claim int) ledger.Intent {
	return newIntent(session.MethodPut, "key", key, "payload", 2, "claim", claim)
}

func testFreeKeys(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, other := newSession(), newSession()
	now := f.load(&session.ReadSet{}).Now
	add := func(id string, keys ...string) {
		c := &session.Changes{}
		for i, text := range keys {
			key, until, _ := strings.Cut(text, " ")
			ev := event(id, uint64(i+1), key, `1`)
			e := entryOf(ev)
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
		f.save(c, id)
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
		rows := f.load(&session.ReadSet{FreeKeys: &session.FreeKeys{Session: id, After: c.after, Below: "todo0", Now: now, Limit: c.limit, Passed: c.passed}})
		var got []string
		for _, e := range rows.FreeKeys {
			got = append(got, e.Key)
			same(f, "its cursor", e.Cursor > 0 && e.Payload == nil, true)
		}
		if rows.MoreFreeKeys {
			got = append(got, "more")
		}
		same(f, fmt.Sprintf("after %s, %d of %d", c.after, c.limit, c.passed), strings.Join(got, " "), c.want)
	}
	rows := f.load(&session.ReadSet{Sessions: []string{id}})
	same(f, "locked", len(rows.Sessions), 1)
	counted := f.load(&session.ReadSet{CountedClaims: id, LapsedBy: now}).ClaimCounts
	same(f, "counted", counted, map[string]int{id + ".a": 2, id + ".b": 2})
	same(f, "of another", f.load(&session.ReadSet{CountedClaims: other, LapsedBy: now}).ClaimCounts, map[string]int{})
	lapsed := f.load(&session.ReadSet{LapsedClaims: []string{id}, LapsedBy: now}).Entries[id]
	same(f, "lapsed", sortedKeys(lapsed), []string{"todo/4"})
}
