package uimessage

// Parts that were made by a program with the AI SDK: values that pages show, and what these have no place for in their member
// uimessage.

import (
	"slices"
	"strings"
)

// shown are the types of parts of a session that a page shows in a way of their own, and that no part of a UIMessage becomes.
var shown = []string{"tool", "patch", "step-finish", "snapshot", "agent", "retry", "compaction", "subtask"}

// decodeForeign returns the members of a session's part that says what a part of a UIMessage does.
func decodeForeign(u object) object {
	var p, rest object
	kind := u.text("type")
	move := func(to *object, name, as string) {
		to.put(as, u.get(name))
		u = u.without(name)
	}
	switch {
	case kind == "text" || kind == "reasoning":
		p.putText("type", kind)
		move(&p, "text", "text")
	case kind == "file":
		p.putText("type", kind)
		move(&p, "mediaType", "mime")
		if isString(u.get("filename")) {
			move(&p, "filename", "filename")
		}
		move(&p, "url", "url")
	case kind == "step-start":
		p.putText("type", kind)
	case isTool(kind):
		p.putText("type", "tool")
		move(&p, "toolCallId", "callID")
		if kind == "dynamic-tool" {
			move(&p, "toolName", "tool")
		} else {
			p.putText("tool", strings.TrimPrefix(kind, "tool-"))
			rest.putText("type", kind)
		}
		p.put("state", decodeForeignState(&u, move))
		move(&rest, "state", "state")
	default:
		p.putText("type", kind)
		if slices.Contains(shown, kind) {
			p[0].value = quote("ui-" + kind)
		}
		if isString(u.get("title")) { // for pages
			p.put("title", u.get("title"))
		}
		rest.putText("type", kind)
	}
	p.put(foreign, append(rest, u.without("type")...).bytes())
	return p
}

// decodeForeignState returns the state of a session's tool, and moves what it has of the part u.
func decodeForeignState(u *object, move func(to *object, name, as string)) []byte {
	var state object
	is := u.text("state")
	state.putText("status", toolStatus[is])
	move(&state, "input", "input")
	if isString(u.get("title")) {
		move(&state, "title", "title")
	}
	switch is {
	case "output-available":
		move(&state, "output", "output")
	case "output-error":
		move(&state, "errorText", "error")
	case "output-denied":
		approval, _ := u.object("approval")
		why := approval.text("reason")
		if why == "" {
			why = "denied"
		}
		state.putText("error", why)
	}
	return state.bytes()
}

// encodeForeign returns the part of a UIMessage that became the part p with what is made in it.
func encodeForeign(p, made object) []byte {
	var out object
	set := func(name string, value []byte) {
		out.put(name, value)
		made = made.without(name)
	}
	kind := p.text("type")
	switch kind {
	case "text", "reasoning":
		set("type", p.get("type"))
		set("text", p.get("text"))
	case "file":
		set("type", p.get("type"))
		set("mediaType", p.get("mime"))
		if p.get("filename") != nil {
			set("filename", p.get("filename"))
		}
		set("url", p.get("url"))
	case "tool":
		state, _ := p.object("state")
		if made.get("type") == nil {
			set("type", quote("dynamic-tool"))
			set("toolName", p.get("tool"))
		} else {
			set("type", made.get("type"))
		}
		set("toolCallId", p.get("callID"))
		if state.get("title") != nil {
			set("title", state.get("title"))
		}
		is := made.text("state")
		if status := state.text("status"); toolStatus[is] != status && toolStates[status] != "" { // it has changed since
			is = toolStates[status]
		}
		set("state", quote(is))
		if state.get("input") != nil {
			set("input", state.get("input"))
		}
		switch is {
		case "output-available":
			set("output", state.get("output"))
		case "output-error":
			set("errorText", state.get("error"))
		}
	case "step-start":
		set("type", p.get("type"))
	default:
		if made.get("type") == nil {
			set("type", p.get("type"))
		} else {
			set("type", made.get("type"))
		}
	}
	return append(out, made...).bytes()
}
