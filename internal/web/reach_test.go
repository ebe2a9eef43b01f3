//go:build unix

package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// bear makes a child of the session, started by its message 2.
func (m *made) bear() *made {
	m.r.t.Helper()
	child := &made{r: m.r, id: capability.SessionPrefix + ulid.Make().String()}
	child.owner = m.owner.New(child.id)
	me := m.r.me()
	parent, err := me.Restore(m.owner, "test")
	if err != nil {
		m.r.t.Fatal(err)
	}
	args := []ledger.Arg{arg("ref", quoted(child.owner.ID)), arg("hash", quoted(hashText(child.owner.Secret))), arg("parent", quoted(m.id)), arg("via", quoted(m.owner.ID)), arg("part", `"part/msg_2/prt_1"`)}
	if err := me.Assume(m.r.owner.ID).Create(m.r.t.Context(), child.id, child.owner.ID, []*objects.Capability{parent}, args...); err != nil {
		m.r.t.Fatal(err)
	}
	child.do(put("session", `{"title":"child of `+m.id+`"}`), put("message/msg_1", `{"role":"user"}`), put("part/msg_1/prt_1", `{"type":"text","text":"in a child"}`))
	return child
}

// reachingAll is a ref with all that a page has a button for, in the session and below.
var reachingAll = capability.MintRequest{Rights: capability.OwnerRights, Children: capability.ChildRights}

// A ref that reaches children has pages of them below its own, at any depth, with links there and back, and buttons for its
// rights there; what it does there is done under its id.
func TestPagesOfChildren(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		child := m.bear()
		grand := child.bear()
		ref := m.share(reachingAll)
		b, at := r.opened(t, ref)
		path := "/s/" + ref.ID
		shows := func(b *browser, page string, want, not []string) {
			t.Helper()
			got := b.get(r.url(page))
			if got.StatusCode != http.StatusOK {
				t.Errorf("%s: %d", page, got.StatusCode)
			}
			for _, text := range want {
				if !strings.Contains(got.body, text) {
					t.Errorf("%s: no %s in %s", page, text, got.body)
				}
			}
			for _, text := range not {
				if strings.Contains(got.body, text) {
					t.Errorf("%s: it has %s: %s", page, text, got.body)
				}
			}
		}
		shows(b, path, []string{`data-child="` + child.id + `" data-part="part/msg_2/prt_1"><a href="` + path + "/" + child.id + `">`}, []string{`id="start"`, grand.id})
		shows(b, path+"/"+child.id, []string{"child of " + m.id, "in a child", `id="start">Started by <a href="` + path + `#p-msg_2/prt_1">`, `<a href="` + path + "/" + grand.id + `">`,
			` data-live `, `data-close="` + path + `/close"`, `data-may="revert ask-prompt ask-stop answer"`}, []string{"said 1", "/access"})
		shows(b, path+"/"+grand.id, []string{"in a child", `id="start">Started by <a href="` + path + "/" + child.id + `#p-msg_2/prt_1">`}, []string{`id="children"`})
		shows(b, path+"/"+child.id+"?q=child", []string{`href="` + path + "/" + child.id + `#`}, nil)
		if got := b.get(at + "/" + child.id + "/block?key=part/msg_1/prt_1"); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "in a child") {
			t.Errorf("a block: %d %s", got.StatusCode, got.body)
		}

		// Without a token it is the page that asks for the link, of whichever session.
		asking := newBrowser(t).get(at + "/" + child.id)
		if asking.body != newBrowser(t).get(at+"/"+capability.SessionPrefix+ulid.Make().String()).body || asking.body != newBrowser(t).get(at).body || strings.Contains(asking.body, child.id) {
			t.Errorf("without a token: %s", asking.body)
		}

		// What is done there is done under the ref, as far as its rights there go.
		b.acts(at+"/"+child.id, action("revert", "message", "msg_1"), http.StatusOK)
		shows(b, path+"/"+child.id, []string{`id="reverted"`, `data-act="unrevert"`}, nil)
		b.acts(at+"/"+child.id, action("unrevert"), http.StatusOK)
		for do, member := range map[string]string{"share": "secret", "revoke": "ref", "cuts": "ref", "epoch": "", "rotate": "secret", "purge": "key", "fork": "secret"} {
			members := map[string][]string{"": nil, "secret": {member, capability.NewSecret().RevealText()}, "ref": {member, child.owner.ID}, "key": {member, "message/msg_1"}}[member]
			space := spaceTokenHeader + ": " + onlyToken(r.signedIn(t))
			body := action(do, members...)
			if do == "share" {
				body = shareBody(members[1], `"rights":["read"]`)
			}
			if got := b.post(at+"/"+child.id+"/do", body, space); got.StatusCode < 400 || got.StatusCode >= 500 {
				t.Errorf("%s in a child: %d %s", do, got.StatusCode, got.body)
			}
		}
		reader, readerAt := r.opened(t, m.share(capability.MintRequest{Rights: capability.OwnerRights, Children: capability.Read}))
		if got := reader.acts(readerAt+"/"+child.id, action("revert", "message", "msg_1"), http.StatusForbidden); got.Code != "missing_right" {
			t.Errorf("a revert by one that only reads there: %+v", got)
		}
		if got := reader.get(readerAt + "/" + child.id).body; !strings.Contains(got, `data-may=""`) {
			t.Errorf("one that only reads there has buttons: %s", got)
		}

		// Through the space, the way back leads to what started it, too.
		managed := r.signedIn(t)
		shows(managed, "/sessions/"+grand.id, []string{`id="start">Started by <a href="/sessions/` + child.id + `#p-msg_2/prt_1">`}, nil)
		own, _ := r.opened(t, child.owner)
		shows(own, "/s/"+child.owner.ID, []string{`data-child="` + grand.id + `"`}, []string{`id="start"`, m.id + "#", "/s/" + child.owner.ID + "/ses"})
	})
}

