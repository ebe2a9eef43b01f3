package storetest

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
	"github.com/mooring-rpc/mooring/ledger"
)

// requestsOf returns the rows of a session's requests: their ids, by id, with a mark at claimed ones.
func (f *fixture) requestsOf(id string) string {
	f.Helper()
	var ids []string
	for _, r := range f.load(&session.ReadSet{Requests: []string{id}}).Requests[id] {
		same(f, "its session", r.Session, id)
		if r.Claim != nil {
			r.ID += "*"
		}
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func askOp(id, kind string, more ...any) ledger.Intent {
	return newIntent(session.MethodAsk, append([]any{"request", id, "kind", kind}, more...)...)
}

func testRequests(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o, other := f.worker(), f.worker()
	f.applied(o.batch(false, putOp("message/m", `{}`)))
	f.later = -100_000 // so what ends within that time is over by the database's clock
	f.applied(o.batch(false, askOp("one", "question", "choices", []map[string]string{{"id": "é"}}, "expires_in", 600_000), askOp("two", "stop", "message", "m"), askOp("three", "prompt")))
	f.applied(other.batch(false, askOp("one", "prompt", "expires_in", 60_000), askOp("two", "prompt")))
	rows := f.load(&session.ReadSet{Requests: []string{o.session}}).Requests[o.session]
	i := slices.IndexFunc(rows, func(r *session.OpenRequest) bool { return r.ID == "one" })
	same(f, "a row", rows[i], &session.OpenRequest{Session: o.session, ID: "one", Kind: "question", Ref: o.ref, Digest: session.SumOf([]byte(`{}`)).String(), Choices: []string{"é"}, Expires: rows[i].Expires})
	same(f, "open", f.requestsOf(o.session), "one three two")

	f.applied(o.batch(false, newIntent(session.MethodClaim, "request", "three", "lease", 1000, "worker", "wé"), newIntent(session.MethodClaim, "request", "one", "lease", 1000)))
	same(f, "claimed", f.requestsOf(o.session), "one* three* two")
	want := []string{o.session, other.session}
	slices.Sort(want)
	due := func() []string { // of these two: tests that share the database have others
		f.Helper()
		ids, err := f.Lapsed(f.ctx, 0, "", 1000)
		f.must("lapsed", err)
		ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(want, id) })
		slices.Sort(ids)
		return ids
	}
	ids := due()
	same(f, "due", ids, want)
	f.must("lapse", f.Update(f.ctx, func(tx session.Tx) error {
		_, err := session.Lapse(f.ctx, tx, ids, false)
		return err
	}))
	same(f, "a question is open again, the claim of a prompt stays", f.requestsOf(o.session), "one three* two")
	same(f, "expired", f.requestsOf(other.session), "two")
	same(f, "what became of them", f.becameOf(o.session), map[string]string{"one": "open", "three": "claimed"})
	same(f, "and there", f.becameOf(other.session), map[string]string{"one": "expired"})
	same(f, "due afterwards", len(due()), 0)

	f.later = 0
	f.applied(o.batch(false, newIntent(session.MethodAnswer, "request", "one", "choice", "é", "payload", "yes"), newIntent(session.MethodWithdraw, "request", "two")))
	same(f, "ended", f.requestsOf(o.session), "three*")
	same(f, "by answers", f.becameOf(o.session), map[string]string{"one": "answered", "two": "withdrawn", "three": "claimed"})
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	same(f, "deleted", f.requestsOf(o.session), "")
}

