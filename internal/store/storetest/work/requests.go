package work

// Requests: their rows, which are there as long as they are open or claimed, and what finds those that are due.

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// requestsOf returns the rows of a session's requests: their ids, by id, with a mark at claimed ones.
func requestsOf(f *harness.Fixture, id string) string {
	f.Helper()
	var ids []string
	for _, r := range f.Load(&session.ReadSet{Requests: []string{id}}).Requests[id] {
		harness.Same(f, "its session", r.Session, id)
		if r.Claim != nil {
			r.ID += "*"
		}
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func askOp(id, kind string, more ...any) ledger.Intent {
	return harness.NewIntent(session.MethodAsk, append([]any{"request", id, "kind", kind}, more...)...)
}

func testRequests(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o, other := f.Worker(), f.Worker()
	f.Applied(o.Batch(false, harness.PutOp("message/m", `{}`)))
	f.Later = -100_000 // so what ends within that time is over by the database's clock
	f.Applied(o.Batch(false, askOp("one", "question", "choices", []map[string]string{{"id": "é"}}, "expires_in", 600_000), askOp("two", "stop", "message", "m"), askOp("three", "prompt")))
	f.Applied(other.Batch(false, askOp("one", "prompt", "expires_in", 60_000), askOp("two", "prompt")))
	rows := f.Load(&session.ReadSet{Requests: []string{o.Session}}).Requests[o.Session]
	i := slices.IndexFunc(rows, func(r *session.OpenRequest) bool { return r.ID == "one" })
	harness.Same(f, "a row", rows[i], &session.OpenRequest{Session: o.Session, ID: "one", Kind: "question", Ref: o.Ref, Digest: session.SumOf([]byte(`{}`)).String(), Choices: []string{"é"}, Expires: rows[i].Expires})
	harness.Same(f, "open", requestsOf(f, o.Session), "one three two")

	f.Applied(o.Batch(false, harness.NewIntent(session.MethodClaim, "request", "three", "lease", 1000, "worker", "wé"), harness.NewIntent(session.MethodClaim, "request", "one", "lease", 1000)))
	harness.Same(f, "claimed", requestsOf(f, o.Session), "one* three* two")
	want := []string{o.Session, other.Session}
	slices.Sort(want)
	due := func() []string { // of these two: tests that share the database have others
		f.Helper()
		ids, err := f.Lapsed(f.Ctx, 0, "", 1000)
		f.Must("lapsed", err)
		ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(want, id) })
		slices.Sort(ids)
		return ids
	}
	ids := due()
	harness.Same(f, "due", ids, want)
	f.Must("lapse", f.Update(f.Ctx, func(tx session.Tx) error {
		_, err := maintain.Lapse(f.Ctx, tx, ids, false)
		return err
	}))
	harness.Same(f, "a question is open again, the claim of a prompt stays", requestsOf(f, o.Session), "one three* two")
	harness.Same(f, "expired", requestsOf(f, other.Session), "two")
	harness.Same(f, "what became of them", becameOf(f, o.Session), map[string]string{"one": "open", "three": "claimed"})
	harness.Same(f, "and there", becameOf(f, other.Session), map[string]string{"one": "expired"})
	harness.Same(f, "due afterwards", len(due()), 0)

	f.Later = 0
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodAnswer, "request", "one", "choice", "é", "payload", "yes"), harness.NewIntent(session.MethodWithdraw, "request", "two")))
	harness.Same(f, "ended", requestsOf(f, o.Session), "three*")
	harness.Same(f, "by answers", becameOf(f, o.Session), map[string]string{"one": "answered", "two": "withdrawn", "three": "claimed"})
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	harness.Same(f, "deleted", requestsOf(f, o.Session), "")
}