// A ref has no pages of sessions that it does not reach, and its refusal does not say whether they are there; another ref's
// token opens none.
func TestPagesOfWhatIsNotReached(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.said()
	child, stranger := m.bear(), r.said()
	absent := capability.SessionPrefix + ulid.Make().String()
	for name, c := range map[string]struct {
		ref    capability.Ref
		status int
		hidden []string
	}{
		"reaching":      {m.share(reachingAll), http.StatusNotFound, []string{m.id, stranger.id}},
		"without reach": {m.share(capability.MintRequest{Rights: capability.OwnerRights}), http.StatusForbidden, []string{m.id, child.id, stranger.id}},
		"the owner's":   {m.owner, http.StatusForbidden, []string{m.id, child.id, stranger.id}},
	} {
		b, at := r.opened(t, c.ref)
		if strings.Contains(b.get(at).body, "/s/"+c.ref.ID+"/ses_") != (name == "reaching") {
			t.Errorf("%s: links to children: %s", name, b.get(at).body)
		}
		for _, below := range []string{"", "/block?key=message/msg_1", "?q=said", "/live?after=0"} {
			want := b.get(at + "/" + absent + below)
			if want.StatusCode != c.status && below != "/live?after=0" {
				t.Errorf("%s: %s where nothing is: %d %s", name, below, want.StatusCode, want.body)
			}
			for _, id := range c.hidden {
				if got := b.get(at + "/" + id + below); got.StatusCode != want.StatusCode || got.body != want.body {
					t.Errorf("%s: %s: %d %s; where nothing is: %d %s", name, below, got.StatusCode, got.body, want.StatusCode, want.body)
				}
			}
		}
	}
	ref := m.share(reachingAll)
	other, _ := r.opened(t, stranger.owner)
	if got := other.send(http.MethodGet, r.url("/s/"+ref.ID+"/"+child.id), "", tokenHeader+": "+onlyToken(other)); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("another ref's token: %d %s", got.StatusCode, got.body)
	}
	b, at := r.opened(t, ref)
	for _, below := range []string{"/ses_x", "/" + child.id + "/access", "/" + child.id + "/open", "/" + child.id + "/" + child.id} {
		if got := b.get(at + below); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", below, got.StatusCode)
		}
	}
}

// A child's page is live, and ends with the ref's cut there, as its own session's does.
func TestPagesOfChildrenEnd(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		for name, end := range map[string]func(ref capability.Ref, child *made){
			"revoked": func(ref capability.Ref, _ *made) { m.revoke(ref.ID) },
			"stale_epoch": func(_ capability.Ref, child *made) {
				owner, at := r.opened(t, child.owner)
				owner.acts(at, action("epoch"), http.StatusOK)
			},
		} {
			ref, child := m.share(reachingAll), m.bear()
			b, at := r.opened(t, ref)
			s := listen(t, b, at+"/"+child.id+"/live?after=0", "")
			s.until("caught")
			child.do(put("part/msg_1/prt_9", `{"type":"text","text":"in time"}`))
			if got := s.until("block"); !strings.Contains(got.data, "in time") {
				t.Errorf("what happens there: %+v", got)
			}
			end(ref, child)
			if got := s.until("over"); !strings.Contains(got.data, `"`+name+`"`) {
				t.Errorf("%s: it ends with %s", name, got.data)
			}
			if got := b.send(http.MethodGet, at+"/"+child.id, ""); got.StatusCode != http.StatusForbidden || got.codeOf() != name {
				t.Errorf("%s: afterwards %d %s", name, got.StatusCode, got.body)
			}
			if got := b.get(at); (got.StatusCode == http.StatusOK) != (name == "stale_epoch") {
				t.Errorf("%s: the session above: %d", name, got.StatusCode)
			}
		}
	})
}
