package page

// A part of a message, by its type. Each is one element with its key; growing ones have the
// length of the text shown (data-len, in bytes of UTF-8).

import (
	"github.com/mooring-rpc/mooring/internal/session"
)

// part writes a part of any type.
func part(o *out, e *session.Entry, p fields) {
	switch kind := p.at("type").text(); kind {
	case "text":
		textPart(o, e, p)
	case "reasoning":
		reasoningPart(o, e, p)
	case "tool":
		toolPart(o, e, p)
	case "file":
		partOpen(o, e, "file", p)
		file(o, p)
		partClose(o)
	case "patch":
		patchPart(o, e, p)
	case "step-start":
		partOpen(o, e, "step-start", p)
		partClose(o)
	case "step-finish":
		stepFinish(o, e, p)
	case "snapshot":
		partOpen(o, e, "mark", p)
		o.lit(`<p class="note">Snapshot `)
		o.element("code", "hash", oneLine(p.at("snapshot").text(), 12))
		o.lit(`</p>`)
		partClose(o)
	case "agent":
		partOpen(o, e, "mark", p)
		o.lit(`<p class="note">Agent <strong dir="auto">@`)
		o.text(p.at("name").label())
		o.lit(`</strong></p>`)
		partClose(o)
	case "retry":
		retryPart(o, e, p)
	case "compaction":
		partOpen(o, e, "compaction", p)
		if p.at("auto").Raw == "true" {
			o.lit(`<p class="note">Context compacted automatically</p>`)
		} else {
			o.lit(`<p class="note">Context compacted</p>`)
		}
		partClose(o)
	case "subtask":
		subtaskPart(o, e, p)
	default:
		unknownPart(o, e, p, kind)
	}
}

// partOpen begins a part's element.
func partOpen(o *out, e *session.Entry, class markup, p fields) {
	m, id := partOf(e.Key)
	self := partID(m, id)
	o.lit(`<section class="part `, class, `"`)
	o.attr("id", self)
	o.attr("data-key", e.Key)
	o.ord(e.Ord)
	if class == "text" || class == "text aside" || class == "reasoning" || class == "unknown" { // they show their text
		if text := p.at("text"); text.Type.String() == "String" || !text.Exists() {
			o.attr("data-len", itoa(len(text.text())))
		}
	}
	if line := says(p); line != "" {
		o.attr("data-says", line) // for the contents
	}
	o.lit(`>`)
	if class != "step-start" && class != "step" {
		o.link(self, "part")
	}
}

func partClose(o *out) { o.lit(`</section>`) }

// textPart writes a text as markdown. While it grows, the text after the last complete paragraph
// is in the tail, to which the script appends.
func textPart(o *out, e *session.Entry, p fields) {
	class := markup("text")
	if p.at("synthetic").Raw == "true" || p.at("ignored").Raw == "true" {
		class = "text aside"
	}
	partOpen(o, e, class, p)
	if class != "text" {
		o.lit(`<p class="label">Added by the agent</p>`)
	}
	prose(o, p.at("text").text(), e.LastAppend != 0)
	partClose(o)
}

// reasoningPart writes the model's reasoning, dimmed.
func reasoningPart(o *out, e *session.Entry, p fields) {
	text := p.at("text").text()
	partOpen(o, e, "reasoning", p)
	o.lit(`<details class="think" open><summary><span class="name">Reasoning</span>`)
	o.element("span", "took", spanText(p.at("time", "start").millis(), p.at("time", "end").millis()))
	o.lit(`</summary>`)
	prose(o, text, e.LastAppend != 0)
	o.lit(`</details>`)
	partClose(o)
}

// prose writes markdown, and the tail of a growing text.
func prose(o *out, text string, grows bool) {
	whole, tail := text, ""
	if grows {
		whole, tail = settled(text)
	}
	o.lit(`<div class="md" dir="auto">`)
	markdown(o, whole)
	if tail != "" {
		o.lit(`<div class="tail">`)
		o.shown(tail)
		o.lit(`</div>`)
	}
	o.lit(`</div>`)
	o.clipped(len(text))
}

// stepFinish writes the cost and tokens of one step of the model.
func stepFinish(o *out, e *session.Entry, p fields) {
	partOpen(o, e, "step", p)
	o.lit(`<p class="note">`)
	used := tokensOf(p)
	sep := false
	item := func(s string) {
		if s == "" {
			return
		}
		if sep {
			o.lit(`, `)
		}
		o.text(s)
		sep = true
	}
	o.lit(`Step: `)
	item(p.at("reason").label())
	if used.any() {
		item(used.detail())
	}
	item(costText(p.at("cost").number()))
	o.lit(`</p>`)
	partClose(o)
}

// retryPart writes that a model's request was retried, and why.
func retryPart(o *out, e *session.Entry, p fields) {
	partOpen(o, e, "retry", p)
	o.lit(`<p class="note warn">Retried`)
	if n := p.at("attempt").label(); n != "" {
		o.lit(`, attempt `)
		o.text(n)
	}
	o.lit(`</p>`)
	errorBox(o, p.at("error"))
	partClose(o)
}

// patchPart writes the files that a step changed.
func patchPart(o *out, e *session.Entry, p fields) {
	partOpen(o, e, "patch", p)
	n := 0
	if files := p.at("files"); files.IsArray() {
		n = int(files.Get("#").Int())
	}
	o.lit(`<details class="card"><summary><span class="name">Patch</span><span class="what">`)
	o.text(plural(n, "file"))
	o.lit(`</span>`)
	o.element("code", "hash", oneLine(p.at("hash").text(), 10))
	o.lit(`</summary><div class="body"><ul class="files">`)
	more := p.at("files").each(func(_ string, f fields) {
		o.lit(`<li><code dir="auto">`)
		o.text(f.label())
		o.lit(`</code></li>`)
	})
	moreItems(o, more)
	o.lit(`</ul></div></details>`)
	partClose(o)
}

// subtaskPart writes the task given to another agent.
func subtaskPart(o *out, e *session.Entry, p fields) {
	partOpen(o, e, "subtask", p)
	o.lit(`<details class="card"><summary><span class="name">Subtask</span>`)
	o.element("span", "what", p.at("description").label())
	o.element("span", "tag", p.at("agent").label())
	o.lit(`</summary><div class="body">`)
	prose(o, p.at("prompt").text(), false)
	if command := p.at("command").text(); command != "" {
		o.lit(`<p class="label">Command</p>`)
		output(o, command)
	}
	o.lit(`</div></details>`)
	partClose(o)
}

// unknownPart writes a part of an unknown type: its text, if it has one, and the rest as JSON.
func unknownPart(o *out, e *session.Entry, p fields, kind string) {
	partOpen(o, e, "unknown", p)
	text := p.at("text")
	if kind = oneLine(kind, 40); kind == "" {
		kind = "Part"
	}
	if text.Type.String() == "String" {
		prose(o, text.text(), e.LastAppend != 0)
	}
	what := oneLine(e.Key, labelBytes)
	for _, name := range []fields{p.at("title"), p.at("name"), p.at("description")} {
		if label := name.label(); label != "" {
			what = label
			break
		}
	}
	rawCard(o, kind, what, p)
	partClose(o)
}

// moreItems writes how many items of a list are omitted.
func moreItems(o *out, more int) {
	if more > 0 {
		o.lit(`<li class="clip">and `)
		o.text(itoa(more))
		o.lit(` more</li>`)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}
