//go:build unix

package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// secretOf is what a page's script sends for a session's ref.
func secretOf(ref capability.Ref) string {
	return fmt.Sprintf(`{"secret":%q}`, ref.Secret.RevealText())
}

// codeOf is the code of a refusal.
func (a *answer) codeOf() string {
	var refusal struct{ Code, Message string }
	if json.Unmarshal([]byte(a.body), &refusal) != nil || refusal.Message == "" || strings.Count(a.body, "\n") != 1 {
		return "no clear line: " + a.body
	}
	return refusal.Code
}

// The secret of a fragment becomes a token of that page alone, which shows the
// session until its ref ends, at every server of the database.
func TestOpening(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m, other := r.create(), r.create()
		m.do(put("session", `{"title":"Shown to the holder"}`))
		ref := m.share(capability.MintRequest{MaxRedemptions: 1})
		page := r.url("/s/" + ref.ID)
		b := newBrowser(t)
		shell := b.get(page)
		if shell.StatusCode != http.StatusOK || strings.Contains(shell.body, "Shown") || !strings.Contains(shell.body, "/s/"+ref.ID+"/open") {
			t.Errorf("before: %d %s", shell.StatusCode, shell.body)
		}
		if got := b.open(page, secretOf(ref)); got.StatusCode != http.StatusOK || strings.Contains(got.body, ref.Secret.RevealText()) {
			t.Fatal(got.StatusCode, got.body, got.Header)
		}
		token := b.tokens[page]
		for range 3 { // one browser is one redemption
			if got := b.get(page); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "Shown to the holder") {
				t.Fatalf("with the token: %d %s", got.StatusCode, got.body)
			}
			if got := b.open(page, secretOf(ref)); got.StatusCode != http.StatusOK || b.tokens[page] == token {
				t.Fatalf("opened again: %d %s", got.StatusCode, got.body)
			}
		}
		if got := newBrowser(t).open(page, secretOf(ref)); got.StatusCode != http.StatusForbidden || got.codeOf() != "exhausted" {
			t.Errorf("a second browser: %d %s", got.StatusCode, got.body)
		}
		if got := newBrowser(t).get(page); got.body != shell.body {
			t.Errorf("who shows nothing gets another page than before: %s", got.body)
		}

		shows := func(page, token string, headers ...string) *answer {
			return newBrowser(t).send(http.MethodGet, page, "", append(headers, tokenHeader+": "+token)...)
		}
		for _, replica := range []*rig{r, replicaOf(t, r, r.config)} {
			at := "Host: " + r.host // as a proxy before both would hand it on
			if got := shows(replica.url("/s/"+ref.ID), token, at); !strings.Contains(got.body, "Shown to the holder") {
				t.Fatalf("another tab, at %s: %d %s", replica.host, got.StatusCode, got.body)
			}
			// Elsewhere it is worth nothing.
			elsewhere := other.share(capability.MintRequest{})
			for label, got := range map[string]*answer{
				"another page":       shows(replica.url("/s/"+elsewhere.ID), token, at),
				"the list":           shows(replica.url("/sessions"), token, at),
				"another port":       shows(replica.url("/s/"+ref.ID), token, "Host: 127.0.0.1:1"),
				"another host":       shows(replica.url("/s/"+ref.ID), token, "Host: localhost"),
				"another ref's name": shows(replica.url("/s/"+elsewhere.ID), elsewhere.ID+token[strings.LastIndexByte(token, '.'):], at),
				"one made up":        shows(replica.url("/s/"+ref.ID), ref.ID+"."+capability.NewSecret().RevealText(), at),
				"the ref's secret":   shows(replica.url("/s/"+ref.ID), ref.ID+"."+ref.Secret.RevealText(), at),
				"no token":           shows(replica.url("/s/"+ref.ID), "rubbish", at),
				"half of one":        shows(replica.url("/s/"+ref.ID), token[:len(token)-1], at),
				"a cookie of before": newBrowser(t).send(http.MethodGet, replica.url("/s/"+ref.ID+"/block?key=session"), "", at, "Cookie: mooring=1."+ref.Secret.RevealText()+".AAAAAAAAAAAAAAAAAAAAAA."+ref.ID),
			} {
				if got.StatusCode != http.StatusUnauthorized || got.codeOf() != "unknown_ref" || strings.Contains(got.body, "Shown") {
					t.Errorf("%s: %d %s", label, got.StatusCode, got.body)
				}
			}
			if got := newBrowser(t).send(http.MethodGet, replica.url("/s/"+ref.ID), "", at, "Cookie: mooring=x; __Secure-mooring=y"); len(got.Cookies()) != 2 ||
				got.Cookies()[0].MaxAge >= 0 || got.Cookies()[1].MaxAge >= 0 || got.Cookies()[0].Path != "/s/"+ref.ID || !got.Cookies()[1].Secure {
				t.Errorf("cookies of before are not taken back: %v", got.Cookies())
			}
		}

		// Signing out ends that token and no other one.
		if got := newBrowser(t).post(page+"/close", "", tokenHeader+": "+token); got.StatusCode != http.StatusNoContent {
			t.Errorf("close: %d %s", got.StatusCode, got.body)
		}
		if got := shows(page, token); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("after closing: %d", got.StatusCode)
		}
		if got := b.get(page); !strings.Contains(got.body, "Shown to the holder") {
			t.Errorf("another tab that was opened by the link: %d", got.StatusCode)
		}
		m.revoke(ref.ID)
		if got := b.send(http.MethodGet, page, ""); got.StatusCode < 400 || got.codeOf() != "revoked" {
			t.Errorf("after the revoke: %d %s", got.StatusCode, got.body)
		}
	})
}

