package page_test

// What must hold of any HTML that the package makes, whatever the content.

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// allowed are the elements there are, each with its attributes; those of every
// element stand under "".
var allowed = map[string][]string{
	"":     {"id", "class", "hidden", "title", "dir", "data-key", "tabindex", "role", "aria-label", "aria-live", "aria-labelledby", "aria-hidden", "aria-pressed"},
	"html": {"lang"}, "head": nil, "title": nil, "meta": {"charset", "name", "content"}, "link": {"rel", "type", "href"}, "script": {"src", "type"}, "body": {"data-page", "data-base", "data-live", "data-cursor", "data-hash", "data-may", "data-own", "data-script", "data-style"},
	"main": {"data-rights"}, "header": nil, "footer": nil, "nav": nil, "section": {"data-len", "data-ord", "data-says"}, "article": {"data-open", "data-ord", "data-in", "data-out", "data-reasoning", "data-cost", "data-began", "data-ended"}, "div": {"data-open", "data-indexing", "data-ref"}, "noscript": nil, "dialog": nil,
	"h1": nil, "h2": nil, "h3": nil, "h4": nil, "h5": nil, "h6": nil, "p": {"data-state", "data-upto"}, "pre": nil, "code": nil, "span": {"data-started"}, "strong": nil, "em": nil, "del": nil, "ins": nil, "kbd": nil, "br": nil, "hr": nil, "mark": nil, "blockquote": nil,
	"ul": nil, "ol": {"start"}, "li": {"data-child", "data-part"}, "dl": nil, "dt": nil, "dd": nil, "details": {"open"}, "summary": nil, "figure": nil, "figcaption": nil, "time": {"datetime"},
	"table": nil, "caption": nil, "thead": nil, "tbody": nil, "tr": nil, "th": {"align"}, "td": {"align", "data-n"},
	"a": {"href", "rel", "target"}, "img": {"src", "alt", "loading", "decoding"}, "button": {"type", "data-do", "data-close", "data-act", "data-ref", "data-owner"}, "bdi": nil,
	"form": {"method", "action", "data-open"}, "label": nil, "input": {"type", "name", "value", "placeholder", "autocomplete", "spellcheck", "required", "checked"}, "select": {"name"}, "option": {"value", "selected"},
	"svg": {"viewbox", "width", "height"}, "path": {"d", "fill", "stroke", "stroke-width", "stroke-linecap"}, "circle": {"cx", "cy", "r", "fill", "stroke", "stroke-width"},
}

var void = []string{"meta", "link", "br", "hr", "img", "input"}

// own are the ids that are the page's.
var own = []string{"session", "title", "line", "state", "cursor", "totals", "log", "rest", "contents", "contents-title", "turns", "more-turns", "facts", "newer", "help", "help-title", "notice", "gate", "ref", "ended", "find", "find-title", "find-state", "found", "found-more", "about", "children", "compacted", "reverted", "tree-title", "audit-title", "start"}

var (
	hrefs  = regexp.MustCompile(`^(https?://[^/]|mailto:|#|/([^/]|$))`)
	images = regexp.MustCompile(`^data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*$`)
	blocks = regexp.MustCompile(`^(m-[A-Za-z0-9_.:@+-]+|p-[A-Za-z0-9_.:@+-]+/[A-Za-z0-9_.:@+-]+|k-[A-Za-z0-9_.:@+/-]+)$`)
	asset  = regexp.MustCompile(`^(/at)?/assets/[a-z]+-[0-9a-f]{16}\.(js|css|svg)$`)
)

// unsound says what is wrong with HTML; whole says that it is a document, not a
// fragment of one.
func unsound(text string, whole bool) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("not UTF-8")
	}
	if i := strings.IndexFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e
	}); i >= 0 {
		return fmt.Errorf("a control character at %d: %q", i, text[i:min(i+20, len(text))])
	}
	ids := map[string]bool{}
	var open []string
	z := html.NewTokenizer(strings.NewReader(text))
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		t := z.Token()
		switch kind {
		case html.CommentToken:
			return fmt.Errorf("a comment %q", t.Data)
		case html.DoctypeToken:
			if !whole {
				return fmt.Errorf("a doctype within")
			}
		case html.StartTagToken:
			if err := element(t, whole, ids); err != nil {
				return err
			}
			if !slices.Contains(void, t.Data) {
				open = append(open, t.Data)
			}
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != t.Data {
				return fmt.Errorf("</%s> where %v are open", t.Data, open)
			}
			open = open[:len(open)-1]
		case html.SelfClosingTagToken:
			if t.Data != "path" && t.Data != "circle" {
				return fmt.Errorf("<%s/>", t.Data)
			}
			if err := element(t, whole, ids); err != nil {
				return err
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%v are not closed", open)
	}
	return nil
}

