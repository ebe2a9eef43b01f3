//go:build unix

package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/scrape"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// tour is every kind of address there is, with what it answers to GET.
func (m *made) tour(ref capability.Ref, public capability.PublicShare) map[string]int {
	m.r.t.Helper()
	html := newBrowser(m.r.t).get(m.r.url("/sessions")).body
	asset := regexp.MustCompile(`/assets/[^"]+`).FindString(html)
	return map[string]int{
		"/share/" + public.ID:                                   200,
		"/share/" + public.ID + "/block?key=message/m":          200,
		"/share/" + public.ID + "/block?key=message/no":         404,
		"/share/" + public.ID + "/more?message=m":               200,
		"/share/" + public.ID + "/more":                         400,
		"/s/" + ref.ID + "/more?message=m":                      401,
		"/s/" + ref.ID + "/" + m.id + "/more?message=m":         401,
		"/sessions/" + m.id + "/more?message=m":                 401,
		"/share/" + public.ID + "?all":                          200,
		"/share/" + public.ID + "?q=%3Cscript%3Ealert":          200,
		"/share/" + public.ID + "?q=":                           400,
		"/share/" + public.ID + "/live?after=x":                 400,
		"/share/" + public.ID + "/open":                         404,
		"/share/" + public.ID + "/":                             404,
		"/share/AAAAAAAAAAAAAAAAAAAAAA":                         404,
		"/share/":                                               404,
		"/share/" + strings.Repeat("x", 500):                    404,
		"/s/" + ref.ID:                                          200,
		"/s/" + ref.ID + "/block?key=message/m":                 401,
		"/s/" + ref.ID + "/open":                                405,
		"/s/" + ref.ID + "/close":                               405,
		"/s/" + ref.ID + "/public":                              405,
		"/s/" + ref.ID + "/do":                                  405,
		"/s/" + ref.ID + "/access":                              200,
		"/s/" + ref.ID + "/" + m.id:                             200,
		"/s/" + ref.ID + "/" + m.id + "/live":                   400,
		"/s/" + ref.ID + "/" + m.id + "/block?key=x":            401,
		"/s/" + ref.ID + "/" + m.id + "/do":                     405,
		"/s/" + ref.ID + "/" + m.id + "/access":                 404,
		"/s/" + ref.ID + "/ses_1":                               404,
		"/sessions/access":                                      200,
		"/sessions/do":                                          405,
		"/sessions/" + m.id + "/access":                         200,
		"/sessions/" + m.id:                                     200,
		"/sessions/" + m.id + "/do":                             405,
		"/sessions/" + m.id + "/block?key=message/m":            401,
		"/sessions/ses_1":                                       404,
		"/s/" + m.r.owner.ID:                                    404,
		"/s/" + m.id:                                            404,
		"/s/x%2f..%2f..%2fetc":                                  404,
		"/s/":                                                   404,
		"/sessions":                                             200,
		"/sessions/":                                            404,
		"/sessions/open":                                        405,
		"/sessions/live":                                        404,
		asset:                                                   200,
		"/assets/none.js":                                       404,
		"/assets/..%2f..%2fgo.mod":                              404,
		"/share/%00":                                            404,
		"/share/%ff%fe":                                         404,
		"/share/a%0d%0aSet-Cookie:%20x=1":                       404,
		"/share/" + url.PathEscape("<script>alert(1)</script>"): 404,
	}
}

// Every answer, errors too, keeps browsers to the policy.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.do(put("message/m", `{"role":"user"}`))
	ref, public := m.share(capability.MintRequest{}), m.publish()
	refused := 0
	for path, want := range m.tour(ref, public) {
		got := newBrowser(t).get(r.url(path))
		if want >= 400 && !strings.HasPrefix(path, "/assets/") {
			refused++
		}
		if got.StatusCode != want {
			t.Errorf("%s: %d, want %d: %.200s", path, got.StatusCode, want, got.body)
		}
		asset := strings.HasPrefix(path, "/assets/") && want == 200
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Permissions-Policy": permissionsPolicy, "X-Frame-Options": "DENY",
			"Cache-Control": "private, no-store", "Content-Security-Policy": contentPolicy, "Strict-Transport-Security": "", "Server": "", "Location": "",
		} {
			if asset && (name == "Cache-Control" || name == "Content-Security-Policy") {
				if h := got.Header.Get(name); h == "" {
					t.Errorf("%s: no %s", path, name)
				}
				continue
			}
			if h := got.Header.Get(name); h != want {
				t.Errorf("%s: %s is %q, want %q", path, name, h, want)
			}
		}
		if kind := got.Header.Get("Content-Type"); want >= 400 && !strings.HasPrefix(path, "/assets") && kind != "text/html; charset=utf-8" {
			t.Errorf("%s: a person gets %s", path, kind)
		}
		if strings.Contains(got.body, "<script>alert") {
			t.Errorf("%s: it echoes what was asked for", path)
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, "BREW", http.MethodPost} {
			if strings.HasSuffix(path, "/open") || strings.HasSuffix(path, "/close") || strings.HasSuffix(path, "/do") || strings.HasSuffix(path, "/public") || want == 404 && !strings.Contains(path, "block") {
				continue
			}
			got := newBrowser(t).send(method, r.url(path), "")
			refused++
			if got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, got.StatusCode, got.Header.Get("Allow"))
			}
		}
		if strings.HasSuffix(path, "/open") && want == 405 {
			refused++
			if got := newBrowser(t).get(r.url(path)); got.Header.Get("Allow") != "POST" {
				t.Errorf("%s: Allow %q", path, got.Header.Get("Allow"))
			}
		}
	}
	for _, n := range scrape.Refusals(r.server.Metrics()) {
		refused -= n
	}
	if refused != 0 {
		t.Errorf("%d refusals are not counted", refused)
	}
}

