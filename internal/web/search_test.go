//go:build unix

package web

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

var (
	foundIn = regexp.MustCompile(`<li data-key="([^"]*)"><a href="([^"]*)"><span class="name" dir="auto">([^<]*)`)
	moreIn  = regexp.MustCompile(`rel="next" href="([^"]*)"`)
)

// found are the keys that a search finds on all of its pages, each with who it is of and where it leads.
func (b *browser) found(page, words string) (all []string, pages int) {
	b.t.Helper()
	_, path, _ := strings.Cut(strings.TrimPrefix(page, "http://"), "/")
	for at := page + "?q=" + words; at != ""; pages++ {
		got := b.get(at)
		if got.StatusCode != http.StatusOK || pages > 20 {
			b.t.Fatalf("%s: %d %s", at, got.StatusCode, got.body)
		}
		for _, m := range foundIn.FindAllStringSubmatch(got.body, -1) {
			all = append(all, m[3]+" "+strings.TrimPrefix(m[2], "/"+path)+" "+m[1])
		}
		at = ""
		if m := moreIn.FindStringSubmatch(got.body); m != nil {
			at = strings.TrimSuffix(page, "/"+path) + html.UnescapeString(m[1])
		}
	}
	return all, pages
}

// A search is a page of what it finds, of a public share and of a ref's session with its token.
func TestSearch(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		m.do(put("session", `{"title":"A Login"}`), put("message/a", `{"role":"user"}`), put("part/a/p", `{"type":"text","text":"the login <b>fails</b>"}`),
			put("message/b", `{"role":"assistant","error":{"message":"login: refused"}}`), put("part/b/p", `{"type":"tool","state":{"output":"login"}}`),
			put("part/none/p", `{"type":"text","text":"login"}`), put("todo/1", `{"text":"login"}`))
		for i := range 45 {
			m.do(put(fmt.Sprintf("note/%d", i), `"one of many"`))
		}
		share, ref := r.url("/share/"+m.publish().ID), m.share(capability.MintRequest{})
		page := r.url("/s/" + ref.ID)
		b, stranger := newBrowser(t), newBrowser(t)
		if got := b.open(page, secretOf(ref)); got.StatusCode != http.StatusOK {
			t.Fatal(got.StatusCode, got.body)
		}
		for _, at := range []string{share, page} {
			want := []string{"todo/1 #k-todo/1 todo/1", "Message #p-none/p part/none/p", "Assistant #p-b/p part/b/p", "Assistant #m-b message/b", "User #p-a/p part/a/p", "Session #title session"}
			if got, pages := b.found(at, "login"); !slices.Equal(got, want) || pages != 1 {
				t.Errorf("%s: %d pages of %q", at, pages, got)
			}
			if got, pages := b.found(at, "+one+%22of+many%22"); len(got) != 45 || pages != 3 || got[0] != "note/44 #k-note/44 note/44" {
				t.Errorf("%s: %d pages of %q", at, pages, got)
			}
			if got, _ := b.found(at, "nowhere"); got != nil {
				t.Errorf("%s: %q", at, got)
			}
			got := b.get(at + "?q=login+fails")
			if !strings.Contains(got.body, `the <mark>login</mark> &lt;b&gt;<mark>fails</mark>&lt;/b&gt;`) || !strings.Contains(got.body, "1 result<") || !strings.Contains(got.body, "A Login") {
				t.Errorf("%s: %s", at, got.body)
			}
			if head := b.send(http.MethodHead, at+"?q=login", ""); head.StatusCode != http.StatusOK || head.body != "" {
				t.Errorf("%s: HEAD %d %s", at, head.StatusCode, head.body)
			}
			for query, why := range map[string]string{"": "the query has no word", "%21": "the query has no word", "%00": "the query has no word", "%ff": "the query has no word",
				strings.Repeat("x", 1001): "the limit is 1000", strings.Join(words(65), "+"): "more than 64 words",
				"login&after=~": "continues after the previous page", "login&after=" + strings.Repeat("9", 600): "continues after the previous page"} {
				got := b.get(at + "?q=" + query)
				if got.StatusCode != http.StatusBadRequest || !strings.Contains(got.body, `<p class="tally refused" role="alert">It was not searched: `) || !strings.Contains(got.body, why) {
					t.Errorf("%s?q=%.20s: %d %s", at, query, got.StatusCode, got.body)
				}
				if got := b.send(http.MethodGet, at+"?q="+query, ""); got.StatusCode != http.StatusBadRequest || got.codeOf() != "bad_argument" || !strings.Contains(got.body, why) {
					t.Errorf("%s?q=%.20s for the script: %d %s", at, query, got.StatusCode, got.body)
				}
			}
		}
		if got := stranger.get(page + "?q=login"); strings.Contains(got.body, "login") || !strings.Contains(got.body, `id="gate"`) {
			t.Errorf("without a token: %d %s", got.StatusCode, got.body)
		}
		if got := stranger.get(r.url("/share/none?q=login")); got.StatusCode != http.StatusNotFound {
			t.Errorf("of no share: %d %s", got.StatusCode, got.body)
		}
		m.write().do(op("purge", arg("key", `"part/a/p"`)), put("todo/1", `{"text":"done"}`))
		if got, _ := b.found(share, "login"); len(got) != 4 || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "part/a/p") }) {
			t.Errorf("after a purge: %q", got)
		}
		m.revoke(ref.ID)
		if got := b.send(http.MethodGet, page+"?q=login", ""); got.StatusCode != http.StatusForbidden || got.codeOf() != "revoked" {
			t.Errorf("revoked: %d %s", got.StatusCode, got.body)
		}
	})
}

