package page_test

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/search"
	"github.com/mooring-rpc/mooring/internal/session"
)

// hit is an entry that a search has found.
func hit(key, place string, by session.Change, excerpt ...string) *session.Found {
	return &session.Found{EntryInfo: &session.EntryInfo{Entry: &session.Entry{Key: key}, Change: by}, Match: &search.Match{Place: place, Excerpt: excerpt}}
}

// foundPage is the page of a search.
func foundPage(t *testing.T, s page.Search) string {
	t.Helper()
	var b strings.Builder
	if err := page.Found(&b, s); err != nil {
		t.Fatal(err)
	}
	soundPage(t, s.Query, b.String())
	return b.String()
}

// What was found is listed as what it is, with a link to its place on the session's page, and the matches marked.
func TestFound(t *testing.T) {
	t.Parallel()
	by := session.Change{Actor: "agent/<ann>", At: 1795203823442}
	html := foundPage(t, page.Search{Base: "/at", Path: "/share/x", Info: &session.Entry{Key: "session", Payload: []byte(`{"title":"The <Boat>"}`)}, Query: `"log in" <b>`,
		Who: map[string]string{"m": "Assistant"}, First: "/share/x?q=a", Next: "/share/x?q=a&after=b", Found: []*session.Found{
			hit("part/m/p", "/text", session.Change{}, "the <i>", "log in", " of it, ", "<b>", "…"),
			hit("message/m", "/summary", session.Change{}, "", "log in", ""),
			hit("part/none/p", "/text", session.Change{}, "", "x", ""),
			hit("session", "/title", session.Change{}, "", "x", ""),
			hit("session_diff", "/diff/0/file", session.Change{}, "", "x", ""),
			hit("model/a.b", "/name", session.Change{}, "", "x", ""),
			hit("todo/1", "/text", by, "", "x", ""),
			hit("todo/x", "key", session.Change{Ref: "ses_1.a"}, "", "x", ""),
			hit("plan", "", session.Change{}, "", "x", ""),
			hit("schema/todo", "/title", session.Change{}, "", "x", ""),
		}})
	for _, want := range []string{
		`<title>Search in The &lt;Boat&gt; · Mooring</title>`, `<h1 id="title" dir="auto">The &lt;Boat&gt;</h1>`, `<a class="button" href="/at/share/x">`,
		`role="search" method="get" action="/at/share/x"`, `name="q" value="&#34;log in&#34; &lt;b&gt;"`, `10 results, and there may be others`,
		`rel="first" href="/at/share/x?q=a"`, `rel="next" href="/at/share/x?q=a&amp;after=b"`,
		`<li data-key="part/m/p"><a href="/at/share/x#p-m/p"><span class="name" dir="auto">Assistant</span> <span class="excerpt" dir="auto">the &lt;i&gt;<mark>log in</mark> of it, <mark>&lt;b&gt;</mark>…</span></a></li>`,
		`<a href="/at/share/x#m-m"><span class="name" dir="auto">Assistant<`, `<a href="/at/share/x#p-none/p"><span class="name" dir="auto">Message<`, `<a href="/at/share/x#title"><span class="name" dir="auto">Session<`,
		`<a href="/at/share/x#k-session_diff"><span class="name" dir="auto">Changes<`, `<a href="/at/share/x#k-model/a.b"><span class="name" dir="auto">Model</span> <span class="what" dir="auto">a.b<`,
		`<a href="/at/share/x#k-todo/1"><span class="name" dir="auto">todo/1</span> <span class="what" dir="auto">/text · agent/&lt;ann&gt;</span> <span class="took"><time datetime="2026-11-20T19:43:43`,
		`<a href="/at/share/x#k-todo/x"><span class="name" dir="auto">todo/x</span> <span class="what" dir="auto">ses_1.a<`, `<a href="/at/share/x#k-plan"><span class="name" dir="auto">plan</span> <span class="excerpt"`,
		`<a href="/at/share/x#k-schema/todo"><span class="name" dir="auto">schema/todo</span> <span class="what" dir="auto">/title<`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s in %s", want, html)
		}
	}
	for want, s := range map[string]page.Search{
		"Nothing is found.":        {Query: "a"},
		"Nothing else is found.":   {Query: "a", First: "/share/x?q=a"},
		"Nothing yet":              {Query: "a", Next: "/share/x?q=a&after=b"},
		"1 result<":                {Query: "a", Found: []*session.Found{hit("plan", "", session.Change{}, "", "x", "")}},
		`data-indexing="true"`:     {Query: "a", Indexing: true},
		"its index is being made":  {Query: "a", Indexing: true},
		"no word: &lt;search&gt; ": {Query: "!", Refused: fault.BadArgument.With("the query has no word: <search> for more")},
	} {
		s.Path = "/share/x"
		html := foundPage(t, s)
		if !strings.Contains(html, want) || strings.Contains(html, "data-indexing") != s.Indexing || strings.Contains(html, `role="alert"`) != (s.Refused != nil) {
			t.Errorf("no %q in %s", want, html)
		}
	}
}

// Of a session's page, a public share's form is sent by the browser; with a ref's the words go into no address.
func TestSearchOfAPage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		head page.Head
		want string // "" for no search
	}{
		{page.Head{Base: "/at", Live: "/share/x/live"}, `role="search" method="get"><label>`},
		{page.Head{Live: "/s/ses_1.a/live"}, `role="search" method="dialog"><label>`},
		{page.Head{Live: "/s/ses_1.a/live", Over: fault.Revoked.With("over")}, ""},
		{page.Head{}, ""},
	} {
		var b strings.Builder
		if err := page.Start(&b, c.head).End(); err != nil {
			t.Fatal(err)
		}
		soundPage(t, c.want, b.String())
		if !strings.Contains(b.String(), c.want) || strings.Contains(b.String(), `role="search"`) != (c.want != "") || strings.Contains(b.String(), `href="#find"`) != (c.want != "") {
			t.Errorf("%+v: %s", c.head, b.String())
		}
	}
}
