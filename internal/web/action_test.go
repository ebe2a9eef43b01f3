//go:build unix

package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// said makes a session with three messages.
func (r *rig) said() *made {
	m := r.create()
	for _, id := range []string{"1", "2", "3"} {
		m.do(put("message/msg_"+id, `{"role":"user"}`), put("part/msg_"+id+"/prt_1", `{"type":"text","text":"said `+id+`"}`))
	}
	return m
}

// opened is a browser that has opened a ref's page, and where that is.
func (r *rig) opened(t testing.TB, ref capability.Ref) (b *browser, at string) {
	t.Helper()
	b, at = newBrowser(t), r.url("/s/"+ref.ID)
	if got := b.open(at, fmt.Sprintf(`{"secret":%q}`, ref.Secret.RevealText())); got.StatusCode != http.StatusOK {
		t.Fatal(got.StatusCode, got.body)
	}
	return b, at
}

// action is an action's body, of a new id.
func action(do string, members ...string) string {
	body := map[string]string{"id": ulid.Make().String(), "do": do}
	for i := 0; i < len(members); i += 2 {
		body[members[i]] = members[i+1]
	}
	text, _ := json.Marshal(body) // texts
	return string(text)
}

// done is an action's answer.
type done struct{ Code, Message, Said, Link, Ref, QR, Session string }

// acts does an action, and fails unless the answer has this status.
func (b *browser) acts(at, body string, status int, headers ...string) (got done) {
	b.t.Helper()
	answer := b.post(at+"/do", body, headers...)
	if err := json.Unmarshal([]byte(answer.body), &got); err != nil || answer.StatusCode != status {
		b.t.Fatalf("%s: %d, want %d: %s", body, answer.StatusCode, status, answer.body)
	}
	return got
}

// refusal is the error for a ref that sends the op itself.
func (m *made) refusal(ref capability.Ref, ops ...ledger.Intent) *fault.Error {
	m.r.t.Helper()
	live, err := m.r.me().Restore(ref, "test")
	if err != nil {
		m.r.t.Fatal(err)
	}
	stream, err := live.OpenStream(m.r.t.Context(), "obx_"+ulid.Make().String(), capability.NewSecret().Reveal(), 1)
	if err != nil {
		m.r.t.Fatal(err)
	}
	ops[0].Seq = 1
	a, err := stream.Apply(m.r.t.Context(), ledger.Batch{BatchID: ulid.Make().String(), Ops: ops})
	if err != nil {
		m.r.t.Fatal(err)
	}
	return &fault.Error{Code: a.Outcomes[0].Reason, Message: a.Outcomes[0].Message}
}

// A page reverts its session and shows again what it has hidden. The same request again, because its answer was lost,
// is answered with the first one, and does nothing.
func TestRevertOnAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		b, at := r.opened(t, m.owner)
		if got := b.get(at).body; !strings.Contains(got, ` data-may="fork revert purge access ask-prompt ask-stop answer"`) || strings.Contains(got, `id="reverted"`) {
			t.Fatalf("before: %s", got)
		}
		first := action("revert", "message", "msg_2")
		reverted := b.acts(at, first, http.StatusOK)
		if got := b.get(at).body; !strings.Contains(got, "said 1") || strings.Contains(got, "said 2") || !strings.Contains(got, `data-act="unrevert"`) {
			t.Fatalf("reverted: %s", got)
		}
		shown := b.acts(at, action("unrevert"), http.StatusOK)
		if again := b.acts(at, first, http.StatusOK); again != reverted || shown.Said == "" {
			t.Errorf("repeated: %+v, was %+v", again, reverted)
		}
		if got := b.get(at).body; !strings.Contains(got, "said 3") {
			t.Fatalf("the repeated request reverted again: %s", got)
		}
		want := m.refusal(m.owner, op(session.MethodUnrevert))
		if got := b.acts(at, action("unrevert"), http.StatusConflict); got.Message != want.Message || got.Code != want.Code.String() {
			t.Errorf("refused with %+v, the op with %v", got, want)
		}
		other, _ := r.opened(t, m.owner) // with a token of its own: it is not answered with what the first page did
		if got := other.acts(at, first, http.StatusOK); got == reverted {
			t.Errorf("another page is answered %+v", got)
		}
	})
}

