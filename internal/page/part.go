package page

// A part of a message, by its type. Each is one element with its key; growing ones have the
// length of the text shown (data-len, in bytes of UTF-8). A file is shown only if it is a small image embedded in the
// payload: nothing is ever loaded from elsewhere.

import (
	"encoding/base64"
	"strings"

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// part writes a part of any type.
func part(o *markup.Out, e *session.Entry, p fields.Value) {
	switch kind := p.At("type").Text(); kind {
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
		o.Lit(`<p class="note">Snapshot `)
		o.Element("code", "hash", markup.OneLine(p.At("snapshot").Text(), 12))
		o.Lit(`</p>`)
		partClose(o)
	case "agent":
		partOpen(o, e, "mark", p)
		o.Lit(`<p class="note">Agent <strong dir="auto">@`)
		o.Text(p.At("name").Label())
		o.Lit(`</strong></p>`)
		partClose(o)
	case "retry":
		retryPart(o, e, p)
	case "compaction":
		partOpen(o, e, "compaction", p)
		if p.At("auto").Raw == "true" {
			o.Lit(`<p class="note">Context compacted automatically</p>`)
		} else {
			o.Lit(`<p class="note">Context compacted</p>`)
		}
		partClose(o)
	case "subtask":
		subtaskPart(o, e, p)
	default:
		unknownPart(o, e, p, kind)
	}
}

// partOpen begins a part's element.
func partOpen(o *markup.Out, e *session.Entry, class markup.HTML, p fields.Value) {
	m, id := partOf(e.Key)
	self := partID(m, id)
	o.Lit(`<section class="part `, class, `"`)
	o.Attr("id", self)
	o.Attr("data-key", e.Key)
	ordAttr(o, e.Ord)
	if class == "text" || class == "text aside" || class == "reasoning" || class == "unknown" { // they show their text
		if text := p.At("text"); text.Type.String() == "String" || !text.Exists() {
			o.Attr("data-len", itoa(len(text.Text())))
		}
	}
	if line := says(p); line != "" {
		o.Attr("data-says", line) // for the contents
	}
	o.Lit(`>`)
	if class != "step-start" && class != "step" {
		o.Link(self, "part")
	}
}

func partClose(o *markup.Out) { o.Lit(`</section>`) }

// textPart writes a text as markdown. While it grows, the text after the last complete paragraph
// is in the tail, to which the script appends.
func textPart(o *markup.Out, e *session.Entry, p fields.Value) {
	class := markup.HTML("text")
	if p.At("synthetic").Raw == "true" || p.At("ignored").Raw == "true" {
		class = "text aside"
	}
	partOpen(o, e, class, p)
	if class != "text" {
		o.Lit(`<p class="label">Added by the agent</p>`)
	}
	markup.Prose(o, p.At("text").Text(), e.LastAppend != 0)
	partClose(o)
}

// reasoningPart writes the model's reasoning, dimmed.
func reasoningPart(o *markup.Out, e *session.Entry, p fields.Value) {
	text := p.At("text").Text()
	partOpen(o, e, "reasoning", p)
	o.Lit(`<details class="think" open><summary><span class="name">Reasoning</span>`)
	o.Element("span", "took", markup.SpanText(p.At("time", "start").Millis(), p.At("time", "end").Millis()))
	o.Lit(`</summary>`)
	markup.Prose(o, text, e.LastAppend != 0)
	o.Lit(`</details>`)
	partClose(o)
}

// stepFinish writes the cost and tokens of one step of the model.
func stepFinish(o *markup.Out, e *session.Entry, p fields.Value) {
	partOpen(o, e, "step", p)
	o.Lit(`<p class="note">`)
	used := tokensOf(p)
	sep := false
	item := func(s string) {
		if s == "" {
			return
		}
		if sep {
			o.Lit(`, `)
		}
		o.Text(s)
		sep = true
	}
	o.Lit(`Step: `)
	item(p.At("reason").Label())
	if used.any() {
		item(used.detail())
	}
	item(markup.CostText(p.At("cost").Number()))
	o.Lit(`</p>`)
	partClose(o)
}

// retryPart writes that a model's request was retried, and why.
func retryPart(o *markup.Out, e *session.Entry, p fields.Value) {
	partOpen(o, e, "retry", p)
	o.Lit(`<p class="note warn">Retried`)
	if n := p.At("attempt").Label(); n != "" {
		o.Lit(`, attempt `)
		o.Text(n)
	}
	o.Lit(`</p>`)
	errorBox(o, p.At("error"))
	partClose(o)
}

// patchPart writes the files that a step changed.
func patchPart(o *markup.Out, e *session.Entry, p fields.Value) {
	partOpen(o, e, "patch", p)
	n := 0
	if files := p.At("files"); files.IsArray() {
		n = int(files.Get("#").Int())
	}
	o.Lit(`<details class="card"><summary><span class="name">Patch</span><span class="what">`)
	o.Text(markup.Plural(n, "file"))
	o.Lit(`</span>`)
	o.Element("code", "hash", markup.OneLine(p.At("hash").Text(), 10))
	o.Lit(`</summary><div class="body"><ul class="files">`)
	more := p.At("files").Each(func(_ string, f fields.Value) {
		o.Lit(`<li><code dir="auto">`)
		o.Text(f.Label())
		o.Lit(`</code></li>`)
	})
	moreItems(o, more)
	o.Lit(`</ul></div></details>`)
	partClose(o)
}

// subtaskPart writes the task given to another agent.
func subtaskPart(o *markup.Out, e *session.Entry, p fields.Value) {
	partOpen(o, e, "subtask", p)
	o.Lit(`<details class="card"><summary><span class="name">Subtask</span>`)
	o.Element("span", "what", p.At("description").Label())
	o.Element("span", "tag", p.At("agent").Label())
	o.Lit(`</summary><div class="body">`)
	markup.Prose(o, p.At("prompt").Text(), false)
	if command := p.At("command").Text(); command != "" {
		o.Lit(`<p class="label">Command</p>`)
		markup.Output(o, command)
	}
	o.Lit(`</div></details>`)
	partClose(o)
}

// unknownPart writes a part of an unknown type: its text, if it has one, and the rest as JSON.
func unknownPart(o *markup.Out, e *session.Entry, p fields.Value, kind string) {
	partOpen(o, e, "unknown", p)
	text := p.At("text")
	if kind = markup.OneLine(kind, 40); kind == "" {
		kind = "Part"
	}
	if text.Type.String() == "String" {
		markup.Prose(o, text.Text(), e.LastAppend != 0)
	}
	what := markup.OneLine(e.Key, markup.LabelBytes)
	for _, name := range []fields.Value{p.At("title"), p.At("name"), p.At("description")} {
		if label := name.Label(); label != "" {
			what = label
			break
		}
	}
	rawCard(o, kind, what, p)
	partClose(o)
}

// moreItems writes how many items of a list are omitted.
func moreItems(o *markup.Out, more int) {
	if more > 0 {
		o.Lit(`<li class="clip">and `)
		o.Text(itoa(more))
		o.Lit(` more</li>`)
	}
}

// partOf splits a part's key into message and part id.
func partOf(key string) (message, id string) {
	message, id, _ = strings.Cut(strings.TrimPrefix(key, "part/"), "/")
	return message, id
}

// file writes a file part, or a tool's attachment.
func file(o *markup.Out, p fields.Value) {
	name := p.At("filename").Label()
	if name == "" {
		name = p.At("source", "path").Label()
	}
	mime := markup.OneLine(p.At("mime").Text(), 80)
	address := p.At("url").Text()
	o.Lit(`<figure class="file">`)
	shown, tooLarge := image(address)
	if shown != "" {
		o.Lit(`<img loading="lazy" decoding="async"`)
		o.Attr("src", shown)
		if name != "" {
			o.Attr("alt", name)
		} else {
			o.Lit(` alt="An image without a name"`)
		}
		o.Lit(`>`)
	}
	o.Lit(`<figcaption>`)
	switch link := markup.Outside(address); {
	case link != "":
		o.Lit(`<a rel="nofollow noopener noreferrer ugc" target="_blank"`)
		o.Attr("href", link)
		o.Lit(` dir="auto">`)
		if name == "" {
			name = markup.OneLine(link, markup.LabelBytes)
		}
		o.Text(name)
		o.Lit(`</a>`)
	default:
		if name == "" {
			name = "File"
		}
		o.Lit(`<span class="name" dir="auto">`)
		o.Text(name)
		o.Lit(`</span>`)
	}
	o.Element("span", "tag", mime)
	if tooLarge {
		o.Lit(`<span class="clip">too large to show here</span>`)
	}
	o.Lit(`</figcaption></figure>`)
}

// imageBytes bounds an image in the page, in base64.
const imageBytes = 192 << 10

// image returns address if it is an image shown in the page: of a type that browsers only render,
// in base64, and of bounded size.
func image(address string) (src string, tooLarge bool) {
	for _, kind := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
		data, ok := strings.CutPrefix(address, "data:"+kind+";base64,")
		if !ok {
			continue
		}
		if len(data) > imageBytes {
			return "", true
		}
		if raw, err := base64.StdEncoding.DecodeString(data); err == nil && len(raw) > 0 {
			return "data:" + kind + ";base64," + data, false
		}
	}
	return "", false
}

// running reports whether a part is an unfinished tool call.
func running(p fields.Value) bool {
	status := p.At("state", "status").Text()
	return p.At("type").Text() == "tool" && (status == "running" || status == "pending")
}
