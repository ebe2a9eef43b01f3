package uimessage

// The parts of a session's message as parts of a UIMessage.

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// encodePart returns a part as the one or two parts of a UIMessage that have all of it.
func (of context) encodePart(id string, payload []byte) [][]byte {
	p, _ := parse(payload)
	if made, ok := p.object(foreign); ok {
		return [][]byte{encodeForeign(p, made)}
	}
	rest := p.without("id", "messageID")
	if p.text("sessionID") == of.session {
		rest = rest.without("sessionID")
	}
	kind := p.text("type")
	if kind == "" { // it stays in the data
		return [][]byte{dataPart("data-", id, rest)}
	}
	rest = rest.without("type")
	switch {
	case (kind == "text" && string(p.get("ignored")) != "true" || kind == "reasoning") && isString(p.get("text")):
		return [][]byte{of.encodeText(kind, id, rest)}
	case kind == "file" && isString(p.get("mime")) && isURL(p.text("url")):
		return [][]byte{encodeFile(id, rest)}
	case kind == "tool" && p.text("tool") != "":
		if state, ok := p.object("state"); ok {
			return encodeTool(id, rest, state)
		}
	case kind == "step-start":
		return [][]byte{[]byte(`{"type":"step-start"}`), dataPart(stepPart, id, rest)}
	}
	return [][]byte{dataPart("data-"+kind, id, rest)}
}

// dataPart returns a part that has no place of its own in a UIMessage.
func dataPart(kind, id string, data object) []byte {
	var out object
	out.putText("type", kind)
	out.putText("id", id)
	out.put("data", data.sorted().bytes())
	return out.bytes()
}

// encodeText returns a part text or reasoning.
func (of context) encodeText(kind, id string, rest object) []byte {
	var out object
	out.putText("type", kind)
	out.put("text", rest.get("text"))
	if time, ok := rest.object("time"); ok {
		state := "done"
		if !of.ended && time.get("end") == nil {
			state = "streaming"
		}
		out.putText("state", state)
	}
	out.put("providerMetadata", providerMetadata(id, rest.without("text")))
	return out.bytes()
}

// encodeFile returns a part file.
func encodeFile(id string, rest object) []byte {
	var out object
	out.putText("type", "file")
	out.put("mediaType", rest.get("mime"))
	if isString(rest.get("filename")) {
		out.put("filename", rest.get("filename"))
		rest = rest.without("filename")
	}
	out.put("url", rest.get("url"))
	out.put("providerMetadata", providerMetadata(id, rest.without("mime", "url")))
	return out.bytes()
}

// providerMetadata returns the metadata of a part, which opencode has from the AI SDK, with what else the part has.
func providerMetadata(id string, rest object) []byte {
	var out object
	if metadata, ok := providers(rest); ok {
		out, rest = metadata, rest.without("metadata")
	}
	out.put(own, append(object{{"id", quote(id)}}, rest.sorted()...).bytes())
	return out.bytes()
}

// providers returns the member metadata of a part, if it is what the AI SDK takes: an object of objects.
func providers(rest object) (metadata object, ok bool) {
	metadata, _ = rest.object("metadata")
	for _, m := range metadata {
		if !isObject(m.value) || m.name == own {
			return nil, false
		}
	}
	return metadata, len(metadata) > 0
}

// toolStates are the states of a tool's part by the status that the session has.
var toolStates = map[string]string{"pending": "input-streaming", "running": "input-available", "completed": "output-available", "error": "output-error"}

// changes are the members of a tool's metadata that have changes of files: opencode's edits have one.
var changes = []string{"files", "filediff"}

