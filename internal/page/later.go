package page

// What a page's first paint leaves out: an empty element stands for each message between the
// first and the last ones, and for parts of a long one. The script requests their content when they
// come near the window.

import (
	"io"
	"math/bits"
	"strconv"

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// All is the parameter of a request for a page that leaves nothing out.
const All = "all"

// The first paint, and each further piece, is full with the block that reaches one of these.
const (
	pieceBlocks = 100       // messages and parts
	pieceBytes  = 256 << 10 // of HTML
)

// Full reports whether the document has as much as its first paint, or a piece, takes.
func (d *Doc) Full() bool { return !d.all && (d.shown >= pieceBlocks || d.bytes >= pieceBytes) }

// LeaveOut leaves out a message with its parts, of which there are parts: m, or one of which only
// parts are known, the first at ord. names are the first of its parts, with which a turn's name is
// looked for.
func (d *Doc) LeaveOut(id string, m *session.Entry, ord session.Ord, parts int, names []*session.Entry) {
	d.close()
	class := markup.HTML("orphan")
	var p fields.Value
	if m != nil {
		p, ord = fields.Read(m.Payload), m.Ord
		_, class = speaker(p)
		d.totals.message(p)
		d.contents.message(id, p, class == "user")
	}
	d.user, d.open = class == "user", unfinished(p)
	d.left += parts
	d.o.Lit(`<article class="msg `, class, ` later"`)
	messageAttrs(&d.o, id, ord, p)
	count(&d.o, parts)
	for _, part := range names {
		d.contents.part(id, fields.Read(part.Payload))
	}
	if name := d.contents.nameOf(id); name != "" {
		d.o.Attr("data-says", name)
	}
	d.o.Lit(`></article>`)
	d.flush()
}

// Bundle puts the messages that are left out until EndBundle into an element of their own, which a
// browser lays out only when it is near: parts is how many parts they have.
func (d *Doc) Bundle(parts int) {
	d.close()
	d.o.Lit(`<div class="bundle"`)
	d.o.Attr("data-size", itoa(min(bits.Len(uint(parts)), 12)))
	d.o.Lit(`>`)
}

// EndBundle ends a bundle.
func (d *Doc) EndBundle() {
	d.o.Lit(`</div>`)
	d.flush()
}

// Turn reports whether a message that is left out is a turn, whose name is looked for among its parts.
func Turn(m *session.Entry) bool { return m != nil && role(fields.Read(m.Payload)) == "user" }

// LeaveOutParts leaves out parts of a message, the last one begun, at this place: those from one
// position to another.
func (d *Doc) LeaveOutParts(message string, from, to session.Ord, parts int) {
	d.begin(message, from)
	d.left += parts
	d.o.Lit(`<section class="later"`)
	position(&d.o, "data-from", from)
	position(&d.o, "data-to", to)
	count(&d.o, parts)
	d.o.Lit(`></section>`)
	d.flush()
}

// count writes how many parts are left out, and the logarithm of that, by which styles keep room; a
// single part is what styles expect.
func count(o *markup.Out, parts int) {
	if parts == 1 {
		return
	}
	o.Attr("data-count", itoa(parts))
	o.Attr("data-size", itoa(min(bits.Len(uint(parts)), 9)))
}

func position(o *markup.Out, name markup.HTML, ord session.Ord) {
	o.Attr(name, strconv.FormatUint(ord.At, 10)+"."+strconv.FormatUint(ord.Index, 10))
}

// leftOut writes the note of what is left out.
func (d *Doc) leftOut() {
	if d.left == 0 {
		return
	}
	d.o.Lit(`<p class="note" id="all">This page begins with `)
	d.o.Text(markup.Plural(d.totals.parts, "part"))
	d.o.Lit(` of `)
	d.o.Text(markup.CountText(float64(d.totals.parts + d.left)))
	d.o.Lit(`, the first and the last<span class="script">; the others load where you scroll</span>. <a href="?`, All, `">Load everything</a><span class="script">, to print it or to search in the browser</span>.</p>`)
}

// More begins a piece of what a first paint has left out, written to w as a document is: Message, Part
// and LeaveOutParts, then EndMore. within is the message of which it has parts alone; "" for none.
func More(w io.Writer, within string) *Doc {
	d := &Doc{w: w, within: within != ""}
	if d.within {
		d.at, d.id = inMessage, within
	}
	return d
}

// EndMore ends a piece. It returns the first error of a write.
func (d *Doc) EndMore() error {
	if !d.within {
		d.close()
	}
	d.flush()
	return d.err
}