// testReadRequests: what is open or claimed is read in the order in which it was asked, with its values, as far as a ref shows
// it, a page at a time; what has ended is not looked at.
func testReadRequests(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o, other := f.Worker(), f.Worker()
	f.Applied(other.Batch(false, askOp("x", "question")))
	read := func(q session.RequestQuery, maxBytes int, g *capability.Grant) (*session.RequestPage, string) {
		f.Helper()
		found, err := f.ReadRequests(f.Ctx, o.Session, q, maxBytes, nil, harness.Admits(g))
		f.Must("read requests", err)
		page := found.Shown(g)
		var ids []string
		for _, r := range page.Requests {
			state := ""
			if r.State != nil {
				state = ":" + gjson.GetBytes(r.State.Payload, "state").Str
			}
			ids = append(ids, r.ID+state)
		}
		harness.Same(f, "its session", page.Row.ID, o.Session)
		return page, strings.Join(ids, " ")
	}
	all := func(q session.RequestQuery, g *capability.Grant) string {
		f.Helper()
		page, ids := read(q, 1<<20, g)
		harness.Same(f, "a next page", page.Next, 0)
		return ids
	}
	harness.Same(f, "of none", all(session.RequestQuery{}, harness.Everything), "")
	payload := json.RawMessage(`{ "é":1.0 }`)
	f.Applied(o.Batch(false, askOp("z", "question", "payload", payload), askOp("a", "own", "payload", payload), askOp("ended", "question"), askOp("b", "prompt")))
	harness.Same(f, "open", all(session.RequestQuery{}, harness.Everything), "z a ended b")
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodAnswer, "request", "ended"), harness.NewIntent(session.MethodClaim, "request", "b", "lease", 60_000), harness.NewIntent(session.MethodClaim, "request", "a", "lease", 60_000), harness.NewIntent(session.MethodRelease, "request", "a", "claim", 8)))
	page, ids := read(session.RequestQuery{}, 1<<20, harness.Everything)
	harness.Same(f, "open and claimed", ids, "z a:open b:claimed")
	entries, _ := f.StateOf(o.Session)
	for _, r := range page.Requests {
		for _, e := range []*session.Entry{r.Asked, r.State} {
			i := slices.IndexFunc(entries, func(have *session.Entry) bool { return e != nil && have.Key == e.Key })
			if e != nil && (string(e.Payload) != string(entries[i].Payload) || e.Cursor != entries[i].Cursor || e.Ord != entries[i].Ord) {
				t.Errorf("%s is %s at %d, the state has %s at %d", e.Key, e.Payload, e.Cursor, entries[i].Payload, entries[i].Cursor)
			}
		}
	}
	harness.Same(f, "the cursors", []uint64{page.Requests[0].Cursor(), page.Requests[1].Cursor(), page.Requests[2].Cursor()}, []uint64{page.Requests[0].Asked.Cursor, page.Requests[1].State.Cursor, page.Requests[2].State.Cursor})
	second := page.Requests[1].Asked.Cursor
	for _, c := range []struct {
		name string
		q    session.RequestQuery
		g    *capability.Grant
		want string
	}{
		{"of a kind", session.RequestQuery{Kinds: []string{"prompt"}}, harness.Everything, "b:claimed"},
		{"of two kinds", session.RequestQuery{Kinds: []string{"own", "question"}}, harness.Everything, "z a:open"},
		{"of a kind that there is not", session.RequestQuery{Kinds: []string{"none"}}, harness.Everything, ""},
		{"after one", session.RequestQuery{After: second}, harness.Everything, "b:claimed"},
		{"after all", session.RequestQuery{After: 1 << 40}, harness.Everything, ""},
		{"to a ref of other keys", session.RequestQuery{}, &capability.Grant{ReadKeys: []string{"todo/"}}, ""},
		{"to a ref of one request", session.RequestQuery{}, &capability.Grant{ReadKeys: []string{"request/a", "request/a/state", "request/b/state"}}, "a:open"},
		{"to a ref of what is asked", session.RequestQuery{}, &capability.Grant{ReadKeys: []string{"request/a", "request/b"}}, "a b"},
		{"to a ref of all requests", session.RequestQuery{Kinds: []string{"own"}}, &capability.Grant{ReadKeys: []string{"request/"}}, "a:open"},
		{"to a ref of a message", session.RequestQuery{}, &capability.Grant{Message: "a"}, ""},
		{"to a ref from a cursor", session.RequestQuery{}, &capability.Grant{VisibleFrom: second}, "a:open b:claimed"},
		{"to a ref from a later one", session.RequestQuery{}, &capability.Grant{VisibleFrom: second + 1}, "b:claimed"},
	} {
		harness.Same(f, c.name, all(c.q, c.g), c.want)
	}
	for _, g := range []*capability.Grant{harness.Everything, {ReadKeys: []string{"request/"}}} {
		q, got := session.RequestQuery{}, []string{}
		for range 3 {
			page, ids := read(q, 1, g)
			got, q.After = append(got, ids), page.Next
		}
		harness.Same(f, "one at a time", strings.Join(got, " "), "z a:open b:claimed")
		harness.Same(f, "and then there is none", q.After, 0)
		page, ids := read(session.RequestQuery{}, len(payload)+1000, g)
		harness.Same(f, "two that fit", ids, "z a:open")
		harness.Same(f, "goes on after", page.Next, second)
	}
	page, ids = read(session.RequestQuery{}, 1, &capability.Grant{VisibleFrom: second + 1})
	harness.Same(f, "what is not shown takes no room", ids, "b:claimed")
	harness.Same(f, "nor is it where a page ends", page.Next, 0)
	no := errors.New("no")
	if _, err := f.ReadRequests(f.Ctx, o.Session, session.RequestQuery{}, 1, nil, func(*session.Access) (*capability.Grant, error) { return nil, no }); err != no {
		t.Errorf("to who may not read: %v", err)
	}
	if _, err := f.ReadRequests(f.Ctx, o.Session, session.RequestQuery{Kinds: []string{}}, 1, nil, harness.Admits(harness.Everything)); fault.CodeOf(err) != fault.BadArgument {
		t.Errorf("of no kinds: %v", err)
	}
}

