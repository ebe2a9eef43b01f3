package page

// A session's entries besides messages: its info, its diff, its models.

import (
	"github.com/mooring-rpc/mooring/internal/session"
)

// restID returns the element id of any other key: no message's or part's id has this prefix.
func restID(key string) string { return "k-" + key }

// restOpen begins the element of an entry that is neither message nor part.
func restOpen(o *out, e *session.Entry) {
	o.lit(`<section class="extra"`)
	o.attr("id", restID(e.Key))
	o.attr("data-key", e.Key)
	o.lit(`>`)
}

// info writes the session's info; without an entry an empty element.
func info(o *out, e *session.Entry) {
	o.lit(`<section class="info" id="k-session" data-key="session" aria-label="About this session">`)
	if e != nil {
		p := read(e.Payload)
		o.lit(`<dl class="facts">`)
		fact := func(name markup, value string) {
			if value != "" {
				o.lit(`<div><dt>`, name, `</dt><dd dir="auto">`)
				o.text(value)
				o.lit(`</dd></div>`)
			}
		}
		if at := p.at("time", "created").millis(); at != 0 {
			o.lit(`<div><dt>Started</dt><dd>`)
			o.time(at)
			o.lit(`</dd></div>`)
		}
		fact("Folder", p.at("directory").label())
		fact("Agent", p.at("agent").label())
		fact("Model", modelName(p))
		if v := p.at("version").label(); v != "" {
			fact("opencode", v)
		}
		if s := p.at("summary"); s.at("files").number() > 0 {
			o.lit(`<div><dt>Changes</dt><dd>`)
			o.text(plural(int(min(s.at("files").number(), 1e9)), "file"))
			changeCount(o, s.at("additions").number(), s.at("deletions").number())
			o.lit(`</dd></div>`)
		}
		o.lit(`</dl>`)
		if m := p.at("revert", "messageID").text(); m != "" {
			o.lit(`<p class="note warn">The session was reverted to `)
			o.lit(`<a`)
			o.attr("href", "#"+messageID(cutBytes(m, 200)))
			o.lit(`>an earlier message</a>; what follows it is undone.</p>`)
		}
	}
	o.lit(`</section>`)
}

// sessionDiff writes the session's changes of files.
func sessionDiff(o *out, p fields) {
	diff := p.at("diff")
	if !diff.Exists() {
		diff = p
	}
	o.lit(`<section class="extra diffs" id="k-session_diff" data-key="session_diff">`)
	if !diff.empty() {
		o.lit(`<h2>Changes</h2>`)
		changes(o, diff)
	}
	o.lit(`</section>`)
}

// model writes a model's properties, folded.
func model(o *out, e *session.Entry, p fields) {
	restOpen(o, e)
	o.lit(`<details class="card model"><summary><span class="name">Model</span><span class="what">`)
	name := p.at("name").label()
	if name == "" {
		name = p.at("id").label()
	}
	if name == "" {
		name = oneLine(e.Key, labelBytes)
	}
	o.text(name)
	o.lit(`</span>`)
	o.element("span", "tag", p.at("providerID").label())
	o.lit(`</summary><div class="body">`)
	rawJSON(o, p)
	o.lit(`</div></details></section>`)
}
