package page

// Tool calls: a folded card with input and output. An error is below the card, visible without
// unfolding.

import (
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
)

// toolPart writes a tool call in any state.
func toolPart(o *out, e *session.Entry, p fields) {
	state := p.at("state")
	status := state.at("status").text()
	class, word := markup("tool"), oneLine(status, 40)
	switch status {
	case "pending":
		class = "tool pending"
	case "running":
		class = "tool running"
	case "completed":
		class = "tool completed"
	case "error":
		class, word = "tool failed", "failed"
	}
	name := p.at("tool").label()
	if name == "" {
		name = "tool"
	}
	partOpen(o, e, class, p)
	if started := state.at("metadata", "sessionId").label(); started != "" { // opencode's task
		o.lit(`<span hidden`)
		o.attr("data-started", started)
		o.lit(`></span>`)
	}
	o.lit(`<details class="card"><summary><span class="name">`)
	o.text(name)
	o.lit(`</span>`)
	if what := toolTitle(name, state); what != "" {
		o.lit(`<span class="what" dir="auto">`)
		o.text(what)
		o.lit(`</span>`)
	}
	if d := state.at("metadata", "filediff"); d.IsObject() {
		changeCount(o, d.at("additions").number(), d.at("deletions").number())
	}
	o.element("span", "took", spanText(state.at("time", "start").millis(), state.at("time", "end").millis()))
	if exit := exitCode(state.at("metadata", "exit")); exit != "" {
		o.element("span", "status odd", exit)
	}
	o.element("span", "status", word)
	o.lit(`</summary><div class="body">`)
	toolBody(o, name, state)
	o.lit(`</div></details>`)
	errorBox(o, state.at("error"))
	partClose(o)
}

// toolTitle returns a one-line summary of a call.
func toolTitle(name string, state fields) string {
	in := state.at("input")
	title := state.at("title").label()
	switch strings.ToLower(name) {
	case "bash", "shell":
		if command := in.at("command").label(); command != "" {
			return command
		}
	case "webfetch", "websearch", "grep", "glob", "list":
		for _, v := range []fields{in.at("url"), in.at("query"), in.at("pattern"), in.at("path")} {
			if title == "" {
				title = v.label()
			}
		}
	}
	for _, v := range []fields{in.at("filePath"), in.at("description"), in.at("path")} {
		if title == "" {
			title = v.label()
		}
	}
	return title
}

// toolBody writes input and output, those of known tools in a special form.
func toolBody(o *out, name string, state fields) {
	in, meta := state.at("input"), state.at("metadata")
	result := state.at("output")
	switch strings.ToLower(name) {
	case "bash", "shell":
		section(o, "Command", in.at("description").label())
		codeBlock(o, in.at("command").text(), "bash")
		inputRest(o, in, "command", "description")
		if result.empty() {
			result = meta.at("output")
		}
		section(o, "Output", "")
		output(o, result.text())
	case "write":
		section(o, "File", in.at("filePath").label())
		codeBlock(o, in.at("content").text(), languageOf(in.at("filePath").text()))
		inputRest(o, in, "content", "filePath")
		toolOutput(o, result)
	case "edit", "multiedit", "patch", "apply_patch":
		if !toolDiff(o, in, meta) {
			input(o, in)
		}
		toolOutput(o, result)
	case "read":
		if text := meta.at("display", "text"); !text.empty() {
			inputRest(o, in, "filePath")
			section(o, "Content", meta.at("display", "path").label())
			codeBlock(o, text.text(), languageOf(in.at("filePath").text()))
		} else {
			input(o, in)
			toolOutput(o, result)
		}
	case "todowrite", "todoread":
		todos := in.at("todos")
		if todos.empty() {
			todos = meta.at("todos")
		}
		if !todoList(o, todos) {
			input(o, in)
			toolOutput(o, result)
		}
	case "task":
		section(o, "Task", in.at("subagent_type").label())
		prose(o, in.at("prompt").text(), false)
		inputRest(o, in, "prompt", "subagent_type", "description")
		toolOutput(o, result)
	default:
		input(o, in)
		toolOutput(o, result)
	}
	state.at("attachments").each(func(_ string, a fields) { file(o, a) })
}

// section writes a small heading in a card, with a remark.
func section(o *out, name markup, remark string) {
	o.lit(`<p class="label">`, name)
	if remark != "" {
		o.lit(` <span class="remark" dir="auto">`)
		o.text(remark)
		o.lit(`</span>`)
	}
	o.lit(`</p>`)
}

