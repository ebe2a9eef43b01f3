package markup

// Bounds of output size and work. Where a bound is reached the page has a note of what it omits.

import "time"

// Bounds of what is written of one field, and of a title, name or path within a line.
const (
	ShownBytes = 256 << 10
	LabelBytes = 160
)

const (
	markdownBytes = 96 << 10  // of a text rendered as markdown; longer ones are shown as they are
	codeBytes     = 24 << 10  // of highlighted code
	diffLines     = 1500      // of one block's diffs
	diffBytes     = 512 << 10 // of a text compared with another
)

// CodeTime bounds the highlighting of one block's code: a lexer is stopped between two tokens. It
// is a variable for tests, whose goldens must not depend on the machine's load.
var CodeTime = 100 * time.Millisecond

// Shown writes s, truncated to ShownBytes; Clipped writes the note.
func (o *Out) Shown(s string) {
	if len(s) <= ShownBytes {
		o.Text(s)
		return
	}
	o.Text(CutBytes(s, ShownBytes))
}

// Clipped writes the note below a truncated field.
func (o *Out) Clipped(size int) {
	if size > ShownBytes {
		o.Lit(`<p class="clip">The first `)
		o.Text(BytesText(ShownBytes))
		o.Lit(` of `)
		o.Text(BytesText(size))
		o.Lit(` are shown.</p>`)
	}
}