// TestUnexpectedErrors: what no rule foresaw is logged with the request that met it.
func TestUnexpectedErrors(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	newBrowser(t).get(r.url("/sessions")) // it runs
	r.server.Mount("/s/", New(Config{Log: slog.New(slog.NewTextHandler(&r.log, nil))}, r.server, oddTokens{}, nil))
	own := httptest.NewServer(r.server.Handler())
	defer own.Close()
	got := newBrowser(t).send(http.MethodGet, own.URL+"/s/"+m.owner.ID, "", tokenHeader+": "+m.owner.ID+"."+m.owner.Secret.RevealText())
	if id := got.Header.Get(node.RequestHeader); got.StatusCode != 500 || !strings.Contains(r.log.String(), `doing="make the page" error=odd request=`+id) {
		t.Errorf("%d %s %s, and the log has %s", got.StatusCode, got.body, id, r.log.String())
	}
}

// oddTokens are lost in a way that nobody has foreseen.
type oddTokens struct{ Tokens }

func (oddTokens) FindPageToken(context.Context, string, [32]byte) (capability.PageToken, int64, error) {
	return capability.PageToken{}, 0, errors.New("odd")
}

// No address sends a browser anywhere else.
func TestNoRedirects(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	for _, target := range []string{"//evil.example/share/x", "/share//evil.example", "/share/../../evil", "/s/..//evil.example", "/sessions//evil.example/..",
		"/share/x?next=//evil.example", "/sessions?next=https://evil.example", `/share/\evil.example`, "/%2f%2fevil.example", "/s/%2e%2e/%2f/evil.example", "http://evil.example/sessions"} {
		c, err := net.Dial("tcp", r.host)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, r.host)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = c.Close()
		if at := res.Header.Get("Location"); at != "" { // net/http's, to the same path without its dots
			u, err := url.Parse(at)
			if err != nil || u.Host != "" || u.Scheme != "" || strings.HasPrefix(at, "//") || strings.HasPrefix(at, `/\`) {
				t.Errorf("%s leads to %q", target, at)
			}
		}
	}
}

// Nothing that opens a page gets into the log, whatever is asked and at whatever level.
func TestTheLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	m.do(put("message/m", `{"role":"user"}`), put("session", `{"title":"A private title"}`))
	ref, public := m.share(capability.MintRequest{}), m.publish()
	b := newBrowser(t)
	for path := range m.tour(ref, public) {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
			b.send(method, r.url(path), secretOf(ref))
		}
	}
	got := b.open(r.url("/s/"+ref.ID), secretOf(ref))
	token := got.body
	b.get(r.url("/s/" + ref.ID))
	b.open(r.url("/sessions"), fmt.Sprintf(`{"ref":%q}`, r.owner.Text()))
	b.get(r.url("/sessions?q=private"))
	newBrowser(t).send(http.MethodGet, r.url("/s/"+ref.ID), "", tokenHeader+": "+ref.ID+"."+capability.NewSecret().RevealText())
	s := listen(t, b, r.url("/share/"+public.ID+"/live?after=0"), "")
	s.until("caught")
	m.revoke(public.Share)
	s.until("over")
	c, err := net.Dial("tcp", r.host) // a request that is none
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /share/%s BROKEN\r\n\r\n", public.ID)
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
	// A page that fails for a reason of ours.
	if err := r.st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/share/" + public.ID, "/s/" + ref.ID, "/share/" + public.ID + "/live?after=0", "/sessions"} {
		if got := b.get(r.url(path)); got.StatusCode < 500 && !strings.HasSuffix(path, "after=0") {
			t.Errorf("%s without a database: %d", path, got.StatusCode)
		}
	}
	r.stop()
	log := r.log.String()
	if !strings.Contains(log, "draining") || !strings.Contains(log, "level=DEBUG") {
		t.Errorf("the log is no whole one: %s", log)
	}
	for label, text := range map[string]string{"the ref's secret": ref.Secret.RevealText(), "the owner's": r.owner.Secret.RevealText(), "the public id": public.ID,
		"the token": strings.Split(token, `"`)[3], "the title": "private title", "a path": "/live", "a ref's page": "/s/ses_"} {
		if strings.Contains(log, text) {
			t.Errorf("the log has %s", label)
		}
	}
}

// Reads have no body: a request whose body does not come is answered, and
// holds no connection beyond the time of a request.
func TestBodiesOfReaders(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *node.Config, _ *Config) { c.RPC.HandshakeTimeout = 2 * time.Second })
	m := r.create()
	m.do(put("message/m", `{"role":"user"}`))
	page := "/share/" + m.publish().ID
	for _, label := range []string{"GET " + page, "GET " + page + "/block?key=message/m", "GET " + page + "/live?after=0", "HEAD " + page + "/live?after=0"} {
		for _, body := range []string{"Content-Length: 5", "Transfer-Encoding: chunked"} {
			c, err := net.Dial("tcp", r.host)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience / 3))
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", label, r.host, body)
			answer, err := io.ReadAll(c)
			_ = c.Close()
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
				t.Errorf("%s, %s: %.20q, %v", label, body, answer, err)
			}
		}
	}
}

// The policy lets in this server's own files and nothing inline, and no other page puts one of these into a frame, where
// a click could be led.
func TestContentPolicy(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, directive := range strings.Split(contentPolicy, ";") {
		name, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
		got[name] = sources
	}
	for name, want := range map[string]string{"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:", "font-src": "'self'",
		"connect-src": "'self'", "base-uri": "'none'", "form-action": "'self'", "frame-ancestors": "'none'"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("further directives: %v", got)
	}
}