func element(t html.Token, whole bool, ids map[string]bool) error {
	attributes, ok := allowed[t.Data]
	if !ok || t.Data == "script" && !whole {
		return fmt.Errorf("an element <%s>", t.Data)
	}
	for _, a := range t.Attr {
		if !slices.Contains(attributes, a.Key) && !slices.Contains(allowed[""], a.Key) {
			return fmt.Errorf("an attribute %s of <%s>: %q", a.Key, t.Data, a.Val)
		}
		switch {
		case a.Key == "id":
			if ids[a.Val] {
				return fmt.Errorf("two elements have the id %q", a.Val)
			}
			ids[a.Val] = true
			if !blocks.MatchString(a.Val) && a.Val != "compacted" && (!whole || !slices.Contains(own, a.Val)) {
				return fmt.Errorf("an id %q", a.Val)
			}
		case a.Key == "name" && t.Data != "meta" && !slices.Contains([]string{"q", "order", "deleted"}, a.Val):
			return fmt.Errorf("a name %q", a.Val)
		case t.Data == "link" && a.Key == "href", t.Data == "script" && a.Key == "src":
			if !asset.MatchString(a.Val) {
				return fmt.Errorf("<%s> loads %q", t.Data, a.Val)
			}
		case a.Key == "href" && !hrefs.MatchString(a.Val):
			return fmt.Errorf("a link to %q", a.Val)
		case a.Key == "src" && !images.MatchString(a.Val):
			return fmt.Errorf("an image of %q", a.Val)
		}
	}
	return nil
}

// sound fails the test if the HTML of a fragment is not.
func sound(t testing.TB, what string, text []byte) {
	t.Helper()
	if err := unsound(string(text), false); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// reread says where a browser's parser makes other elements of a fragment than are
// written in it: where it closes some by itself, or moves them.
func reread(text []byte) error {
	body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
	nodes, err := html.ParseFragment(bytes.NewReader(text), body)
	if err != nil {
		return err
	}
	var again bytes.Buffer
	for _, n := range nodes {
		if err := html.Render(&again, n); err != nil {
			return err
		}
	}
	was, is := tagsOf(text), tagsOf(again.Bytes())
	for i := range was {
		if i >= len(is) || was[i] != is[i] {
			return fmt.Errorf("tag %d is %s, read as %v", i, was[i], is[max(i-3, 0):min(i+3, len(is))])
		}
	}
	return nil
}

func tagsOf(text []byte) (tags []string) {
	z := html.NewTokenizer(bytes.NewReader(text))
	for kind := z.Next(); kind != html.ErrorToken; kind = z.Next() {
		name, _ := z.TagName()
		switch kind {
		case html.StartTagToken, html.SelfClosingTagToken:
			tags = append(tags, string(name))
		case html.EndTagToken:
			tags = append(tags, "/"+string(name))
		}
	}
	return tags
}

// soundPage is sound for a whole document.
func soundPage(t testing.TB, what, text string) {
	t.Helper()
	if err := unsound(text, true); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
	if !strings.HasPrefix(text, "<!doctype html>") || !strings.HasSuffix(text, "</html>\n") {
		t.Fatalf("%s: not a whole document", what)
	}
}

// words is the text of HTML as a reader has it, with single blanks.
func words(t testing.TB, text []byte) string {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// The checker itself finds what it is there for.
func TestUnsound(t *testing.T) {
	for _, bad := range []string{
		"<script>x</script>", "<p>", "</p>", "<p></div>", `<p onclick="x">y</p>`, `<p style="x">y</p>`, `<a href="javascript:x">y</a>`, `<a href="//x">y</a>x` + "\x00",
		`<img src="https://x/y.png">`, `<img src="data:image/svg+xml;base64,AAAA">`, `<p id="title">x</p>`, `<p id="m-1"></p><p id="m-1"></p>`, "<!-- x -->", "<iframe></iframe>",
		`<base href="/">`, `<form action="/x"><input name="q2"></form>`, "<p/>", "a\x1bb", `<svg><script/></svg>`, `<a name="x">y</a>`, `<p xlink:href="x">y</p>`,
	} {
		if unsound(bad, false) == nil {
			t.Errorf("%q passes", bad)
		}
	}
	for _, bad := range []string{"<p><div></div></p>", "<table><p></p></table>", "<a><a></a></a>", "<h2><h3></h3></h2>", "<ul><li><li></li></li></ul>"} {
		if reread([]byte(bad)) == nil {
			t.Errorf("%q is read as it is", bad)
		}
	}
	if err := unsound(`<p class="x">a &lt; b<br><a href="#m-1">c</a></p>`, false); err != nil {
		t.Error(err)
	}
}
