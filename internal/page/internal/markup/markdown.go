package markup

// Markdown: parsed by goldmark, with every construct beyond text reduced to text, and sanitised
// by bluemonday before it reaches the page.

import (
	"bytes"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// sanitised is HTML that the sanitiser returned.
type sanitised []byte

// policy returns the policy of elements and attributes allowed in rendered markdown.
var policy = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "em", "strong", "del",
		"table", "thead", "tbody", "tr", "th", "td", "span", "div")
	p.AllowAttrs("start").Matching(regexp.MustCompile(`^[0-9]{1,9}$`)).OnElements("ol")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^([a-z][a-z0-9]{0,2}|box|image|scroll|code|code long)$`)).OnElements("span", "pre", "div")
	p.AllowAttrs("tabindex").Matching(regexp.MustCompile(`^0$`)).OnElements("pre", "div")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("mailto")
	// Without a host, "https:x" would be a relative link on a page of that scheme.
	hosted := func(u *url.URL) bool { return u.Host != "" && u.User == nil }
	p.AllowURLSchemeWithCustomPolicy("http", hosted)
	p.AllowURLSchemeWithCustomPolicy("https", hosted)
	p.AllowRelativeURLs(false)
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
})

var reader = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough, extension.TaskList, extension.NewLinkify(extension.WithLinkifyAllowedProtocols([]string{"http:", "https:", "mailto:"}))),
		goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(levels{}, 100))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 1)), html.WithHardWraps()))
})

// markdown writes text as markdown. Text that is too long or would cost too much is written as it
// is.
func markdown(o *Out, s string) {
	if strings.TrimSpace(s) == "" {
		return
	}
	if len(s) > markdownBytes || !readMarkdown(o, Clean(s)) {
		o.Lit(`<div class="plain">`)
		o.Shown(s)
		o.Lit(`</div>`)
	}
}

// readMarkdown writes cleaned text as markdown; false if it would cost too much.
func readMarkdown(o *Out, s string) bool {
	if costly(s) {
		return false
	}
	w, source := &rendering{out: o}, []byte(s)
	doc := reader().Parser().Parse(text.NewReader(source))
	if addresses(doc) > addressBytes || reader().Renderer().Render(w, source, doc) != nil {
		return false
	}
	o.safe(policy().SanitizeReader(&w.Buffer).Bytes())
	return true
}

// Bounds of constructs that real texts do not reach, and that would take the renderer time in
// proportion to more than the text's length.
const (
	deepest     = 16       // nested blocks: each line costs in proportion to its depth
	linkWork    = 48 << 20 // ends of links' texts, times the bytes in which each may search for its end
	emphasisMax = 10000    // emphasis markers: each may search all that are open
	cellsMax    = 100_000  // of tables: every row has as many cells as the head, however short it is

	addressBytes = 4 * markdownBytes // of links: each use of a reference repeats its address
)

// addresses returns the total bytes of all links' addresses and titles.
func addresses(doc ast.Node) (bytes int) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			bytes += len(n.Destination) + len(n.Title)
		case *ast.Image:
			bytes += len(n.Destination) + len(n.Title)
		}
		return ast.WalkContinue, nil
	}) // no step fails
	return bytes
}

// costly reports whether a text exceeds one of these bounds.
func costly(s string) bool {
	if strings.Count(s, "](")*len(s) > linkWork || strings.Count(s, "*")+strings.Count(s, "_")+strings.Count(s, "~") > emphasisMax {
		return true
	}
	lines, columns := 0, 0
	for line := range strings.SplitSeq(s, "\n") {
		lines++
		if strings.Trim(line, "|-: \t>") == "" { // a table's delimiter row
			columns = max(columns, strings.Count(line, "|")+1)
		}
		depth, blanks := 0, 0
		for i := 0; i < len(line) && i < 512; i++ {
			switch c := line[i]; {
			case c == ' ':
				blanks++
				continue
			case c == '\t':
				blanks += 4
				continue
			case c == '>':
				depth++
				continue
			case (c == '-' || c == '*' || c == '+' || c == '.' || c == ')') && i+1 < len(line) && (line[i+1] == ' ' || line[i+1] == '\t'):
				depth++
				continue
			case c >= '0' && c <= '9':
				continue
			}
			break
		}
		if depth > deepest || blanks > 8*deepest && depth > 1 {
			return true
		}
	}
	return lines*columns > cellsMax
}

// settled splits a growing text at the end of its last complete block: the first part's markdown
// is final, the rest may still change.
func settled(s string) (whole, rest string) {
	at, fence := 0, ""
	for i := 0; i < len(s); {
		end := strings.IndexByte(s[i:], '\n')
		if end < 0 {
			break
		}
		line := strings.TrimLeft(s[i:i+end], " ")
		i += end + 1
		switch mark := fenceOf(line); {
		case fence == "" && mark != "":
			fence = mark
		case fence != "" && strings.HasPrefix(mark, fence):
			fence, at = "", i
		case fence == "" && strings.TrimSpace(line) == "":
			at = i
		}
	}
	return s[:at], s[at:]
}

// fenceOf returns the row of backticks or tildes at a line's start, if it is long enough to open
// or close a code block.
func fenceOf(line string) string {
	for _, c := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, c)); n >= 3 {
			return line[:n]
		}
	}
	return ""
}

// rendering is the renderer's output, with the Out it is for.
type rendering struct {
	bytes.Buffer
	out *Out
}

// Buffered implements util.BufWriter.
func (r *rendering) Buffered() int { return 0 }

// Flush implements util.BufWriter.
func (r *rendering) Flush() error { return nil }

// nodes renders the nodes whose default rendering is unsafe.
type nodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (nodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(ast.KindCodeBlock, renderCode)
	r.Register(ast.KindHTMLBlock, renderHTMLBlock)
	r.Register(ast.KindRawHTML, renderRawHTML)
	r.Register(ast.KindImage, renderImage)
	r.Register(extast.KindTaskCheckBox, renderBox)
	r.Register(extast.KindTable, renderTable)
}

// renderCode writes a code block, highlighted.
func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var code strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		code.Write(line.Value(source))
	}
	language := ""
	if f, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(f.Language(source))
	}
	r := w.(*rendering)
	o := Out{spent: r.out.spent}
	if code.Len() > 0 {
		o.Lit(`<pre class="code" tabindex="0"><code>`)
		highlight(&o, strings.TrimRight(code.String(), "\n"), language)
		o.Lit(`</code></pre>`)
	}
	r.out.spent = o.spent
	_, err := w.Write(o.b)
	return ast.WalkSkipChildren, err
}

// renderHTMLBlock writes an HTML block as text.
func renderHTMLBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var o Out
	o.Lit(`<p>`)
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		o.Text(string(line.Value(source)))
	}
	if b := n.(*ast.HTMLBlock); b.HasClosure() {
		o.Text(string(b.ClosureLine.Value(source)))
	}
	o.Lit(`</p>`)
	_, err := w.Write(o.b)
	return ast.WalkSkipChildren, err
}

// renderRawHTML writes an inline tag as text.
func renderRawHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var o Out
	segments := n.(*ast.RawHTML).Segments
	for i := range segments.Len() {
		segment := segments.At(i)
		o.Text(string(segment.Value(source)))
	}
	_, err := w.Write(o.b)
	return ast.WalkSkipChildren, err
}

// renderImage writes an image as a link: nothing is loaded from outside.
func renderImage(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	var o Out
	link := Outside(string(n.(*ast.Image).Destination))
	switch {
	case entering && link != "":
		o.Lit(`<a`)
		o.Attr("href", link)
		o.Lit(`>Image: `)
	case entering:
		o.Lit(`<span class="image">Image: `)
	case link != "":
		o.Lit(`</a>`)
	default:
		o.Lit(`</span>`)
	}
	_, err := w.Write(o.b)
	return ast.WalkContinue, err
}

// renderBox writes a task's checkbox as text, not as a control.
func renderBox(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	box := `<span class="box">☐</span> `
	if n.(*extast.TaskCheckBox).IsChecked {
		box = `<span class="box">☑</span> `
	}
	_, err := w.WriteString(box)
	return ast.WalkContinue, err
}

// renderTable writes a table in an element that scrolls if the table is wide.
func renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	tag := `</table></div>`
	if entering {
		tag = `<div class="scroll" tabindex="0"><table>`
	}
	_, err := w.WriteString(tag)
	return ast.WalkContinue, err
}

// levels moves a text's headings below those of the page, without skipping levels.
type levels struct{}

// Transform implements parser.ASTTransformer.
func (levels) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	var above []int // the levels, as written, above the present heading
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		h, ok := n.(*ast.Heading)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		for len(above) > 0 && above[len(above)-1] >= h.Level {
			above = above[:len(above)-1]
		}
		above = append(above, h.Level)
		h.Level = min(len(above)+2, 6)
		return ast.WalkSkipChildren, nil
	})
}

// Prose writes markdown, and the tail of a growing text.
func Prose(o *Out, text string, grows bool) {
	whole, tail := text, ""
	if grows {
		whole, tail = settled(text)
	}
	o.Lit(`<div class="md" dir="auto">`)
	markdown(o, whole)
	if tail != "" {
		o.Lit(`<div class="tail">`)
		o.Shown(tail)
		o.Lit(`</div>`)
	}
	o.Lit(`</div>`)
	o.Clipped(len(text))
}

// Outside returns address if it may be a link: http or https, with a host.
func Outside(address string) string {
	if len(address) > 2048 {
		return ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return ""
	}
	return u.String()
}
