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
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/store"
)

// secretOf is what a page's script sends for a session's ref.
func secretOf(ref capability.Ref) string {
	return fmt.Sprintf(`{"secret":%q}`, ref.Secret.RevealText())
}

// codeOf is the code of a refusal.
func (a *answer) codeOf() string {
	var told struct{ Code, Message string }
	if json.Unmarshal([]byte(a.body), &told) != nil || told.Message == "" || strings.Count(a.body, "\n") != 1 {
		return "no clear line: " + a.body
	}
	return told.Code
}

// The secret of a fragment becomes a cookie of that page alone, which shows the
// session until its ref ends.
func TestTheExchange(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m, other := r.create(), r.create()
		m.do(put("session", `{"title":"Shown to the holder"}`))
		ref := m.share(capability.Minting{Limit: 1})
		page := r.url("/s/" + ref.ID)
		b := newBrowser(t)
		if got := b.get(page); got.StatusCode != http.StatusOK || strings.Contains(got.body, "Shown") || !strings.Contains(got.body, "/s/"+ref.ID+"/open") {
			t.Errorf("before: %d %s", got.StatusCode, got.body)
		}
		got := b.post(page+"/open", secretOf(ref))
		if got.StatusCode != http.StatusNoContent || len(got.Cookies()) != 1 {
			t.Fatal(got.StatusCode, got.body, got.Header)
		}
		c := got.Cookies()[0]
		if c.Name != "mooring" || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/s/"+ref.ID || c.Domain != "" || c.MaxAge != 30*24*3600 {
			t.Errorf("the cookie is %+v", c)
		}
		for range 3 { // one browser is one redemption
			if got := b.get(page); got.StatusCode != http.StatusOK || !strings.Contains(got.body, "Shown to the holder") {
				t.Fatalf("with the cookie: %d %s", got.StatusCode, got.body)
			}
			if got := b.post(page+"/open", secretOf(ref)); got.StatusCode != http.StatusNoContent {
				t.Fatalf("opened again: %d %s", got.StatusCode, got.body)
			}
		}
		if got := newBrowser(t).post(page+"/open", secretOf(ref)); got.StatusCode != http.StatusForbidden || got.codeOf() != "exhausted" || len(got.Cookies()) != 0 {
			t.Errorf("a second browser: %d %s", got.StatusCode, got.body)
		}

		// Elsewhere it is worth nothing.
		elsewhere := other.share(capability.Minting{})
		got = newBrowser(t).send(http.MethodGet, r.url("/s/"+elsewhere.ID), "", "Cookie: mooring="+c.Value)
		if got.StatusCode != http.StatusOK || !strings.Contains(got.body, "/open") {
			t.Errorf("another page's cookie: %d %s", got.StatusCode, got.body)
		}
		if got := newBrowser(t).send(http.MethodGet, r.url("/sessions"), "", "Cookie: mooring="+c.Value); got.StatusCode == http.StatusOK {
			t.Errorf("a session's cookie at /sessions: %d %s", got.StatusCode, got.body)
		}

		// Signing out takes it back; a forged one is taken back too.
		if got := b.post(page+"/close", ""); got.StatusCode != http.StatusNoContent || len(got.Cookies()) != 1 || got.Cookies()[0].MaxAge >= 0 || got.Cookies()[0].Path != c.Path {
			t.Errorf("close: %d %v", got.StatusCode, got.Cookies())
		}
		if got := b.get(page); strings.Contains(got.body, "Shown") {
			t.Errorf("after closing: %d", got.StatusCode)
		}
		forged := ticket{id: ref.ID, secret: capability.NewSecret(), redemption: newRedemption()}.text()
		got = newBrowser(t).send(http.MethodGet, page, "", "Cookie: mooring="+forged)
		if got.StatusCode != http.StatusUnauthorized || got.codeOf() != "unknown_ref" || len(got.Cookies()) != 1 || got.Cookies()[0].MaxAge >= 0 {
			t.Errorf("a forged cookie: %d %s %v", got.StatusCode, got.body, got.Cookies())
		}
		for _, value := range []string{"", "1", "1...", c.Value + "x", "2" + c.Value[1:], strings.Repeat("x", 4000), strings.Replace(c.Value, ".", "..", 1)} {
			if got := newBrowser(t).send(http.MethodGet, page, "", "Cookie: mooring="+value); got.StatusCode != http.StatusOK || strings.Contains(got.body, "Shown") {
				t.Errorf("cookie %.20q: %d", value, got.StatusCode)
			}
		}
		// The right one among others counts.
		if got := newBrowser(t).send(http.MethodGet, page, "", "Cookie: mooring=rubbish; other=1; mooring="+c.Value); !strings.Contains(got.body, "Shown") {
			t.Errorf("the right cookie behind a wrong one: %d", got.StatusCode)
		}
	})
}

