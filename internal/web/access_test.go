//go:build unix

package web

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// shareBody is a share's request; members are JSON texts by name.
func shareBody(secret string, members string) string {
	return fmt.Sprintf(`{"id":"01M8JJ9MJ3MSTZE5PMHFF44W8D","do":"share","secret":%q,%s}`, secret, members)
}

// A share has the limits that it was asked for, is made once however often it is asked for, opens by its link, and is
// in the tree, whose depth it has.
func TestShareOnAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		b, at := r.opened(t, m.owner)
		secret := capability.NewSecret().RevealText()
		body := shareBody(secret, `"rights":["read","share"],"label":"<b>for Ann</b>","expires_in":3600000,"redemptions":2,"actor":"owner/ann","children":["read"]`)
		made := b.acts(at, body, http.StatusOK)
		if again := b.acts(at, body, http.StatusOK); again != made {
			t.Errorf("again: %+v, was %+v", again, made)
		}
		ref, err := capability.ParseRef(made.Ref)
		if err != nil || !capability.DerivedFrom(ref.ID, ref.Secret) || made.Link != r.url("/s/"+ref.ID+"#"+secret) {
			t.Fatalf("%v: %s %s", err, made.Ref, made.Link)
		}
		svg, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.QR, "data:image/svg+xml;base64,"))
		if err != nil || !strings.HasPrefix(string(svg), "<svg ") || strings.Contains(string(svg), secret) {
			t.Errorf("the QR code is %s", svg)
		}
		ann, annAt := r.opened(t, ref)
		below := ann.acts(annAt, shareBody(capability.NewSecret().RevealText(), `"rights":["read"],"label":"below Ann"`), http.StatusOK)
		page := b.get(at + "/access").body
		for _, want := range []string{"&lt;b&gt;for Ann&lt;/b&gt;", "1 of 2 redeemed", "in sessions below: read", `<bdi>owner/ann</bdi>`, "below Ann", "this page", `>redeem<`, `data-rights="read append share revoke break schema revert compact ask answer"`} {
			if !strings.Contains(page, want) {
				t.Errorf("no %s in %s", want, page)
			}
		}
		if got := regexp.MustCompile(`<ul class="refs">`).FindAllString(page, -1); len(got) != 3 {
			t.Errorf("the tree is %d deep, not 3: %s", len(got), page)
		}
		for _, secret := range []string{secret, below.Link[strings.Index(below.Link, "#")+1:]} {
			if strings.Contains(page, secret) || strings.Contains(r.log.String(), secret) {
				t.Error("a secret is in the page or the log")
			}
		}
		// More than it has itself is refused in the server's words.
		for members, code := range map[string]string{`"rights":["read","append"]`: "widening", `"rights":["fly"]`: "bad_argument", `"rights":[]`: "bad_argument", `"rights":["read"],"read_keys":["Todo/"]`: "bad_argument", `"rights":["read"],"ask_kinds":["prompt"]`: "bad_argument", `"rights":["read"],"expires_in":360000000`: "widening"} {
			if got := ann.post(annAt+"/do", shareBody(capability.NewSecret().RevealText(), members)); got.StatusCode < 400 || !strings.Contains(got.body, `"`+code+`"`) {
				t.Errorf("%s: %d %s", members, got.StatusCode, got.body)
			}
		}
		if got := ann.get(annAt + "/access").body; !strings.Contains(got, `data-act="share"`) || strings.Contains(got, "Audit") || strings.Contains(got, `class="refs"`) || strings.Contains(got, `data-act="re`) {
			t.Errorf("one who may only share sees %s", got)
		}
	})
}