// testReadRequests: what is open or claimed is read in the order in which it was asked, with its values, as far as a ref shows
// it, a page at a time; what has ended is not looked at.
func testReadRequests(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o, other := f.worker(), f.worker()
	f.applied(other.batch(false, askOp("x", "question")))
	read := func(q session.RequestQuery, maxBytes int, g *capability.Grant) (*session.RequestPage, string) {
		f.Helper()
		found, err := f.ReadRequests(f.ctx, o.session, q, maxBytes, nil, admits(g))
		f.must("read requests", err)
		page := found.Shown(g)
		var ids []string
		for _, r := range page.Requests {
			state := ""
			if r.State != nil {
				state = ":" + gjson.GetBytes(r.State.Payload, "state").Str
			}
			ids = append(ids, r.ID+state)
		}
		same(f, "its session", page.Row.ID, o.session)
		return page, strings.Join(ids, " ")
	}
	all := func(q session.RequestQuery, g *capability.Grant) string {
		f.Helper()
		page, ids := read(q, 1<<20, g)
		same(f, "a next page", page.Next, 0)
		return ids
	}
	same(f, "of none", all(session.RequestQuery{}, everything), "")
	payload := json.RawMessage(`{ "é":1.0 }`)
	f.applied(o.batch(false, askOp("z", "question", "payload", payload), askOp("a", "own", "payload", payload), askOp("ended", "question"), askOp("b", "prompt")))
	same(f, "open", all(session.RequestQuery{}, everything), "z a ended b")
	f.applied(o.batch(false, newIntent(session.MethodAnswer, "request", "ended"), newIntent(session.MethodClaim, "request", "b", "lease", 60_000), newIntent(session.MethodClaim, "request", "a", "lease", 60_000), newIntent(session.MethodRelease, "request", "a", "claim", 8)))
	page, ids := read(session.RequestQuery{}, 1<<20, everything)
	same(f, "open and claimed", ids, "z a:open b:claimed")
	entries, _ := f.state(o.session)
	for _, r := range page.Requests {
		for _, e := range []*session.Entry{r.Asked, r.State} {
			i := slices.IndexFunc(entries, func(have *session.Entry) bool { return e != nil && have.Key == e.Key })
			if e != nil && (string(e.Payload) != string(entries[i].Payload) || e.Cursor != entries[i].Cursor || e.Ord != entries[i].Ord) {
				t.Errorf("%s is %s at %d, the state has %s at %d", e.Key, e.Payload, e.Cursor, entries[i].Payload, entries[i].Cursor)
			}
		}
	}
	same(f, "the cursors", []uint64{page.Requests[0].Cursor(), page.Requests[1].Cursor(), page.Requests[2].Cursor()}, []uint64{page.Requests[0].Asked.Cursor, page.Requests[1].State.Cursor, page.Requests[2].State.Cursor})
	second := page.Requests[1].Asked.Cursor
	for _, c := range []struct {
		name string
		q    session.RequestQuery
		g    *capability.Grant
		want string
	}{
		{"of a kind", session.RequestQuery{Kinds: []string{"prompt"}}, everything, "b:claimed"},
		{"of two kinds", session.RequestQuery{Kinds: []string{"own", "question"}}, everything, "z a:open"},
		{"of a kind that there is not", session.RequestQuery{Kinds: []string{"none"}}, everything, ""},
		{"after one", session.RequestQuery{After: second}, everything, "b:claimed"},
		{"after all", session.RequestQuery{After: 1 << 40}, everything, ""},
		{"to a ref of other keys", session.RequestQuery{}, &capability.Grant{ReadKeys: []string{"todo/"}}, ""},
		{"to a ref of one request", session.RequestQuery{}, &capability.Grant{ReadKeys: []string{"request/a", "request/a/state", "request/b/state"}}, "a:open"},
		{"to a ref of what is asked", session.RequestQuery{}, &capability.Grant{ReadKeys: []string{"request/a", "request/b"}}, "a b"},
		{"to a ref of all requests", session.RequestQuery{Kinds: []string{"own"}}, &capability.Grant{ReadKeys: []string{"request/"}}, "a:open"},
		{"to a ref of a message", session.RequestQuery{}, &capability.Grant{Message: "a"}, ""},
		{"to a ref from a cursor", session.RequestQuery{}, &capability.Grant{VisibleFrom: second}, "a:open b:claimed"},
		{"to a ref from a later one", session.RequestQuery{}, &capability.Grant{VisibleFrom: second + 1}, "b:claimed"},
	} {
		same(f, c.name, all(c.q, c.g), c.want)
	}
	for _, g := range []*capability.Grant{everything, {ReadKeys: []string{"request/"}}} {
		q, got := session.RequestQuery{}, []string{}
		for range 3 {
			page, ids := read(q, 1, g)
			got, q.After = append(got, ids), page.Next
		}
		same(f, "one at a time", strings.Join(got, " "), "z a:open b:claimed")
		same(f, "and then there is none", q.After, 0)
		page, ids := read(session.RequestQuery{}, len(payload)+1000, g)
		same(f, "two that fit", ids, "z a:open")
		same(f, "goes on after", page.Next, second)
	}
	page, ids = read(session.RequestQuery{}, 1, &capability.Grant{VisibleFrom: second + 1})
	same(f, "what is not shown takes no room", ids, "b:claimed")
	same(f, "nor is it where a page ends", page.Next, 0)
	no := errors.New("no")
	if _, err := f.ReadRequests(f.ctx, o.session, session.RequestQuery{}, 1, nil, func(*session.Access) (*capability.Grant, error) { return nil, no }); err != no {
		t.Errorf("to who may not read: %v", err)
	}
	if _, err := f.ReadRequests(f.ctx, o.session, session.RequestQuery{Kinds: []string{}}, 1, nil, admits(everything)); fault.CodeOf(err) != fault.BadArgument {
		t.Errorf("of no kinds: %v", err)
	}
}

// becameOf returns what became of a session's requests, by id, as the state says it.
func (f *fixture) becameOf(id string) map[string]string {
	f.Helper()
	states := map[string]string{}
	entries, _ := f.state(id)
	for _, e := range entries {
		if request, state, ok := session.RequestOf(e.Key); ok && state {
			states[request] = gjson.GetBytes(e.Payload, "state").Str
		}
	}
	return states
}

// testRequestsEndWithTheSpacesRef: the end of a space's ref, and its replacement, withdraw what was asked under it.
func testRequestsEndWithTheSpacesRef(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := f.space()
	space, second := root.ID, newRef(root.Target)
	f.save(&session.Changes{Grants: []*capability.Grant{{ID: second, Target: root.Target, Parent: space, Hash: hash(), Rights: capability.SpaceRights}}}, root.Target)
	made := func(by string) *author {
		o := newAuthor(by)
		_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
		f.must("open stream", err)
		f.applied(o.batch(false, o.create(), askOp("r", "own")))
		return o
	}
	under, beside := made(second), made(space)
	f.must("revoke tree", f.Update(f.ctx, func(tx session.Tx) error {
		rows, err := tx.Load(f.ctx, &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Grants: []string{space}, Trees: []string{second}})
		if err == nil {
			_, _, err = session.RevokeTree(f.ctx, tx, rows.Grants[space], second, rows.Trees[second], "")
		}
		return err
	}))
	same(f, "under the ref", f.requestsOf(under.session), "")
	same(f, "said", f.becameOf(under.session), map[string]string{"r": "withdrawn"})
	same(f, "beside it", f.requestsOf(beside.session), "r")
	last := f.log(under.session).Events
	same(f, "before the cut", last[len(last)-2].Key+" "+last[len(last)-1].Method, "request/r/state revoke")
}
