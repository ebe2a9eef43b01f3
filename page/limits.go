package page

// What bounds the size of what is shown, and the work for it. Above a bound the
// page says in plain words what it leaves out.

import "time"

const (
	shownBytes    = 256 << 10        // of one field
	markdownBytes = 96 << 10         // of a text that is read as markdown; longer ones are shown as they are
	codeBytes     = 24 << 10         // of code that is highlighted
	pageTime      = 10 * time.Second // for the highlighting of a whole page's code
	diffLines     = 1500             // of one block's diffs
	diffBytes     = 512 << 10        // of a text that is compared with another
	listItems     = 200              // files, todos, models' traits: of one list
	labelBytes    = 160              // of a title, name or path within a line
	contentsMax   = 2000             // entries of the contents; the script has it too
	saysBytes     = 80               // of the text of one of them
	imageBytes    = 192 << 10        // of an image within the page
	jsonDepth     = 24               // from which on JSON is not indented further
)

// codeTime is for the highlighting of one block's code: a lexer is stopped between
// two tokens. It is a variable for tests, whose goldens must not depend on how busy
// the machine is.
var codeTime = 100 * time.Millisecond

// shown writes s, clipped to shownBytes, and how much is left out.
func (o *out) shown(s string) {
	if len(s) <= shownBytes {
		o.text(s)
		return
	}
	o.text(cutBytes(s, shownBytes))
}

// clipped writes the note that stands below a field that was too long.
func (o *out) clipped(size int) {
	if size > shownBytes {
		o.lit(`<p class="clip">The first `)
		o.text(bytesText(shownBytes))
		o.lit(` of `)
		o.text(bytesText(size))
		o.lit(` are shown.</p>`)
	}
}
