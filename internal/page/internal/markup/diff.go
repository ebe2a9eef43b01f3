package markup

// Diffs: unified ones as received, and comparisons of texts before and after.

import (
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Compare writes the difference between two texts.
func Compare(o *Out, before, after string) {
	if len(before) > diffBytes || len(after) > diffBytes {
		o.Lit(`<p class="clip">The texts are too long to be compared here (`)
		o.Text(BytesText(len(before)) + " and " + BytesText(len(after)))
		o.Lit(`).</p>`)
		return
	}
	if before == after {
		o.Lit(`<p class="clip">No lines changed.</p>`)
		return
	}
	Unified(o, string(diff.Diff("before", lines(before), "after", lines(after))))
}

// lines returns a text that ends in a line feed, so that a missing last line feed is not a
// difference.
func lines(s string) []byte {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return []byte(s)
}

// Unified writes a unified diff with line numbers. Any other text is written as is.
func Unified(o *Out, text string) {
	o.Lit(`<div class="diff"><table><caption class="unseen">Changed lines</caption><tbody>`)
	var old, new int // the next lines' numbers; 0 before the first hunk
	size := len(text)
	several := strings.Count(text, "\n--- ") > 1 // several files: each is named
	text = CutBytes(text, ShownBytes)
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
	o.Lit(`</tbody></table></div>`)
	if text != "" || size > ShownBytes {
		o.Lit(`<p class="clip">The rest of this diff (`)
		o.Text(BytesText(size) + " in all")
		o.Lit(`) is not shown here.</p>`)
	}
}

// next returns the number of the line after n; 0 before the first hunk.
func next(n int) int {
	if n == 0 {
		return 0
	}
	return n + 1
}

// hunk parses the first lines' numbers in a hunk's head.
func hunk(line string) (old, new int) {
	for i, word := range strings.Fields(CutBytes(line, 100)) {
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
func diffRow(o *Out, class HTML, old, new int, line string) {
	o.Lit(`<tr class="`, class, `"><td class="n"`)
	number(o, old)
	o.Lit(`></td><td class="n"`)
	number(o, new)
	o.Lit(`></td><td class="l">`)
	switch class { // for readers who cannot see the colour, and for copying
	case "add":
		o.Lit(`<ins>`)
		o.Text(line)
		o.Lit(`</ins>`)
	case "del":
		o.Lit(`<del>`)
		o.Text(line)
		o.Lit(`</del>`)
	default:
		o.Text(line)
	}
	o.Lit(`</td></tr>`)
}

// number writes a line number that styles show and copying omits.
func number(o *Out, n int) {
	if n != 0 {
		o.Attr("data-n", strconv.Itoa(n))
	}
}