// replicaOf is another server on the store of a rig.
func replicaOf(t *testing.T, r *rig, config func(*node.Config, *Config)) *rig {
	t.Helper()
	other := &rig{t: t, st: r.st, config: config, host: "127.0.0.1:0", owner: r.owner}
	other.run()
	t.Cleanup(func() { other.stop() })
	return other
}

// An open page ends when its token does: where it was ended, or after its time.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	r := start(t, st, func(_ *node.Config, c *Config) { c.Heartbeat, c.TokensPerRef = 20*time.Millisecond, 3 })
	m := r.create()
	ref := m.share(capability.MintRequest{})
	page, live := r.url("/s/"+ref.ID), "/s/"+ref.ID+"/live?after=0"
	first := newBrowser(t)
	if got := first.open(page, secretOf(ref)); got.StatusCode != http.StatusOK {
		t.Fatal(got.StatusCode, got.body)
	}
	socket, events := listenSocketAs(t, r, live, first.tokens[page]), listen(t, first, r.url(live), "")
	socket.until("caught")
	events.until("caught")
	if got := first.post(page+"/close", ""); got.StatusCode != http.StatusNoContent {
		t.Fatal(got.StatusCode, got.body)
	}
	for _, s := range []*source{socket, events} {
		if got := s.until("over"); !strings.Contains(got.data, `"code":"unknown_ref"`) || !strings.Contains(got.data, "whole link") {
			t.Errorf("when it was ended: %v", got)
		}
	}

	// Its time is over when it is, whether the server looks at it again before that or not.
	calm := replicaOf(t, r, func(_ *node.Config, c *Config) { c.Heartbeat = time.Hour })
	for _, at := range []*rig{r, calm} {
		page := at.url("/s/" + ref.ID)
		// The time is long enough for a page to be open before it is over, however slow the machine is.
		for life := 200 * time.Millisecond; ; life *= 2 {
			secret := capability.NewSecret()
			if _, err := st.AddPageToken(t.Context(), capability.PageToken{Ref: ref.ID, Hash: secret.Hash(), Origin: "http://" + at.host}, life, 100); err != nil {
				t.Fatal(err)
			}
			token := ref.ID + "." + secret.RevealText()
			got := listenSocketAs(t, at, live, token).ends()
			if len(got) == 1 && life < patience {
				continue
			}
			if end := got[len(got)-1]; !strings.HasPrefix(end, `over {"code":"expired"`) || !strings.Contains(end, "12 hours") {
				t.Errorf("when its time is over: %q", got)
			}
			if got := newBrowser(t).send(http.MethodGet, page, "", tokenHeader+": "+token); got.StatusCode != http.StatusUnauthorized || got.codeOf() != "unknown_ref" {
				t.Errorf("coming back with it: %d %s", got.StatusCode, got.body)
			}
			if got := listenSocketAs(t, at, live, token).ends(); len(got) != 1 || !strings.HasPrefix(got[0], `over {"code":"unknown_ref"`) {
				t.Errorf("following with it: %q", got)
			}
			break
		}
	}

	// However often a ref is opened, it has so many tokens: the newest.
	var tokens []string
	for range 4 {
		if got := first.open(page, secretOf(ref)); got.StatusCode != http.StatusOK {
			t.Fatal(got.StatusCode, got.body)
		}
		tokens = append(tokens, first.tokens[page])
	}
	for i, token := range tokens { // those that were given in one millisecond are of one age
		if got := newBrowser(t).send(http.MethodGet, page, "", tokenHeader+": "+token); (got.StatusCode == http.StatusOK) != (i > 0) {
			t.Errorf("token %d of four, of which three stay: %d", i+1, got.StatusCode)
		}
	}
	var life Config
	if got := life.withDefaults().TokenLife; got != 12*time.Hour {
		t.Errorf("a token lasts %v", got)
	}
}

