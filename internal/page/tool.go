package page

// Tool calls: a folded card with input and output. An error is below the card, visible without
// unfolding.

import (
	"strings"

	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// toolPart writes a tool call in any state.
func toolPart(o *markup.Out, e *session.Entry, p fields.Value) {
	state := p.At("state")
	status := state.At("status").Text()
	class, word := markup.HTML("tool"), markup.OneLine(status, 40)
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
	name := p.At("tool").Label()
	if name == "" {
		name = "tool"
	}
	partOpen(o, e, class, p)
	if started := state.At("metadata", "sessionId").Label(); started != "" { // opencode's task
		o.Lit(`<span hidden`)
		o.Attr("data-started", started)
		o.Lit(`></span>`)
	}
	o.Lit(`<details class="card"><summary><span class="name">`)
	o.Text(name)
	o.Lit(`</span>`)
	if what := toolTitle(name, state); what != "" {
		o.Lit(`<span class="what" dir="auto">`)
		o.Text(what)
		o.Lit(`</span>`)
	}
	if d := state.At("metadata", "filediff"); d.IsObject() {
		changeCount(o, d.At("additions").Number(), d.At("deletions").Number())
	}
	o.Element("span", "took", markup.SpanText(state.At("time", "start").Millis(), state.At("time", "end").Millis()))
	if exit := exitCode(state.At("metadata", "exit")); exit != "" {
		o.Element("span", "status odd", exit)
	}
	o.Element("span", "status", word)
	o.Lit(`</summary><div class="body">`)
	toolBody(o, name, state)
	o.Lit(`</div></details>`)
	errorBox(o, state.At("error"))
	partClose(o)
}

// toolTitle returns a one-line summary of a call.
func toolTitle(name string, state fields.Value) string {
	in := state.At("input")
	title := state.At("title").Label()
	switch strings.ToLower(name) {
	case "bash", "shell":
		if command := in.At("command").Label(); command != "" {
			return command
		}
	case "webfetch", "websearch", "grep", "glob", "list":
		for _, v := range []fields.Value{in.At("url"), in.At("query"), in.At("pattern"), in.At("path")} {
			if title == "" {
				title = v.Label()
			}
		}
	}
	for _, v := range []fields.Value{in.At("filePath"), in.At("description"), in.At("path")} {
		if title == "" {
			title = v.Label()
		}
	}
	return title
}

// toolBody writes input and output, those of known tools in a special form.
func toolBody(o *markup.Out, name string, state fields.Value) {
	in, meta := state.At("input"), state.At("metadata")
	result := state.At("output")
	switch strings.ToLower(name) {
	case "bash", "shell":
		section(o, "Command", in.At("description").Label())
		markup.CodeBlock(o, in.At("command").Text(), "bash")
		inputRest(o, in, "command", "description")
		if result.Empty() {
			result = meta.At("output")
		}
		section(o, "Output", "")
		markup.Output(o, result.Text())
	case "write":
		section(o, "File", in.At("filePath").Label())
		markup.CodeBlock(o, in.At("content").Text(), markup.LanguageOf(in.At("filePath").Text()))
		inputRest(o, in, "content", "filePath")
		toolOutput(o, result)
	case "edit", "multiedit", "patch", "apply_patch":
		if !toolDiff(o, in, meta) {
			input(o, in)
		}
		toolOutput(o, result)
	case "read":
		if text := meta.At("display", "text"); !text.Empty() {
			inputRest(o, in, "filePath")
			section(o, "Content", meta.At("display", "path").Label())
			markup.CodeBlock(o, text.Text(), markup.LanguageOf(in.At("filePath").Text()))
		} else {
			input(o, in)
			toolOutput(o, result)
		}
	case "todowrite", "todoread":
		todos := in.At("todos")
		if todos.Empty() {
			todos = meta.At("todos")
		}
		if !todoList(o, todos) {
			input(o, in)
			toolOutput(o, result)
		}
	case "task":
		section(o, "Task", in.At("subagent_type").Label())
		markup.Prose(o, in.At("prompt").Text(), false)
		inputRest(o, in, "prompt", "subagent_type", "description")
		toolOutput(o, result)
	default:
		input(o, in)
		toolOutput(o, result)
	}
	state.At("attachments").Each(func(_ string, a fields.Value) { file(o, a) })
}

// section writes a small heading in a card, with a remark.
func section(o *markup.Out, name markup.HTML, remark string) {
	o.Lit(`<p class="label">`, name)
	if remark != "" {
		o.Lit(` <span class="remark" dir="auto">`)
		o.Text(remark)
		o.Lit(`</span>`)
	}
	o.Lit(`</p>`)
}

func exitCode(exit fields.Value) string {
	if exit.Empty() || exit.Raw == "0" {
		return ""
	}
	return "exit " + markup.OneLine(exit.Text(), 20)
}

// input writes a call's arguments by name.
func input(o *markup.Out, in fields.Value) {
	if in.Empty() {
		return
	}
	section(o, "Input", "")
	if !in.IsObject() {
		markup.Output(o, in.Text())
		return
	}
	arguments(o, in, nil)
}

// inputRest writes the arguments not shown otherwise.
func inputRest(o *markup.Out, in fields.Value, without ...string) {
	if !in.IsObject() {
		input(o, in)
		return
	}
	arguments(o, in, without)
}

func arguments(o *markup.Out, in fields.Value, without []string) {
	opened := false
	more := in.Each(func(name string, v fields.Value) {
		for _, w := range without {
			if w == name {
				return
			}
		}
		if !opened {
			o.Lit(`<dl class="args">`)
			opened = true
		}
		o.Lit(`<div><dt dir="auto">`)
		o.Text(markup.OneLine(name, 80))
		o.Lit(`</dt><dd dir="auto">`)
		text := v.Text()
		if v.IsObject() || v.IsArray() {
			text = fields.Indented(markup.CutBytes(text, markup.ShownBytes), markup.ShownBytes)
		}
		o.Shown(text)
		o.Clipped(len(text))
		o.Lit(`</dd></div>`)
	})
	if opened {
		o.Lit(`</dl>`)
	}
	if more > 0 {
		o.Lit(`<p class="clip">and `)
		o.Text(itoa(more))
		o.Lit(` more</p>`)
	}
}

// toolOutput writes a call's output.
func toolOutput(o *markup.Out, result fields.Value) {
	if result.Empty() {
		return
	}
	section(o, "Output", "")
	text := result.Text()
	if result.IsObject() || result.IsArray() {
		text = fields.Indented(markup.CutBytes(text, markup.ShownBytes), markup.ShownBytes)
	}
	markup.Output(o, text)
}

// toolDiff writes the change made by an edit, from any of the fields that may have it.
func toolDiff(o *markup.Out, in, meta fields.Value) bool {
	if files := meta.At("files"); files.IsArray() && !files.Empty() {
		changes(o, files)
		return true
	}
	if d := meta.At("filediff"); d.IsObject() && (!d.At("patch").Empty() || !d.At("after").Empty() || !d.At("before").Empty()) {
		changeBody(o, d)
		return true
	}
	if d := meta.At("diff"); !d.Empty() && d.Type.String() == "String" {
		markup.Unified(o, d.Text())
		return true
	}
	if old, new := in.At("oldString"), in.At("newString"); !old.Empty() || !new.Empty() {
		section(o, "Change", in.At("filePath").Label())
		markup.Compare(o, old.Text(), new.Text())
		return true
	}
	for _, d := range []fields.Value{in.At("patchText"), in.At("patch")} {
		if !d.Empty() {
			markup.Unified(o, d.Text())
			return true
		}
	}
	return false
}

// todoList writes a list of todos.
func todoList(o *markup.Out, todos fields.Value) bool {
	if !todos.IsArray() || todos.Empty() {
		return false
	}
	o.Lit(`<ul class="todos">`)
	more := todos.Each(func(_ string, t fields.Value) {
		switch t.At("status").Text() {
		case "completed":
			o.Lit(`<li class="done"><span class="state completed">done</span> `)
		case "in_progress":
			o.Lit(`<li class="doing"><span class="state streaming">in progress</span> `)
		case "cancelled":
			o.Lit(`<li class="dropped"><span class="state aborted">cancelled</span> `)
		default:
			o.Lit(`<li><span class="state">to do</span> `)
		}
		o.Lit(`<span dir="auto">`)
		if content := t.At("content"); !content.Empty() {
			o.Text(markup.CutBytes(content.Text(), 4096))
		} else {
			o.Text(markup.CutBytes(t.Text(), 4096))
		}
		o.Lit(`</span></li>`)
	})
	moreItems(o, more)
	o.Lit(`</ul>`)
	return true
}
