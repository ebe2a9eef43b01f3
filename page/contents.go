package page

// The table of contents: an entry a turn, made while the messages pass and
// written at the end; styles put it to the side.

import (
	"regexp"
	"strings"
)

// contents are the entries so far: bounded in number, and each in size.
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

// message notes a message: each of somebody's is a turn, and so is the first.
func (c *contents) message(id string, p fields, user bool) {
	c.open = false
	if !user && len(c.entries) > 0 {
		return
	}
	if len(c.entries) == contentsMax {
		c.more++
		return
	}
	c.entries = append(c.entries, heading{id: id, at: p.at("time", "created").millis()})
	c.open = true
}

// part gives the open entry its text.
func (c *contents) part(message string, p fields) {
	if !c.open || p.at("synthetic").Raw == "true" {
		return
	}
	last := &c.entries[len(c.entries)-1]
	switch p.at("type").text() {
	case "text":
	case "compaction":
		last.text = "Context compacted"
		return
	default:
		return
	}
	if text := oneLine(unmarked(p.at("text").text()), 80); text != "" && last.id == message {
		last.text, c.open = text, false
	}
}

var marks = regexp.MustCompile("`+|\\*\\*+|__+|(?m:^[#>]+ )")

// unmarked is the beginning of a text without the commonest marks of markdown.
func unmarked(s string) string {
	return marks.ReplaceAllString(strings.TrimSpace(cutBytes(strings.TrimSpace(cutBytes(s, 4096)), 512)), "")
}

// write writes the contents and what the session comes to. closes is where the
// browser gives up its right to the session; "" if it has none of its own.
func (c *contents) write(o *out, t *totals, closes string) {
	o.lit(`<nav id="contents" aria-labelledby="contents-title" tabindex="-1"><div class="sheet"><div class="sheet-head"><h2 id="contents-title">Contents</h2>`,
		`<a class="button shut" href="#session">Close</a></div><ol id="turns">`)
	for _, h := range c.entries {
		o.lit(`<li><a`)
		o.attr("href", "#"+messageID(h.id))
		o.lit(` dir="auto">`)
		if h.text == "" {
			h.text = "(no text)"
		}
		o.text(h.text)
		o.lit(`</a></li>`)
	}
	o.lit(`</ol>`)
	if c.more > 0 {
		o.lit(`<p class="clip">and `)
		o.text(plural(c.more, "more turn"))
		o.lit(`</p>`)
	}
	t.write(o)
	if closes != "" {
		o.lit(`<p class="leave"><button type="button" class="button script" data-do="close"`)
		o.attr("data-close", closes)
		o.lit(`>Forget this session here</button></p>`)
	}
	o.lit(`</div></nav>`)
}

// write writes the totals as a list.
func (t *totals) write(o *out) {
	o.lit(`<dl class="facts" id="facts">`)
	fact := func(name markup, value string) {
		if value != "" {
			o.lit(`<div><dt>`, name, `</dt><dd>`)
			o.text(value)
			o.lit(`</dd></div>`)
		}
	}
	fact("Turns", itoa(t.turns))
	fact("Messages", itoa(t.messages))
	fact("Tool calls", itoa(t.tools))
	if t.tokens.any() {
		fact("Tokens in", countText(t.tokens.in+t.tokens.read))
		fact("Tokens out", countText(t.tokens.out+t.tokens.reasoning))
	}
	fact("Cost", costText(t.cost))
	fact("From first to last", spanText(t.first, t.last))
	o.lit(`</dl>`)
}