// words are n different words.
func words(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("w%d", i))
	}
	return all
}

// A search finds nothing that the page's ref does not show.
func TestSearchOfNarrowRefs(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		first := m.do(put("session", `{"title":"login"}`), put("message/one", `{"role":"user"}`), put("part/one/p", `{"type":"text","text":"login one"}`), put("todo/1", `"login"`))
		m.do(put("message/two", `{"role":"user"}`), put("part/two/p", `{"type":"text","text":"login two"}`), put("todo/2", `"login"`))
		for want, mint := range map[string]capability.MintRequest{
			"User #p-one/p part/one/p":                              {Message: "one"},
			"todo/2 #k-todo/2 todo/2, Message #p-one/p part/one/p":  {ReadKeys: []string{"part/one/", "todo/2"}},
			"todo/2 #k-todo/2 todo/2, User #p-two/p part/two/p":     {VisibleFrom: first + 1},
			"todo/2 #k-todo/2 todo/2, todo/1 #k-todo/1 todo/1":      {ReadKeys: []string{"todo/"}},
			"Session #title session":                                {ReadKeys: []string{"session"}},
			"":                                                      {ReadKeys: []string{"plan"}},
			"todo/2 #k-todo/2 todo/2, Message #p-two/p part/two/p ": {ReadKeys: []string{"todo/", "part/"}, VisibleFrom: first + 1},
		} {
			ref := m.share(mint)
			b := newBrowser(t)
			page := r.url("/s/" + ref.ID)
			if got := b.open(page, secretOf(ref)); got.StatusCode != http.StatusOK {
				t.Fatal(got.StatusCode, got.body)
			}
			if got, _ := b.found(page, "login"); strings.Join(got, ", ") != strings.TrimSpace(want) {
				t.Errorf("%+v: %q, want %q", mint, got, want)
			}
		}
	})
}

// While a server of an earlier version runs beside it, a search says so in words for readers.
func TestSearchDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	st := teststore.Postgres(t, teststore.PostgresURL(t))
	if _, err := st.RecordReplica(t.Context(), "of the version before", 0, time.Hour); err != nil {
		t.Fatal(err)
	}
	r := start(t, st, nil)
	m := r.create()
	m.do(put("message/a", `{"role":"user"}`))
	at := r.url("/share/" + m.publish().ID + "?q=login")
	const why = "some server here is still of an earlier version, which cannot search: try again later"
	if got := newBrowser(t).get(at); got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.body, "It was not searched: "+why) || got.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", got.StatusCode, got.Header, got.body)
	}
	if got := newBrowser(t).send(http.MethodGet, at, ""); got.codeOf() != "unsupported" || !strings.Contains(got.body, why) {
		t.Errorf("for the script: %d %s", got.StatusCode, got.body)
	}
}

// While the index is made, a browser without the script asks again.
func TestSearchIsAskedAgain(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/share/x": refreshSeconds, "/s/ses_1.a": ""} {
		for _, indexing := range []bool{true, false} {
			w := httptest.NewRecorder()
			q := &request{w: w, r: httptest.NewRequest(http.MethodGet, path+"?q=a", nil), path: path}
			q.writeFound(http.StatusOK, page.Search{Path: path, Query: "a", Indexing: indexing})
			if !indexing {
				want = ""
			}
			if got := w.Header().Get("Refresh"); got != want || !strings.Contains(w.Body.String(), `id="found"`) {
				t.Errorf("%s, %t: Refresh %q, %s", path, indexing, got, w.Body)
			}
		}
	}
}
