package page

// A session's entries besides messages: its info, its diff, its models.

import (
	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// restID returns the element id of any other key: no message's or part's id has this prefix.
func restID(key string) string { return "k-" + key }

// restOpen begins the element of an entry that is neither message nor part.
func restOpen(o *markup.Out, e *session.Entry) {
	o.Lit(`<section class="extra"`)
	o.Attr("id", restID(e.Key))
	o.Attr("data-key", e.Key)
	o.Lit(`>`)
}

// info writes the session's info; without an entry an empty element.
func info(o *markup.Out, e *session.Entry) {
	o.Lit(`<section class="info" id="k-session" data-key="session" aria-label="About this session">`)
	if e != nil {
		p := fields.Read(e.Payload)
		o.Lit(`<dl class="facts">`)
		fact := func(name markup.HTML, value string) {
			if value != "" {
				o.Lit(`<div><dt>`, name, `</dt><dd dir="auto">`)
				o.Text(value)
				o.Lit(`</dd></div>`)
			}
		}
		if at := p.At("time", "created").Millis(); at != 0 {
			o.Lit(`<div><dt>Started</dt><dd>`)
			o.Time(at)
			o.Lit(`</dd></div>`)
		}
		fact("Folder", p.At("directory").Label())
		fact("Agent", p.At("agent").Label())
		fact("Model", modelName(p))
		if v := p.At("version").Label(); v != "" {
			fact("opencode", v)
		}
		if s := p.At("summary"); s.At("files").Number() > 0 {
			o.Lit(`<div><dt>Changes</dt><dd>`)
			o.Text(markup.Plural(int(min(s.At("files").Number(), 1e9)), "file"))
			changeCount(o, s.At("additions").Number(), s.At("deletions").Number())
			o.Lit(`</dd></div>`)
		}
		o.Lit(`</dl>`)
		if m := p.At("revert", "messageID").Text(); m != "" {
			o.Lit(`<p class="note warn">The session was reverted to `)
			o.Lit(`<a`)
			o.Attr("href", "#"+messageID(markup.CutBytes(m, 200)))
			o.Lit(`>an earlier message</a>; what follows it is undone.</p>`)
		}
	}
	o.Lit(`</section>`)
}

// sessionDiff writes the session's changes of files.
func sessionDiff(o *markup.Out, p fields.Value) {
	diff := p.At("diff")
	if !diff.Exists() {
		diff = p
	}
	o.Lit(`<section class="extra diffs" id="k-session_diff" data-key="session_diff">`)
	if !diff.Empty() {
		o.Lit(`<h2>Changes</h2>`)
		changes(o, diff)
	}
	o.Lit(`</section>`)
}

// model writes a model's properties, folded.
func model(o *markup.Out, e *session.Entry, p fields.Value) {
	restOpen(o, e)
	o.Lit(`<details class="card model"><summary><span class="name">Model</span><span class="what">`)
	name := p.At("name").Label()
	if name == "" {
		name = p.At("id").Label()
	}
	if name == "" {
		name = markup.OneLine(e.Key, markup.LabelBytes)
	}
	o.Text(name)
	o.Lit(`</span>`)
	o.Element("span", "tag", p.At("providerID").Label())
	o.Lit(`</summary><div class="body">`)
	rawJSON(o, p)
	o.Lit(`</div></details></section>`)
}