func exitCode(exit fields) string {
	if exit.empty() || exit.Raw == "0" {
		return ""
	}
	return "exit " + oneLine(exit.text(), 20)
}

// input writes a call's arguments by name.
func input(o *out, in fields) {
	if in.empty() {
		return
	}
	section(o, "Input", "")
	if !in.IsObject() {
		output(o, in.text())
		return
	}
	arguments(o, in, nil)
}

// inputRest writes the arguments not shown otherwise.
func inputRest(o *out, in fields, without ...string) {
	if !in.IsObject() {
		input(o, in)
		return
	}
	arguments(o, in, without)
}

func arguments(o *out, in fields, without []string) {
	opened := false
	more := in.each(func(name string, v fields) {
		for _, w := range without {
			if w == name {
				return
			}
		}
		if !opened {
			o.lit(`<dl class="args">`)
			opened = true
		}
		o.lit(`<div><dt dir="auto">`)
		o.text(oneLine(name, 80))
		o.lit(`</dt><dd dir="auto">`)
		text := v.text()
		if v.IsObject() || v.IsArray() {
			text = indented(cutBytes(text, shownBytes), shownBytes)
		}
		o.shown(text)
		o.clipped(len(text))
		o.lit(`</dd></div>`)
	})
	if opened {
		o.lit(`</dl>`)
	}
	if more > 0 {
		o.lit(`<p class="clip">and `)
		o.text(itoa(more))
		o.lit(` more</p>`)
	}
}

// toolOutput writes a call's output.
func toolOutput(o *out, result fields) {
	if result.empty() {
		return
	}
	section(o, "Output", "")
	text := result.text()
	if result.IsObject() || result.IsArray() {
		text = indented(cutBytes(text, shownBytes), shownBytes)
	}
	output(o, text)
}

// longLines is the number of lines above which an output scrolls by itself.
const longLines = 24

// output writes text in fixed width.
func output(o *out, text string) {
	if strings.TrimSpace(text) == "" {
		o.lit(`<p class="clip">Nothing.</p>`)
		return
	}
	if len(text) > 8<<10 || strings.Count(text, "\n") > longLines {
		o.lit(`<pre class="output long" tabindex="0">`)
	} else {
		o.lit(`<pre class="output">`)
	}
	o.lit("\n") // HTML parsers drop the first line feed
	o.shown(strings.TrimRight(text, "\n"))
	o.lit(`</pre>`)
	o.clipped(len(text))
}

// toolDiff writes the change made by an edit, from any of the fields that may have it.
func toolDiff(o *out, in, meta fields) bool {
	if files := meta.at("files"); files.IsArray() && !files.empty() {
		changes(o, files)
		return true
	}
	if d := meta.at("filediff"); d.IsObject() && (!d.at("patch").empty() || !d.at("after").empty() || !d.at("before").empty()) {
		changeBody(o, d)
		return true
	}
	if d := meta.at("diff"); !d.empty() && d.Type.String() == "String" {
		unified(o, d.text())
		return true
	}
	if old, new := in.at("oldString"), in.at("newString"); !old.empty() || !new.empty() {
		section(o, "Change", in.at("filePath").label())
		compare(o, old.text(), new.text())
		return true
	}
	for _, d := range []fields{in.at("patchText"), in.at("patch")} {
		if !d.empty() {
			unified(o, d.text())
			return true
		}
	}
	return false
}

// todoList writes a list of todos.
func todoList(o *out, todos fields) bool {
	if !todos.IsArray() || todos.empty() {
		return false
	}
	o.lit(`<ul class="todos">`)
	more := todos.each(func(_ string, t fields) {
		switch t.at("status").text() {
		case "completed":
			o.lit(`<li class="done"><span class="state completed">done</span> `)
		case "in_progress":
			o.lit(`<li class="doing"><span class="state streaming">in progress</span> `)
		case "cancelled":
			o.lit(`<li class="dropped"><span class="state aborted">cancelled</span> `)
		default:
			o.lit(`<li><span class="state">to do</span> `)
		}
		o.lit(`<span dir="auto">`)
		if content := t.at("content"); !content.empty() {
			o.text(cutBytes(content.text(), 4096))
		} else {
			o.text(cutBytes(t.text(), 4096))
		}
		o.lit(`</span></li>`)
	})
	moreItems(o, more)
	o.lit(`</ul>`)
	return true
}
