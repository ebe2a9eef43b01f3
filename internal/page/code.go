package page

// Code, highlighted with classes; the style sheet is generated (chromacss).

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

// languageOf returns the language of a file by its name; "" if unknown.
func languageOf(file string) string {
	base := strings.ToLower(path.Base(cutBytes(file, 4096)))
	if ext := strings.TrimPrefix(path.Ext(base), "."); ext != "" {
		return languages[ext]
	}
	return languages[base]
}

// codeBlock writes code as a block.
func codeBlock(o *out, code, language string) {
	if strings.TrimSpace(code) == "" {
		o.lit(`<p class="clip">Nothing.</p>`)
		return
	}
	if len(code) > 8<<10 || strings.Count(code, "\n") > longLines {
		o.lit(`<pre class="code long" tabindex="0"><code>`)
	} else {
		o.lit(`<pre class="code" tabindex="0"><code>`)
	}
	highlight(o, strings.TrimRight(code, "\n"), language)
	o.lit(`</code></pre>`)
	o.clipped(len(code))
}

// highlight writes code with marked tokens, within the bounds of size and time; the rest is
// plain.
func highlight(o *out, code, language string) {
	name := languages[strings.ToLower(language)]
	if name == "" || len(code) > codeBytes || o.spent > codeTime {
		o.shown(code)
		return
	}
	began := time.Now()
	defer func() { o.spent += time.Since(began) }()
	done := tokenise(o, code, name, began.Add(codeTime-o.spent))
	o.text(code[min(done, len(code)):])
}

// tokenise writes tokens until the deadline, and returns how many bytes they had.
func tokenise(o *out, code, name string, until time.Time) (done int) {
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
			o.text(t.Value)
		} else {
			o.lit(`<span`)
			o.attr("class", class)
			o.lit(`>`)
			o.text(t.Value)
			o.lit(`</span>`)
		}
		done += len(t.Value)
		if time.Now().After(until) {
			return done
		}
	}
	return done
}