// A cookie lasts no longer than its ref, and what is refused gives none.
func TestWhatIsRefusedACookie(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	b := newBrowser(t)
	open := func(ref capability.Ref) *answer { return b.post(r.url("/s/"+ref.ID+"/open"), secretOf(ref)) }

	hour := m.share(capability.Minting{Expires: time.Now().Add(time.Hour).UnixMilli()})
	if got := open(hour); got.StatusCode != http.StatusNoContent || got.Cookies()[0].MaxAge > 3600 || got.Cookies()[0].MaxAge < 3500 {
		t.Errorf("of a ref of an hour: %d %v", got.StatusCode, got.Cookies())
	}
	soon := m.share(capability.Minting{Expires: time.Now().Add(5 * time.Second).UnixMilli()})
	opened := open(soon)
	if opened.StatusCode != http.StatusNoContent {
		t.Fatal(opened.StatusCode, opened.body)
	}
	late := newBrowser(t) // one that keeps the cookie longer than it should
	until.True(t, "it has expired", func() bool {
		got := late.send(http.MethodGet, r.url("/s/"+soon.ID), "", "Cookie: mooring="+opened.Cookies()[0].Value)
		return got.StatusCode == http.StatusForbidden && got.codeOf() == "expired"
	})
	writer, dead := m.share(capability.Minting{Rights: capability.Append}), m.share(capability.Minting{})
	m.revoke(dead.ID)
	unseen := m.owner.New(m.id)
	secret := capability.NewSecret()
	sealed := m.owner.With(capability.DeriveSealedID(m.id, secret), secret)
	for code, ref := range map[string]capability.Ref{"expired": soon, "missing_right": writer, "revoked": dead, "not_yet_known": unseen, "sealed": sealed,
		"unknown_ref": hour.With(hour.ID, capability.NewSecret())} {
		if got := newBrowser(t).post(r.url("/s/"+ref.ID+"/open"), secretOf(ref)); got.StatusCode < 400 || got.codeOf() != code || len(got.Cookies()) != 0 {
			t.Errorf("%s: %d %s", code, got.StatusCode, got.body)
		}
	}
	if got := b.get(r.url("/s/" + sealed.ID)); got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, "bound to a key") {
		t.Errorf("a sealed ref's page: %d %s", got.StatusCode, got.body)
	}
	for _, body := range []string{"", "x", "[]", `{"secret":1}`, `{}`, `{"secret":"short"}`, `{"secret":"` + strings.Repeat("A", 9<<10) + `"}`, "\xff\xfe"} {
		if got := b.post(r.url("/s/"+hour.ID+"/open"), body); got.StatusCode != http.StatusBadRequest && got.StatusCode != http.StatusUnauthorized || strings.Contains(got.codeOf(), "no clear line") {
			t.Errorf("%.20q: %d %s", body, got.StatusCode, got.body)
		}
	}
	// A space's page takes spaces' refs alone, and those that may list.
	space := func(text string) *answer {
		return newBrowser(t).post(r.url("/sessions/open"), fmt.Sprintf(`{"ref":%q}`, text))
	}
	for text, code := range map[string]string{hour.Text(): "bad_argument", "spc_x#y": "bad_ref_text", r.owner.ID: "bad_ref_text", "": "bad_ref_text",
		r.owner.With(r.owner.ID, capability.NewSecret()).Text(): "unknown_ref"} {
		if got := space(text); got.codeOf() != code {
			t.Errorf("a space's page takes %.20q: %d %s", text, got.StatusCode, got.body)
		}
	}
	for _, text := range []string{r.owner.Text(), r.owner.ID + "#" + r.owner.Secret.RevealText()} {
		if got := space(text); got.StatusCode != http.StatusNoContent || got.Cookies()[0].Path != "/sessions" {
			t.Errorf("the owner's ref: %d %s", got.StatusCode, got.body)
		}
	}
}

// A public share's id shows the whole session for as long as the share lasts: it is
// told to nobody whose ref shows less, or who could not share the session otherwise.
func TestWhoIsToldOfThePublicShare(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	cut := m.do(put("message/one", `{"role":"user"}`), put("message/two", `{"role":"user"}`))
	public := m.publish()
	b := newBrowser(t)
	for name, c := range map[string]struct {
		ref  capability.Ref
		told bool
	}{
		"the owner's":        {m.owner, true},
		"one that may share": {m.share(capability.Minting{Rights: capability.Read | capability.Share}), true},
		"of one message":     {m.share(capability.Minting{Message: "one"}), false},
		"from a cursor on":   {m.share(capability.Minting{From: cut}), false},
		"for a while":        {m.share(capability.Minting{Expires: time.Now().Add(time.Hour).UnixMilli()}), false},
		"a reader's":         {m.share(capability.Minting{}), false},
	} {
		got := b.post(r.url("/s/"+c.ref.ID+"/public"), secretOf(c.ref))
		if c.told != strings.Contains(got.body, public.ID) {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.body)
		}
		if !c.told && (got.StatusCode != http.StatusForbidden || got.codeOf() != "missing_right") {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.body)
		}
	}
}

