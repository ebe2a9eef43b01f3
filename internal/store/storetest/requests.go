package storetest

// Requests: their rows, which are there as long as they are open or claimed, and what finds those that are due.

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
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
	ids, err := f.Lapsed(f.ctx, 0, "", 100)
	f.must("lapsed", err)
	slices.Sort(ids)
	want := []string{o.session, other.session}
	slices.Sort(want)
	same(f, "due", ids, want)
	f.must("lapse", f.Update(f.ctx, func(tx session.Tx) error {
		_, err := session.Lapse(f.ctx, tx, ids, false)
		return err
	}))
	same(f, "a question is open again, the claim of a prompt stays", f.requestsOf(o.session), "one three* two")
	same(f, "expired", f.requestsOf(other.session), "two")
	same(f, "what became of them", f.becameOf(o.session), map[string]string{"one": "open", "three": "claimed"})
	same(f, "and there", f.becameOf(other.session), map[string]string{"one": "expired"})
	ids, err = f.Lapsed(f.ctx, 0, "", 100)
	f.must("lapsed", err)
	same(f, "due afterwards", len(ids), 0)

	f.later = 0
	f.applied(o.batch(false, newIntent(session.MethodAnswer, "request", "one", "choice", "é", "payload", "yes"), newIntent(session.MethodWithdraw, "request", "two")))
	same(f, "ended", f.requestsOf(o.session), "three*")
	same(f, "by answers", f.becameOf(o.session), map[string]string{"one": "answered", "two": "withdrawn", "three": "claimed"})
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	same(f, "deleted", f.requestsOf(o.session), "")
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