// A revoke shows before what it ends, ends that and no more, and is answered the same again; one who may not is
// refused, as from a command.
func TestRevokeOnAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		b, at := r.opened(t, m.owner)
		top := m.share(capability.MintRequest{Rights: capability.Read | capability.Share, Label: "top"})
		low := m.shareUnder(top.ID, capability.MintRequest{Label: "low"})
		beside := m.share(capability.MintRequest{Label: "beside"})
		reader, readerAt := r.opened(t, beside)
		if got := b.post(at+"/do", action("cuts", "ref", top.ID)); got.StatusCode != http.StatusOK || !strings.Contains(got.body, `"label":"top"`) || !strings.Contains(got.body, `"label":"low"`) || strings.Contains(got.body, "beside") {
			t.Errorf("what ends: %d %s", got.StatusCode, got.body)
		}
		for _, do := range []string{"cuts", "revoke"} {
			if got := reader.acts(readerAt, action(do, "ref", top.ID), http.StatusForbidden); got.Code != "missing_right" {
				t.Errorf("a reader's %s: %+v", do, got)
			}
		}
		if got := reader.get(readerAt + "/access"); got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, "who has access") {
			t.Errorf("a reader sees %d %s", got.StatusCode, got.body)
		}
		lowBrowser, lowAt := r.opened(t, low)
		b.acts(at, action("revoke", "ref", top.ID), http.StatusOK)
		if got := lowBrowser.get(lowAt); got.StatusCode != http.StatusForbidden {
			t.Errorf("below it: %d", got.StatusCode)
		}
		if got := reader.get(readerAt); got.StatusCode != http.StatusOK {
			t.Errorf("beside it: %d", got.StatusCode)
		}
		b.acts(at, action("revoke", "ref", top.ID), http.StatusOK) // again
		if got := b.get(at + "/access").body; !strings.Contains(got, "revoked at cut") || strings.Contains(got, `data-act="revoke" data-ref="`+top.ID) {
			t.Errorf("the tree is %s", got)
		}
		b.acts(at, action("epoch"), http.StatusOK)
		if got := reader.get(readerAt); got.StatusCode != http.StatusForbidden {
			t.Errorf("after the epoch: %d", got.StatusCode)
		}
		if got := b.get(at + "/access").body; !strings.Contains(got, "revoked with every share") {
			t.Errorf("the tree is %s", got)
		}
	})
}

// An owner's ref is replaced, from its own page or taken over by the space; a key is purged by the owner alone.
func TestRotateAndPurgeOnAPage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		b, at := r.opened(t, m.owner)
		sharer, sharerAt := r.opened(t, m.share(capability.MintRequest{Rights: capability.SessionRights | capability.Revert}))
		for do, body := range map[string]string{"rotate": action("rotate", "secret", capability.NewSecret().RevealText()), "purge": action("purge", "key", "message/msg_1")} {
			if got := sharer.acts(sharerAt, body, http.StatusForbidden); got.Code != "not_an_owner" {
				t.Errorf("%s by one who is no owner: %+v", do, got)
			}
		}
		if got := sharer.get(sharerAt); strings.Contains(got.body, "purge") {
			t.Errorf("one who is no owner has a button: %s", got.body)
		}
		b.acts(at, action("purge", "key", "part/msg_1/prt_1"), http.StatusOK)
		if got := b.get(at).body; strings.Contains(got, "said 1") || !strings.Contains(got, "said 2") {
			t.Errorf("purged: %s", got)
		}
		made := b.acts(at, action("rotate", "secret", capability.NewSecret().RevealText()), http.StatusOK)
		if got := b.get(at); got.StatusCode != http.StatusForbidden {
			t.Errorf("the old ref's page: %d", got.StatusCode)
		}
		fresh, err := capability.ParseRef(made.Ref)
		if err != nil {
			t.Fatal(err)
		}
		own, ownAt := r.opened(t, fresh)
		if got := sharer.get(sharerAt); got.StatusCode != http.StatusOK {
			t.Errorf("what was made from the old ref: %d", got.StatusCode)
		}
		space := r.signedIn(t)
		managed := r.url("/sessions/" + m.id)
		if got := space.acts(managed, action("rotate", "secret", capability.NewSecret().RevealText()), http.StatusForbidden); got.Link != "" {
			t.Errorf("not told to take over: %+v", got)
		}
		space.acts(managed, fmt.Sprintf(`{"id":"01M8JJ9MJ3MSTZE5PMHFF44W8D","do":"rotate","secret":%q,"take_over":true}`, capability.NewSecret().RevealText()), http.StatusOK)
		if got := own.get(ownAt); got.StatusCode != http.StatusForbidden {
			t.Errorf("after the take-over: %d", got.StatusCode)
		}
	})
}