// A token shows nothing that its ref does not, and what is refused gives none.
func TestRefusalsOfATokenHolder(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	r := start(t, st, nil)
	m := r.create()
	b := newBrowser(t)
	hour := m.share(capability.MintRequest{Expires: time.Now().Add(time.Hour).UnixMilli()})
	soon := m.share(capability.MintRequest{Expires: time.Now().Add(5 * time.Second).UnixMilli()})
	if got := b.open(r.url("/s/"+soon.ID), secretOf(soon)); got.StatusCode != http.StatusOK {
		t.Fatal(got.StatusCode, got.body)
	}
	until.True(t, "it has expired", func() bool {
		got := b.send(http.MethodGet, r.url("/s/"+soon.ID), "")
		return got.StatusCode == http.StatusForbidden && got.codeOf() == "expired"
	})
	writer, dead := m.share(capability.MintRequest{Rights: capability.Append}), m.share(capability.MintRequest{})
	m.revoke(dead.ID)
	unseen := m.owner.New(m.id)
	secret := capability.NewSecret()
	sealed := m.owner.With(capability.DeriveSealedID(m.id, secret), secret)
	for code, ref := range map[string]capability.Ref{"expired": soon, "missing_right": writer, "revoked": dead, "not_yet_known": unseen, "sealed": sealed,
		"unknown_ref": hour.With(hour.ID, capability.NewSecret())} {
		if got := newBrowser(t).post(r.url("/s/"+ref.ID+"/open"), secretOf(ref)); got.StatusCode < 400 || got.codeOf() != code {
			t.Errorf("%s: %d %s", code, got.StatusCode, got.body)
		}
	}
	if got := b.get(r.url("/s/" + sealed.ID)); got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, "bound to a key") {
		t.Errorf("a sealed ref's page: %d %s", got.StatusCode, got.body)
	}
	for _, body := range []string{"", "x", "[]", `{"secret":1}`, fmt.Sprintf(`{"secret":%q,"redemption":%q}`, hour.Secret.RevealText(), strings.Repeat("x", 65)), `{}`, `{"secret":"short"}`, `{"secret":"` + strings.Repeat("A", 9<<10) + `"}`, "\xff\xfe"} {
		if got := b.post(r.url("/s/"+hour.ID+"/open"), body); got.StatusCode != http.StatusBadRequest && got.StatusCode != http.StatusUnauthorized || strings.Contains(got.codeOf(), "no clear line") {
			t.Errorf("%.20q: %d %s", body, got.StatusCode, got.body)
		}
	}
	// A space's page takes spaces' refs alone, and those that may list.
	space := func(text string) *answer {
		return newBrowser(t).post(r.url("/sessions/open"), fmt.Sprintf(`{"ref":%q}`, text))
	}
	creator := r.owner.New(r.owner.Target())
	if _, err := st.MintUnderRoot(t.Context(), capability.MintRequest{ID: creator.ID, Hash: creator.Secret.Hash(), Rights: capability.Create}); err != nil {
		t.Fatal(err)
	}
	for text, code := range map[string]string{creator.Text(): "missing_right", hour.Text(): "bad_argument", "spc_x#y": "bad_ref_text", r.owner.ID: "bad_ref_text", "": "bad_ref_text",
		r.owner.With(r.owner.ID, capability.NewSecret()).Text(): "unknown_ref"} {
		if got := space(text); got.codeOf() != code {
			t.Errorf("a space's page takes %.20q: %d %s", text, got.StatusCode, got.body)
		}
	}
	for _, text := range []string{r.owner.Text(), r.owner.ID + "#" + r.owner.Secret.RevealText()} {
		if got := space(text); got.StatusCode != http.StatusOK || !strings.Contains(got.body, `"token":"`+r.owner.ID+`.`) {
			t.Errorf("the owner's ref: %d %s", got.StatusCode, got.body)
		}
	}
}

