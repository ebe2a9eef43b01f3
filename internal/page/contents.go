package page

// The table of contents: an entry a turn, collected while messages are written and written at the
// end; styles put it to the side.

import (
	"regexp"
	"strings"

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
)

// Bounds of the contents; the script has the same number of entries.
const (
	contentsMax = 2000 // entries
	saysBytes   = 80   // of the text of one entry
)

// contents are the entries collected: bounded in number, and each in size.
type contents struct {
	entries []heading
	open    bool // the last entry has no text yet
	more    int
}

// heading is one entry.
type heading struct {
	id, text string
	at       int64 // Unix ms
}

// message adds a message: each user's message is a turn, and so is the first message.
func (c *contents) message(id string, p fields.Value, user bool) {
	c.open = false
	if !user && len(c.entries) > 0 {
		return
	}
	if len(c.entries) == contentsMax {
		c.more++
		return
	}
	c.entries = append(c.entries, heading{id: id, at: p.At("time", "created").Millis()})
	c.open = true
}

// part sets the open entry's text from the first suitable part.
func (c *contents) part(message string, p fields.Value) {
	if !c.open {
		return
	}
	last := &c.entries[len(c.entries)-1]
	if last.id != message {
		return
	}
	if text := says(p); text != "" {
		last.text, c.open = text, false
	} else if p.At("type").Text() == "compaction" {
		last.text = compactedName
	}
}

// compactedName names a turn that has no text but was compacted.
const compactedName = "Context compacted"

// nameOf returns the text of a message's entry, if it is the last one; "" for none.
func (c *contents) nameOf(message string) string {
	if len(c.entries) == 0 || c.more > 0 || c.entries[len(c.entries)-1].id != message {
		return ""
	}
	return c.entries[len(c.entries)-1].text
}

// ofLoaded follows a number of which the first paint has a part; the script has the same words.
const ofLoaded = " of what is loaded"

// says returns the line by which a text part names its turn; "" if it does not.
func says(p fields.Value) string {
	if p.At("type").Text() != "text" || p.At("synthetic").Raw == "true" {
		return ""
	}
	return markup.OneLine(unmarked(p.At("text").Text()), saysBytes)
}

var marks = regexp.MustCompile("`+|\\*\\*+|__+|(?m:^[#>]+ )")

// unmarked returns the beginning of a text without the commonest markdown marks.
func unmarked(s string) string {
	return marks.ReplaceAllString(strings.TrimSpace(markup.CutBytes(strings.TrimSpace(markup.CutBytes(s, 4096)), 512)), "")
}

// write writes the contents and the session's totals. closes is the path that ends the browser's
// token; "" if there is none.
func (c *contents) write(o *markup.Out, t *totals, closes string) {
	o.Lit(`<nav id="contents" aria-labelledby="contents-title" tabindex="-1"><div class="sheet"><div class="sheet-head"><h2 id="contents-title">Contents</h2>`,
		`<a class="button shut" href="#session">Close</a></div><ol id="turns">`)
	for _, h := range c.entries {
		o.Lit(`<li><a`)
		o.Attr("href", "#"+messageID(h.id))
		o.Lit(` dir="auto">`)
		if h.text == "" {
			h.text = "(no text)"
		}
		o.Text(h.text)
		o.Lit(`</a></li>`)
	}
	o.Lit(`</ol><p class="clip" id="more-turns">`)
	if c.more > 0 {
		o.Lit(`and `)
		o.Text(markup.Plural(c.more, "more turn"))
	}
	o.Lit(`</p>`)
	t.write(o)
	if closes != "" {
		o.Lit(`<p class="leave"><button type="button" class="button script" data-do="close"`)
		o.Attr("data-close", closes)
		o.Lit(`>Forget this session here</button></p>`)
	}
	o.Lit(`</div></nav>`)
}

// totals are the sums of a session's page, collected while it is written.
type totals struct {
	messages, turns, parts, tools int
	tokens                        tokens
	cost                          float64
	first, last                   int64 // Unix ms
	left                          int   // parts left out, of which tools has none
}

func (t *totals) message(p fields.Value) {
	t.messages++
	if role(p) == "user" {
		t.turns++
	}
	k := tokensOf(p)
	t.tokens.in += k.in
	t.tokens.out += k.out
	t.tokens.reasoning += k.reasoning
	t.tokens.read += k.read
	t.tokens.write += k.write
	t.cost += p.At("cost").Number()
	if at := p.At("time", "created").Millis(); at != 0 && (t.first == 0 || at < t.first) {
		t.first = at
	}
	t.last = max(t.last, p.At("time", "created").Millis(), p.At("time", "completed").Millis())
}

func (t *totals) part(p fields.Value) {
	t.parts++
	if p.At("type").Text() == "tool" {
		t.tools++
	}
}

// write writes the totals as a list.
func (t *totals) write(o *markup.Out) {
	o.Lit(`<dl class="facts" id="facts">`)
	fact := func(name markup.HTML, value string) {
		if value != "" {
			o.Lit(`<div><dt>`, name, `</dt><dd>`)
			o.Text(value)
			o.Lit(`</dd></div>`)
		}
	}
	fact("Turns", itoa(t.turns))
	fact("Messages", itoa(t.messages))
	if t.left > 0 {
		fact("Tool calls", itoa(t.tools)+ofLoaded)
	} else {
		fact("Tool calls", itoa(t.tools))
	}
	if in, made := t.tokens.in+t.tokens.read, t.tokens.out+t.tokens.reasoning; in != 0 || made != 0 {
		fact("Tokens in", markup.CountText(in))
		fact("Tokens out", markup.CountText(made))
	}
	fact("Cost", markup.CostText(t.cost))
	fact("From first to last", markup.SpanText(t.first, t.last))
	o.Lit(`</dl>`)
}
