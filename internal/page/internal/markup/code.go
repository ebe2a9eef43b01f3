package markup

// Code, highlighted with classes, whose style sheet is generated (package stylesheet), and output in fixed width.

import (
	"path"
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"

	"github.com/mooring-rpc/mooring/internal/page/internal/palette"
)

// languages are the highlighted languages, by their common names. Others are shown plain: a page
// can ask for any language, and each one used keeps its memory for good.
var languages = map[string]string{
	"bash": "bash", "sh": "bash", "shell": "bash", "zsh": "bash", "console": "bash", "c": "c", "h": "c", "cpp": "c++", "c++": "c++", "cc": "c++", "hpp": "c++",
	"cs": "c#", "csharp": "c#", "c#": "c#", "css": "css", "diff": "diff", "patch": "diff", "dockerfile": "docker", "docker": "docker", "elixir": "elixir", "ex": "elixir", "exs": "elixir",
	"go": "go", "golang": "go", "mod": "go", "graphql": "graphql", "gql": "graphql", "hcl": "hcl", "tf": "hcl", "haskell": "haskell", "hs": "haskell", "html": "html", "htm": "html", "xml": "xml", "svg": "xml",
	"ini": "ini", "toml": "toml", "java": "java", "js": "javascript", "javascript": "javascript", "mjs": "javascript", "cjs": "javascript", "jsx": "react", "tsx": "typescript",
	"json": "json", "jsonc": "json", "jsonl": "json", "kotlin": "kotlin", "kt": "kotlin", "lua": "lua", "make": "make", "makefile": "make", "md": "markdown", "markdown": "markdown", "nix": "nix",
	"perl": "perl", "pl": "perl", "php": "php", "proto": "protobuf", "protobuf": "protobuf", "py": "python", "python": "python", "ruby": "ruby", "rb": "ruby", "rust": "rust", "rs": "rust",
	"scala": "scala", "scss": "scss", "sql": "sql", "swift": "swift", "ts": "typescript", "typescript": "typescript", "vue": "vue", "yaml": "yaml", "yml": "yaml", "zig": "zig",
}

// LanguageOf returns the language of a file by its name; "" if unknown.
func LanguageOf(file string) string {
	base := strings.ToLower(path.Base(CutBytes(file, 4096)))
	if ext := strings.TrimPrefix(path.Ext(base), "."); ext != "" {
		return languages[ext]
	}
	return languages[base]
}

// CodeBlock writes code as a block.
func CodeBlock(o *Out, code, language string) {
	if strings.TrimSpace(code) == "" {
		o.Lit(`<p class="clip">Nothing.</p>`)
		return
	}
	if len(code) > 8<<10 || strings.Count(code, "\n") > longLines {
		o.Lit(`<pre class="code long" tabindex="0"><code>`)
	} else {
		o.Lit(`<pre class="code" tabindex="0"><code>`)
	}
	highlight(o, strings.TrimRight(code, "\n"), language)
	o.Lit(`</code></pre>`)
	o.Clipped(len(code))
}

// highlight writes code with marked tokens, within the bounds of size and time; the rest is
// plain.
func highlight(o *Out, code, language string) {
	name := languages[strings.ToLower(language)]
	if name == "" || len(code) > codeBytes || o.spent > CodeTime {
		o.Shown(code)
		return
	}
	began := time.Now()
	defer func() { o.spent += time.Since(began) }()
	done := tokenise(o, code, name, began.Add(CodeTime-o.spent))
	o.Text(code[min(done, len(code)):])
}

// tokenise writes tokens until the deadline, and returns how many bytes they had.
func tokenise(o *Out, code, name string, until time.Time) (done int) {
	defer func() { _ = recover() }() // a lexer's panic must not break the page
	lexer := lexers.Get(name)
	if lexer == nil {
		return 0
	}
	tokens, err := lexer.Tokenise(&chroma.TokeniseOptions{State: "root"}, code)
	if err != nil {
		return 0
	}
	for t := tokens(); t != chroma.EOF; t = tokens() {
		if done+len(t.Value) > len(code) || code[done:done+len(t.Value)] != t.Value {
			return done // the lexer altered the code
		}
		if class := palette.Class(t.Type); class == "" {
			o.Text(t.Value)
		} else {
			o.Lit(`<span`)
			o.Attr("class", class)
			o.Lit(`>`)
			o.Text(t.Value)
			o.Lit(`</span>`)
		}
		done += len(t.Value)
		if time.Now().After(until) {
			return done
		}
	}
	return done
}

// longLines is the number of lines above which an output scrolls by itself.
const longLines = 24

// Output writes text in fixed width.
func Output(o *Out, text string) {
	if strings.TrimSpace(text) == "" {
		o.Lit(`<p class="clip">Nothing.</p>`)
		return
	}
	if len(text) > 8<<10 || strings.Count(text, "\n") > longLines {
		o.Lit(`<pre class="output long" tabindex="0">`)
	} else {
		o.Lit(`<pre class="output">`)
	}
	o.Lit("\n") // HTML parsers drop the first line feed
	o.Shown(strings.TrimRight(text, "\n"))
	o.Lit(`</pre>`)
	o.Clipped(len(text))
}
