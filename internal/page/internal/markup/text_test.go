package markup

// The small functions on texts and numbers, by tables.

import (
	"html"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2/lexers"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{CountText(0), "0"}, {CountText(999), "999"}, {CountText(1000), "1,000"}, {CountText(1234567.4), "1,234,567"}, {CountText(-5), "-5"}, {CountText(1e300), "1e+300"},
		{CostText(0), ""}, {CostText(0.00001), "<$0.0001"}, {CostText(0.001386), "$0.0014"}, {CostText(0.5), "$0.50"}, {CostText(12.345), "$12.35"}, {CostText(1e12), "$1e+12"},
		{SpanText(0, 5), ""}, {SpanText(5, 4), ""}, {SpanText(1000, 1020), "20 ms"}, {SpanText(1000, 2250), "1.3 s"}, {SpanText(1, 62001), "1 min 2 s"}, {SpanText(1, 3720001), "1 h 2 min"}, {SpanText(1, math.MaxInt64), "305419 h 53 min"},
		{BytesText(12), "12 bytes"}, {BytesText(1536), "1.5 KiB"}, {BytesText(4 << 20), "4 MiB"},
		{Plural(1, "file"), "1 file"}, {Plural(0, "file"), "0 files"},
		{PlainNumber(0.027652999999999997), "0.027653"},
	} {
		if c.got != c.want {
			t.Errorf("%q, not %q", c.got, c.want)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\ttext\n": "plain\ttext\n", "a\r\nb\rc": "a\nb\nc", "\x00\x07\x7f": "\uFFFD\uFFFD\uFFFD", "\xff\xc3(": "\uFFFD\uFFFD(", "\x1b[1;31mred\x1b[0m": "red", "\x1b]8;;": "]8;;", "\x1b[": "[", "ü€😀\u00a0": "ü€😀\u00a0",
		"user\u202e": "user\uFFFD", "\u0085": "\uFFFD", "\ufffe": "\uFFFD", "": "", "\x1b": "", "\r": "\n",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) is %q, not %q", in, got, want)
		}
	}
}

func TestCuts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{CutBytes("aüb", 2), "a"}, {CutBytes("aüb", 3), "aü"}, {CutBytes("ü", 0), ""}, {CutBytes("abc", 9), "abc"}, {CutBytes("\x80\x80", 1), ""},
		{OneLine("  \n a  b\tc \n d", 80), "a b c"}, {OneLine("abcdef", 3), "abc…"}, {OneLine("", 3), ""},
	} {
		if c.got != c.want {
			t.Errorf("%q, not %q", c.got, c.want)
		}
	}
}

func TestSettled(t *testing.T) {
	t.Parallel()
	for in, whole := range map[string]string{
		"one": "", "one\n": "", "one\n\ntwo": "one\n\n", "one\n \ntwo\n\n": "one\n \ntwo\n\n", "a\n\n```\nx\n\ny": "a\n\n", "a\n\n```go\nx\n\n```\ny": "a\n\n```go\nx\n\n```\n", "~~~\na\n\n```\n\n": "", "````\n```\n\n": "", "": "",
	} {
		if got, rest := settled(in); got != whole || got+rest != in {
			t.Errorf("settled(%q) is %q and %q, not %q", in, got, rest, whole)
		}
	}
}

// Texts that would take goldmark time in proportion to more than their length are
// told; what people and models write is not.
func TestCostly(t *testing.T) {
	t.Parallel()
	n := markdownBytes
	for name, text := range map[string]string{
		"links": strings.Repeat("[a](", n/4), "empty links": strings.Repeat("[](<", n/4), "emphasis": strings.Repeat("*a_ ", n/4), "strikes": strings.Repeat("~~a ", n/4), "quotes": strings.Repeat("> ", 20) + "x", "lists": strings.Repeat("- ", 20) + "x", "numbers": strings.Repeat("1. ", 20) + "x",
	} {
		if !costly(text) {
			t.Errorf("%s pass", name)
		}
	}
	for name, text := range map[string]string{
		"code": "```\n" + strings.Repeat("\t\t\t\t\t\t\t\tx := a[i](b) * c_d\n", 200), "a list of links": strings.Repeat("- [a](https://example.com/a/long/address) *b*\n", 400), "depth": "> > - 1. * x\n", "a rule": strings.Repeat("- ", 10) + "\n", "prose": strings.Repeat("word, ", 10000),
	} {
		if costly(text) {
			t.Errorf("%s does not pass", name)
		}
	}
}

