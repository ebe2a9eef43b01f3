package page_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Values of own kinds: who changed them when, scalars, trees, and tables for lists of equal objects.
func TestOwnKinds(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for _, payload := range []string{
		`{"title":"paint the boat","state":"open","tries":3,"due":null,"tags":["a","b"],"by":{"name":"Ann","done":false},"note":"two\nlines"}`,
		`[{"step":"sand","state":"done"},{"state":"open","step":"paint"}]`,
		`{"steps":[{"step":"sand","cost":{"h":1}},{"step":"paint","cost":{"h":2}}]}`,
		`[{"step":"sand"},{"state":"open"}]`,
		`[{"a":1,"a":2},{"a":1,"a":2}]`,
		`[{},{}]`, `{}`, `[]`, `""`, `"plain <b>text</b>"`, `-1.50e3`, `true`, `null`,
	} {
		html := page.Block(&session.Entry{Key: "todo/1", Payload: []byte(payload)}, session.Change{Ref: "ses_1.a", Actor: "agent/<ann>", At: 1_700_000_000_000}, nil)
		sound(t, payload, html)
		if err := reread(html); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
		file.WriteString("== " + payload + "\n" + readable(html) + "\n\n")
	}
	golden(t, "own.html", file.String())
}

// Who changed a value is the actor, or the ref where it names none, or nobody who is known.
func TestOwnKindsAuthors(t *testing.T) {
	t.Parallel()
	for by, want := range map[session.Change]string{
		{Ref: "ses_1.a", Actor: "owner/b", At: 1}: `>owner/b</span><span class="took"><time `,
		{Ref: "ses_1.a", At: 1}:                   `>ses_1.a</span><span class="took"><time `,
		{Cursor: 4}:                               `></span></summary>`,
	} {
		if html := string(page.Block(&session.Entry{Key: "todo", Payload: []byte(`1`)}, by, nil)); !strings.Contains(html, want) {
			t.Errorf("%+v: %s", by, html)
		}
	}
}

// Who works on a key is the actor, or the ref where it names none, and the worker.
func TestClaimedKeys(t *testing.T) {
	t.Parallel()
	for want, claim := range map[string]*session.Claim{
		`<p class="claim" dir="auto">Claimed by owner/&lt;b&gt; w1 until <time`: {Ref: "ses_1.a", Actor: "owner/<b>", Worker: "w1", Until: 1_700_000_000_000},
		`<p class="claim" dir="auto">Claimed by ses_1.a until <time`:            {Ref: "ses_1.a", Until: 1_700_000_000_000},
		`<div class="body"><code class="v" dir="auto">1</code>`:                 nil,
	} {
		html := page.Block(&session.Entry{Key: "todo", Payload: []byte(`1`), Claim: claim}, session.Change{Cursor: 4}, nil)
		if sound(t, want, html); !strings.Contains(string(html), want) {
			t.Errorf("%+v: %s", claim, html)
		}
	}
}

// A value of any size and depth costs bounded HTML.
func TestOwnKindsAreBounded(t *testing.T) {
	t.Parallel()
	row := `{"a":[1,2,3],"b":"` + strings.Repeat("x", 3000) + `"},`
	for name, payload := range map[string]string{
		"deep":  strings.Repeat(`{"a":[`, 5000) + strings.Repeat(`]}`, 5000),
		"rows":  "[" + strings.TrimSuffix(strings.Repeat(row, 400), ",") + "]",
		"wide":  `{"l":[` + strings.TrimSuffix(strings.Repeat(`[[1,2],[3,4],[5,6],[7,8]],`, 3000), ",") + `]}`,
		"names": `[{"` + strings.Repeat("n", 1<<20) + `":1},{"x":2}]`,
		"text":  `"` + strings.Repeat("<", 1<<20) + `"`,
		"many":  "{" + strings.Repeat(`"a":1,`, 100_000) + `"b":2}`,
	} {
		html := page.Block(&session.Entry{Key: "big/" + name, Payload: []byte(payload)}, session.Change{}, nil)
		sound(t, name, html)
		if len(html) > 2<<20 {
			t.Errorf("%s: %d bytes of HTML for %d", name, len(html), len(payload))
		}
		if !strings.Contains(string(html), `class="clip"`) && name != "names" && name != "deep" {
			t.Errorf("%s: it does not say that something is left out", name)
		}
	}
	html := string(page.Block(&session.Entry{Key: "big", Payload: []byte(fmt.Sprintf(`[%s{"x":2}]`, strings.Repeat(`{"x":1},`, 249)))}, session.Change{}, nil))
	if strings.Count(html, "<tr>") != 201 || !strings.Contains(html, "and 50 more rows") {
		t.Errorf("a table of 250 rows: %d", strings.Count(html, "<tr>"))
	}
}