// A public share's id shows the whole session for as long as the share lasts: it is
// told to nobody whose ref shows less, or who could not share the session otherwise.
func TestPublicShareNeedsShareRight(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	cut := m.do(put("message/one", `{"role":"user"}`), put("message/two", `{"role":"user"}`))
	public, sharing := m.publish(), capability.Read|capability.Share
	b := newBrowser(t)
	for name, c := range map[string]struct {
		ref   capability.Ref
		shows bool
	}{
		"the owner's":        {m.owner, true},
		"one that may share": {m.share(capability.MintRequest{Rights: sharing}), true},
		"of one message":     {m.share(capability.MintRequest{Rights: sharing, Message: "one"}), false},
		"from a cursor on":   {m.share(capability.MintRequest{Rights: sharing, VisibleFrom: cut}), false},
		"for a while":        {m.share(capability.MintRequest{Rights: sharing, Expires: time.Now().Add(time.Hour).UnixMilli()}), false},
		"a reader's":         {m.share(capability.MintRequest{}), false},
	} {
		got := b.post(r.url("/s/"+c.ref.ID+"/public"), secretOf(c.ref))
		if c.shows != strings.Contains(got.body, public.ID) {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.body)
		}
		if !c.shows && (got.StatusCode != http.StatusForbidden || got.codeOf() != "missing_right") {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.body)
		}
	}
}

// Other sites' pages get nothing done with a person's browser.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	ref := m.share(capability.MintRequest{})
	const kind, ours = "Content-Type: application/json", "X-Mooring: 1"
	own := "Origin: http://" + r.host
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{[]string{kind, ours, own}, 204},
		{[]string{kind, ours, "Sec-Fetch-Site: same-origin"}, 204},
		{[]string{kind, ours, own, "Sec-Fetch-Site: same-origin"}, 204},
		{[]string{"Content-Type: application/json; charset=utf-8", ours, own}, 204},
		{[]string{kind, ours, "Sec-Fetch-Site: same-origin", "Origin: http://proxied.example"}, 204}, // a proxy renamed us
		{[]string{kind, ours}, 403},
		{[]string{kind, ours, "Origin: null"}, 403},
		{[]string{kind, ours, "Origin: http://evil.example"}, 403},
		{[]string{kind, ours, "Origin: http://" + r.host + ".evil.example"}, 403},
		{[]string{kind, ours, "Origin: " + r.host}, 403},
		{[]string{kind, ours, own, "Sec-Fetch-Site: cross-site"}, 403},
		{[]string{kind, ours, own, "Sec-Fetch-Site: same-site"}, 403},
		{[]string{kind, ours, own, "Sec-Fetch-Site: none"}, 403},
		{[]string{kind, own}, 403},
		{[]string{kind, "X-Mooring: 2", own}, 403},
		{[]string{"Content-Type: text/plain", ours, own}, 400},
		{[]string{"Content-Type: application/x-www-form-urlencoded", ours, own}, 400},
		{[]string{ours, own}, 400},
	} {
		for _, path := range []string{"/s/" + ref.ID + "/open", "/s/" + ref.ID + "/close", "/sessions/close"} {
			got := newBrowser(t).send(http.MethodPost, r.url(path), secretOf(ref), c.headers...)
			want := c.want
			if want == 204 && strings.HasSuffix(path, "/open") {
				want = 200
			}
			if got.StatusCode != want || want != 200 && strings.Contains(got.body, "token") {
				t.Errorf("%v at %s: %d %s", c.headers, path, got.StatusCode, got.body)
			}
			if h := got.Header.Get("Access-Control-Allow-Origin"); h != "" {
				t.Errorf("other origins are let in: %s", h)
			}
		}
	}
	got := newBrowser(t).send(http.MethodOptions, r.url("/s/"+ref.ID+"/open"), "", "Origin: http://evil.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-mooring")
	if got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight: %d %v", got.StatusCode, got.Header)
	}
}

