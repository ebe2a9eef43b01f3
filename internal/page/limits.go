package page

// Bounds of output size and work. Where a bound is reached the page has a note of what it omits.

import "time"

const (
	shownBytes    = 256 << 10        // of one field
	markdownBytes = 96 << 10         // of a text rendered as markdown; longer ones are shown as they are
	codeBytes     = 24 << 10         // of highlighted code
	pageTime      = 10 * time.Second // for highlighting a whole page's code
	diffLines     = 1500             // of one block's diffs
	diffBytes     = 512 << 10        // of a text compared with another
	listItems     = 200              // files, todos, models' traits: of one list
	labelBytes    = 160              // of a title, name or path within a line
	contentsMax   = 2000             // entries of the contents; the script has the same bound
	saysBytes     = 80               // of the text of one entry
	imageBytes    = 192 << 10        // of an image in the page
	jsonDepth     = 24               // depth from which JSON is not indented
	treeDepth     = 8                // depth from which a value of an own kind is shown as JSON text
	treeValues    = 4000             // values of one tree
	tableColumns  = 12               // members of objects that are shown as a table
)

// codeTime bounds the highlighting of one block's code: a lexer is stopped between two tokens. It
// is a variable for tests, whose goldens must not depend on the machine's load.
var codeTime = 100 * time.Millisecond

// shown writes s, truncated to shownBytes; clipped writes the note.
func (o *out) shown(s string) {
	if len(s) <= shownBytes {
		o.text(s)
		return
	}
	o.text(cutBytes(s, shownBytes))
}

// clipped writes the note below a truncated field.
func (o *out) clipped(size int) {
	if size > shownBytes {
		o.lit(`<p class="clip">The first `)
		o.text(bytesText(shownBytes))
		o.lit(` of `)
		o.text(bytesText(size))
		o.lit(` are shown.</p>`)
	}
}