// What every share's revocation and a rotation end is shown before, whatever has ended and was replaced earlier: below
// /sessions, where the session has several trees, too.
func TestWhatEndsIsShown(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.said()
		b, at := r.opened(t, m.owner)
		for range maxCutsShown {
			m.revoke(m.share(capability.MintRequest{Label: "ended"}).ID)
		}
		m.share(capability.MintRequest{Label: "lives"})
		for range 2 {
			made := b.acts(at, action("rotate", "secret", capability.NewSecret().RevealText()), http.StatusOK)
			fresh, err := capability.ParseRef(made.Ref)
			if err != nil {
				t.Fatal(err)
			}
			b, at = r.opened(t, fresh)
			m.owner = fresh
		}
		space, managed := r.signedIn(t), r.url("/sessions/"+m.id)
		space.acts(managed, shareBody(capability.NewSecret().RevealText(), `"rights":["read"],"label":"under the space"`), http.StatusOK)
		for name, c := range map[string]struct {
			b    *browser
			at   string
			want []string
		}{
			"the owner's page":        {b, at, []string{"", "lives"}},
			"the page of the space's": {space, managed, []string{"", "lives", "under the space"}},
		} {
			var got struct {
				Cuts []struct {
					Ref, Label string
					Owner      bool
				}
				More bool
			}
			answer := c.b.post(c.at+"/do", action("cuts"))
			if err := json.Unmarshal([]byte(answer.body), &got); err != nil {
				t.Fatal(answer.body)
			}
			var labels []string
			for i, cut := range got.Cuts {
				labels = append(labels, cut.Label)
				if cut.Owner != (i == 0) || cut.Owner && cut.Ref != m.owner.ID {
					t.Errorf("%s: %+v", name, cut)
				}
			}
			if !slices.Equal(labels, c.want) || got.More {
				t.Errorf("%s: %q, more %v; want %q", name, labels, got.More, c.want)
			}
			if page := c.b.get(c.at + "/access").body; !strings.Contains(page, ">lives</h3>") || strings.Contains(page, "under the space") != (name != "the owner's page") {
				t.Errorf("%s is %s", name, page)
			}
		}
	})
}

// maxCutsShown is more refs than are shown before they end.
const maxCutsShown = 101

// The space's own tree: shared on, and revoked.
func TestAccessToTheSpace(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	r.said()
	b, at := r.signedIn(t), r.url("/sessions")
	made := b.acts(at, shareBody(capability.NewSecret().RevealText(), `"rights":["list"],"label":"a lister"`), http.StatusOK)
	ref, err := capability.ParseRef(made.Ref)
	if err != nil || made.Link != r.url("/sessions#"+ref.ID+"#"+ref.Secret.RevealText()) {
		t.Fatal(err, made.Link)
	}
	lister := newBrowser(t)
	if got := lister.open(at, fmt.Sprintf(`{"ref":%q}`, made.Ref)); got.StatusCode != http.StatusOK {
		t.Fatal(got.body)
	}
	if got := b.get(at + "/access").body; !strings.Contains(got, "a lister") || !strings.Contains(got, `dir="auto">root</h3>`) || !strings.Contains(got, "Audit") {
		t.Errorf("the page is %s", got)
	}
	if got := lister.get(at + "/access"); got.StatusCode != http.StatusForbidden {
		t.Errorf("a lister sees %d %s", got.StatusCode, got.body)
	}
	if got := b.acts(at, action("revert", "message", "msg_1"), http.StatusBadRequest); got.Code != "bad_argument" {
		t.Errorf("a session's action: %+v", got)
	}
	if got := b.acts(at, action("purge", "key", "x"), http.StatusBadRequest); got.Code != "bad_argument" {
		t.Errorf("a session's action: %+v", got)
	}
	b.acts(at, action("revoke", "ref", ref.ID), http.StatusOK)
	if got := lister.get(at); got.StatusCode != http.StatusForbidden {
		t.Errorf("revoked: %d", got.StatusCode)
	}
}

// Large trees and audits come in pages, each row once.
func TestPagesOfAccess(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	const refs = 2*refsPerPage + 3
	for i := range refs {
		m.share(capability.MintRequest{Label: fmt.Sprintf("label-%04d", i)})
	}
	b, at := r.opened(t, m.owner)
	for what, c := range map[string]struct {
		row  string
		next *regexp.Regexp
		want int
	}{
		"refs":  {`label-\d{4}</h3>`, regexp.MustCompile(`href="([^"]*access\?refs=[^"]*)"`), refs},
		"audit": {`<code class="id">o[a-z2-7]{9}</code> on <code class="id">o[a-z2-7]{9}</code>`, regexp.MustCompile(`href="([^"]*access\?before=[^"#]*)`), refs + 1}, // the owner's, too
	} {
		seen, pages := 0, 0
		for path := at + "/access"; path != "" && pages < 20; pages++ {
			page := b.get(path).body
			seen += len(regexp.MustCompile(c.row).FindAllString(page, -1))
			path = ""
			if next := c.next.FindStringSubmatch(page); next != nil {
				path = r.url(strings.ReplaceAll(next[1], "&amp;", "&"))
			}
		}
		if seen != c.want || pages < 3 {
			t.Errorf("%s: %d in %d pages, not %d", what, seen, pages, c.want)
		}
	}
}
