package page

// Diffs: unified ones as received, and comparisons of texts before and after.

import (
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// changeSet writes a list of changes in one folded card.
func changeSet(o *out, list fields) {
	if list.empty() {
		return
	}
	files, added, removed := 0, 0.0, 0.0
	list.ForEach(func(_, c result) bool {
		files++
		added += value(c).at("additions").number()
		removed += value(c).at("deletions").number()
		return true
	})
	o.lit(`<details class="card set"><summary><span class="name">Changed</span><span class="what">`)
	o.text(plural(files, "file"))
	o.lit(`</span>`)
	changeCount(o, added, removed)
	o.lit(`</summary><div class="body">`)
	changes(o, list)
	o.lit(`</div></details>`)
}

// changes writes a list of files' changes, each {file, patch} or {file, before, after} with
// counts, as in session_diff and messages' summaries.
func changes(o *out, list fields) {
	if !list.IsArray() {
		rawCard(o, "Changes", "", list)
		return
	}
	more := list.each(func(_ string, c fields) {
		o.lit(`<details class="card change"><summary><span class="name">`)
		o.text(changeKind(c))
		o.lit(`</span><span class="what" dir="auto">`)
		name := ""
		for _, v := range []fields{c.at("file"), c.at("relativePath"), c.at("filePath"), c.at("path")} {
			if name == "" {
				name = v.label()
			}
		}
		if name == "" {
			name = "a file"
		}
		o.text(name)
		o.lit(`</span>`)
		changeCount(o, c.at("additions").number(), c.at("deletions").number())
		o.lit(`</summary><div class="body">`)
		changeBody(o, c)
		o.lit(`</div></details>`)
	})
	if more > 0 {
		o.lit(`<p class="clip">and `)
		o.text(plural(more, "more file"))
		o.lit(`</p>`)
	}
}

func changeKind(c fields) string {
	kind := c.at("status")
	if kind.empty() {
		kind = c.at("type")
	}
	switch kind.text() {
	case "added", "add":
		return "Added"
	case "deleted", "delete", "removed":
		return "Deleted"
	case "", "modified", "update":
		return "Changed"
	}
	return oneLine(kind.text(), 24)
}

// changeCount writes the numbers of lines added and removed.
func changeCount(o *out, added, removed float64) {
	if added <= 0 && removed <= 0 {
		return
	}
	o.lit(`<span class="count"><span class="plus">+`)
	o.text(countText(max(added, 0)))
	o.lit(`</span> <span class="minus">−`)
	o.text(countText(max(removed, 0)))
	o.lit(`</span></span>`)
}

// changeBody writes one file's change.
func changeBody(o *out, c fields) {
	for _, d := range []fields{c.at("patch"), c.at("diff")} {
		if d.Type.String() == "String" && d.Str != "" {
			unified(o, d.text())
			return
		}
	}
	if before, after := c.at("before"), c.at("after"); !before.empty() || !after.empty() {
		compare(o, before.text(), after.text())
		return
	}
	if c.IsObject() {
		o.lit(`<p class="clip">No lines changed.</p>`)
		return
	}
	rawJSON(o, c)
}

// compare writes the difference between two texts.
func compare(o *out, before, after string) {
	if len(before) > diffBytes || len(after) > diffBytes {
		o.lit(`<p class="clip">The texts are too long to be compared here (`)
		o.text(bytesText(len(before)) + " and " + bytesText(len(after)))
		o.lit(`).</p>`)
		return
	}
	if before == after {
		o.lit(`<p class="clip">No lines changed.</p>`)
		return
	}
	unified(o, string(diff.Diff("before", lines(before), "after", lines(after))))
}

// lines returns a text that ends in a line feed, so that a missing last line feed is not a
// difference.
func lines(s string) []byte {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return []byte(s)
}

// unified writes a unified diff with line numbers. Any other text is written as is.
func unified(o *out, text string) {
	o.lit(`<div class="diff"><table><caption class="unseen">Changed lines</caption><tbody>`)
	var old, new int // the next lines' numbers; 0 before the first hunk
	size := len(text)
	several := strings.Count(text, "\n--- ") > 1 // several files: each is named
	text = cutBytes(text, shownBytes)
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		if o.lines++; o.lines > diffLines {
			break
		}
		text = rest
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "@@"):
			old, new = hunk(line)
			diffRow(o, "hunk", 0, 0, line)
		case strings.HasPrefix(line, "*** "), strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "Index: "), strings.HasPrefix(line, "====="):
			old, new = 0, 0
			if several && !strings.HasPrefix(line, "=====") && !strings.HasPrefix(line, "index ") || strings.HasPrefix(line, "*** ") {
				diffRow(o, "meta", 0, 0, line)
			}
		case new == 0 && old == 0 && (strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")):
			// The file's names are written above already.
		case strings.HasPrefix(line, "+"):
			diffRow(o, "add", 0, new, line[1:])
			new = next(new)
		case strings.HasPrefix(line, "-"):
			diffRow(o, "del", old, 0, line[1:])
			old = next(old)
		case strings.HasPrefix(line, `\`):
			diffRow(o, "meta", 0, 0, line)
		default:
			diffRow(o, "same", old, new, strings.TrimPrefix(line, " "))
			old, new = next(old), next(new)
		}
	}
	o.lit(`</tbody></table></div>`)
	if text != "" || size > shownBytes {
		o.lit(`<p class="clip">The rest of this diff (`)
		o.text(bytesText(size) + " in all")
		o.lit(`) is not shown here.</p>`)
	}
}

func next(n int) int {
	if n == 0 {
		return 0
	}
	return n + 1
}

// hunk parses the first lines' numbers in a hunk's head.
func hunk(line string) (old, new int) {
	for i, word := range strings.Fields(cutBytes(line, 100)) {
		if i == 0 || i > 2 || len(word) < 2 {
			continue
		}
		first, _, _ := strings.Cut(word[1:], ",")
		n, err := strconv.Atoi(first)
		if err != nil || n < 0 || n > 1e9 {
			continue
		}
		switch word[0] {
		case '-':
			old = max(n, 1)
		case '+':
			new = max(n, 1)
		}
	}
	return old, new
}

// diffRow writes one line; a number of 0 is omitted.
func diffRow(o *out, class markup, old, new int, line string) {
	o.lit(`<tr class="`, class, `"><td class="n"`)
	number(o, old)
	o.lit(`></td><td class="n"`)
	number(o, new)
	o.lit(`></td><td class="l">`)
	switch class { // for readers who cannot see the colour, and for copying
	case "add":
		o.lit(`<ins>`)
		o.text(line)
		o.lit(`</ins>`)
	case "del":
		o.lit(`<del>`)
		o.text(line)
		o.lit(`</del>`)
	default:
		o.text(line)
	}
	o.lit(`</td></tr>`)
}

// number writes a line number that styles show and copying omits.
func number(o *out, n int) {
	if n != 0 {
		o.attr("data-n", itoa(n))
	}
}
