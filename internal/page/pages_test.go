package page_test

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	l := page.List{Base: "/at", Query: `"a" <b>`, Order: "oldest", Deleted: true, First: "/sessions?q=x", Next: "/sessions?q=x&after=y", Rows: []page.Row{
		{Title: "One <1>", ID: "ses_1", External: "ses_ext", Created: 1795203823442, Updated: 1795203835373, Cursor: 7, Link: "/s/ses_1.abc"}, {ID: "ses_2", Deleted: true}}, Note: "only <some>"}
	if err := page.Sessions(&b, l); err != nil {
		t.Fatal(err)
	}
	soundPage(t, "sessions", b.String())
	for _, want := range []string{`action="/at/sessions"`, `method="get"`, `value="&#34;a&#34; &lt;b&gt;"`, `<option value="oldest" selected>`, `name="deleted" value="1" checked>`, `<span class="tag">deleted</span>`, `href="/at/s/ses_1.abc">One &lt;1&gt;</a>`,
		`data-close="/at/sessions/close"`, "only &lt;some&gt;", "ses_ext", "20 Nov 2026, 19:43 UTC", "cursor 7", "Untitled session", "ses_2", `rel="first" href="/at/sessions?q=x"`, `rel="next" href="/at/sessions?q=x&amp;after=y"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
	for want, l := range map[string]page.List{"There are no sessions yet.": {}, "No session matches.": {Query: "x"}, "goes on": {Query: "x", Next: "/sessions?after=y", Note: "It goes on."}} {
		b.Reset()
		if err := page.Sessions(&b, l); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), `rel="next"`) != (l.Next != "") {
			t.Errorf("no %q in %s", want, b.String())
		}
	}
}

func TestGates(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := page.Unlock(&b, "/at", "ses_1.a/b"); err != nil {
		t.Fatal(err)
	}
	soundPage(t, "unlock", b.String())
	if want := `data-open="/at/s/ses_1.a%2Fb/open"`; !strings.Contains(b.String(), want) || !strings.Contains(b.String(), "<noscript>") {
		t.Errorf("no %s in %s", want, b.String())
	}
	b.Reset()
	if err := page.SignIn(&b, "/at"); err != nil {
		t.Fatal(err)
	}
	soundPage(t, "signin", b.String())
	// Without a name the browser itself never sends it.
	if !strings.Contains(b.String(), `data-open="/at/sessions/open"`) || !strings.Contains(b.String(), `<input type="password" id="ref"`) || strings.Contains(b.String(), `id="ref" name`) {
		t.Errorf("sign-in: %s", b.String())
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		f      *fault.Error
		want   []string
	}{
		{410, fault.Revoked.With("the ref was revoked at cursor 240"), []string{"410", "Revoked", "the ref was revoked at cursor 240", "revoked"}},
		{404, fault.NotFound.With("there is no such share"), []string{"404", "Not found", "there is no such share"}},
		{429, &fault.Error{Code: fault.Overloaded}, []string{"429", "Too busy", "overloaded"}},
		{500, fault.Internal.With("a defect"), []string{"500", "It did not work", "a defect"}},
	} {
		var b strings.Builder
		if err := page.Failure(&b, "", c.status, c.f); err != nil {
			t.Fatal(err)
		}
		soundPage(t, c.f.Code.String(), b.String())
		got := words(t, []byte(b.String()))
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("no %q in %s", w, got)
			}
		}
	}
}