// A ref that may not has no button, and is refused as its op would be.
func TestActionsOfARefThatMayNot(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.said()
	reverter := capability.MintRequest{Rights: capability.Read | capability.Append | capability.Revert}
	part := reverter
	part.ReadKeys = []string{"todo/"}
	for name, c := range map[string]struct {
		ref  capability.Ref
		may  string
		code fault.Code
	}{
		"a reader":          {m.share(capability.MintRequest{}), "fork", fault.MissingRight},
		"a writer":          {m.share(capability.MintRequest{Rights: capability.Read | capability.Append}), "fork", fault.MissingRight},
		"a ref of one key":  {m.share(capability.MintRequest{Rights: capability.Read | capability.Append, ReadKeys: []string{"todo/"}}), "fork", fault.MissingRight},
		"one that may":      {m.share(reverter), "fork revert", fault.NotFound},
		"one that has less": {m.share(capability.MintRequest{Rights: capability.Read | capability.Append | capability.Revert, VisibleFrom: 3}), "fork", fault.MissingRight},
	} {
		b, at := r.opened(t, c.ref)
		if got := b.get(at).body; !strings.Contains(got, ` data-may="`+c.may+`"`) {
			t.Errorf("%s: not %q", name, c.may)
		}
		want := m.refusal(c.ref, op(session.MethodRevert, arg("to", `"message/none"`)))
		got := b.acts(at, action("revert", "message", "none"), c.code.HTTPStatus())
		if got.Code != c.code.String() || got.Message != want.Message {
			t.Errorf("%s: refused with %+v, the op with %v", name, got, want)
		}
	}
	gone := m.share(reverter)
	b, at := r.opened(t, gone)
	m.revoke(gone.ID)
	if got := b.acts(at, action("revert", "message", "msg_2"), fault.Revoked.HTTPStatus()); got.Code != "revoked" {
		t.Errorf("a revoked ref's page: %+v", got)
	}
}

// A fork is made under a ref of the space, once, and its link opens it.
func TestForkOnAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(c *node.Config, _ *Config) { c.Session.Limits.ForkBytes = 1 }) // copied in pieces
		m := r.said()
		reader := m.share(capability.MintRequest{})
		b, at := r.opened(t, reader)
		secret := capability.NewSecret().RevealText()
		body := action("fork", "message", "msg_2", "label", "another way", "secret", secret)
		if got := b.acts(at, body, http.StatusForbidden); got.Code != "missing_right" {
			t.Errorf("without a space: %+v", got)
		}
		lister := r.owner.New(r.owner.Target())
		if err := r.me().Assume(r.owner.ID).Share(t.Context(), capability.MintRequest{ID: lister.ID, Hash: lister.Secret.Hash(), Rights: capability.List}); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []capability.Ref{lister, r.owner} {
			b.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, ref.Text()))
			space := "Mooring-Space-Token: " + b.tokens[r.url("/sessions")]
			if ref.ID == lister.ID {
				if got := b.acts(at, action("fork", "secret", secret), http.StatusForbidden, space); got.Code != "missing_right" {
					t.Errorf("a ref that only lists: %+v", got)
				}
				continue
			}
			made := b.acts(at, body, http.StatusOK, space)
			if again := b.acts(at, body, http.StatusOK, space); again != made {
				t.Errorf("again: %+v, was %+v", again, made)
			}
			page, fragment, _ := strings.Cut(made.Link, "#")
			if fragment != secret || !strings.HasPrefix(page, r.url("/s/"+made.Session)) {
				t.Fatalf("the link is %s", made.Link)
			}
			own := newBrowser(t)
			if got := own.open(page, fmt.Sprintf(`{"secret":%q}`, fragment)); got.StatusCode != http.StatusOK {
				t.Fatal(got.body)
			}
			if got := own.get(page).body; !strings.Contains(got, "said 2") || strings.Contains(got, "said 3") || !strings.Contains(got, "revert") {
				t.Errorf("the fork is %s", got)
			}
			list, err := r.me().Assume(r.owner.ID).List(t.Context(), session.ListQuery{Limit: 100})
			if err != nil || len(list.Sessions) != 2 {
				t.Errorf("%d sessions, %v", len(list.Sessions), err)
			}
		}
		if strings.Contains(r.log.String(), secret) {
			t.Error("the new ref's secret is in the log")
		}
	})
}

// By the right manage a space's page opens every session, reverts and forks it.
func TestActionsUnderASpace(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(c *node.Config, _ *Config) { c.Session.Limits.ForkBytes = 1 }) // copied in pieces
		m := r.said()
		at := r.url("/sessions/" + m.id)
		b := r.signedIn(t)
		got := b.get(at).body
		if !strings.Contains(got, "said 3") || !strings.Contains(got, ` data-may="fork revert purge access ask-prompt ask-stop answer"`) || !strings.Contains(got, `data-close="/sessions/close"`) {
			t.Fatalf("the page is %s", got)
		}
		b.acts(at, action("revert", "message", "msg_3"), http.StatusOK)
		body := action("fork", "secret", capability.NewSecret().RevealText())
		made := b.acts(at, body, http.StatusOK)
		if again := b.acts(at, body, http.StatusOK); again != made {
			t.Errorf("again: %+v, was %+v", again, made)
		}
		// The ref that it is copied through lives as long as that may take, and ends with it.
		refs, err := r.me().Assume(r.owner.ID).Refs(t.Context(), session.TreeQuery{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		readers := 0
		for _, row := range refs.Rows {
			if g := row.Grant; strings.HasPrefix(g.Label, "fork ") {
				if readers++; g.Expires-g.Created != session.ForkPatience || g.Revoked == 0 {
					t.Errorf("the fork's reader is %+v", g)
				}
			}
		}
		if readers != 1 {
			t.Errorf("the fork has %d readers", readers)
		}
		if got := b.get(r.url("/sessions/" + made.Session)).body; !strings.Contains(got, "said 2") || strings.Contains(got, "said 3") {
			t.Errorf("the fork is %s", got)
		}
		// A ref that only lists opens none.
		lister := r.owner.New(r.owner.Target())
		if err := r.me().Assume(r.owner.ID).Share(t.Context(), capability.MintRequest{ID: lister.ID, Hash: lister.Secret.Hash(), Rights: capability.List}); err != nil {
			t.Fatal(err)
		}
		other := newBrowser(t)
		other.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, lister.Text()))
		if got := other.get(at); got.StatusCode != http.StatusForbidden || strings.Contains(got.body, "said 1") {
			t.Errorf("a ref that only lists: %d %s", got.StatusCode, got.body)
		}
		if got := other.acts(at, action("unrevert"), http.StatusForbidden); got.Code != "missing_right" {
			t.Errorf("a ref that only lists: %+v", got)
		}
	})
}