// becameOf returns what became of a session's requests, by id, as the state says it.
func becameOf(f *harness.Fixture, id string) map[string]string {
	f.Helper()
	states := map[string]string{}
	entries, _ := f.StateOf(id)
	for _, e := range entries {
		if request, state, ok := session.RequestOf(e.Key); ok && state {
			states[request] = gjson.GetBytes(e.Payload, "state").Str
		}
	}
	return states
}

// testRequestsEndWithTheSpacesRef: the end of a space's ref, and its replacement, withdraw what was asked under it.
func testRequestsEndWithTheSpacesRef(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := f.Space()
	space, second := root.ID, harness.NewRef(root.Target)
	f.Save(&session.Changes{Grants: []*capability.Grant{{ID: second, Target: root.Target, Parent: space, Hash: harness.Hash(), Rights: capability.SpaceRights}}}, root.Target)
	made := func(by string) *harness.Author {
		o := harness.NewAuthor(by)
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		f.Applied(o.Batch(false, o.Create(), askOp("r", "own")))
		return o
	}
	under, beside := made(second), made(space)
	f.Must("revoke tree", f.Update(f.Ctx, func(tx session.Tx) error {
		rows, err := tx.Load(f.Ctx, &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Grants: []string{space}, Trees: []string{second}})
		if err == nil {
			_, _, err = maintain.RevokeTree(f.Ctx, tx, rows.Grants[space], second, rows.Trees[second], "")
		}
		return err
	}))
	harness.Same(f, "under the ref", requestsOf(f, under.Session), "")
	harness.Same(f, "said", becameOf(f, under.Session), map[string]string{"r": "withdrawn"})
	harness.Same(f, "beside it", requestsOf(f, beside.Session), "r")
	last := f.LogOf(under.Session).Events
	harness.Same(f, "before the cut", last[len(last)-2].Key+" "+last[len(last)-1].Method, "request/r/state revoke")
}