// What a short text stands for is bounded too: a table's rows have all the cells of
// its head, and every use of a reference has all of its address.
func TestMarkdownDoesNotGrow(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a wide table":           strings.Repeat("a|", 1000) + "\n" + strings.Repeat("-|", 1000) + "\n" + strings.Repeat("|\n", 2000),
		"a wide table in quotes": "> " + strings.Repeat("a|", 1000) + "\n> " + strings.Repeat("-|", 1000) + "\n" + strings.Repeat("> |\n", 2000),
		"other line ends":        strings.Repeat("a|", 1000) + "\r" + strings.Repeat("-|", 1000) + "\r" + strings.Repeat("|\r", 2000),
		"hidden line ends":       strings.Repeat("a|", 1000) + "\n" + strings.Repeat("-|", 1000) + "\x1b[m\n" + strings.Repeat("|\n", 2000),
		"a long address":         "[a]: https://x/" + strings.Repeat("b", 4000) + "\n\n" + strings.Repeat("[a] ", 2000),
		"a long title":           "[a]: https://x '" + strings.Repeat("b\n", 2000) + "'\n\n" + strings.Repeat("[a] ", 2000),
	} {
		var o Out
		if markdown(&o, text); len(o.b) > 40*len(text) {
			t.Errorf("%s: %d bytes become %d", name, len(text), len(o.b))
		} else if !strings.HasPrefix(string(o.b), `<div class="plain">`) {
			t.Errorf("%s is read", name)
		}
	}
	for name, text := range map[string]string{
		"table": "a|b|c\n-|-|:-:\n" + strings.Repeat("d|e|f\n", 1500), "references": "[a]: https://x/y 'z'\n\n" + strings.Repeat("some words [a] and more\n", 500),
	} {
		var o Out
		if markdown(&o, text); strings.HasPrefix(string(o.b), `<div class="plain">`) {
			t.Errorf("%s: is not read", name)
		}
	}
}

var tags = regexp.MustCompile("<[^>]*>")

func TestLanguages(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"/a/b.go": "go", "Makefile": "make", "x/Dockerfile": "docker", "a.TSX": "typescript", "noext": "", "": "", ".go": "go", "a.b.rs": "rust"} {
		if got := LanguageOf(file); got != want {
			t.Errorf("languageOf(%q) is %q, not %q", file, got, want)
		}
	}
	for name, lexer := range languages {
		if lexers.Get(lexer) == nil {
			t.Errorf("%s: there is no lexer %s", name, lexer)
		}
		var o Out
		const code = "x = 1 // y\n\"z\" # w\n"
		if highlight(&o, code, name); string(o.b) == "" || html.UnescapeString(tags.ReplaceAllString(string(o.b), "")) != code {
			t.Errorf("%s: %s", name, o.b)
		}
	}
}

// Code is the same text with and without its marks, and time that is spent stops
// the marking, not the code.
func TestHighlight(t *testing.T) {
	t.Parallel()
	code := "package p\n\n// c <d>\nfunc f() string { return \"&\" }"
	var marked, plain Out
	highlight(&marked, code, "Go")
	plain.spent = CodeTime + 1
	highlight(&plain, code, "go")
	if !strings.Contains(string(marked.b), `<span class="k">func</span>`) || !strings.Contains(string(marked.b), `// c &lt;d&gt;`) {
		t.Error(string(marked.b))
	}
	if got := string(plain.b); got != "package p\n\n// c &lt;d&gt;\nfunc f() string { return &#34;&amp;&#34; }" {
		t.Error(got)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"https://go.dev/a b": "https://go.dev/a%20b", "http://x": "http://x", "//x": "", "javascript:x": "", "https://u:p@x": "", "https:///x": "", "file:///x": "", "https://x/" + strings.Repeat("a", 3000): "", "/x": "", "%": ""} {
		if got := Outside(in); got != want {
			t.Errorf("Outside(%.40s) is %q, not %q", in, got, want)
		}
	}
}