// Below a prefix pages are as the browser sees them, and tokens of the origin that it
// sees.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *node.Config, w *Config) {
		c.Prefix, w.Prefix, w.TLS, w.Hosts = "tools/mooring", "tools/mooring", true, []string{"pages.example:443"}
	})
	m := r.create()
	m.do(put("session", `{"title":"Proxied"}`))
	ref, public := m.share(capability.MintRequest{}), m.publish()
	for _, c := range []struct{ path, host, base string }{
		{"/tools/mooring", "pages.example", "/tools/mooring"},     // handed on as it is
		{"", "pages.example", "/tools/mooring"},                   // taken off
		{"/tools/mooring", "Pages.Example:443", "/tools/mooring"}, //
		{"", r.host, ""}, // not through the proxy
		{"/tools/mooring", r.host, "/tools/mooring"},
	} {
		b := newBrowser(t)
		got := b.open(r.url(c.path+"/s/"+ref.ID), secretOf(ref), "Host: "+c.host)
		if got.StatusCode != http.StatusOK {
			t.Fatalf("%v: %d %s", c, got.StatusCode, got.body)
		}
		if h := got.Header.Get("Strict-Transport-Security"); !strings.HasPrefix(h, "max-age=") {
			t.Errorf("%v: HSTS %q", c, h)
		}
		page := b.send(http.MethodGet, r.url(c.path+"/s/"+ref.ID), "", "Host: "+c.host, "Accept: text/html")
		if page.StatusCode != http.StatusOK || !strings.Contains(page.body, "Proxied") || !strings.Contains(page.body, `data-base="`+c.base+`" data-live `) || !strings.Contains(page.body, `"`+c.base+"/assets/") {
			t.Errorf("%v: %d %.3000s", c, page.StatusCode, page.body)
		}
		if page := newBrowser(t).send(http.MethodGet, r.url(c.path+"/share/"+public.ID), "", "Host: "+c.host); !strings.Contains(page.body, `data-base="`+c.base+`" data-live `) {
			t.Errorf("%v: %d %.3000s", c, page.StatusCode, page.body)
		}
	}
}

// Over TLS of the server's own, tokens are of that origin alone.
func TestOverTLS(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	ref := m.share(capability.MintRequest{})
	over := httptest.NewTLSServer(r.server.Handler())
	t.Cleanup(over.Close)
	b := newBrowser(t)
	b.client.Transport = over.Client().Transport
	got := b.open(over.URL+"/s/"+ref.ID, secretOf(ref))
	if got.StatusCode != http.StatusOK || got.Header.Get("Strict-Transport-Security") == "" {
		t.Fatal(got.StatusCode, got.body, got.Header)
	}
	host := "Host: " + strings.TrimPrefix(over.URL, "https://")
	if got := newBrowser(t).send(http.MethodGet, r.url("/s/"+ref.ID), "", host, tokenHeader+": "+b.tokens[over.URL+"/s/"+ref.ID]); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without TLS: %d %s", got.StatusCode, got.body)
	}
	at := m.do(put("message/m", `{"role":"user"}`))
	listen(t, b, over.URL+"/s/"+ref.ID+"/live?after=0", "").caughtUp(at)
}

func FuzzToken(f *testing.F) {
	s := capability.NewSecret()
	id := capability.DeriveID(capability.SessionPrefix+"01JABCDEFGHJKMNPQRSTVWXYZ0", s)
	f.Add(id + "." + s.RevealText())
	for _, text := range []string{"", ".", "x.y", id, id + ".", strings.Repeat(".", 600)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, secret, ok := parseToken(text)
		if ok && (ref+"."+secret.RevealText() != text || capability.Target(ref) == "" || secret.IsZero()) {
			t.Errorf("%q reads as another", text)
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, text := range []string{"", "0", "1", "01", "-1", "9223372036854775807", "9223372036854775808", "1_0", " 1", "١"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseCursor(text)
		if err == nil && fmt.Sprint(n) != text {
			t.Errorf("%q reads as %d", text, n)
		}
	})
}
