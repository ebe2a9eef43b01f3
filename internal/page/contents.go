package page

// The table of contents: an entry a turn, collected while messages are written and written at the
// end; styles put it to the side.

import (
	"regexp"
	"strings"
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

// part sets the open entry's text from the first suitable part.
func (c *contents) part(message string, p fields) {
	if !c.open {
		return
	}
	last := &c.entries[len(c.entries)-1]
	if last.id != message {
		return
	}
	if text := says(p); text != "" {
		last.text, c.open = text, false
	} else if p.at("type").text() == "compaction" {
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
func says(p fields) string {
	if p.at("type").text() != "text" || p.at("synthetic").Raw == "true" {
		return ""
	}
	return oneLine(unmarked(p.at("text").text()), saysBytes)
}

var marks = regexp.MustCompile("`+|\\*\\*+|__+|(?m:^[#>]+ )")

// unmarked returns the beginning of a text without the commonest markdown marks.
func unmarked(s string) string {
	return marks.ReplaceAllString(strings.TrimSpace(cutBytes(strings.TrimSpace(cutBytes(s, 4096)), 512)), "")
}

// write writes the contents and the session's totals. closes is the path that ends the browser's
// token; "" if there is none.
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
	o.lit(`</ol><p class="clip" id="more-turns">`)
	if c.more > 0 {
		o.lit(`and `)
		o.text(plural(c.more, "more turn"))
	}
	o.lit(`</p>`)
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
	if t.left > 0 {
		fact("Tool calls", itoa(t.tools)+ofLoaded)
	} else {
		fact("Tool calls", itoa(t.tools))
	}
	if in, made := t.tokens.in+t.tokens.read, t.tokens.out+t.tokens.reasoning; in != 0 || made != 0 {
		fact("Tokens in", countText(in))
		fact("Tokens out", countText(made))
	}
	fact("Cost", costText(t.cost))
	fact("From first to last", spanText(t.first, t.last))
	o.lit(`</dl>`)
}