// encodeTool returns a part tool, and behind it the changes of files that it has made.
func encodeTool(id string, rest, state object) [][]byte {
	status := state.text("status")
	is := toolStates[status]
	call := rest.text("callID")
	if call == "" {
		call = id
	}
	var out object
	out.putText("type", "dynamic-tool")
	out.put("toolName", rest.get("tool"))
	out.putText("toolCallId", call)
	if isString(state.get("title")) {
		out.put("title", state.get("title"))
		state = state.without("title")
	}
	if is == "" {
		out.putText("state", toolStates["running"])
	} else {
		out.putText("state", is)
		state = state.without("status")
	}
	input := state.get("input")
	if input == nil {
		input = []byte("{}")
	}
	out.put("input", input)
	state = state.without("input")
	switch is {
	case "input-streaming":
		if state.text("raw") != "" {
			out.put("rawInput", state.get("raw"))
			state = state.without("raw")
		}
	case "output-available":
		output := state.get("output")
		if output == nil {
			output = []byte("null")
		}
		out.put("output", output)
		state = state.without("output")
	case "output-error":
		said := state.get("error")
		if isString(said) {
			state = state.without("error")
		} else if said = quote("failed"); state.get("error") != nil {
			said = quote(string(compact(state.get("error"))))
		}
		out.put("errorText", said)
	}
	if metadata, ok := providers(rest); ok {
		out.put("callProviderMetadata", metadata.bytes())
		rest = rest.without("metadata")
	}
	name, files := takeChanges(&state)
	parts := [][]byte{nil}
	mine := object{{"id", quote(id)}}
	if name != "" {
		mine.putText("diff", name)
		var data, diff object
		data.putText("toolCallId", call)
		data.put("files", files)
		diff.putText("type", diffPart)
		diff.put("data", data.bytes())
		parts = append(parts, diff.bytes())
	}
	mine.put("state", state.sorted().bytes())
	mine = append(mine, rest.without("diff", "state", "tool", "callID").sorted()...)
	out.put("toolMetadata", object{{own, mine.bytes()}}.bytes())
	parts[0] = out.bytes()
	return parts
}

// takeChanges takes the changes of files out of a tool's metadata. name is the member that they were, "" if there are none.
func takeChanges(state *object) (name string, files []byte) {
	metadata, _ := state.object("metadata")
	for _, name := range changes {
		files := metadata.get(name)
		switch list, isList := elements(files); {
		case name == "files" && isList && len(list) > 0:
		case name == "filediff" && isObject(files):
			files = array(files)
		default:
			continue
		}
		*state = append(state.without("metadata"), member{"metadata", metadata.without(name).bytes()})
		return name, files
	}
	return "", nil
}

// isURL reports whether JavaScript's URL certainly takes a text, without a base: the AI SDK makes one of each file's. Some that it
// would take are refused.
func isURL(text string) bool {
	scheme, rest, found := strings.Cut(text, ":")
	if u, err := url.Parse(text); !found || err != nil || !strings.EqualFold(u.Scheme, scheme) {
		return false
	}
	host, slashes := strings.CutPrefix(rest, "//")
	if i := strings.IndexAny(host, "/?#"); i >= 0 {
		host = host[:i]
	}
	switch strings.ToLower(scheme) {
	case "data", "blob":
		return true
	case "file":
		return slashes && host == ""
	case "http", "https", "ws", "wss", "ftp":
		return slashes && isHost(host)
	}
	return !slashes || host == "" || isHost(host)
}

// isHost reports whether a text is a host, with or without a port.
func isHost(text string) bool {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Zone() == ""
	}
	host, port, found := strings.Cut(text, ":")
	if _, err := strconv.ParseUint(port, 10, 16); found && err != nil {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return !found
	}
	name := func(r rune) bool {
		return r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	last := host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:] // a number there means an address
	return host != "" && strings.Trim(host, ".") != "" && strings.IndexFunc(host, func(r rune) bool { return !name(r) }) < 0 &&
		last != "" && (last[0] < '0' || last[0] > '9') && !strings.HasPrefix(strings.ToLower(host), "xn--") && !strings.Contains(strings.ToLower(host), ".xn--")
}