// What is not sent by the page's own script, with the page's token, does nothing.
func TestActionsOfOtherSites(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.said()
	b, at := r.opened(t, m.owner)
	other, _ := r.opened(t, m.share(capability.MintRequest{}))
	own := []string{"Sec-Fetch-Site: same-origin", "X-Mooring: 1", "Content-Type: application/json", "Mooring-Token: " + b.tokens[at]}
	with := func(i int, line string) []string {
		headers := append([]string(nil), own...)
		headers[i] = line
		return headers
	}
	cursor := m.do(put("message/msg_4", `{"role":"user"}`))
	for name, c := range map[string]struct {
		headers []string
		status  int
	}{
		"another site":                {with(0, "Sec-Fetch-Site: cross-site"), 403},
		"another port":                {with(0, "Sec-Fetch-Site: same-site"), 403},
		"no page at all":              {with(0, "Sec-Fetch-Site: none"), 403},
		"a foreign origin":            {with(0, "Origin: https://evil.example"), 403},
		"the null origin":             {with(0, "Origin: null"), 403},
		"no origin":                   {with(0, "Accept: */*"), 403},
		"without the header":          {with(1, "X-Mooring: 0"), 403},
		"a form":                      {with(2, "Content-Type: application/x-www-form-urlencoded"), 400},
		"text":                        {with(2, "Content-Type: text/plain"), 400},
		"no token":                    {with(3, "Accept: */*"), 401},
		"the token of another page":   {with(3, "Mooring-Token: "+onlyToken(other)), 401},
		"a token that does not exist": {with(3, "Mooring-Token: "+m.owner.ID+"."+capability.NewSecret().RevealText()), 401},
		"the ref's secret as a token": {with(3, "Mooring-Token: "+m.owner.ID+"."+m.owner.Secret.RevealText()), 401},
	} {
		if got := newBrowser(t).send(http.MethodPost, at+"/do", action("revert", "message", "msg_1"), c.headers...); got.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.body)
		} else if got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: it is allowed to read the answer", name)
		}
	}
	for _, body := range []string{``, `[]`, `{}`, `{"id":"x","do":"revert"}`, action("rm"), action("revert", "to", "x"), action("revert") + "{}", `{"id":"` + strings.Repeat("x", 20<<10) + `"}`} {
		if got := b.post(at+"/do", body); got.StatusCode < 400 || got.StatusCode >= 500 {
			t.Errorf("%.60q: %d %s", body, got.StatusCode, got.body)
		}
	}
	live, err := r.me().Restore(m.owner, "test")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := live.Describe(t.Context()); err != nil || d.Row.Cursor != cursor || d.Row.Revert.InForce() {
		t.Errorf("the session is at %d, was at %d: %v", d.Row.Cursor, cursor, err)
	}
	b.acts(at, action("revert", "message", "msg_1"), http.StatusOK)
}

// onlyToken is the token of a browser that has opened one page.
func onlyToken(b *browser) (token string) {
	for _, token = range b.tokens {
	}
	return token
}

// A page shows up to where its session is compacted, and the sessions that it has started, with links where the
// page's ref opens them.
func TestStateOnAPage(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.said()
	m.write().do(op(session.MethodCompact, arg("upto", `"message/msg_2"`), arg("summary", `"message/msg_3"`)))
	child := m.bear().id
	b, at := r.opened(t, m.owner)
	for _, want := range []string{`data-upto="msg_2"`, `href="#m-msg_3">its summary`, `data-child="` + child + `" data-part="part/msg_2/prt_1"`} {
		if got := b.get(at).body; !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if got := r.signedIn(t).get(r.url("/sessions/" + m.id)).body; !strings.Contains(got, `<a href="/sessions/`+child+`">`) {
		t.Errorf("no link to the child in %s", got)
	}
	part, at := r.opened(t, m.share(capability.MintRequest{Message: "msg_1"}))
	if got := part.get(at).body; strings.Contains(got, child) || strings.Contains(got, "Compacted") {
		t.Errorf("a ref of another message shows it: %s", got)
	}
	if got := newBrowser(t).get(r.url("/share/" + m.publish().ID)).body; strings.Contains(got, child) || strings.Contains(got, "data-may") || !strings.Contains(got, `data-upto="msg_2"`) {
		t.Errorf("a public share is %s", got)
	}
}