// Other sites' pages get nothing done with a person's browser.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	ref := m.share(capability.Minting{})
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
			if got.StatusCode != c.want || c.want != 204 && len(got.Cookies()) != 0 {
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

// Over TLS, or where a proxy speaks it, cookies are for TLS alone; below a prefix
// they are of the page as the browser sees it.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *server.Config, w *Config) {
		c.Prefix, w.Prefix, w.TLS, w.Hosts = "tools/mooring", "tools/mooring", true, []string{"pages.example:443"}
	})
	m := r.create()
	m.do(put("session", `{"title":"Proxied"}`))
	ref, public := m.share(capability.Minting{}), m.publish()
	for _, c := range []struct{ path, host, base string }{
		{"/tools/mooring", "pages.example", "/tools/mooring"},     // handed on as it is
		{"", "pages.example", "/tools/mooring"},                   // taken off
		{"/tools/mooring", "Pages.Example:443", "/tools/mooring"}, //
		{"", r.host, ""}, // not through the proxy
		{"/tools/mooring", r.host, "/tools/mooring"},
	} {
		got := newBrowser(t).post(r.url(c.path+"/s/"+ref.ID+"/open"), secretOf(ref), "Host: "+c.host)
		if got.StatusCode != http.StatusNoContent {
			t.Fatalf("%v: %d %s", c, got.StatusCode, got.body)
		}
		k := got.Cookies()[0]
		if k.Name != "__Secure-mooring" || !k.Secure || k.Path != c.base+"/s/"+ref.ID {
			t.Errorf("%v: the cookie is %+v", c, k)
		}
		if h := got.Header.Get("Strict-Transport-Security"); !strings.HasPrefix(h, "max-age=") {
			t.Errorf("%v: HSTS %q", c, h)
		}
		page := newBrowser(t).send(http.MethodGet, r.url(c.path+"/s/"+ref.ID), "", "Host: "+c.host, "Cookie: "+k.Name+"="+k.Value, "Accept: text/html")
		if page.StatusCode != http.StatusOK || !strings.Contains(page.body, "Proxied") || !strings.Contains(page.body, `"`+c.base+"/s/"+ref.ID+"/live") || !strings.Contains(page.body, `"`+c.base+"/assets/") {
			t.Errorf("%v: %d %.3000s", c, page.StatusCode, page.body)
		}
		if page := newBrowser(t).send(http.MethodGet, r.url(c.path+"/share/"+public.ID), "", "Host: "+c.host); !strings.Contains(page.body, `"`+c.base+"/share/"+public.ID+"/live") {
			t.Errorf("%v: %d %.3000s", c, page.StatusCode, page.body)
		}
	}
}

// Over TLS of the server's own, cookies are for TLS alone.
func TestOverTLS(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	ref := m.share(capability.Minting{})
	over := httptest.NewTLSServer(r.server.Handler())
	t.Cleanup(over.Close)
	b := newBrowser(t)
	b.client.Transport = over.Client().Transport
	got := b.post(over.URL+"/s/"+ref.ID+"/open", secretOf(ref))
	if got.StatusCode != http.StatusNoContent {
		t.Fatal(got.StatusCode, got.body)
	}
	if c := got.Cookies()[0]; c.Name != "__Secure-mooring" || !c.Secure || got.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%+v, %v", c, got.Header)
	}
	at := m.do(put("message/m", `{"role":"user"}`))
	listen(t, b, over.URL+"/s/"+ref.ID+"/live?after=0", "").caughtUp(at)
}

func FuzzTicket(f *testing.F) {
	s := capability.NewSecret()
	id := capability.DeriveID(capability.SessionPrefix+"01JABCDEFGHJKMNPQRSTVWXYZ0", s)
	f.Add(ticket{id: id, secret: s, redemption: newRedemption()}.text())
	for _, text := range []string{"", "1...", "1.a.b.c", "2.x.y.z", strings.Repeat(".", 600)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseTicket(text)
		switch {
		case !ok && got != (ticket{}) && got.redemption != "":
			t.Errorf("half a ticket of %q", text)
		case ok && (got.text() != text || capability.Target(got.id) == "" || got.secret.IsZero()):
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
